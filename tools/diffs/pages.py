"""The forms in which differences are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from perfc.tools import pages
from perfc.tools.diffs.difference import Diff
from perfc.tools.diffs.kernel_rows import kernel_rows, kernel_table, signed
from perfc.tools.diffs.waterfall import ROUNDING
from perfc.tools.reports import format_change, format_json, format_us

_SHOWN = 15
"""Steps of the picture."""

_MOST = 1000
"""Ops of the table."""


def _json(found: Sequence[Diff]) -> str:
    if len(found) == 1:
        return found[0].to_json()
    documents = [one.to_dict() for one in found]
    return format_json({"schema": "perfc.diffs/1", "diffs": documents})


def _table(found: Sequence[Diff]) -> str:
    return "\n".join(map(str, found))


def _markdown(found: Sequence[Diff]) -> str:
    return "\n".join("\n".join(_section(one)) + "\n" for one in found)


def _section(one: Diff) -> Iterator[str]:
    yield f"### {_plain(one.between)}"
    yield ""
    yield f"**{_plain(one.headline)}**"
    if one.steps:
        heading, *rows = one.table
        yield ""
        yield f"| {' | '.join(heading)} |"
        yield "| --- | ---: | ---: | --- |"
        for row in rows:
            yield f"| {' | '.join(map(_plain, row))} |"
    if one.left_out:
        yield ""
        yield one.left_out
    names, *launches = kernel_table(one.pairs)
    if one.with_trace and launches:
        yield ""
        yield f"| {' | '.join(names)} |"
        yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
        for cells in launches:
            yield f"| {' | '.join(map(_plain, cells))} |"
    yield from map(_plain, one.said)


def _plain(text: str) -> str:
    """Take away the meaning that Markdown gives to characters of names."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def _html(found: Sequence[Diff]) -> str:
    if len(found) == 1:
        return pages.page(f"perfc diff: {_between(found[0])}", [*_parts(found[0])])
    sections = [
        pages.Section(_between(one), [*_parts(one, 3)], folded=one is not found[0])
        for one in found
    ]
    return pages.page("perfc diff", [pages.Heading("perfc diff"), *sections])


def _between(one: Diff) -> str:
    base, head = one.base.name, one.head.name
    return base if base == head else f"{base} → {head}"


def _parts(one: Diff, level: Literal[2, 3] = 2) -> Iterator[pages.Part]:
    """Yield the answer, both sides, the steps as a picture, and what differs."""
    slower = one.difference_us > 0
    share = one.difference_us / one.base_us if one.base_us else 0.0
    yield pages.Heading(
        _between(one),
        answer=f"{signed(one.difference_us)} ({format_change(share)})",
        label="difference",
        remark=one.chance,
        badges=[("slower", "bad") if slower else ("faster", "good")]
        if one.difference_us
        else [("no difference", "")],
    )
    yield pages.Remarks(one.diagnostics)
    yield pages.Cards(
        [
            pages.Card(
                f"{word}: {side.name}",
                format_us(side.time_us),
                " · ".join([*side.asked, side.where]),
            )
            for word, side in (("base", one.base), ("head", one.head))
        ]
    )
    if one.steps:
        yield pages.Section(
            f"From base to head, by {one.by}", [_waterfall(one)], level=level
        )
    if len(one.steps) > _SHOWN:
        yield pages.Section("All steps", [_steps(one)], level=level, folded=True)
    if one.with_trace:
        yield pages.Section("Launches", [_launches(one)], level=level)
    if one.changes:
        yield pages.Section("Ops that differ", [_changes(one)], level=level)


def _waterfall(one: Diff) -> pages.Waterfall:
    """Return the largest steps, and the others as one, so that both totals are met."""
    told = [step for step in one.steps if step.name != ROUNDING]
    shown, rest = told[:_SHOWN], told[_SHOWN:]
    steps = [
        pages.Step(step.name, step.delta_us, signed(step.delta_us), step.reason)
        for step in shown
    ]
    if rest:
        us = math.fsum(step.delta_us for step in rest)
        steps.append(pages.Step(f"{len(rest):,} smaller steps", us, signed(us)))
    return pages.Waterfall(
        ("base", one.base_us, format_us(one.base_us)),
        steps,
        ("head", one.head_us, format_us(one.head_us)),
        f"Steps from {one.base.name} to {one.head.name}",
        (one.by, "reason"),
    )


def _steps(one: Diff) -> pages.Table:
    rows = [
        (
            step.name,
            pages.Cell(signed(step.delta_us), step.delta_us),
            step.reason,
        )
        for step in one.steps
    ]
    heading = (one.by, "change", "reason")
    return pages.Table(heading, rows, "All steps", search=True, order="largest")


def _launches(one: Diff) -> pages.Table:
    """Return where a prediction is off, op by op, and what was launched for it."""
    listed = kernel_rows(one.pairs)
    rows = [
        (
            row["op"],
            row["module"],
            *map(_time, (row["base_us"], row["head_us"])),
            pages.Cell(signed(row["delta_us"]), row["delta_us"]),
            *("; ".join(row[key]) for key in ("base_kernels", "head_kernels")),
            row["reason"],
        )
        for row in listed[:_MOST]
    ]
    heading = ("op", "module", "base", "head", "change", "of base", "of head", "reason")
    return pages.Table(
        heading, rows, "Launches", search=True, order="largest", total=len(listed)
    )


def _changes(one: Diff) -> pages.Table:
    """Return the ops that were added, removed or changed, by how much that is."""
    listed = sorted(one.changes, key=lambda row: -abs(_delta_us(row)))
    rows = [
        (
            row["base"] or row["head"],
            row["op"],
            row["module"],
            row["change"],
            *map(_time, (row["base_us"], row["head_us"])),
            pages.Cell(signed(_delta_us(row)), _delta_us(row)),
            row["reason"],
        )
        for row in listed[:_MOST]
    ]
    heading = ("node", "op", "module", "", "base", "head", "change", "reason")
    name = "Ops that differ"
    return pages.Table(
        heading, rows, name, search=True, order="largest", total=len(listed)
    )


def _delta_us(row: Mapping[str, Any]) -> float:
    return float((row["head_us"] or 0.0) - (row["base_us"] or 0.0))


def _time(us: float | None) -> str | pages.Cell:
    return "" if us is None else pages.Cell(format_us(us), us)


FORMATS: Mapping[str, Callable[[Sequence[Diff]], str]] = {
    "table": _table,
    "md": _markdown,
    "json": _json,
    "html": _html,
}
"""What writes each `--format`."""
