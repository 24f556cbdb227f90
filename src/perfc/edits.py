"""Edits of a step, as values that `perfc.Oracle` is asked about.

    from perfc import edits
    oracle.ask(edits.Duration("gemm", factor=0.5))

Names are loaded when first used, so that `import perfc` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.oracle import (
        Apply,
        Bind,
        Dtype,
        Duration,
        Edit,
        Fuse,
        Place,
        Replace,
        Shard,
        Target,
    )

__all__ = [
    "Apply",
    "Bind",
    "Dtype",
    "Duration",
    "Edit",
    "Fuse",
    "Place",
    "Replace",
    "Shard",
    "Target",
]

if not TYPE_CHECKING:
    __getattr__ = door("perfc.tools.oracle", {"edits": tuple(__all__)})


def __dir__() -> list[str]:
    """Return the public names, those that are not loaded yet among them."""
    return __all__
