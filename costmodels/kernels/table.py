"""Distinct kernel signatures, as rows."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, TypeVar, cast, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels.signatures import (
    NUMBERS,
    Flags,
    Floats,
    Indices,
    Kind,
    Signatures,
    Texts,
    number_without,
    text_without,
)
from perfc.costmodels.machine import Target
from perfc.ir import Kernel

T = TypeVar("T")
Scalar = TypeVar("Scalar", bound=np.generic)


@attrs.frozen(eq=False)
class KernelTable:
    """Distinct kernel signatures, as rows.

    A model that reads columns (`param`, `text`, `flops`, ...) rather than `kernels`
    prices millions of rows: a table of measured rows has columns only (`ColumnTable`),
    and makes its kernels one by one if a model asks for them.

    Columns are kept when they are read, as is what is made of them (`once`): a table
    that is priced on several targets is read once. Parameters cannot be written to.

    Attributes:
        kernels: The signatures.

    """

    has_columns_only: ClassVar[bool] = False
    kernels: Sequence[Kernel]
    _once: dict[object, Any] = attrs.field(
        factory=dict[object, Any], init=False, repr=False
    )
    _taken: tuple[weakref.ref[KernelTable], Indices] | None = attrs.field(
        default=None, init=False, repr=False
    )
    """The table whose rows it has some of, and which; None: it was not taken."""

    def __len__(self) -> int:
        return len(self.kernels)

    def once(self, make: Callable[[KernelTable], T]) -> T:
        """Return *make* of this table, worked out when first asked for."""
        return self._kept(make, make, self)

    def once_of_whole(
        self, make: Callable[[KernelTable], T]
    ) -> tuple[T, Indices] | None:
        """Return *make* of the table that this was taken from, and the rows taken.

        None: that was not asked for there, or it was not taken.
        """
        if (whole := self._whole) is None:
            return None
        found = whole.made(make)
        return None if found is None else (found, self._rows)

    def made(self, make: Callable[[KernelTable], T]) -> T | None:
        """Return *make* of this table if it was asked for before."""
        found: T | None = self._once.get(make)
        return found

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out what was worked out."""
        fields = attrs.fields(type(self))
        given = (getattr(self, field.name) for field in fields if field.init)
        return type(self), tuple(given)

    @property
    def _whole(self) -> KernelTable | None:
        """The table that this was taken from, if it is still there: it has columns."""
        return None if self._taken is None else self._taken[0]()

    @property
    def _rows(self) -> Indices:
        """The rows that were taken."""
        return cast("tuple[object, Indices]", self._taken)[1]

    def _kept(self, key: object, make: Callable[..., T], *given: object) -> T:
        try:
            found: T = self._once[key]
        except KeyError:
            found = self._once[key] = make(*given)
        return found

    def _column(
        self, key: object, read: Callable[..., NDArray[Scalar]], *given: object
    ) -> NDArray[Scalar]:
        """Return a column, read when first asked for, which nobody can write to."""

        def column() -> NDArray[Scalar]:
            found = read(*given).view()
            found.flags.writeable = False
            return found

        return self._kept(key, column)

    @property
    def signatures(self) -> Signatures[Floats]:
        """The table as formulas read it."""
        # pyright takes no cached property for the property of a protocol.
        return cast("Signatures[Floats]", self)

    @functools.cached_property
    def flops(self) -> Floats:
        """Flops of each kernel."""
        if (whole := self._whole) is not None:
            return whole.flops[self._rows]
        return np.array([k.work.flops for k in self.kernels], dtype=np.float64)

    @functools.cached_property
    def bytes_read(self) -> Floats:
        """Bytes each kernel must read."""
        if (whole := self._whole) is not None:
            return whole.bytes_read[self._rows]
        return np.array([k.work.bytes_read for k in self.kernels], dtype=np.float64)

    @functools.cached_property
    def bytes_written(self) -> Floats:
        """Bytes each kernel must write."""
        if (whole := self._whole) is not None:
            return whole.bytes_written[self._rows]
        return np.array([k.work.bytes_written for k in self.kernels], dtype=np.float64)

    @functools.cached_property
    def bytes(self) -> Floats:
        """Bytes each kernel must move, both ways."""
        return self.bytes_read + self.bytes_written

    @functools.cached_property
    def op(self) -> Texts:
        """Canonical name of each kernel."""
        return self._of_kinds(0)

    @functools.cached_property
    def dtype(self) -> Texts:
        """What each kernel's tensors are stored in."""
        return self._of_kinds(1)

    @functools.cached_property
    def math(self) -> Texts:
        """Math mode of each kernel."""
        return self._of_kinds(2)

    def _of_kinds(self, place: int) -> Texts:
        kinds, at = self.kinds
        words = [kind[place] for kind in kinds]
        if len({*words}) <= 1:  # the usual one
            return np.full(len(at), words[0] if words else "")
        return np.array(words, dtype=np.str_)[at]

    @functools.cached_property
    def known(self) -> Flags:
        """Whether each kernel's op has a model."""
        if (whole := self._whole) is not None:
            return whole.known[self._rows]
        return np.array([k.known for k in self.kernels], dtype=np.bool_)

    @functools.cached_property
    def kinds(self) -> tuple[list[Kind], Indices]:
        """The ops, dtypes and math modes that occur, and which each kernel has."""
        if (whole := self._whole) is not None:
            return _used(whole.kinds, self._rows)
        known: dict[Kind, int] = {}
        at = [
            known.setdefault((k.op, k.dtype, k.math), len(known)) for k in self.kernels
        ]
        return list(known), np.array(at, dtype=np.intp)

    @functools.cached_property
    def _readers(self) -> list[Callable[..., object]]:
        return [kernel.params.reader for kernel in self.kernels]

    def param(self, name: str, default: float | None = None) -> Floats:
        """Return one numeric parameter of every kernel.

        Where a kernel does not say it, *default*; if there is none, what is declared.
        """
        return self._column(("param", name, default), self._param, name, default)

    def _param(self, name: str, default: float | None) -> Floats:
        other = self._default(name, number_without) if default is None else default
        if other is not None:
            numbers = [
                value if isinstance(value := read(name, other), NUMBERS) else other
                for read in self._readers
            ]
            return np.array(numbers, dtype=np.float64)
        each = zip(self._readers, self._defaults(name, number_without), strict=True)
        return np.array(
            [v if isinstance(v := read(name), NUMBERS) else d for read, d in each],
            dtype=np.float64,
        )

    def text(self, name: str, default: str | None = None) -> Texts:
        """Return one parameter of every kernel that is a word; as `param`."""
        return self._column(("text", name, default), self._text, name, default)

    def _text(self, name: str, default: str | None) -> Texts:
        other = self._default(name, text_without) if default is None else default
        if other is not None:
            values = [read(name, other) for read in self._readers]
            return _texts([v if isinstance(v, str) else other for v in values])
        each = zip(self._readers, self._defaults(name, text_without), strict=True)
        return _texts(
            [v if isinstance(v := read(name), str) else d for read, d in each]
        )

    def _default(self, name: str, declared: Callable[[str, str], T]) -> T | None:
        """Return the default of a parameter; None: not all kernels' are alike."""
        found = {declared(op, name) for op in self._ops}
        return found.pop() if len(found) == 1 else None

    def _defaults(self, name: str, declared: Callable[[str, str], T]) -> list[T]:
        kinds, at = self.kinds
        of_kinds = [declared(op, name) for op, _, _ in kinds]
        return [of_kinds[number] for number in at.tolist()]

    @functools.cached_property
    def _ops(self) -> frozenset[str]:
        return frozenset(op for op, _, _ in self.kinds[0])

    def given(self, name: str) -> Flags:
        """Whether every kernel has a parameter, not none, zero, false or empty."""
        return self._column(("given", name), self._given, name)

    def _given(self, name: str) -> Flags:
        return np.array(
            [bool(read(name, None)) for read in self._readers], dtype=np.bool_
        )

    def values(self, name: str) -> list[Any]:
        """Return one parameter of every kernel as it is, None of one without it."""
        return [read(name) for read in self._readers]

    def peak_flops_per_s(self, target: Target) -> Floats:
        """Peak rate of *target* in each kernel's math mode, FLOP/s."""
        kinds, at = self.kinds
        peaks = [target.peak(mode) for _, _, mode in kinds]
        return np.array(peaks, dtype=np.float64)[at]

    def runs_on(self, target: Target) -> Flags:
        """Whether a target has each kernel's math mode."""
        kinds, at = self.kinds
        has = [mode in target.device.flops_per_s for _, _, mode in kinds]
        return np.array(has, dtype=np.bool_)[at]

    def limit_flops_per_s(self, target: Target) -> Floats:
        """Return the peak rate of each kernel, but no limit of what does not compute.

        A math mode that the target has not matters only to kernels that compute.
        """
        (kinds, at), computing = self.kinds, self.flops > 0
        counts = np.bincount(at[computing], minlength=len(kinds)).tolist()
        peaks = [
            target.peak(math) if count else np.inf
            for (_, _, math), count in zip(kinds, counts, strict=True)
        ]
        limits: Floats = np.array(peaks, dtype=np.float64)[at]
        limits[~computing] = np.inf
        return limits

    def with_param(self, name: str, values: Flags | Floats | Texts) -> KernelTable:
        """Return the table with one more parameter of every kernel."""
        flagged = zip(self.kernels, values.tolist(), strict=True)
        return KernelTable(
            [
                attrs.evolve(kernel, params=kernel.params.updated(**{name: value}))
                for kernel, value in flagged
            ]
        )

    def take(self, rows: Indices) -> KernelTable:
        """Return some of the rows; the same table where they are the same."""
        return self._kept(("take", rows.tobytes()), self._take, rows)

    def _take(self, rows: Indices) -> KernelTable:
        kernels, indices = self.kernels, cast("list[int]", rows.tolist())
        return self._part(KernelTable([kernels[i] for i in indices]), rows)

    def _part(self, part: KernelTable, rows: Indices) -> KernelTable:
        """Let a table of some of the rows, which nobody has seen, know this one."""
        # Not the table itself: it keeps its parts, and none of them is to keep it.
        object.__setattr__(part, "_taken", (weakref.ref(self), rows))
        return part


