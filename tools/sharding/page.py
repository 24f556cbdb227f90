"""Sharding plans as a page, with what each rank has to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfc.ir.support import US
from perfc.tools import pages
from perfc.tools.charts import interval_text, plan_bars
from perfc.tools.reports import format_bytes, format_percent, format_us
from perfc.tools.sharding import report
from perfc.tools.sharding.search import RankedPlan

_SHOWN = 3
"""Plans whose ranks are shown: the best ones."""


def shard_page(found: report.Sharding) -> str:
    """Return the page; it loads nothing from anywhere."""
    plans = [
        plan_bars(found.plans, "Time of a step under each plan"),
        pages.quantity_table(report.ranking_lines(found), "Plans"),
        *map(pages.Text, report.reasons(found)),
    ]
    pictured = [one for one in found.ranked if one.loads is not None][:_SHOWN]
    parts: list[pages.Part] = [
        _heading(found),
        pages.Remarks(found.diagnostics),
        pages.Section("Plans", plans, note=report.rooms(found)),
    ]
    parts += [
        pages.Section(
            f"Ranks under {one.name}", [*_ranks(one)], folded=number > 0 or None
        )
        for number, one in enumerate(pictured)
    ]
    tables = pages.quantity_table([*_tables(found.best)], "Tables", search=True)
    parts.append(pages.Section(f"Tables under {found.best.name}", [tables]))
    return pages.page(f"perfc shard: {report.name_of(found)}", parts)


def _tables(one: RankedPlan) -> Iterator[tuple[str, ...]]:
    """Yield a heading, and where each table goes."""
    yield "table", "size", "sharding", "ranks or nodes", "memory"
    for table in one.model.tables:
        placed = one.plan[table.name]
        where = ", ".join(map(str, placed.places)) or "all"
        size = format_bytes(float(table.bytes))
        yield table.name, size, placed.kind, where, one.tiers[table.name]


def _heading(found: report.Sharding) -> pages.Heading:
    model, best, priced = found.model, found.best, found.plans[0]
    size = format_bytes(sum(table.bytes for table in model.tables))
    remark = interval_text(priced) or "by the compact model of the search"
    fits: pages.Badge = ("does not fit", "bad")
    if best.fits:
        fits = ("fits in memory", "good")
    return pages.Heading(
        f"Tables of {report.name_of(found)} on {model.world.ranks} ranks of "
        f"{model.target.name}",
        asked=(
            "training step" if model.request.mode == "training" else "inference",
            f"{model.samples:,} samples a rank",
            f"{len(model.tables):,} tables of {size}",
        ),
        answer=format_us(best.step_s * US),
        label=f"Step under {best.name}, the fastest plan:",
        remark=remark,
        badges=[fits, (f"fastest with {priced.chance} probability", "")],
    )


def _ranks(one: RankedPlan) -> Iterator[pages.Part]:
    """Yield seconds and bytes of each rank that is shown."""
    ranks = report.shown_ranks(one)
    lookup_s, update_s = one.seconds("lookup_s"), one.seconds("update_s")
    times = [
        pages.Bar(
            _name(one, rank),
            (own := float(lookup_s[rank] + update_s[rank])) * US,
            format_us(own * US),
            note=format_us(float(update_s[rank]) * US),
            kind="kernel",
        )
        for rank in ranks
    ]
    time = pages.Bars(times, "Time of each rank", ("rank", "", "time", "updates"))
    sizes = [*_sizes(one, ranks)]
    size = pages.Bars(
        sizes, "Memory of each rank", ("rank", "", "memory", "of its room")
    )
    yield pages.Section("Lookups and updates", [time], level=3)
    yield pages.Section("Memory that tables take", [size], level=3)
    if one.host_bytes.any():
        yield pages.Text(report.on_host(one))
    yield pages.quantity_table(
        report.load_lines(one), f"Load of the ranks under {one.name}"
    )


def _sizes(one: RankedPlan, ranks: Sequence[int]) -> Iterator[pages.Bar]:
    room = float(one.room_bytes[0])
    for rank in ranks:
        held = float(one.device_bytes[rank])
        note = format_percent(held / room) if room else ""
        yield pages.Bar(
            _name(one, rank), held, format_bytes(held), note=note, kind="memory"
        )


def _name(one: RankedPlan, rank: int) -> str:
    return f"rank {rank}" + (", last" if rank == one.last else "")
