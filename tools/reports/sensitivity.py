"""What decides the time: its slopes, as a report shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import Json
from perfc.tools.reports.texts import columns_text
from perfc.tools.reports.verb_result import VerbResult

KINDS = ("target", "host", "kernel", "op")
"""Kinds of what the time depends on: fields of the target, costs of the host, kernels,
nodes."""

_SHOWN = 8
"""Rows of a kind that a table shows."""
_WORTH_SAYING = 5e-4
"""Slopes below this are 0.000 in a table."""
_SAME = 1e-3
"""Slopes that differ by less of themselves are the same."""
HEADING = ("", "", "if faster", "if slower", "")


@attrs.frozen
class Slope:
    """How the time of a step follows one number: d ln(time) / d ln(x).

    A slope of -0.4 says that one percent more of x makes the step 0.4 % shorter. Where
    the time bends, as where another path is as long, that differs by the direction.

    Attributes:
        kind: One of `KINDS`.
        name: A field of a target's sheet, `T1` to `T5` or another cost of the host, a
            kernel, or the id of a node.
        faster: Slope in the direction that makes the step shorter.
        slower: Slope in the direction that makes it longer.
        remark: Why it holds for less than one percent, or in one direction only; empty
            if it does not.
        moves: Fields of the sheet that follow this one, as rates follow a clock.

    """

    kind: str
    name: str
    faster: float
    slower: float
    remark: str = ""
    moves: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """The larger of both, without its sign."""
        return max(abs(self.faster), abs(self.slower))


@attrs.frozen(eq=False, repr=False)
class Sensitivity(VerbResult):
    """The slopes of a step, the largest first.

    Attributes:
        what: Model, target and runtime.
        time_us: Microseconds of the step.
        slopes: All that are not 0.
        remarks: What there is to say about them.

    """

    schema: ClassVar[str] = "perfc.sensitivity/1"
    title: ClassVar[str] = "What decides the time (% of it for 1 % of each)"
    what: str
    time_us: float
    slopes: tuple[Slope, ...]
    remarks: tuple[Diagnostic, ...] = ()

    def of(self, kind: str) -> list[Slope]:
        """Return the slopes of a kind, the largest first."""
        return [slope for slope in self.slopes if slope.kind == kind]

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """One row a slope, the largest first."""
        return [attrs.asdict(slope) for slope in self.slopes]

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What there is to say about the slopes."""
        return self.remarks

    @property
    def shown(self) -> list[Slope]:
        """The largest slopes of each kind, as tables show them.

        A field that does what one does that follows it, as the width of a bus does what
        the bandwidth does, is left out.
        """
        sizes = {slope.name: slope.size for slope in self.of(KINDS[0])}
        found: list[Slope] = []
        for kind in KINDS:
            own = [s for s in self.of(kind) if s.size >= _WORTH_SAYING]
            kept = [
                s for s in own if not any(_alike(s.size, sizes.get(f)) for f in s.moves)
            ]
            found += kept[:_SHOWN]
        return found

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A heading, and a row a slope that is shown; nothing without any."""
        rows = [*map(_cells, self.shown)]
        return [HEADING, *rows] if rows else []

    def _document(self) -> Json:
        return {"what": self.what, "time_us": self.time_us, "slopes": self.rows}

    def _text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"{self.title}: {self.what}"
        yield from [columns_text(self.table)]
        for remark in self.remarks:
            yield f"{remark.level.value.capitalize()}: {remark.message}"

    def __repr__(self) -> str:
        named = [f"{s.name} {_signed(s.faster)}" for s in self.slopes[:1]]
        most = f", {named[0]} most" if named else ""
        return f"<Sensitivity {self.what}: {len(self.slopes)} slopes{most}>"


def _alike(one: float, other: float | None) -> bool:
    return other is not None and math.isclose(one, other, rel_tol=_SAME)


def _cells(slope: Slope) -> tuple[str, ...]:
    both = map(_signed, (slope.faster, slope.slower))
    return (slope.kind, slope.name, *both, slope.remark.partition(":")[0])


def _signed(slope: float) -> str:
    text = f"{slope:+.3f}"
    return text if float(text) else text[1:]
