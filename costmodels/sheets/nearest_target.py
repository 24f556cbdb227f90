"""What target a name means that is none: another spelling, or the words of a shop."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_MAKERS = frozenset(
    (
        *("amd", "corporation", "geforce", "gpu", "graphics", "instinct", "nvidia"),
        *("quadro", "radeon", "tensor", "core", "tesla"),
    )
)
_SIZE = re.compile(r"(?<=\d)\s*gi?b(?:ytes?)?\b")
_CUTOFF = 0.7


def nearest_target(name: str, known: Iterable[str]) -> str | None:
    """Return which of the names is meant by another one, if that is near.

    Words of makers count for nothing, nor do case, spaces and the unit of the memory:
    `NVIDIA A100 80GB` is `a100-80g`.
    """
    meant = {_plain(one): one for one in known}
    near = difflib.get_close_matches(_plain(name), meant, n=1, cutoff=_CUTOFF)
    return meant[near[0]] if near else None


def _plain(name: str) -> str:
    words = re.findall(r"[^\W_]+", _SIZE.sub("g", name.lower()))
    return " ".join(sorted(set(words) - _MAKERS))
