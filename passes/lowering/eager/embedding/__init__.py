"""Kernels that look rows up, and that update them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.eager.embedding.far_lookup import (
        is_far,
        is_looked_up_elsewhere,
    )
    from perfc.passes.lowering.eager.embedding.rows import add_rows, distinct
    from perfc.passes.lowering.eager.embedding.tables import FEW_INDICES
else:
    __getattr__ = door(
        __name__,
        {
            "far_lookup": ("is_far", "is_looked_up_elsewhere"),
            "rows": ("add_rows", "distinct"),
            "tables": ("FEW_INDICES",),
        },
    )

__all__ = [
    "FEW_INDICES",
    "add_rows",
    "distinct",
    "is_far",
    "is_looked_up_elsewhere",
]
