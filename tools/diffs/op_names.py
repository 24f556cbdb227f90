"""Ops by plain names: those that differ in how a library or a version calls them."""

from __future__ import annotations

import functools
import re

_LIBRARY = re.compile(r"^_?(cudnn|miopen|native|thnn|mkldnn|fused|slow)_")
_SAME = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), "matmul"),
    **dict.fromkeys(("_to_copy", "copy"), "to"),
    "clamp_min": "relu",
    "reshape": "view",
}
"""Names of PyTorch's ops that compute the same, or are in each other."""


@functools.cache
def plain_op(name: str) -> str:
    """Return the name of an op without its library and its being in place."""
    space, sep, own = name.rpartition("::")
    if space not in ("aten", ""):
        return name
    own = _LIBRARY.sub("", own)
    if not own.startswith("_foreach"):
        own = own.removesuffix("_")
    return f"{space}{sep}{_SAME.get(own, own)}"
