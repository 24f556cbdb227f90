"""Placements, ranked: as tables to read, and as `perfc.place/1`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from perfc.costmodels import tiers as tier_models
from perfc.costmodels.tiers import DRIVE_SHARE, P99, TierUse
from perfc.ir import Diagnostic
from perfc.ir.support import US, Json, Level, brief
from perfc.passes.timing import TimeErrors
from perfc.tools import charts, pages, reports
from perfc.tools.placing.over_cache import over_cache
from perfc.tools.placing.placed_plan import PlacedPlan
from perfc.tools.placing.question import Question
from perfc.tools.placing.scenario import BASE, TIERS, Scenario

_SHOWN = 64
"""Tables that are printed one by one: those with most reads."""


@attrs.frozen(eq=False, kw_only=True)
class Placement(reports.VerbResult):
    """Plans of where tables lie, the best first.

    Attributes:
        question: What was asked.
        model: Name of the model.
        best: The plan that the search has found.
        ranked: All plans: those that fit first, the least of the objective first.
        base: What savings are of; None if nothing was compared.
        method: How the best was found: `exact` or `local`.
        scenario: Where the question is from, if from one.
        remarks: On plans that cannot be.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.place/1"

    question: Question
    model: str
    best: PlacedPlan
    ranked: tuple[PlacedPlan, ...]
    base: PlacedPlan | None
    method: str
    scenario: Scenario | None = None
    remarks: tuple[Diagnostic, ...] = ()

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each plan."""
        pairs = zip(self.ranked, self.plans, strict=True)
        return [self._row(plan, priced) for plan, priced in pairs]

    def _row(self, plan: PlacedPlan, priced: reports.PricedPlan) -> Json:
        return {
            **priced.to_dict(),
            "exposed_us": plan.exposed_s * US,
            "queries_per_s": plan.rates.per_s,
            "bound": plan.rates.bound,
            "hosts": plan.hosts,
            "memory_hosts": plan.hosts - plan.answering,
            "watts": plan.watts,
            "usd": plan.usd,
            "saving": self.saving_of(plan),
            "fits": plan.fits,
            "target": plan.site.target.name,
        }

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        yield from ((plan.priced, plan.errors) for plan in self.ranked)

    def saving_of(self, plan: PlacedPlan) -> float | None:
        """Return the share of the base's power that a plan saves; None if unknown."""
        base = self.base
        if base is None or base.watts is None or plan.watts is None:
            return None
        return tier_models.saving(base.groups, plan.groups)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks of the analysis, on plans that cannot be, and what is assumed."""
        said = self.best.site.base.report.diagnostics
        found = [remark for remark in said if remark.code != reports.OUT_OF_MEMORY]
        return tuple(dict.fromkeys([*found, *self.remarks, *self._assumed()]))

    def _assumed(self) -> list[Diagnostic]:
        """Return a remark on each number that nobody has measured or printed."""
        setting, found = self.best.setting, list[str]()
        for tier in setting.tiers:
            if tier.assumed:
                keys = ", ".join(tier.assumed)
                found.append(f"tier {tier.name}, numbers that are assumed: {keys}")
        if setting.drives:
            found.append(
                f"a query has {setting.in_flight:g} reads under way at a drive, and a "
                f"host plans with {reports.format_percent(DRIVE_SHARE)} of a drive's "
                "reads"
            )
        if self.best.task.cache_bytes:
            found.append(
                "rows of the cache are those of LRU, under popularities across queries"
            )
        target = setting.target
        if target is not None and target.which == P99:
            found.append("p99 of a read grows with the load as its mean does")
        return [Diagnostic(Level.NOTE, "assumed", text) for text in found]

    def _document(self) -> Json:
        best, scenario, question = self.best, self.scenario, self.question
        stated = scenario is not None
        return {
            "model": self.model,
            "target": best.site.target.name,
            "objective": question.objective,
            "search": self.method,
            "candidates": question.candidates,
            "queries_per_s": question.queries_per_s,
            "fleet_per_s": best.setting.fleet_per_s,
            "cache_bytes": best.task.cache_bytes,
            "plans": self.rows,
            "tables": table_entries(best),
            "tiers": tier_entries(best),
            "hosts": best.hosts if scenario is None else scenario.hosts(TIERS),
            "watts": None if stated else best.watts,
            "saving": self.saving,
            "exposed_us": best.exposed_s * US,
            "scenario": None if scenario is None else _scenario_json(scenario),
        }

    @property
    def saving(self) -> float | None:
        """Share of power that the best plan saves; a scenario states its own."""
        if self.scenario is not None:
            return self.scenario.saving
        return self.saving_of(self.best)

    @property
    def csv_rows(self) -> list[Json]:
        """A row for each table of each plan."""
        return [
            {"plan": plan.name, **entry}
            for plan in self.ranked
            for entry in table_entries(plan)
        ]

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, the plans, tiers and tables of the best, and the scenario."""
        best = self.best
        answer = self.plans[self.ranked.index(best)], f"A query under {best.name}:"
        stated = " Watts are those of the sheets, not the scenario's."
        watts = "" if self.scenario is None else stated
        tiers, tables = f"Tiers under {best.name}", f"Tables under {best.name}"
        shown = pages.table(_tables(best, _SHOWN), tables)
        return [
            charts.plan_heading(_title(self), *answer, self._badges),
            charts.plan_bars(self.plans, "Time of a query under each plan"),
            pages.table(map(self._cells, self.ranked, self.plans), "Plans"),
            pages.Text(_note(self)),
            pages.Drawn(lambda: over_cache(best, self.saving_of, watts)),
            pages.Section(tiers, [pages.table(_tiers(best), tiers)], titled=True),
            pages.Drawn(
                lambda: [pages.table(_tables(best), tables, search=True)],
                [pages.Section(tables, [shown], titled=True)],
            ),
            *([] if self.scenario is None else _scenario_parts(self.scenario)),
            pages.Remarks(self.diagnostics, form="{0.level.value}: {0.message}"),
        ]

    @property
    def _badges(self) -> list[pages.Badge]:
        badges: list[pages.Badge] = [
            ("fits", "good") if self.best.fits else ("does not fit", "bad"),
            (f"bound by {self.best.rates.bound}", ""),
        ]
        if (saving := self.saving) is not None:
            stated = ", as the scenario states" if self.scenario is not None else ""
            saved = f"{_percent(saving)} of the power saved{stated}"
            badges.insert(0, (saved, "good" if saving > 0 else ""))
        return badges

    def _cells(self, plan: PlacedPlan, priced: reports.PricedPlan) -> dict[str, str]:
        fleet = {
            "hosts": f"{plan.hosts:,}" + ("" if plan.fits else ", does not fit one"),
            "power": _power(plan.watts),
            "saving": _percent(self.saving_of(plan)),
        }
        counts = [
            f"{count} {tier.name}"
            for number, tier in enumerate(plan.setting.tiers)
            if (count := plan.places.count(number))
        ]
        return {
            "plan": plan.name,
            "time": reports.format_us(priced.time_us),
            "P(fastest)": priced.chance,
            "exposed": reports.format_us(plan.exposed_s * US),
            "queries/s a host": f"{plan.rates.per_s:,.4g}",
            "bound by": plan.rates.bound,
            **(fleet if self.scenario is None else {}),
            "tables": ", ".join(counts),
        }


