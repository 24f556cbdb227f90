"""Sharding plans, ranked: as a table to read, and as `perfc.shard/1`."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats
from perfc.ir import Diagnostic
from perfc.ir.support import US, Json, brief
from perfc.passes import HBM
from perfc.planning.plans import plan_text, ranking
from perfc.tools.reports import (
    PricedPlan,
    VerbResult,
    columns_text,
    format_bytes,
    format_change,
    format_share,
    format_us,
    with_probabilities,
)
from perfc.tools.sharding.model import ShardModel
from perfc.tools.sharding.search import LOOKUPS, PlanSearch, RankedPlan

_BAR = 32
_LEAST_S = 1e-7
"""Bars of less than this are not drawn full."""

_RANKS = 32
"""Ranks that are shown one by one; of more the busiest."""

_JSON_NAMES: Mapping[str, str] = {LOOKUPS: "look-ups and updates"}
"""How `perfc.shard/1` spells what takes time, where the text has another word now."""


@attrs.frozen(eq=False, kw_only=True)
class Sharding(VerbResult):
    """Plans of a model, the best first, and how they were found.

    Attributes:
        model: The model.
        request: What was searched for.
        ranked: The plans.
        room_bytes: What tables may take of each of `MEMORIES` of a rank, [2].
        dense_bytes: What the rest of the model takes there; None if not asked.
        seconds: How long the search took.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.shard/1"

    model: ShardModel
    request: PlanSearch
    ranked: tuple[RankedPlan, ...]
    room_bytes: Floats
    dense_bytes: float | None
    seconds: float

    @property
    def best(self) -> RankedPlan:
        """The fastest plan that fits."""
        return self.ranked[0]

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each plan."""
        found = zip(self.ranked, self.plans, strict=True)
        return [_row(one, priced) for one, priced in found]

    @property
    def plans(self) -> tuple[PricedPlan, ...]:
        """What all verbs say of the plans."""
        return self._plans

    @functools.cached_property
    def _plans(self) -> tuple[PricedPlan, ...]:
        priced = [one.priced for one in self.ranked]
        return with_probabilities(priced, [one.errors for one in self.ranked])

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks of the pipeline on the plans that it was asked about, each once."""
        reports = [one.report for one in self.ranked if one.report]
        found = [remark for report in reports for remark in report.diagnostics]
        return tuple(dict.fromkeys(found))

    def _document(self) -> Json:
        model, host_room = self.model, float(self.room_bytes[1])
        return {
            "model": name_of(self),
            "target": model.target.name,
            "ranks": model.world.ranks,
            "ranks_per_node": model.world.per_node,
            "batch_per_rank": model.samples,
            "mode": model.request.mode,
            "tables": len(model.tables),
            "table_bytes": sum(table.bytes for table in model.tables),
            "room_bytes_per_rank": float(self.room_bytes[0]),
            "host_room_bytes_per_rank": host_room if host_room < np.inf else None,
            "tiers": list(self.request.tiers.names),
            "dense_bytes_per_rank": self.dense_bytes,
            "plans": self.rows,
        }

    def _text(self) -> str:
        """Return the ranking, why the best is what it is, and the load of each rank."""
        best = self.best
        ranking = columns_text(ranking_lines(self))
        model = self.model
        step = "training step" if model.request.mode == "training" else "inference"
        size = sum(table.bytes for table in model.tables)
        title = (
            f"{name_of(self)}: {step} of {model.samples:,} samples on each of "
            f"{model.world.ranks} ranks of {model.target.name}; {len(model.tables):,} "
            f"tables of {format_bytes(size)}."
        )
        parts = [f"{title}\n{rooms(self)}", ranking, *reasons(self)]
        parts.append(f"Load of the ranks under {best.name}")
        marked = zip(load_lines(best), _marks(best), strict=True)
        parts[-1] += "\n" + columns_text((*line, mark) for line, mark in marked)
        return "\n\n".join(parts) + "\n"


