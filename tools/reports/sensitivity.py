"""What decides the time: its slopes, as a report shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.tools.reports.texts import columns_text
from perfc.tools.reports.verb_result import Json, VerbResult

KINDS = ("target", "host", "kernel", "op")
"""Kinds of what the time depends on: fields of the target, costs of the host, kernels,
nodes."""

_SHOWN = 8
"""Rows of a kind that a table shows."""
_WORTH_SAYING = 5e-4
"""Slopes below this are 0.000 in a table."""
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

    """

    kind: str
    name: str
    faster: float
    slower: float
    remark: str = ""

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
        """The largest slopes of each kind, as tables show them."""
        return [
            slope
            for kind in KINDS
            for slope in self.of(kind)[:_SHOWN]
            if slope.size >= _WORTH_SAYING
        ]

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
        yield f"{self.what}: percent of the time for one percent of"
        yield from [columns_text(self.table)]
        for remark in self.remarks:
            yield f"{remark.level.value.capitalize()}: {remark.message}"

    def __repr__(self) -> str:
        named = [f"{s.name} {_signed(s.faster)}" for s in self.slopes[:1]]
        most = f", {named[0]} most" if named else ""
        return f"<Sensitivity {self.what}: {len(self.slopes)} slopes{most}>"


def _cells(slope: Slope) -> tuple[str, ...]:
    both = map(_signed, (slope.faster, slope.slower))
    return (slope.kind, slope.name, *both, slope.remark)


def _signed(slope: float) -> str:
    return f"{round(slope, 3) + 0.0:+.3f}"  # of -0.0, 0.0
