"""The time of a step over a size: pieces along which one bottleneck decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from perfc.ir import Diagnostic, UsageError
from perfc.ir.support import Level
from perfc.tools import edits
from perfc.tools.given import MAX_DIM, whole
from perfc.tools.oracle.batch import TIME, batch
from perfc.tools.oracle.solved import Solved
from perfc.tools.oracle.state import State
from perfc.tools.reports import VerbResult, columns_text, format_us

_BATCH, _DIM = "batch", "dim:"
_GRID = 24
"""Sizes that are looked at first, in equal ratios."""
_BUDGET = 300
"""Sizes whose critical path is looked at, at most."""
_INSIDE = 8
"""Sizes inside a piece at which its formula is compared with the time."""
_NAMED = 3
"""Parts of a critical path that a piece names."""
_UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns"))


@attrs.frozen
class Piece:
    """A range of sizes with one bottleneck.

    Attributes:
        name: The size.
        low: Its first number.
        high: Its last one.
        low_us: Microseconds there.
        high_us: The same at the last one.
        bound: What limits most of the critical path: `host`, `compute`, `memory` or
            `network`.
        largest: What takes most of the critical path: `T1` to `T5` or kernels, the most
            first, at the last number.
        deviation: The largest relative difference of the formula from the time, of the
            sizes inside that were looked at.

    """

    name: str
    low: int
    high: int
    low_us: float
    high_us: float
    bound: str
    largest: tuple[str, ...]
    deviation: float

    @property
    def slope_us(self) -> float:
        """Microseconds for one more."""
        width = self.high - self.low
        return (self.high_us - self.low_us) / width if width else 0.0

    @property
    def offset_us(self) -> float:
        """Microseconds that do not follow the size."""
        return self.low_us - self.slope_us * self.low

    @property
    def formula(self) -> str:
        """The line through both ends, as text."""
        if not self.slope_us:
            return _quantity(self.low_us)
        sign = "-" if self.slope_us < 0 else "+"
        slope = f"{_quantity(abs(self.slope_us))} * {self.name}"
        return f"{_quantity(self.offset_us)} {sign} {slope}"

    def time_us(self, number: float) -> float:
        """Return the microseconds of a number by the formula."""
        return self.offset_us + self.slope_us * number


@attrs.frozen(eq=False, repr=False)
class Curve(VerbResult):
    """The time of a step over a size.

    Attributes:
        what: Model, target and runtime.
        name: The size.
        pieces: Pieces without gaps between them, in order.
        remarks: What there is to say about them.

    """

    schema: ClassVar[str] = "perfc.curve/1"
    what: str
    name: str
    pieces: tuple[Piece, ...]
    remarks: tuple[Diagnostic, ...] = ()

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """One row a piece, in order."""
        return [
            {**attrs.asdict(piece), "formula": piece.formula} for piece in self.pieces
        ]

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What there is to say about the pieces."""
        return self.remarks

    def _document(self) -> dict[str, Any]:
        return {"what": self.what, "name": self.name, "pieces": self.rows}

    def _text(self) -> str:
        rows = [
            (self.name, "from", "to", "bound by", "most of it", "formula", "within")
        ]
        rows += [
            (
                f"{piece.low} to {piece.high}",
                format_us(piece.low_us),
                format_us(piece.high_us),
                piece.bound,
                piece.largest[0] if piece.largest else "",
                piece.formula,
                f"{100 * piece.deviation:.1f} %",
            )
            for piece in self.pieces
        ]
        said = [f"{r.level.value.capitalize()}: {r.message}" for r in self.remarks]
        return "\n".join([self.what, columns_text(rows), *said]) + "\n"

    def __repr__(self) -> str:
        low, high = self.pieces[0].low, self.pieces[-1].high
        return (
            f"<Curve {self.what}: {len(self.pieces)} pieces, {self.name} {low}..{high}>"
        )


def curve(state: State, name: object, low: object, high: object) -> Curve:
    """Return the time of a step over a size.

    Sizes in equal ratios are looked at first; between two of different bottlenecks the
    border is found by bisection. So of a bottleneck that two neighbours have, one that
    comes and goes between them is not seen.
    """
    looking = _Looking(state, _named(name))
    first, last = _bound("low", low), _bound("high", high)
    if first > last:
        msg = f"Oracle.curve({looking.name!r}): low={first} is above high={last}"
        raise UsageError(msg)
    sizes = np.geomspace(first, last, _GRID).round().astype(int).tolist()
    for size in dict.fromkeys([first, *sizes, last]):
        looking.at(size)
    remarks = looking.bisect()
    run = state.setting.run
    what = f"{run.model.name} on {run.target.name}, {run.runtime}"
    return Curve(what, looking.name, looking.pieces(), tuple(remarks))