def rooms(found: Sharding) -> str:
    """Say what tables may take of device memory and of host memory."""
    room = f"Tables may take {format_bytes(float(found.room_bytes[0]))} of a rank"
    if found.dense_bytes is not None:
        whole = found.model.target.device.memory.usable_bytes
        rest = format_bytes(found.dense_bytes)
        room += f": {format_bytes(whole)} less {rest} for the rest of the step"
    return f"{room}.{_host_room(found)}"


def _host_room(found: Sharding) -> str:
    """Say what host memory tables may take, if any may lie there."""
    allowed = found.request.tiers.names != (HBM,)
    if not allowed and not any(one.host_bytes.any() for one in found.ranked):
        return ""
    room = float(found.room_bytes[1])
    if room < np.inf:
        return f"\nThey may take {format_bytes(room)} of host memory for each rank."
    return (
        "\nHost memory is not limited: no sheet says how much there is; "
        "--host-memory SIZE does."
    )


def name_of(found: Sharding) -> str:
    """Return the name of the model."""
    return found.model.forward.name


def _us(seconds: float) -> str:
    return format_us(float(seconds) * US)


def _range(seconds: NDArray[np.float64]) -> str:
    """Return `1 us to 2 us`, or one number where both ends print alike."""
    least, most = _us(seconds.min()), _us(seconds.max())
    return least if least == most else f"{least} to {most}"


def ranking_lines(found: Sharding) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each plan."""
    rows: list[tuple[str, ...]] = [
        (
            *("plan", "step", "", "P(fastest)", "samples/s"),
            *("last rank", "decides", "fullest", "tables"),
        )
    ]
    best_s = found.best.step_s
    samples = found.model.samples * found.model.world.ranks
    for one, priced in zip(found.ranked, found.plans, strict=True):
        more = one.step_s / best_s - 1
        fullest = format_bytes(float(one.device_bytes.max()))
        rows.append(
            (
                one.name,
                f"{'' if one.report else '~'}{format_us(one.step_s * US)}",
                "" if one is found.best else format_change(more),
                priced.chance,
                f"{samples / one.step_s:,.0f}",
                "-" if one.loads is None or one.last is None else str(one.last),
                one.decides if one.loads is not None else "-",
                fullest + ("" if one.fits else ", too much"),
                kinds_of(one),
            )
        )
    return rows


def kinds_of(plan: RankedPlan) -> str:
    """Say how many tables go which way."""
    kinds = [
        one.kind if one.tier in ("", HBM) else f"{one.kind} {one.tier}"
        for one in plan.plan.values()
    ]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))


def reasons(found: Sharding) -> list[str]:
    """Say why the best plan is what it is, and what prices are of."""
    best, lines = found.best, list[str]()
    if best.loads is not None:
        lines.append(reason(best))
    if best.host_bytes.any():
        lines.append(on_host(best))
    if any(one.report is None for one in found.ranked):
        lines.append(
            "~ is the compact model that the search goes by; without it, the whole "
            "pipeline, all ranks together."
        )
    return lines


def on_host(plan: RankedPlan) -> str:
    """Say which tables lie in host memory."""
    by_tier: dict[str, list[str]] = {}
    for name, tier in plan.tiers.items():
        if tier != HBM:
            by_tier.setdefault(tier, []).append(name)
    listed = "; ".join(f"{tier}: {', '.join(names)}" for tier, names in by_tier.items())
    return f"Tables in host memory under {plan.name}: {listed}."


def reason(plan: RankedPlan) -> str:
    """Say which rank is last, what decides the step, and what slack others have."""
    whole = plan.cost_s or 0.0
    shares = ", ".join(
        f"{name} {format_us(max(seconds, 0.0) * US)} "
        f"({format_share(max(seconds, 0.0), whole)})"
        for name, seconds in plan.exposed_s.items()
    )
    slack_s = plan.slack_s
    if plan.last is None:
        who = f"No rank is last: each could look up for {_range(slack_s)} longer"
    else:
        others = np.delete(slack_s, plan.last)
        who = f"Rank {plan.last} is last; the others have {_range(others)} of slack"
    bound = plan.report.summary["bound"] if plan.report else ""
    host = "; the host's launches bound it" if bound == "host" else ""
    step = f"The step, {format_us(whole * US)} by the cost searched by"
    return f"{who}.\n{step}: {shares}{host}."


def load_lines(plan: RankedPlan) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each rank that is shown."""
    host = ("host memory",) if plan.host_bytes.any() else ()
    rows: list[tuple[str, ...]] = [
        ("rank", "parts", "lookups", "updates", "slack", "memory", *host)
    ]
    lookup_s, update_s = plan.seconds("lookup_s"), plan.seconds("update_s")
    slack_s = plan.slack_s
    rows += [
        (
            str(rank),
            str(plan.parts_of_ranks[rank]),
            _us(lookup_s[rank]),
            _us(update_s[rank]),
            _us(slack_s[rank]),
            format_bytes(float(plan.device_bytes[rank])),
            *(format_bytes(float(plan.host_bytes[rank])) for _ in host),
        )
        for rank in shown_ranks(plan)
    ]
    if (rest := len(lookup_s) - _RANKS) > 0:
        rows.append((f"{rest} more", *[""] * (len(rows[0]) - 1)))
    return rows


