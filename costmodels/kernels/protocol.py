"""The cost-model interface: a table of kernel signatures in, arrays out."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.machine import Target
from perfc.ir import Kernel
from perfc.ir.kernels import BUILTIN_KERNELS, default_of
from perfc.ir.support import brief

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Texts = NDArray[np.str_]
Flags = NDArray[np.bool_]

T = TypeVar("T")

_NUMBERS = (int, float)

Kind: TypeAlias = tuple[str, str, str]
"""Op, dtype and math mode."""

SOFTWARE = "software"
"""Parameter of a kernel: the source of its row, which says who replayed the graph."""


def number_without(op: str, name: str) -> float:
    """Return the number that a kernel has which does not say a parameter."""
    known = _NUMBERS_WITHOUT.get((op, name))
    if known is not None:
        return known
    found = default_of(op, name)
    number = float(found) if isinstance(found, _NUMBERS) else 0.0
    if op in BUILTIN_KERNELS:
        _NUMBERS_WITHOUT[op, name] = number
    return number


_NUMBERS_WITHOUT: dict[tuple[str, str], float] = {}
"""Numbers of perfc's own kernels that were asked for: a formula asks for many."""


def text_without(op: str, name: str) -> str:
    """Return the word that a kernel has which does not say a parameter."""
    known = _TEXTS_WITHOUT.get((op, name))
    if known is not None:
        return known
    found = default_of(op, name)
    text = found if isinstance(found, str) else ""
    if op in BUILTIN_KERNELS:
        _TEXTS_WITHOUT[op, name] = text
    return text


_TEXTS_WITHOUT: dict[tuple[str, str], str] = {}
"""Words of perfc's own kernels that were asked for."""


class Provenance(enum.Enum):
    """Sources of a number, best first."""

    MEASURED = "measured"
    FITTED = "fitted"
    ANALYTIC = "analytic"
    ASSUMED = "assumed"


Number_co = TypeVar("Number_co", float, Floats, covariant=True)
"""Number of one kernel, or of many."""


class Signatures(Protocol[Number_co]):
    """Kernel signatures as formulas read them: one in numbers, many in arrays.

    A formula that reads these and computes by `maths` is written once: it takes a table
    (`KernelTable.signatures`), and one kernel (`OneSignature`).
    """

    @property
    def op(self) -> Texts | str:
        """Canonical name."""
        ...

    @property
    def math(self) -> Texts | str:
        """Math mode."""
        ...

    @property
    def flops(self) -> Number_co:
        """Flops."""
        ...

    @property
    def bytes_read(self) -> Number_co:
        """Bytes that must be read."""
        ...

    @property
    def bytes_written(self) -> Number_co:
        """Bytes that must be written."""
        ...

    @property
    def bytes(self) -> Number_co:
        """Bytes that must move, both ways."""
        ...

    def param(self, name: str, default: float | None = None) -> Number_co:
        """Return a numeric parameter; else *default*, if not as declared."""
        ...

    def text(self, name: str, default: str | None = None) -> Texts | str:
        """Return a parameter that is a word; else *default*, if not as declared."""
        ...

    def given(self, name: str) -> Flags | bool:
        """Whether there is a parameter, not none, zero, false or empty."""
        ...

    def runs_on(self, target: Target) -> Flags | bool:
        """Whether a target has the math mode."""
        ...

    def peak_flops_per_s(self, target: Target) -> Number_co:
        """Peak rate of a target in the math mode, FLOP/s."""
        ...

    def limit_flops_per_s(self, target: Target) -> Number_co:
        """Return the peak rate in FLOP/s, but no limit of what does not compute."""
        ...