def _named(name: object) -> str:
    if not isinstance(name, str) or not name.removeprefix(_DIM):
        msg = f"Oracle.curve: {name!r} is no size: expected 'batch' or a symbol's name"
        raise UsageError(msg)
    return name.removeprefix(_DIM)


def _bound(name: str, number: object) -> int:
    found: int = whole(MAX_DIM)(name, number)
    return found


@attrs.frozen
class _Seen:
    """What a step is at one size."""

    time_us: float
    bound: str
    largest: tuple[str, ...]

    @property
    def bottleneck(self) -> tuple[str, ...]:
        return (self.bound, *self.largest[:1])


@attrs.define(eq=False)
class _Looking:
    """A curve that is being found.

    Attributes:
        state: The step.
        name: The size.
        seen: What was looked at, by number.

    """

    state: State
    name: str
    seen: dict[int, _Seen] = attrs.field(factory=dict[int, _Seen], init=False)

    def at(self, number: int) -> _Seen:
        """Return the time and the bottleneck at a number."""
        found = self.seen.get(number)
        if found is None:
            sizes: Mapping[str, int] = {self.name: number}
            edit = edits.Bind(dims=sizes)
            if self.name == _BATCH:
                edit = edits.Bind(batch=number)
            state = self.state.moved_to(self.state.setting.made(edit))
            solved = Solved.of(state)
            parts = [name for (_, name), part_s in solved.parts_s().items() if part_s]
            found = self.seen[number] = _Seen(
                solved.ways.time_s * 1e6, solved.bound(), tuple(parts[:_NAMED])
            )
        return found

    def bisect(self) -> list[Diagnostic]:
        """Find the borders between bottlenecks; say which are not found."""
        waiting = [*zip(sorted(self.seen), sorted(self.seen)[1:], strict=False)]
        left: list[Diagnostic] = []
        while waiting:
            low, high = waiting.pop()
            if high - low <= 1 or self.at(low).bottleneck == self.at(high).bottleneck:
                continue
            if len(self.seen) >= _BUDGET:
                message = f"the border between {low} and {high} is not looked for"
                left.append(Diagnostic(Level.NOTE, "border", message, self.name))
                continue
            middle = math.isqrt(low * high)
            middle = min(max(middle, low + 1), high - 1)
            self.at(middle)
            waiting += [(middle, high), (low, middle)]
        return left

    def pieces(self) -> tuple[Piece, ...]:
        """Return the pieces: neighbours of one bottleneck are one."""
        numbers = sorted(self.seen)
        runs: list[list[int]] = []
        for number in numbers:
            before = runs[-1][-1] if runs else number
            if runs and self.at(before).bottleneck == self.at(number).bottleneck:
                runs[-1].append(number)
            else:
                runs.append([number])
        ends = [after[0] - 1 for after in runs[1:]]
        for own, end in zip(runs, ends, strict=False):
            if own[-1] != end:  # a border that is not looked for
                self.at(end)
                own.append(end)
        inside = self._inside(runs)
        return tuple(self._piece(own, inside) for own in runs)

    def _inside(self, runs: Sequence[Sequence[int]]) -> dict[int, float]:
        """Return times at some sizes inside pieces, all asked for together."""
        asked = {
            size
            for own in runs
            for size in np.linspace(own[0], own[-1], _INSIDE + 2)
            .round()
            .astype(int)
            .tolist()
        }
        fresh = sorted(asked - self.seen.keys())
        known = {number: seen.time_us for number, seen in self.seen.items()}
        if fresh:
            column = self.name if self.name == _BATCH else f"{_DIM}{self.name}"
            found = batch(self.state, {column: fresh}, (TIME,))[TIME].tolist()
            known.update(zip(fresh, found, strict=True))
        return known

    def _piece(self, own: Sequence[int], times: Mapping[int, float]) -> Piece:
        low, high = own[0], own[-1]
        last = self.at(high)
        made = Piece(
            self.name,
            low,
            high,
            self.at(low).time_us,
            last.time_us,
            last.bound,
            last.largest,
            0.0,
        )
        off = [
            abs(made.time_us(number) / time_us - 1)
            for number, time_us in times.items()
            if low < number < high and time_us
        ]
        return attrs.evolve(made, deviation=max(off, default=0.0))


def _quantity(amount_us: float) -> str:
    """Write microseconds with five digits and a unit that fits."""
    fitting = (one for one in _UNITS if abs(amount_us) >= one[0])
    scale, unit = next(fitting, _UNITS[-1])
    return f"{amount_us / scale:.5g} {unit}"