def _marks(plan: RankedPlan) -> Iterator[str]:
    """Yield a bar of lookups and updates for each of `load_lines`."""
    lookup_s, update_s = plan.seconds("lookup_s"), plan.seconds("update_s")
    longest = max(float((lookup_s + update_s).max()), _LEAST_S)
    yield ""
    for rank in shown_ranks(plan):
        mark = "█" * round(_BAR * float(lookup_s[rank]) / longest)
        mark += "░" * round(_BAR * float(update_s[rank]) / longest)
        yield mark + ("  last" if rank == plan.last else "")
    if len(lookup_s) > _RANKS:
        yield ""


def shown_ranks(plan: RankedPlan) -> Sequence[int]:
    """Return the ranks to show: all, or those with the most to do."""
    seconds = plan.seconds("lookup_s") + plan.seconds("update_s")
    return sorted(ranking(-seconds)[:_RANKS])


def _row(one: RankedPlan, said: PricedPlan) -> Json:
    listed = plan_text(one.plan, one.model.tables, one.model.world)
    priced = one.loads is not None
    report = one.report
    return {
        **said.to_dict(),
        "step_us": one.step_s * US,
        "priced_by": "pipeline" if report else "cost",
        "cost_us": None if one.cost_s is None else one.cost_s * US,
        "pipeline_us": report.time_us if report else None,
        "fits": one.fits,
        "last_rank": one.last if priced else None,
        "decides": _json_name(one.decides) if priced else None,
        "exposed_us": {_json_name(kind): s * US for kind, s in one.exposed_s.items()}
        if priced
        else None,
        "ranks": _ranks_json(one) if priced else None,
        "tiers": one.tiers,
        "plan": json.loads(listed),
    }


def _json_name(kind: str) -> str:
    return _JSON_NAMES.get(kind, kind)


def _ranks_json(one: RankedPlan) -> list[Json]:
    lookup_s, update_s = one.seconds("lookup_s"), one.seconds("update_s")
    slack_s = one.slack_s
    return [
        {
            "rank": rank,
            "parts": one.parts_of_ranks[rank],
            "lookup_us": float(lookup_s[rank]) * US,
            "update_us": float(update_s[rank]) * US,
            "slack_us": float(slack_s[rank]) * US,
            "table_bytes": float(one.device_bytes[rank]),
            "host_bytes": float(one.host_bytes[rank]),
        }
        for rank in range(len(lookup_s))
    ]
