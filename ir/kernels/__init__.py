"""Kernels as they are declared: their parameters, one module a family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.ir.kernels.definition import (
        COMMON,
        REQUIRED,
        WRITERS,
        KernelDef,
        KernelParam,
        ParamType,
    )
    from perfc.ir.kernels.registry import (
        BUILTIN_KERNELS,
        check_declarations,
        check_params,
        declared_kernels,
        default_of,
        kernel_def,
    )
    from perfc.ir.kernels.tables import TABLE_FIELDS
else:
    __getattr__ = door(
        __name__,
        {
            "definition": (
                "COMMON",
                "KernelDef",
                "KernelParam",
                "ParamType",
                "REQUIRED",
                "WRITERS",
            ),
            "registry": (
                "BUILTIN_KERNELS",
                "check_declarations",
                "check_params",
                "declared_kernels",
                "default_of",
                "kernel_def",
            ),
            "tables": ("TABLE_FIELDS",),
        },
    )

__all__ = [
    "BUILTIN_KERNELS",
    "COMMON",
    "REQUIRED",
    "TABLE_FIELDS",
    "WRITERS",
    "KernelDef",
    "KernelParam",
    "ParamType",
    "check_declarations",
    "check_params",
    "declared_kernels",
    "default_of",
    "kernel_def",
]
