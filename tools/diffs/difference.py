"""The difference between two reports, and what makes it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from perfc.ir import Diagnostic, PerfcError, UsageError
from perfc.ir.support import Json, Level, brief, path_text, paused_collector
from perfc.tools import reports
from perfc.tools.diffs.chance import probability_slower
from perfc.tools.diffs.kernel_rows import TRACE_US, kernel_rows, kernel_table, signed
from perfc.tools.diffs.matching import Pair, matched, matched_with_trace
from perfc.tools.diffs.same_program import as_traced, same_program
from perfc.tools.diffs.side import Side, is_trace, read_sides, sides_of
from perfc.tools.diffs.waterfall import BY, Step, waterfall

if TYPE_CHECKING:
    import os

Source: TypeAlias = "reports.Report | Mapping[str, Any] | str | os.PathLike[str]"

_SHOWN = 20
"""Steps of a table."""

_ROUNDING = 1e-9
"""Share of a time below which a step is not shown."""


_SAME: Sequence[Callable[[Side], Hashable]] = (
    lambda side: (side.name, tuple(side.asked)),
    lambda side: side.name,
    lambda side: (side.model, side.target),
)
"""What several reports are paired by, the strictest first."""


@attrs.frozen(eq=False)
class Diff(reports.VerbResult):
    """Why one time is longer than another.

    Attributes:
        base: What is compared with.
        head: What is compared.
        by: What the steps are made by: one of `BY`.
        pairs: The ops of both.
        steps: Their sum is `difference_us`; the largest first.
        probability_slower: That the head is slower; errors of both count once. Where
            one side was measured, only the other is uncertain: how probable it is that
            the prediction is below, or above, what was measured. None if both were.
        remarks: What there is to say of how they were compared.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.diff/1"
    base: Side
    head: Side
    by: str
    pairs: Sequence[Pair]
    steps: Sequence[Step]
    probability_slower: float | None
    remarks: tuple[Diagnostic, ...] = ()

    @classmethod
    def of(cls, base: Side, head: Side, by: str) -> Diff:
        """Compare two sides.

        Raises:
            PerfcError: they share no op.

        """
        if base.is_measured or head.is_measured:
            return cls._with_trace(base, head, by)
        ops = {node.op for node in base.nodes}
        if ops.isdisjoint(node.op for node in head.nodes):
            msg = (
                f"{head.where}: nodes: none is of an op that {base.where} has; "
                "expected reports of one program, or of versions of it"
            )
            raise PerfcError(msg)
        pairs = matched(base.nodes, head.nodes)
        difference_us = head.time_us - base.time_us
        other_host = base.host != head.host
        steps = waterfall(pairs, by, difference_us, other_host=other_host)
        return cls(base, head, by, pairs, steps, probability_slower(base, head))

    @classmethod
    def _with_trace(cls, base: Side, head: Side, by: str) -> Diff:
        pairs = matched_with_trace(as_traced(base), as_traced(head))
        remarks = (*base.remarks, *head.remarks, *same_program(base, head, pairs))
        steps = waterfall(pairs, by, head.time_us - base.time_us, other_host=True)
        both = base.is_measured and head.is_measured
        chance = None if both else probability_slower(base, head)
        return cls(base, head, by, pairs, steps, chance, remarks)

    def by_place(self) -> Diff:
        """Say that the sides were compared by where they stand in their files."""
        message = (
            f"{self.base.where} and {self.head.where} are not of the same models and "
            f"targets: {self.base.name} is compared with {self.head.name} as they "
            "stand in the same place"
        )
        said = Diagnostic(Level.WARNING, "reports-by-place", message, self.head.where)
        return attrs.evolve(self, remarks=(*self.remarks, said))

    @property
    def base_us(self) -> float:
        """Time of the base."""
        return self.base.time_us

    @property
    def head_us(self) -> float:
        """Time of the head."""
        return self.head.time_us

    @property
    def difference_us(self) -> float:
        """Time of the head less that of the base."""
        return self.head.time_us - self.base.time_us

    @property
    def rows(self) -> Sequence[Json]:
        """The steps."""
        return [attrs.asdict(step) for step in self.steps]

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What there is to say of a trace, or of pairs; each report has its own."""
        return self.remarks

    def _document(self) -> Json:
        return {
            "base": _named(self.base),
            "head": _named(self.head),
            "base_us": self.base_us,
            "head_us": self.head_us,
            "difference_us": self.difference_us,
            "probability_slower": self.probability_slower,
            "steps": self.rows,
            "nodes": self.changes,
            **({"kernels": kernel_rows(self.pairs)} if self.with_trace else {}),
        }

    @property
    def with_trace(self) -> bool:
        """Whether a side was measured."""
        return self.base.is_measured or self.head.is_measured

    @property
    def changes(self) -> list[Json]:
        """The ops that were added or removed, or that differ."""
        return [
            {
                "change": _change(pair),
                "op": pair.one.op,
                "module": pair.one.module,
                "phase": pair.one.phase,
                "base": pair.base.id if pair.base else None,
                "head": pair.head.id if pair.head else None,
                "base_us": pair.base.duration_us if pair.base else None,
                "head_us": pair.head.duration_us if pair.head else None,
                "reason": pair.reason,
            }
            for pair in self.pairs
            if pair.why or pair.is_dearer
        ]

    @property
    def between(self) -> str:
        """Names of both, with that of batch, mode and the like which differs."""
        if self.with_trace:
            return f"{self.base.name} → {self.head.name}"
        base, head = self.base, self.head
        left = [base.name, *(said for said in base.asked if said not in head.asked)]
        right = [head.name, *(said for said in head.asked if said not in base.asked)]
        return f"{', '.join(left)} → {', '.join(right)}"

    @property
    def headline(self) -> str:
        """The answer in one line."""
        times = (
            f"{reports.format_us(self.base_us)} → {reports.format_us(self.head_us)}: "
            f"{signed(self.difference_us)} ({self._share(self.difference_us)})"
        )
        return "; ".join(filter(None, [times, self.chance]))

    @property
    def chance(self) -> str:
        """How likely the head is slower, in words; empty where that is unknown."""
        if self.probability_slower is None:
            return ""
        if not self.with_trace:
            percent = reports.format_percent(self.probability_slower)
            return f"slower with {percent} probability"
        measured_above = self.probability_slower
        if self.base.is_measured:
            measured_above = 1 - measured_above
        percent = reports.format_percent(measured_above)
        return f"measured above {percent} of what is predicted"

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """The largest steps, a heading first."""
        found = [(self.by, "change", "of the base", "reason")]
        for step in self._shown:
            share = self._share(step.delta_us)
            found.append((step.name, signed(step.delta_us), share, step.reason))
        return found

    def _share(self, delta_us: float) -> str:
        return reports.format_change(delta_us / self.base_us if self.base_us else 0.0)

    @property
    def _shown(self) -> Sequence[Step]:
        """The largest steps, without what is rounding alone."""
        least_us = _ROUNDING * max(self.base_us, self.head_us)
        least_us = max(least_us, TRACE_US if self.with_trace else 0.0)
        return [s for s in self.steps[:_SHOWN] if abs(s.delta_us) > least_us]

    @property
    def left_out(self) -> str:
        """What the table leaves out, in words; empty if nothing."""
        count = len(self.steps) - _SHOWN
        return f"{count:,} smaller steps more" if count > 0 else ""

    @property
    def said(self) -> list[str]:
        """What there is to say of a trace, in lines, a blank one first."""
        found = [f"{d.level.value.capitalize()}: {d.message}" for d in self.remarks]
        return ["", *found] if found else []

    def _text(self) -> str:
        lines = [self.between, self.headline]
        if self.steps:
            lines += ["", reports.columns_text(self.table)]
        lines += filter(None, [self.left_out])
        if self.with_trace and len(rows := kernel_table(self.pairs)) > 1:
            lines += ["", reports.columns_text(rows)]
        lines += self.said
        return "\n".join(lines) + "\n"


def _named(side: Side) -> Json:
    step = {"step": side.step} if side.is_measured else {}
    return {"file": side.where, "name": side.name, **step}


def _change(pair: Pair) -> str:
    if pair.base is None:
        return "added"
    return "changed" if pair.head else "removed"


def diff(
    base: Source, head: Source, by: str = "op", *, steps: range | None = None
) -> Diff:
    """Say why *head* is slower or faster than *base*.

    Args:
        base: A report, its document (`Report.to_dict`), a JSON file of it, or a Kineto
            trace of what it predicts.
        head: What is compared with it, likewise.
        by: What the steps are made by: `op`, `module`, `phase`, `kernel`, `overhead`.
        steps: Steps of a trace of which the one of median time is taken; None for all.

    Raises:
        UsageError: there is no such *by*, or there are *steps* and no trace.
        PerfcError: one is no report of this version, holds several, or they share no
            op.

    """
    if by not in BY:
        msg = f"perfc.diff: by={by!r}: expected one of {', '.join(BY)}"
        raise UsageError(msg)
    with paused_collector():
        left, right = _both_sides(base, head, steps)
        for source, name, sides in ((base, "base", left), (head, "head", right)):
            if len(sides) > 1:
                where = _called(source, name)
                msg = f"{where}: reports: expected one, found {len(sides)}"
                raise PerfcError(msg)
        return Diff.of(left[0], right[0], by)


def diffs_of(
    base: Source, head: Source, by: str, steps: range | None = None
) -> list[Diff]:
    """Compare reports, or several of each: those of one model and target."""
    with paused_collector():  # thousands of small objects, none in a circle
        return _diffs(base, head, by, steps)


def _diffs(base: Source, head: Source, by: str, steps: range | None) -> list[Diff]:
    left, right = _both_sides(base, head, steps)
    if len(left) != len(right):
        one, other = (_called(head, "head"), right), (_called(base, "base"), left)
        if len(left) > len(right):
            one, other = other, one
        msg = (
            f"{one[0]}: reports: expected as many as {other[0]} has, "
            f"{len(other[1])}, found {len(one[1])}"
        )
        raise PerfcError(msg)
    # Compare sides of one model and target, in the order of the base.
    # Where not all have a partner, they are compared one after the other, and it is
    # said.
    for key in _SAME:
        if Counter(map(key, left)) == Counter(map(key, right)):
            heads: dict[Hashable, list[Side]] = defaultdict(list)
            for side in right:
                heads[key(side)].append(side)
            return [Diff.of(side, heads[key(side)].pop(0), by) for side in left]
    found = [Diff.of(*pair, by) for pair in zip(left, right, strict=True)]
    return [one.by_place() for one in found] if len(found) > 1 else found


def _both_sides(
    base: Source, head: Source, steps: range | None
) -> tuple[list[Side], list[Side]]:
    """Read both sides, a trace last: the other side says what to call its ops."""
    traces = [_trace_path(base, "base"), _trace_path(head, "head")]
    if steps is not None and traces == [None, None]:
        msg = "--steps: expected a trace, found two reports"
        raise UsageError(msg)
    left = _sides(base, "base") if traces[0] is None else []
    right = _sides(head, "head") if traces[1] is None else []
    if traces[0] is not None:
        left = [_measured(traces[0], steps, right)]
    if traces[1] is not None:
        right = [_measured(traces[1], steps, left)]
    return left, right


def _measured(path: Path, steps: range | None, others: Sequence[Side]) -> Side:
    from perfc.tools.diffs.measured_side import measured_side

    return measured_side(path, steps, {n.op for side in others for n in side.nodes})


def _trace_path(source: Source, name: str) -> Path | None:
    if isinstance(source, reports.Report | Mapping):
        return None
    path = Path(path_text(name, source))
    return path if is_trace(path) else None


def _called(source: Source, name: str) -> str:
    return (
        name
        if isinstance(source, reports.Report | Mapping)
        else path_text(name, source)
    )


def _sides(source: Source, name: str) -> list[Side]:
    if isinstance(source, reports.Report):
        document = {
            **source.header,
            "schema": source.schema,
            "nodes": source.nodes,
            "critical_path": source.critical_path,
            "uncertainty": [attrs.asdict(f) for f in source.results.interval.factors],
        }
        return sides_of(document, name)
    if isinstance(source, Mapping):
        return sides_of(source, name)
    return read_sides(Path(path_text(name, source)))
