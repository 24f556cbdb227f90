"""The two forms of what `perfc validate` says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import attrs

from perfc.fitting.scores import GroupScore
from perfc.tools.reports import columns_text

SCHEMA = "perfc.validation/1"

_REASONS = 20
"""Why rows were skipped: so many are listed in a table."""

_METRICS = ("mape", "gmae", "geomean_ape", "p50", "p90", "p95", "max", "bias")
_HEADER = (
    *("target", "op", "dtype", "timing", "rows", "skipped"),
    *(
        "MAPE",
        "GMAE",
        "geomean",
        "p50",
        "p90",
        "p95",
        "max",
        "bias",
        "in 90 %",
        "width",
    ),
)


def validation_json(groups: Sequence[GroupScore]) -> str:
    """Return `perfc.validation/1`; metrics are null where no row was scored."""
    document = {"schema": SCHEMA, "groups": [_group(group) for group in groups]}
    return json.dumps(document, indent=2) + "\n"


def _group(group: GroupScore) -> dict[str, object]:
    metrics = {name: _metric(group, name) for name in _METRICS}
    return {
        **attrs.asdict(group.key),
        "rows": group.rows,
        "skipped": sum(group.skipped.values()),
        "skipped_reasons": dict(sorted(group.skipped.items())),
        **metrics,
        "coverage90": group.coverage90,
        "width90": group.width90,
    }


def _metric(group: GroupScore, name: str) -> float | None:
    return None if group.errors is None else float(getattr(group.errors, name))


def validation_text(groups: Sequence[GroupScore]) -> str:
    """Return a table, and below it what was skipped and why."""
    lines = [columns_text([_HEADER, *map(_row, groups)])]
    reasons: Counter[str] = Counter()
    for group in groups:
        reasons.update(group.skipped)
    if reasons:
        lines.append(f"skipped {reasons.total()} rows:")
        ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        for reason, count in ranked[:_REASONS]:
            lines.append(f"  {count}  {reason}")
        if rest := ranked[_REASONS:]:
            rows = sum(count for _, count in rest)
            lines.append(
                f"  {rows}  for {len(rest)} more reasons, which --format json tells"
            )
    return "\n".join(lines) + "\n"


def _row(group: GroupScore) -> tuple[str, ...]:
    key = group.key
    numbers = [_metric(group, name) for name in _METRICS]
    numbers += [group.coverage90, group.width90]
    shown = ["-" if number is None else f"{number:.1%}" for number in numbers]
    counts = (str(group.rows), str(sum(group.skipped.values())))
    return key.target, key.op, key.dtype, key.timing, *counts, *shown
