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
from perfc.passes.timing import TimeErrors
from perfc.planning.plans import plan_text, ranking
from perfc.tools import charts, pages, reports
from perfc.tools.sharding.model import ShardModel
from perfc.tools.sharding.search import LOOKUPS, PlanSearch, RankedPlan

_BAR = 32
_LEAST_S = 1e-7
"""Bars of less than this are not drawn full."""

_RANKS = 32
"""Ranks that are shown one by one; of more the busiest."""

_PICTURED = 3
"""Plans whose ranks a page shows: the best ones."""

_JSON_NAMES: Mapping[str, str] = {LOOKUPS: "look-ups and updates"}
"""How `perfc.shard/1` spells what takes time, where the text has another word now."""


@attrs.frozen(eq=False, kw_only=True)
class Sharding(reports.VerbResult):
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
        return [*map(_row, self.ranked, self.plans)]

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        yield from ((one.priced, one.errors) for one in self.ranked)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks of the pipeline on the plans that it was asked about, each once."""
        reports = [one.report for one in self.ranked if one.report]
        found = [remark for report in reports for remark in report.diagnostics]
        return tuple(dict.fromkeys(found))

    def _document(self) -> Json:
        model, host_room = self.model, float(self.room_bytes[1])
        return {
            "model": model.forward.name,
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

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, the plans, why the best is what it is, and its ranks."""
        best, plan = self.best, self.plans[0]
        badges: list[pages.Badge] = [
            ("fits in memory", "good") if best.fits else ("does not fit", "bad"),
            (f"fastest with {plan.chance} probability", ""),
        ]
        if not plan.interval:
            badges.append(("by the compact model of the search", ""))
        answer = plan, f"Step under {best.name}, the fastest plan:", badges
        load = pages.table(_load(best, marked=True), "Load")
        title = f"Load of the ranks under {best.name}"
        return [
            charts.plan_heading(_title(self), *answer),
            charts.plan_bars(self.plans, "Time of a step under each plan"),
            pages.table(_ranking(self), "Plans"),
            *map(pages.Text, _reasons(self)),
            pages.Drawn(
                functools.partial(_pictures, self),
                [pages.Section(title, [load], titled=True)],
            ),
            pages.Remarks(self.diagnostics),
        ]


def _title(found: Sharding) -> str:
    """Say what was asked, and what tables may take of a rank's memories."""
    model = found.model
    step = "training step" if model.request.mode == "training" else "inference"
    size = _size(sum(table.bytes for table in model.tables))
    text = (
        f"{model.forward.name}: {step} of {model.samples:,} samples on each of "
        f"{model.world.ranks} ranks of {model.target.name}; {len(model.tables):,} "
        f"tables of {size}.\nTables may take {_size(found.room_bytes[0])} of a rank"
    )
    if found.dense_bytes is not None:
        whole = _size(model.target.device.memory.usable_bytes)
        text += f": {whole} less {_size(found.dense_bytes)} for the rest of the step"
    allowed = found.request.tiers.names != (HBM,)
    if not allowed and not any(one.host_bytes.any() for one in found.ranked):
        return f"{text}."
    room = float(found.room_bytes[1])
    if room < np.inf:
        return f"{text}.\nThey may take {_size(room)} of host memory for each rank."
    return (
        f"{text}.\nHost memory is not limited: no sheet says how much there is; "
        "--host-memory SIZE does."
    )


def _size(amount: float) -> str:
    return reports.format_bytes(float(amount))


def _us(seconds: float) -> str:
    return reports.format_us(float(seconds) * US)


def _range(seconds: NDArray[np.float64]) -> str:
    """Return `1 us to 2 us`, or one number where both ends print alike."""
    least, most = _us(seconds.min()), _us(seconds.max())
    return least if least == most else f"{least} to {most}"


def _ranking(found: Sharding) -> Iterator[dict[str, str]]:
    best_s = found.best.step_s
    samples = found.model.samples * found.model.world.ranks
    for one, priced in zip(found.ranked, found.plans, strict=True):
        more = reports.format_change(one.step_s / best_s - 1)
        no_last = one.loads is None or one.last is None
        much = "" if one.fits else ", too much"
        yield {
            "plan": one.name,
            "step": f"{'' if one.report else '~'}{_us(one.step_s)}",
            "": "" if one is found.best else more,
            "P(fastest)": priced.chance,
            "samples/s": f"{samples / one.step_s:,.0f}",
            "last rank": "-" if no_last else str(one.last),
            "decides": one.decides if one.loads is not None else "-",
            "fullest": _size(one.device_bytes.max()) + much,
            "tables": _kinds(one),
        }


def _kinds(plan: RankedPlan) -> str:
    kinds = [
        one.kind if one.tier in ("", HBM) else f"{one.kind} {one.tier}"
        for one in plan.plan.values()
    ]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))


def _reasons(found: Sharding) -> Iterator[str]:
    """Say why the best plan is what it is, and what prices are of."""
    best = found.best
    if best.loads is not None:
        yield _reason(best)
    if best.host_bytes.any():
        yield _on_host(best)
    if any(one.report is None for one in found.ranked):
        yield (
            "~ is the compact model that the search goes by; without it, the whole "
            "pipeline, all ranks together."
        )