def _title(found: Placement) -> str:
    """Say what was asked."""
    best, question = found.best, found.question
    tables = best.task.tables
    size = reports.format_bytes(sum(table.nbytes for table in tables))
    names = ", ".join(tier.name for tier in best.setting.tiers)
    text = (
        f"{found.model}: {len(tables):,} tables of {size} in {names} of "
        f"{best.site.target.name}, the least {question.objective}"
    )
    text += f"\nA query has {question.candidates:,} candidates, a host "
    text += f"{question.queries_per_s:,g} queries/s"
    if best.task.cache_bytes:
        cache = reports.format_bytes(best.task.cache_bytes)
        text += f", and a cache of {cache} in DRAM"
    if question.latency is not None:
        text += f"; a query may take {question.latency}"
    return text + "."


def _power(watts: float | None) -> str:
    """Write watts of hosts; of many of them, kilowatts."""
    if watts is None:
        return "-"
    return f"{watts / 1e3:,.2f} kW" if watts >= 1e4 else f"{watts:,.1f} W"  # noqa: PLR2004 - shown digits


def _percent(share: float | None) -> str:
    """Write a share with a decimal, or that it is not known."""
    return "-" if share is None else f"{100 * share:.1f} %"


def _note(found: Placement) -> str:
    """Say what a query waits for, and what of it is hidden."""
    best = found.best
    how = {
        "exact": "No placement has less (exact search).",
        "local": "Found by local search.",
    }[found.method]
    if not best.waits.seconds:
        return f"{how} A query waits for no tier."
    beside = best.setting.beside_s(best.native_share)
    return (
        f"{how} A query waits {reports.format_us(best.waits.seconds * US)} for "
        f"{_awaited(best)}; {reports.format_us(beside * US)} run beside, "
        f"{reports.format_us(best.exposed_s * US)} are exposed."
    )


def _awaited(plan: PlacedPlan) -> str:
    bound = plan.waits.bound
    for tier, demand in zip(plan.setting.tiers, plan.demands, strict=True):
        if tier.name == bound:
            return f"the {plan.setting.wait(tier, demand).bound} of {bound}"
    return bound


