"""Fully sharded data parallelism: gathered parameters, scattered gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.fsdp.fsdp import Fsdp
    from perfc.passes.parallel.fsdp.regather import Regather
else:
    __getattr__ = door(
        __name__,
        {
            "fsdp": ("Fsdp",),
            "regather": ("Regather",),
        },
    )

__all__ = [
    "Fsdp",
    "Regather",
]