@attrs.frozen(eq=False)
class KernelTable:
    """Distinct kernel signatures, as rows.

    A model that reads columns (`param`, `text`, `flops`, ...) rather than `kernels`
    prices millions of rows: a table of measured rows has columns only (`ColumnTable`),
    and makes its kernels one by one if a model asks for them.

    Attributes:
        kernels: The signatures.

    """

    kernels: Sequence[Kernel]
    _once: dict[object, Any] = attrs.field(
        factory=dict[object, Any], init=False, repr=False
    )

    def __len__(self) -> int:
        return len(self.kernels)

    def once(self, make: Callable[[KernelTable], T]) -> T:
        """Return *make* of this table, worked out when first asked for."""
        try:
            found: T = self._once[make]
        except KeyError:
            found = self._once[make] = make(self)
        return found

    @property
    def signatures(self) -> Signatures[Floats]:
        """The table as formulas read it."""
        # pyright takes no cached property for the property of a protocol.
        return cast("Signatures[Floats]", self)

    @functools.cached_property
    def flops(self) -> Floats:
        """Flops of each kernel."""
        return np.array([k.work.flops for k in self.kernels], dtype=np.float64)

    @functools.cached_property
    def bytes_read(self) -> Floats:
        """Bytes each kernel must read."""
        return np.array([k.work.bytes_read for k in self.kernels], dtype=np.float64)

    @functools.cached_property
    def bytes_written(self) -> Floats:
        """Bytes each kernel must write."""
        return np.array([k.work.bytes_written for k in self.kernels], dtype=np.float64)

    @property
    def bytes(self) -> Floats:
        """Bytes each kernel must move, both ways."""
        return self.bytes_read + self.bytes_written

    @functools.cached_property
    def op(self) -> Texts:
        """Canonical name of each kernel."""
        return _texts([k.op for k in self.kernels])

    @functools.cached_property
    def dtype(self) -> Texts:
        """What each kernel's tensors are stored in."""
        return _texts([k.dtype for k in self.kernels])

    @functools.cached_property
    def math(self) -> Texts:
        """Math mode of each kernel."""
        return _texts([k.math for k in self.kernels])

    @functools.cached_property
    def known(self) -> Flags:
        """Whether each kernel's op has a model."""
        return np.array([k.known for k in self.kernels], dtype=np.bool_)

    @functools.cached_property
    def kinds(self) -> tuple[list[Kind], Indices]:
        """The ops, dtypes and math modes that occur, and which each kernel has."""
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
        other = self._default(name, number_without) if default is None else default
        if other is not None:
            numbers = [
                value if isinstance(value := read(name, other), _NUMBERS) else other
                for read in self._readers
            ]
            return np.array(numbers, dtype=np.float64)
        each = zip(self._readers, self._defaults(name, number_without), strict=True)
        return np.array(
            [v if isinstance(v := read(name), _NUMBERS) else d for read, d in each],
            dtype=np.float64,
        )

    def text(self, name: str, default: str | None = None) -> Texts:
        """Return one parameter of every kernel that is a word; as `param`."""
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
        return np.array(
            [bool(read(name, None)) for read in self._readers], dtype=np.bool_
        )

    def peak_flops_per_s(self, target: Target) -> Floats:
        """Peak rate of *target* in each kernel's math mode, FLOP/s."""
        modes, at = distinct(self.math)
        peaks = [target.peak(mode) for mode in modes]
        return np.array(peaks, dtype=np.float64)[at]

    def runs_on(self, target: Target) -> Flags:
        """Whether a target has each kernel's math mode."""
        modes, at = distinct(self.math)
        has = [mode in target.device.flops_per_s for mode in modes]
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
        """Return some of the rows."""
        indices: list[int] = rows.tolist()
        return KernelTable([self.kernels[i] for i in indices])


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


OF_TARGET = SESSION, BOARD, ARCHITECTURE, CLOCK = (
    "session",
    "board",
    "architecture",
    "clock",
)
"""Why kernels of one op and math mode are off together on a target, in the order of
`Estimate.sigma_target`: its software and the day, the board of a chip, a chip without
rows, and the clock under a power cap."""

OF_BOARDS = [OF_TARGET.index(BOARD), OF_TARGET.index(ARCHITECTURE)]
"""Reasons that a board has not which was measured itself."""


def _sure(estimate: Estimate) -> Floats:
    return np.zeros((len(OF_TARGET), len(estimate.seconds)))


@attrs.frozen(eq=False)
class Estimate:
    """What one model says of a table, row by row.

    Attributes:
        seconds: Predicted duration on an idle device.
        sigma_shared: Relative uncertainty (standard deviation of the logarithm)
            common to all kernels of this model on this target: an efficiency
            that is wrong for one is wrong for all.
        sigma_independent: Relative uncertainty of each kernel on its own.
        model: Name of the model, row by row.
        provenance: Where the number comes from, row by row.
        sigma_target: Relative uncertainty by `OF_TARGET` that kernels of one op and
            math mode share on this target, shape (4, rows); pricing puts it in
            for perfc's own models.

    """

    __repr__ = brief

    seconds: Floats
    sigma_shared: Floats
    sigma_independent: Floats
    model: Sequence[str]
    provenance: Sequence[Provenance]
    sigma_target: Floats = attrs.Factory(_sure, takes_self=True)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def sigma_common(self) -> Floats:
        """What each row shares with others, whatever the reason, shape (rows,)."""
        of_target = np.square(self.sigma_target).sum(axis=0)
        found: Floats = np.sqrt(np.square(self.sigma_shared) + of_target)
        return found

    @property
    def sigma(self) -> Floats:
        """All of each row's uncertainty, shape (rows,)."""
        found: Floats = np.hypot(self.sigma_common, self.sigma_independent)
        return found

    def take(self, rows: Indices) -> Estimate:
        """Return some of the rows."""
        chosen: list[int] = rows.tolist()
        return Estimate(
            self.seconds[rows],
            self.sigma_shared[rows],
            self.sigma_independent[rows],
            [self.model[row] for row in chosen],
            [self.provenance[row] for row in chosen],
            self.sigma_target[:, rows],
        )


class Priced(NamedTuple):
    """What a model says of one kernel; as `Estimate`."""

    seconds: float
    sigma_shared: float
    sigma_independent: float
    provenance: Provenance


def uniform_estimate(
    seconds: Floats,
    *,
    model: str,
    provenance: Provenance,
    sigma_shared: float,
    sigma_independent: float,
) -> Estimate:
    """Make an estimate whose uncertainty is the same for every row."""
    rows = len(seconds)
    return Estimate(
        seconds,
        np.full(rows, sigma_shared),
        np.full(rows, sigma_independent),
        [model] * rows,
        [provenance] * rows,
    )


class CostModel(Protocol):
    """Anything that can price kernels. Stateless; register an instance.

    Models are asked in order of falling priority; each prices the rows that it
    claims and nobody before it did.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def priority(self) -> int:
        """Higher is asked first; the roofline fallback has 0."""
        ...

    @property
    def ops(self) -> frozenset[str] | None:
        """Canonical kernel names it may claim; None for any."""
        ...

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Return which rows it prices. Cheap."""
        ...

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price every row (all claimed)."""
        ...
