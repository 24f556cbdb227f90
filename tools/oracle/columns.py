"""Columns of a batch: what varies from one configuration to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats
from perfc.costmodels.sheets import FIELDS
from perfc.ir import UsageError
from perfc.tools import edits
from perfc.tools.given import closest

Array: TypeAlias = NDArray[Any]

DIM, _US, _FACTOR = "dim:", "us:", "factor:"
_WORDS = ("batch", "dtype")
_EXPECTED = (
    "expected batch, dtype, dim:NAME, a field of a target as gpu.memory_gb_per_s, "
    "us:NODE or factor:NODE"
)


@attrs.frozen(eq=False)
class Timed:
    """A column of durations.

    Attributes:
        where: What it is about.
        values: Microseconds, or factors.
        sets: Whether they are microseconds.

    """

    where: str
    values: Floats
    sets: bool


@attrs.frozen(eq=False)
class Columns:
    """What varies, one value a configuration.

    Attributes:
        count: How many configurations there are.
        settings: Sizes, types and fields of the target, by name.
        durations: Durations, in order.

    """

    count: int
    settings: Mapping[str, Array]
    durations: tuple[Timed, ...]

    @classmethod
    def read(cls, given: object) -> Columns:
        """Read what a batch is asked about."""
        if not isinstance(given, Mapping) or not given:
            msg = (
                "Oracle.batch: expected a mapping from columns to arrays, as "
                "{'batch': [64, 128]}"
            )
            raise UsageError(msg)
        columns = {
            _name(name): _array(str(name), values)
            for name, values in cast("Mapping[object, object]", given).items()
        }
        count = _common_length(columns)
        settings: dict[str, Array] = {}
        durations: list[Timed] = []
        for name, values in columns.items():
            kind, _, where = name.partition(":")
            if f"{kind}:" in {_US, _FACTOR}:
                durations.append(Timed(where, _amounts(name, values), kind == "us"))
            else:
                settings[name] = values
        return cls(count, settings, tuple(durations))

    def take(self, rows: NDArray[np.intp]) -> Columns:
        """Return some of the configurations."""

        def chosen(values: Array) -> Array:
            return values[rows] if values.ndim else values

        settings = {name: chosen(values) for name, values in self.settings.items()}
        timed = [attrs.evolve(t, values=chosen(t.values)) for t in self.durations]
        return Columns(len(rows), settings, tuple(timed))

    def distinct(self) -> tuple[list[dict[str, Any]], NDArray[np.intp]]:
        """Return the settings that differ, and which one each configuration has."""
        which = np.zeros(self.count, dtype=np.intp)
        made: list[dict[str, Any]] = [{}]
        for name, column in self.settings.items():
            found, place = np.unique(column, return_inverse=True)
            paired = which * len(found) + place.reshape(-1)
            codes, which = np.unique(paired, return_inverse=True)
            which = which.reshape(-1)
            values = found.tolist()
            made = [
                {**made[code // len(values)], name: values[code % len(values)]}
                for code in codes.tolist()
            ]
        return made, which


def edits_of(setting: Mapping[str, Any]) -> list[edits.Edit]:
    """Return the edits that lead to a setting."""
    made: list[edits.Edit] = []
    fields = {name: value for name, value in setting.items() if "." in name}
    if fields:
        made.append(edits.Target(**fields))
    if "dtype" in setting:
        made.append(edits.Dtype("*", setting["dtype"]))
    if any(map(is_size, setting)):
        made.append(bind_of(setting))
    return made


def is_size(name: str) -> bool:
    """Whether a column of settings is of sizes."""
    return name == "batch" or name.startswith(DIM)


def bind_of(setting: Mapping[str, Any]) -> edits.Bind:
    """Return the edit to the sizes of a setting."""
    dims = {
        name.removeprefix(DIM): value
        for name, value in setting.items()
        if name.startswith(DIM)
    }
    return edits.Bind(setting.get("batch"), dims)


def _name(name: object) -> str:
    known = isinstance(name, str) and (
        name in _WORDS
        or name in FIELDS
        or any(name.startswith(p) and name != p for p in (DIM, _US, _FACTOR))
    )
    if not known:
        hint = closest(str(name), [*_WORDS, *FIELDS])
        msg = f"column {name!r} is none of a batch: {_EXPECTED}{hint}"
        raise UsageError(msg)
    return str(name)


def _array(name: str, values: object) -> Array:
    try:
        found = np.asarray(values)
    except ValueError:  # of lists of different lengths
        found = np.empty((0, 0))
    if found.ndim > 1 or found.dtype.kind not in "iufUT":
        msg = (
            f"column {name!r}: expected one number (or word) a configuration, found "
            f"an array of {found.dtype} of shape {found.shape}"
        )
        raise UsageError(msg)
    return found


def _common_length(columns: Mapping[str, Array]) -> int:
    """Return how many configurations there are; numbers alone count for all."""
    lengths = {name: len(a) for name, a in columns.items() if a.ndim}
    count = max(lengths.values(), default=1)
    for name, length in lengths.items():
        if length != count:
            longest = next(n for n, found in lengths.items() if found == count)
            msg = (
                f"column {name!r} has {length} values, column {longest!r} has {count}: "
                "expected one a configuration in each"
            )
            raise UsageError(msg)
    return count


def _amounts(name: str, values: Array) -> Floats:
    if values.dtype.kind not in "iuf":
        msg = f"column {name!r}: expected numbers, found {values.dtype}"
        raise UsageError(msg)
    found = np.ascontiguousarray(values, dtype=np.float64)
    if found.size and not (found.min() >= 0 and found.max() < np.inf):
        at = int(np.argmin((found >= 0) & (found < np.inf)))
        msg = (
            f"column {name!r}: expected finite numbers, 0 or more; that of "
            f"configuration {at} is {found.reshape(-1)[at]}"
        )
        raise UsageError(msg)
    return found