def _tiers(plan: PlacedPlan) -> Iterator[dict[str, str]]:
    for number, use in enumerate(plan.uses):
        tier = use.tier
        yield {
            "tier": tier.name,
            "tables": str(plan.places.count(number)),
            "used": reports.format_bytes(use.used_bytes),
            "of room": reports.format_percent(use.used_bytes / tier.capacity_bytes),
            "reads/s": f"{use.reads_per_s:,.0f}",
            "of its reads": _percent(use.reads_per_s / tier.reads_per_s),
            "GB/s": f"{use.read_bytes_per_s / 1e9:.3g}",
            "latency": reports.format_us(use.latency_s * US),
            "power": _power(_watts(plan, use)),
        }


def _tables(plan: PlacedPlan, most: int | None = None) -> Iterator[dict[str, str]]:
    """Yield a row for each table; of more than *most*, for those with most reads."""
    costs = sorted(plan.costs, key=lambda cost: -cost.block_reads)
    shown = {cost.table for cost in costs[:most]}
    row: dict[str, str] = {}
    for cost, entry in zip(plan.costs, table_entries(plan), strict=True):
        if cost.table in shown:
            row = {
                "table": cost.table,
                "tier": cost.tier,
                "row": f"{entry['row_bytes']} B",
                "lookups": f"{cost.lookups:,.5g}",
                "hits": f"{cost.hits:,.5g}",
                "reads": f"{cost.reads:,.5g}",
                "blocks a row": f"{cost.blocks_per_row:.4g}",
                "amplification": f"{cost.amplification:.4g}",
                "share of reads": _percent(entry["share_of_reads"]),
            }
            yield row
    if (rest := len(costs) - len(shown)) > 0:
        yield {**dict.fromkeys(row, ""), "table": f"{rest:,} more"}


def table_entries(plan: PlacedPlan) -> list[Json]:
    """Return an entry of each table."""
    demands = {
        tier.name: demand
        for tier, demand in zip(plan.setting.tiers, plan.demands, strict=True)
    }
    return [
        {
            "name": table.name,
            "tier": cost.tier,
            "row_bytes": table.row_bytes,
            "table_bytes": table.nbytes,
            "lookups": cost.lookups,
            "hits": cost.hits,
            "reads": cost.reads,
            "blocks_per_row": cost.blocks_per_row,
            "amplification": cost.amplification,
            "share_of_reads": cost.block_reads / demands[cost.tier].block_reads
            if cost.block_reads
            else 0.0,
            "user": table.name in plan.site.model.users,
        }
        for table, cost in zip(plan.task.tables, plan.costs, strict=True)
    ]


def tier_entries(plan: PlacedPlan) -> list[Json]:
    """Return an entry of each tier, by one host at its load."""
    return [
        {
            "name": use.tier.name,
            "used_bytes": use.used_bytes,
            "room_bytes": use.tier.capacity_bytes,
            "reads_per_s": use.reads_per_s,
            "read_bytes_per_s": use.read_bytes_per_s,
            "utilisation": use.utilisation,
            "latency_us": use.latency_s * US,
            "wait_us": plan.waits.parts.get(use.tier.name, 0.0) * US,
            "watts": _watts(plan, use),
        }
        for use in plan.uses
    ]


def _watts(plan: PlacedPlan, use: TierUse) -> float | None:
    """Return the watts of a tier beside its host; None where nobody knows them."""
    if not plan.setting.has_watts(use.tier):
        return None
    return plan.setting.tier_watts(use)


def _scenario_parts(scenario: Scenario) -> Iterator[pages.Part]:
    """Yield the fleets of a scenario, and where its inputs come from."""
    fleets = (
        {
            "fleet": plan,
            "hosts": f"{group.hosts:,g}",
            "": group.name,
            "power of one": f"{group.power:g}",
            "utilisation": f"{group.utilisation:g}",
            "in all": f"{group.drawing.watts:,.6g}",
        }
        for plan in (BASE, TIERS)
        for group in scenario.fleet(plan)
    )
    inputs = (
        {"input": one.name, "value": str(one.value), "source": one.source}
        for one in scenario.inputs
    )
    title = f"Fleets of {scenario.name}: {scenario.title}"
    yield pages.Section(title, [pages.table(fleets, "Fleets")], titled=True)
    yield pages.Text(
        f"Power, in {scenario.power_unit}: {scenario.power(BASE):,.6g} without tiers, "
        f"{scenario.power(TIERS):,.6g} with them; {_percent(scenario.saving)} saved"
    )
    title = f"Inputs of {scenario.name}"
    yield pages.Section(title, [pages.table(inputs, "Inputs")], titled=True)


def _scenario_json(scenario: Scenario) -> Json:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "power_unit": scenario.power_unit,
        "fleets": [
            {
                "plan": plan,
                "hosts": scenario.hosts(plan),
                "power": scenario.power(plan),
            }
            for plan in (BASE, TIERS)
        ],
        "inputs": [attrs.asdict(one) for one in scenario.inputs],
    }
