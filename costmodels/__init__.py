"""Descriptions of targets, and what a kernel costs on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.cpu import NEW, NEW_BYTES
    from perfc.costmodels.embedding import UVM_CACHING, device_bytes
    from perfc.costmodels.kernels import (
        Estimate,
        KernelTable,
        Provenance,
        uniform_estimate,
    )
    from perfc.costmodels.locality import (
        Histogram,
        distinct_rows,
        parse_popularity,
        unique_row_count,
    )
    from perfc.costmodels.machine import COLLECTIVES, Device, MeasuredKernels, Target
    from perfc.costmodels.power import Draws, draws_of
    from perfc.costmodels.pricing import (
        cost_models,
        find_cost_models,
        lower_bound,
        price,
    )
    from perfc.costmodels.sheets import (
        HostProfile,
        PerName,
        assumed_system,
        is_path,
        load_profile,
        load_target,
        target_names,
        target_of_device,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "cpu": ("NEW", "NEW_BYTES"),
            "embedding": ("UVM_CACHING", "device_bytes"),
            "kernels": ("Estimate", "KernelTable", "Provenance", "uniform_estimate"),
            "locality": (
                "Histogram",
                "distinct_rows",
                "parse_popularity",
                "unique_row_count",
            ),
            "machine": ("COLLECTIVES", "Device", "MeasuredKernels", "Target"),
            "power": ("Draws", "draws_of"),
            "pricing": ("cost_models", "find_cost_models", "lower_bound", "price"),
            "sheets": (
                "HostProfile",
                "PerName",
                "assumed_system",
                "is_path",
                "load_profile",
                "load_target",
                "target_names",
                "target_of_device",
            ),
        },
    )

__all__ = [
    "COLLECTIVES",
    "NEW",
    "NEW_BYTES",
    "UVM_CACHING",
    "Device",
    "Draws",
    "Estimate",
    "Histogram",
    "HostProfile",
    "KernelTable",
    "MeasuredKernels",
    "PerName",
    "Provenance",
    "Target",
    "assumed_system",
    "cost_models",
    "device_bytes",
    "distinct_rows",
    "draws_of",
    "find_cost_models",
    "is_path",
    "load_profile",
    "load_target",
    "lower_bound",
    "parse_popularity",
    "price",
    "target_names",
    "target_of_device",
    "uniform_estimate",
    "unique_row_count",
]
