"""Kernels on CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.cpu.amounts import amounts_of
    from perfc.costmodels.cpu.cpu import CPU, shipped_terms
    from perfc.costmodels.cpu.memory import IN_PLACE, NEW, NEW_BYTES, makes_no_result
    from perfc.costmodels.cpu.rows import (
        SHIPPED_ROWS_FILE,
        shipped_rows,
        write_shipped_rows,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "amounts": ("amounts_of",),
            "cpu": ("CPU", "shipped_terms"),
            "memory": ("IN_PLACE", "NEW", "NEW_BYTES", "makes_no_result"),
            "rows": ("SHIPPED_ROWS_FILE", "shipped_rows", "write_shipped_rows"),
        },
    )

__all__ = [
    "CPU",
    "IN_PLACE",
    "NEW",
    "NEW_BYTES",
    "SHIPPED_ROWS_FILE",
    "amounts_of",
    "makes_no_result",
    "shipped_rows",
    "shipped_terms",
    "write_shipped_rows",
]
