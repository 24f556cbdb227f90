"""From measured rows to a profile: what the fits of perfc share."""

from __future__ import annotations

from perfc.fitting.collective_profile import CollectiveFit, fit_collectives
from perfc.fitting.device import DeviceFit, FamilyFit, fit_device
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.gemm import ProductRows, fit_gemm
from perfc.fitting.gemm_residual import fit_residual, fit_residuals
from perfc.fitting.host import HostFit, fit_host
from perfc.fitting.least_squares import fit_terms
from perfc.fitting.machine import calibrated_sheet, machine_fields, measured_rates
from perfc.fitting.measured import measured_table
from perfc.fitting.network_fit import write_networks
from perfc.fitting.observations import (
    DISPATCH_SHARE,
    LONG_EVENT_US,
    Observations,
    is_fitted,
    observe,
)
from perfc.fitting.popularity_fit import PopularityFit, fit_popularity, histogram_of
from perfc.fitting.product_fit import LeftOut, fit_products, left_out
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.scores import HELD, GroupKey, GroupScore, known_target, score
from perfc.fitting.shipped_rows import FamilyLogs, family_logs, fit_shipped_rows
from perfc.fitting.stack_distance import MissCurve, miss_curve_of, stack_distances
from perfc.fitting.trace_host import (
    BETWEEN_GAPS,
    HostTime,
    Stall,
    TraceHost,
    fit_trace_host,
    host_times,
    op_name,
    session_sigma,
)

__all__ = [
    "BETWEEN_GAPS",
    "DISPATCH_SHARE",
    "HELD",
    "LONG_EVENT_US",
    "CollectiveFit",
    "DeviceFit",
    "Errors",
    "FamilyFit",
    "FamilyLogs",
    "GroupKey",
    "GroupScore",
    "HostFit",
    "HostTime",
    "LeftOut",
    "MissCurve",
    "Observations",
    "PopularityFit",
    "ProductRows",
    "ProfileHead",
    "Stall",
    "TraceHost",
    "calibrated_sheet",
    "errors_of",
    "family_logs",
    "fit_collectives",
    "fit_device",
    "fit_gemm",
    "fit_host",
    "fit_popularity",
    "fit_products",
    "fit_residual",
    "fit_residuals",
    "fit_shipped_rows",
    "fit_terms",
    "fit_trace_host",
    "histogram_of",
    "host_times",
    "is_fitted",
    "known_target",
    "left_out",
    "machine_fields",
    "measured_rates",
    "measured_table",
    "miss_curve_of",
    "observe",
    "op_name",
    "profile_text",
    "score",
    "session_sigma",
    "stack_distances",
    "write_networks",
]