def _on_host(plan: RankedPlan) -> str:
    """Say which tables lie in host memory."""
    by_tier: dict[str, list[str]] = {}
    for name, tier in plan.tiers.items():
        if tier != HBM:
            by_tier.setdefault(tier, []).append(name)
    listed = "; ".join(f"{tier}: {', '.join(names)}" for tier, names in by_tier.items())
    return f"Tables in host memory under {plan.name}: {listed}."


def _reason(plan: RankedPlan) -> str:
    """Say which rank is last, what decides the step, and what slack others have."""
    whole = plan.cost_s or 0.0
    shares = ", ".join(
        f"{name} {_us(max(seconds, 0.0))} "
        f"({reports.format_share(max(seconds, 0.0), whole)})"
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
    return f"{who}.\nThe step, {_us(whole)} by the cost searched by: {shares}{host}."


def _load(plan: RankedPlan, *, marked: bool = False) -> Iterator[dict[str, str]]:
    """Yield a row for each rank that is shown; marks are bars of letters."""
    lookup_s, update_s = plan.seconds("lookup_s"), plan.seconds("update_s")
    longest = max(float((lookup_s + update_s).max()), _LEAST_S)
    row: dict[str, str] = {}
    for rank in _shown_ranks(plan):
        row = {
            "rank": str(rank),
            "parts": str(plan.parts_of_ranks[rank]),
            "lookups": _us(lookup_s[rank]),
            "updates": _us(update_s[rank]),
            "slack": _us(plan.slack_s[rank]),
            "memory": _size(plan.device_bytes[rank]),
        }
        if plan.host_bytes.any():
            row["host memory"] = _size(plan.host_bytes[rank])
        if marked:
            row[""] = "█" * round(_BAR * float(lookup_s[rank]) / longest)
            row[""] += "░" * round(_BAR * float(update_s[rank]) / longest)
            row[""] += "  last" if rank == plan.last else ""
        yield row
    if (rest := len(lookup_s) - _RANKS) > 0:
        yield {**dict.fromkeys(row, ""), "rank": f"{rest} more"}


def _shown_ranks(plan: RankedPlan) -> Sequence[int]:
    """Return the ranks to show: all, or those with the most to do."""
    seconds = plan.seconds("lookup_s") + plan.seconds("update_s")
    return sorted(ranking(-seconds)[:_RANKS])


def _pictures(found: Sharding) -> Iterator[pages.Part]:
    """Draw the ranks of the best plans, and list where each table goes."""
    pictured = [one for one in found.ranked if one.loads is not None][:_PICTURED]
    for number, one in enumerate(pictured):
        loads = pages.table(_load(one), f"Load of the ranks under {one.name}")
        on_host = [pages.Text(_on_host(one))] if one.host_bytes.any() else []
        below = [*_bars(one), *on_host, loads]
        folded = number > 0 or None
        yield pages.Section(f"Ranks under {one.name}", below, folded=folded)
    best = found.best
    rows = (
        {
            "table": table.name,
            "size": _size(table.bytes),
            "sharding": best.plan[table.name].kind,
            "ranks or nodes": ", ".join(map(str, best.plan[table.name].places))
            or "all",
            "memory": best.tiers[table.name],
        }
        for table in best.model.tables
    )
    yield pages.table(rows, f"Tables under {best.name}", search=True)


def _bars(one: RankedPlan) -> Iterator[pages.Section]:
    """Yield seconds and bytes of each rank that is shown."""
    update_s, room = one.seconds("update_s"), float(one.room_bytes[0])
    whole_s, held = one.seconds("lookup_s") + update_s, one.device_bytes
    times: list[pages.Bar] = []
    sizes: list[pages.Bar] = []
    for r in _shown_ranks(one):
        name = f"rank {r}" + (", last" if r == one.last else "")
        texts = _us(whole_s[r]), _us(update_s[r])
        times.append(pages.Bar(name, whole_s[r], *texts, "kernel"))
        share = reports.format_percent(held[r] / room) if room else ""
        sizes.append(pages.Bar(name, held[r], _size(held[r]), share, "memory"))
    heads = ("rank", "", "time", "updates"), ("rank", "", "memory", "of its room")
    time = pages.Bars(times, "Time of each rank", heads[0])
    size = pages.Bars(sizes, "Memory of each rank", heads[1])
    yield pages.Section("Lookups and updates", [time], level=3)
    yield pages.Section("Memory that tables take", [size], level=3)


def _row(one: RankedPlan, said: reports.PricedPlan) -> Json:
    listed = plan_text(one.plan, one.model.tables, one.model.world)
    priced, report = one.loads is not None, one.report
    exposed_s: Mapping[str, float] = one.exposed_s if priced else {}
    return {
        **said.to_dict(),
        "step_us": one.step_s * US,
        "priced_by": "pipeline" if report else "cost",
        "cost_us": None if one.cost_s is None else one.cost_s * US,
        "pipeline_us": report.time_us if report else None,
        "fits": one.fits,
        "last_rank": one.last if priced else None,
        "decides": _json_name(one.decides) if priced else None,
        "exposed_us": {_json_name(k): s * US for k, s in exposed_s.items()} or None,
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
