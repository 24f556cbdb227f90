"""Numbers that data decide: how many rows a mask keeps, what a model reads back.

A capture has no data. A number is what the user says, or as many as there can be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs
import torch

from perfc.frontends.torch import values
from perfc.frontends.torch.internals import op, run_sized
from perfc.frontends.torch.weightless import META
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import Level


class UnknownValueError(Exception):
    """The model asks for elements of a tensor that nobody knows."""


@attrs.define(eq=False)
class _Count:
    """The number of one line of the model's; the line may run repeatedly."""

    name: str
    most: int = 0


@attrs.define(eq=False)
class Counts:
    """The numbers of one capture.

    Attributes:
        given: Numbers that the user says, by name.
        line: Returns the line of the model that runs.

    """

    given: Mapping[str, int]
    line: Callable[[], str]
    _counts: dict[tuple[str, str], _Count] = attrs.field(
        factory=dict[tuple[str, str], _Count], init=False
    )

    def take(self, label: str, most: int) -> int:
        """Return how many an op finds of *most* at the line that runs."""
        count = self._at(label)
        count.most = max(count.most, most)
        return min(self.given.get(count.name, most), most)

    def read(self, label: str, *, truth: bool = False) -> int:
        """Return a number that can be any.

        Raises:
            UnknownValueError: the user does not say it.

        """
        name = self._at(label).name
        if name not in self.given:
            said = f"--dim {name}=0 or --dim {name}=1" if truth else f"--dim {name}=N"
            raise unknown(label, said)
        return self.given[name]

    def _at(self, label: str) -> _Count:
        key = (label, self.line())
        if key not in self._counts:
            stem = label.rpartition("::")[2].strip("_")
            number = sum(stem == known.rpartition("::")[2] for known, _ in self._counts)
            self._counts[key] = _Count(f"{stem}_{number}" if number else stem)
        return self._counts[key]

    def remarks(self, model: str) -> list[Diagnostic]:
        """Return remarks on the numbers that were assumed."""
        names = {count.name: count for count in self._counts.values()}
        for name, number in self.given.items():
            if name not in names:
                known = ", ".join(sorted(names)) or "none: every size is fixed"
                msg = f"--dim {name}: {model} has no such dimension; it has {known}"
                raise PerfcError(msg)
            if 0 < names[name].most < number:
                msg = f"--dim {name}={number}: at most {names[name].most} can be found"
                raise PerfcError(msg)
        return [
            Diagnostic(
                Level.NOTE,
                "count-assumed",
                f"{label} is taken to find as many as there can be, {count.most}: "
                f"data decide it; set it with --dim {count.name}=N",
                line,
            )
            for (label, line), count in self._counts.items()
            if count.name not in self.given
        ]


_COUNTS: ContextVar[Counts | None] = ContextVar("_COUNTS", default=None)


@contextmanager
def counting(counts: Counts) -> Generator[None]:
    """Take the numbers that data decide from *counts*."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)


def number_read(label: str, dtype: torch.dtype) -> Any:
    """Return an element that nobody knows, if the user says it.

    Raises:
        UnknownValueError: the user does not.

    """
    counts = _COUNTS.get()
    if counts is None:
        raise unknown(label)
    said = counts.read(label, truth=dtype == torch.bool)
    return torch.tensor(said, dtype=dtype, device="cpu").item()


def unknown(label: str, option: str = "") -> UnknownValueError:
    """Say that an op reads elements, and by which option the user can say them."""
    said = f"; or say it with {option}" if option else ""
    return UnknownValueError(
        f"{label} reads elements of a tensor, which a capture does not have; what "
        "depends on data needs a fixed form, or arguments with real values that it "
        f"can be worked out from{said}"
    )


def counted(
    func: Any, label: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the results of an op of which data decide nothing but how many.

    Raises:
        UnknownValueError: they decide more, or nobody says how many.

    """
    counts = _COUNTS.get()
    if counts is None:
        raise unknown(label)
    if func in _ANY_SIZE:
        return args[0].new_empty(counts.read(label))
    rule = _RULES.get(func)
    if rule is not None:
        return rule(functools.partial(counts.take, label), *args, **kwargs)
    rows = next(
        (a.shape[0] for a in args if isinstance(a, torch.Tensor) and a.dim()), 0
    )
    return run_sized(func, lambda: counts.take(label, rows), args, kwargs)


Take = Callable[[int], int]
"""Returns how many there are, of as many as there can be."""


def _kept(take: Take, mask: torch.Tensor) -> int:
    """Return how many elements of a mask hold.

    From now on it is known which: they are spread evenly, and what the model makes of
    them elsewhere agrees with that.
    """
    known, most = values.value_of(mask), mask.numel()
    if known is not None:
        return int(known.count_nonzero())
    found = take(most)
    if most <= values.LIMIT:
        held = torch.zeros(most, dtype=mask.dtype, device="cpu")
        held[torch.arange(found, device="cpu") * most // max(found, 1)] = 1
        values.set_value(mask, held.view(mask.shape))
    return found


def _nonzero(take: Take, mask: torch.Tensor) -> torch.Tensor:
    made = torch.empty(mask.dim(), _kept(take, mask), dtype=torch.int64, device=META)
    return made.t()


def _masked_select(take: Take, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.new_empty(_kept(take, mask))


def _index(
    take: Take, x: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> torch.Tensor:
    """Replace masks by the places where they hold; other indices say how many."""
    masks = [i for i in indices if i is not None and i.dtype in _MASKS]
    if not masks:  # the indices do not fit
        raise LookupError
    sizes = {i.numel() for i in indices if i is not None and i.dtype not in _MASKS}
    found = max(sizes) if sizes - {1} else _kept(take, masks[0])
    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in _MASKS:
            places.append(index)
        else:
            one = torch.empty(found, dtype=torch.int64, device=META)
            places += [one] * index.dim()
    made: torch.Tensor = op("index.Tensor")(x, places)
    return made


_MASKS = (torch.bool, torch.uint8)


def _unique(
    take: Take, x: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, ...]:
    found = take(x.numel())
    counts = torch.empty(found, dtype=torch.int64, device=META)
    return (x.new_empty(found), x.new_empty(x.shape, dtype=torch.int64), counts)


def _unique_slices(
    take: Take, x: torch.Tensor, dim: int | None = None, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, ...]:
    if dim is None:
        return _unique(take, x)
    shape = list(x.shape)
    which = x.new_empty(shape[dim], dtype=torch.int64)
    shape[dim] = take(shape[dim])
    return (x.new_empty(shape), which, which.new_empty(shape[dim]))


def _unique_runs(
    take: Take,
    x: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[torch.Tensor, ...]:
    return _unique_slices(take, x, dim)


_RULES: Mapping[Any, Callable[..., Any]] = {
    op("nonzero"): _nonzero,
    op("masked_select"): _masked_select,
    op("index.Tensor"): _index,
    op("_unique"): _unique,
    op("_unique2"): _unique,
    op("unique_dim"): _unique_slices,
    op("unique_dim_consecutive"): _unique_slices,
    op("unique_consecutive"): _unique_runs,
}
"""What ops return that find no more than there is."""

_ANY_SIZE = frozenset({op("repeat_interleave.Tensor"), op("bincount")})
"""Ops that return a list of any length."""
