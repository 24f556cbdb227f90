"""What is priced, as tables of kernels, and the interface of cost models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.kernels.causal import executed_share, keys_per_tile
    from perfc.costmodels.kernels.columns import ColumnTable, KernelColumns
    from perfc.costmodels.kernels.extrapolation import (
        NOWHERE,
        PERFC_ROWS,
        extrapolation_remark,
        trust,
    )
    from perfc.costmodels.kernels.many_kernels import (
        column_table,
        configurations,
        kernels_of,
        token,
    )
    from perfc.costmodels.kernels.many_numbers import (
        Many,
        ManyError,
        SplitError,
        many,
        many_of,
        parted,
    )
    from perfc.costmodels.kernels.maths import ARRAYS, FLOATS, Maths, Number
    from perfc.costmodels.kernels.one_signature import OneSignature
    from perfc.costmodels.kernels.owner import (
        BringsBound,
        BringsIntervals,
        BringsOneBound,
        IntervalGroup,
        OneGroup,
    )
    from perfc.costmodels.kernels.protocol import (
        OF_BOARDS,
        OF_TARGET,
        SOFTWARE,
        CostModel,
        Estimate,
        Priced,
        Provenance,
        uniform_estimate,
    )
    from perfc.costmodels.kernels.signatures import (
        Flags,
        Floats,
        Indices,
        Signatures,
        Texts,
    )
    from perfc.costmodels.kernels.table import KernelTable, distinct, one_of
    from perfc.costmodels.kernels.work_bound import (
        memory_levels,
        moved_s,
        work_bound_s,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "causal": ("executed_share", "keys_per_tile"),
            "columns": ("ColumnTable", "KernelColumns"),
            "extrapolation": (
                "NOWHERE",
                "PERFC_ROWS",
                "extrapolation_remark",
                "trust",
            ),
            "many_kernels": (
                "column_table",
                "configurations",
                "kernels_of",
                "token",
            ),
            "many_numbers": (
                "Many",
                "ManyError",
                "SplitError",
                "many",
                "many_of",
                "parted",
            ),
            "maths": ("ARRAYS", "FLOATS", "Maths", "Number"),
            "one_signature": ("OneSignature",),
            "owner": (
                "BringsBound",
                "BringsIntervals",
                "BringsOneBound",
                "IntervalGroup",
                "OneGroup",
            ),
            "protocol": (
                "CostModel",
                "Estimate",
                "OF_BOARDS",
                "OF_TARGET",
                "Priced",
                "Provenance",
                "SOFTWARE",
                "uniform_estimate",
            ),
            "signatures": ("Flags", "Floats", "Indices", "Signatures", "Texts"),
            "table": ("KernelTable", "distinct", "one_of"),
            "work_bound": ("memory_levels", "moved_s", "work_bound_s"),
        },
    )

__all__ = [
    "ARRAYS",
    "FLOATS",
    "NOWHERE",
    "OF_BOARDS",
    "OF_TARGET",
    "PERFC_ROWS",
    "SOFTWARE",
    "BringsBound",
    "BringsIntervals",
    "BringsOneBound",
    "ColumnTable",
    "CostModel",
    "Estimate",
    "Flags",
    "Floats",
    "Indices",
    "IntervalGroup",
    "KernelColumns",
    "KernelTable",
    "Many",
    "ManyError",
    "Maths",
    "Number",
    "OneGroup",
    "OneSignature",
    "Priced",
    "Provenance",
    "Signatures",
    "SplitError",
    "Texts",
    "column_table",
    "configurations",
    "distinct",
    "executed_share",
    "extrapolation_remark",
    "kernels_of",
    "keys_per_tile",
    "many",
    "many_of",
    "memory_levels",
    "moved_s",
    "one_of",
    "parted",
    "token",
    "trust",
    "uniform_estimate",
    "work_bound_s",
]
