"""The difference between two reports, and what makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from perfc.ir import Diagnostic, PerfcError, UsageError
from perfc.ir.support import brief, path_text
from perfc.tools.diffs.chance import probability_slower
from perfc.tools.diffs.matching import Pair, matched
from perfc.tools.diffs.side import Side, read_sides, sides_of
from perfc.tools.diffs.waterfall import BY, Step, waterfall
from perfc.tools.reports import (
    Report,
    VerbResult,
    columns_text,
    format_percent,
    format_us,
)

if TYPE_CHECKING:
    import os

Json: TypeAlias = dict[str, Any]
Source: TypeAlias = "Report | Mapping[str, Any] | str | os.PathLike[str]"

_SHOWN = 20
"""Steps of a table."""

_ROUNDING = 1e-9
"""Share of a time below which a step is not shown."""


@attrs.frozen(eq=False)
class Diff(VerbResult):
    """Why one time is longer than another.

    Attributes:
        base: What is compared with.
        head: What is compared.
        by: What the steps are made by: one of `BY`.
        pairs: The ops of both.
        steps: Their sum is `difference_us`; the largest first.
        probability_slower: That the head is slower; errors of both count once.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.diff/1"
    base: Side
    head: Side
    by: str
    pairs: Sequence[Pair]
    steps: Sequence[Step]
    probability_slower: float

    @classmethod
    def of(cls, base: Side, head: Side, by: str) -> Diff:
        """Compare two sides.

        Raises:
            PerfcError: they share no op.

        """
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
        """None: each report has its own."""
        return ()

    def _document(self) -> Json:
        return {
            "base": {"file": self.base.where, "name": self.base.name},
            "head": {"file": self.head.where, "name": self.head.name},
            "base_us": self.base_us,
            "head_us": self.head_us,
            "difference_us": self.difference_us,
            "probability_slower": self.probability_slower,
            "steps": self.rows,
            "nodes": self.changes,
        }

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
                "reason": pair.why or "price",
            }
            for pair in self.pairs
            if pair.why or pair.is_dearer
        ]

    @property
    def headline(self) -> str:
        """The answer in one line."""
        share = self.difference_us / self.base_us if self.base_us else 0.0
        return (
            f"{format_us(self.base_us)} → {format_us(self.head_us)}: "
            f"{signed(self.difference_us)} ({100 * share:+.1f} %); slower with "
            f"{format_percent(self.probability_slower)} probability"
        )

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """The largest steps, a heading first."""
        found = [(self.by, "change", "of the base", "reason")]
        for step in self._shown:
            share = 100 * step.delta_us / self.base_us if self.base_us else 0.0
            found.append(
                (step.name, signed(step.delta_us), f"{share:+.1f} %", step.reason)
            )
        return found

    @property
    def _shown(self) -> Sequence[Step]:
        """The largest steps, without what is rounding alone."""
        least_us = _ROUNDING * max(self.base_us, self.head_us)
        return [s for s in self.steps[:_SHOWN] if abs(s.delta_us) > least_us]

    @property
    def left_out(self) -> str:
        """What the table leaves out, in words; empty if nothing."""
        count = len(self.steps) - _SHOWN
        return f"{count:,} smaller steps more" if count > 0 else ""

    def _text(self) -> str:
        lines = [f"{self.base.name} → {self.head.name}", self.headline]
        if self.steps:
            lines += ["", columns_text(self.table)]
        return "\n".join([*lines, *filter(None, [self.left_out])]) + "\n"


def signed(us: float) -> str:
    """Write a difference of times."""
    return f"{'-' if us < 0 else '+'}{format_us(abs(us))}"


def _change(pair: Pair) -> str:
    if pair.base is None:
        return "added"
    return "changed" if pair.head else "removed"


def diff(base: Source, head: Source, by: str = "op") -> Diff:
    """Say why *head* is slower or faster than *base*.

    Args:
        base: A report, its document (`Report.to_dict`), or a JSON file of it.
        head: What is compared with it.
        by: What the steps are made by: `op`, `module`, `phase`, `kernel`, `overhead`.

    Raises:
        UsageError: there is no such *by*.
        PerfcError: one is no report of this version, holds several, or they share no
            op.

    """
    if by not in BY:
        msg = f"perfc.diff: by={by!r}: expected one of {', '.join(BY)}"
        raise UsageError(msg)
    (found, *others) = diffs_of(base, head, by)
    if others:
        msg = f"perfc.diff: {_called(base, 'base')}: expected one report, found several"
        raise PerfcError(msg)
    return found


def diffs_of(base: Source, head: Source, by: str) -> list[Diff]:
    """Compare reports, or several of each, one after the other.

    Raises:
        PerfcError: there are not as many of each, one is no report, or two share no
            op.

    """
    left, right = _sides(base, "base"), _sides(head, "head")
    if len(left) != len(right) or not left:
        msg = (
            f"{_called(head, 'head')}: reports: expected as many as "
            f"{_called(base, 'base')} has, {len(left) or 'one or more'}, "
            f"found {len(right)}"
        )
        raise PerfcError(msg)
    return [Diff.of(*pair, by) for pair in zip(left, right, strict=True)]


def _called(source: Source, name: str) -> str:
    return name if isinstance(source, Report | Mapping) else path_text(name, source)


def _sides(source: Source, name: str) -> list[Side]:
    if isinstance(source, Report):
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