def _used(
    kinds: tuple[list[Kind], Indices], rows: Indices
) -> tuple[list[Kind], Indices]:
    """Return the kinds that some rows have, and which each of them has."""
    every, places = kinds
    at = places[rows]
    counts: list[int] = np.bincount(at, minlength=len(every)).tolist()
    if all(counts):
        return every, at
    used = [number for number, count in enumerate(counts) if count]
    if len(used) == 1:
        return [every[used[0]]], np.zeros(len(at), dtype=np.intp)
    numbers = np.zeros(len(every), dtype=np.intp)
    numbers[used] = np.arange(len(used))
    return [every[number] for number in used], numbers[at]


def distinct(words: Texts) -> tuple[list[str], Indices]:
    """Return the few words that occur, and which of them each one is.

    Comparing with each takes a tenth of the sorting that `return_inverse` does.
    """
    at = np.zeros(len(words), dtype=np.intp)
    if len(words) and (words == words[0]).all():  # the usual one: no table is needed
        return [str(words[0])], at
    found = sorted({*words.tolist()})
    for number, word in enumerate(found[1:], 1):
        at[words == word] = number
    return found, at


@overload
def one_of(words: str, chosen: Collection[str]) -> bool: ...


@overload
def one_of(words: Texts, chosen: Collection[str]) -> Flags: ...


def one_of(words: Texts | str, chosen: Collection[str]) -> Flags | bool:
    """Whether each word is one of those chosen: few, so that comparing is quick."""
    if isinstance(words, str):
        return words in chosen
    found = np.zeros(len(words), dtype=np.bool_)
    for word in chosen:
        found |= words == word
    return found


def _texts(values: list[str]) -> Texts:
    # Most often all are alike, which is sooner seen than copied.
    if values and values.count(values[0]) == len(values):
        return np.full(len(values), values[0])
    return np.array(values, dtype=np.str_)
