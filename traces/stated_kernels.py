"""What a trace says that its kernels computed: those of perfc's own predictions.

A profiler knows a kernel's grid; perfc knows what it has priced, and writes that beside
the kernel: its signature.
"""

from __future__ import annotations

import marshal
from typing import Any, cast

import attrs

from perfc.ir import Kernel, Record, Work, record_of
from perfc.ir.support import VerifyError
from perfc.ir.text import json_of

SIGNATURE = "perfc kernel"
"""The argument of an event that holds it."""

_WORDS = ("op", "dtype", "math")
_AMOUNTS = ("flops", "bytes_read", "bytes_written")
_MOST = 1 << 62
"""Bound of sizes and of amounts of work: none is as large."""


@attrs.define(eq=False)
class StatedKernels:
    """Reads signatures, each distinct one once."""

    _known: dict[bytes, Kernel | None] = attrs.field(
        factory=dict[bytes, "Kernel | None"], init=False
    )

    def of(self, stated: object) -> Kernel | None:
        """Return the kernel of a signature; None if it is damaged, or not declared."""
        try:
            key = marshal.dumps(cast("Any", stated), 2)
            if key not in self._known:
                self._known[key] = None
                self._known[key] = _kernel(stated)
        except (ValueError, RecursionError):  # nested too deeply
            return None
        except VerifyError:  # another version, or a plugin, declares it otherwise
            return None
        return self._known[key]


def signature_text(kernel: Kernel) -> str:
    """Return the JSON that `StatedKernels` reads."""
    words = {key: getattr(kernel, key) for key in _WORDS}
    amounts = {key: getattr(kernel.work, key) for key in _AMOUNTS}
    return json_of(
        Record({**words, "params": kernel.params, **amounts, "known": kernel.known})
    )


def _kernel(stated: object) -> Kernel | None:
    if not isinstance(stated, dict):
        return None
    fields = cast("dict[str, Any]", stated)
    op, dtype, mode = (fields.get(key) for key in _WORDS)
    amounts = [fields.get(key) for key in _AMOUNTS]
    params, known = fields.get("params"), fields.get("known")
    if not (isinstance(op, str) and isinstance(dtype, str) and isinstance(mode, str)):
        return None
    if not all(type(amount) is int and 0 <= amount < _MOST for amount in amounts):
        return None
    if not (isinstance(params, dict) and isinstance(known, bool)):
        return None
    if not _is_sound(cast("object", params)):
        return None
    own = record_of(cast("dict[str, Any]", params))
    return Kernel(op, dtype, mode, own, Work(*cast("list[int]", amounts)), known)


def _is_sound(value: object) -> bool:
    """Whether numbers are some that a kernel can have."""
    if isinstance(value, dict):
        return all(map(_is_sound, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_is_sound, cast("list[object]", value)))
    if isinstance(value, int | float):
        return -_MOST < value < _MOST  # which a number that is none is not
    return True
