"""Split of rows, before anything is timed: some are fitted, some only reported.

The column `split` of a row says so, and everything that fits obeys it: a row that is
marked `test` reaches no parameter, no network, no interval and no table of measured
kernels, neither of `make fit` nor of `perfc calibrate`. It is only reported. So are
whole workloads, all of them: nothing is fitted to rows of `perfc.workloads/1`.
`split_of` marks kernels. Where a row has no mark, `perfc calibrate` takes that of
`split_of`, and `make fit` a split of its own (`benchmarks/training/samples.py`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from perfc.ir import AttrValue, Record

FIT = "fit"
"""Marks rows that may be fitted."""

TEST = "test"
"""Marks rows that are held out: reported, never fitted."""

_THIRD = 3
_SALT = "perfc split 1"


def split_of(name: str, params: Mapping[str, AttrValue]) -> str:
    """Return `test` for a random third of all shapes of an op or a model, else `fit`.

    Only sizes count, not the dtype, the phase, the algorithm or the device: a fit that
    has seen a shape in any of them has seen it.
    """
    return TEST if _number(name, params) % _THIRD == 0 else FIT


def fold_of(name: str, params: Mapping[str, AttrValue], folds: int) -> int:
    """Return which of *folds* parts a shape is in: its rows are left out together."""
    return _number(name, params) // _THIRD % folds


def _number(name: str, params: Mapping[str, AttrValue]) -> int:
    return zlib.crc32(shape_of(name, params).encode())


def shape_of(name: str, params: Mapping[str, AttrValue]) -> str:
    """Return the sizes of an op or a model as a text: one text, one split."""
    sizes = _sizes(Record(params))
    return json.dumps([_SALT, name, sizes], sort_keys=True)


def _sizes(value: AttrValue) -> object:
    """Return the numbers of a value, nested as it is."""
    if isinstance(value, Record):
        found = {key: _sizes(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None}
    if isinstance(value, tuple):
        return [_sizes(item) for item in value]
    return value if isinstance(value, int) and not isinstance(value, bool) else None
