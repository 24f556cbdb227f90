"""From measured rows to a profile: what the fits of perfc share."""

from __future__ import annotations

from perfc.fitting.collective_profile import CollectiveFit, fit_collectives
from perfc.fitting.device import DeviceFit, FamilyFit, fit_device
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.host import HostFit, fit_host
from perfc.fitting.least_squares import fit_terms
from perfc.fitting.machine import calibrated_sheet, machine_fields, measured_rates
from perfc.fitting.measured import measured_table
from perfc.fitting.near_products import product_factors, product_fits
from perfc.fitting.near_rows import fit_near_rows
from perfc.fitting.observations import (
    LONG_EVENT_US,
    Observations,
    is_fitted,
    observe,
)
from perfc.fitting.popularity_fit import PopularityFit, fit_popularity, histogram_of
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.scores import (
    HELD,
    Z90,
    GroupKey,
    GroupScore,
    TablePricer,
    coverage,
    groups_of,
    known_target,
    score,
    stated,
)
from perfc.fitting.shipped_rows import logs_of
from perfc.fitting.stack_distance import MissCurve, miss_curve_of, stack_distances
from perfc.fitting.trace_host import (
    BETWEEN_GAPS,
    HostTime,
    Stall,
    fit_trace_host,
    host_times,
    op_name,
    session_sigma,
)

__all__ = [
    "BETWEEN_GAPS",
    "HELD",
    "LONG_EVENT_US",
    "Z90",
    "CollectiveFit",
    "DeviceFit",
    "Errors",
    "FamilyFit",
    "GroupKey",
    "GroupScore",
    "HostFit",
    "HostTime",
    "MissCurve",
    "Observations",
    "PopularityFit",
    "ProfileHead",
    "Stall",
    "TablePricer",
    "calibrated_sheet",
    "coverage",
    "errors_of",
    "fit_collectives",
    "fit_device",
    "fit_host",
    "fit_near_rows",
    "fit_popularity",
    "fit_terms",
    "fit_trace_host",
    "groups_of",
    "histogram_of",
    "host_times",
    "is_fitted",
    "known_target",
    "logs_of",
    "machine_fields",
    "measured_rates",
    "measured_table",
    "miss_curve_of",
    "observe",
    "op_name",
    "product_factors",
    "product_fits",
    "profile_text",
    "score",
    "session_sigma",
    "stack_distances",
    "stated",
]
