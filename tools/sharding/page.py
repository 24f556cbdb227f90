"""Sharding plans as a page, with what each rank has to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfc.ir.support import US
from perfc.tools.charts import interval_text, plan_bars
from perfc.tools.pages import (
    Badge,
    Bar,
    Bars,
    Heading,
    Part,
    Remarks,
    Section,
    Text,
    page,
    quantity_table,
)
from perfc.tools.reports import format_bytes, format_percent, format_us
from perfc.tools.sharding.report import (
    Sharding,
    load_lines,
    name_of,
    on_host,
    ranking_lines,
    reasons,
    rooms,
    shown_ranks,
)
from perfc.tools.sharding.search import RankedPlan

_SHOWN = 3
"""Plans whose ranks are shown: the best ones."""


def shard_page(found: Sharding) -> str:
    """Return the page; it loads nothing from anywhere."""
    plans = [
        plan_bars(found.plans, "Time of a step under each plan"),
        quantity_table(ranking_lines(found), "Plans"),
        *map(Text, reasons(found)),
    ]
    pictured = [one for one in found.ranked if one.loads is not None][:_SHOWN]
    parts: list[Part] = [
        _heading(found),
        Remarks(found.diagnostics),
        Section("Plans", plans, note=rooms(found)),
    ]
    parts += [
        Section(f"Ranks under {one.name}", [*_ranks(one)], folded=number > 0 or None)
        for number, one in enumerate(pictured)
    ]
    tables = quantity_table([*_tables(found.best)], "Tables", search=True)
    parts.append(Section(f"Tables under {found.best.name}", [tables]))
    return page(f"perfc shard: {name_of(found)}", parts)


def _tables(one: RankedPlan) -> Iterator[tuple[str, ...]]:
    """Yield a heading, and where each table goes."""
    yield "table", "size", "sharding", "ranks or nodes", "memory"
    for table in one.model.tables:
        placed = one.plan[table.name]
        where = ", ".join(map(str, placed.places)) or "all"
        size = format_bytes(float(table.bytes))
        yield table.name, size, placed.kind, where, one.tiers[table.name]


def _heading(found: Sharding) -> Heading:
    model, best, priced = found.model, found.best, found.plans[0]
    size = format_bytes(sum(table.bytes for table in model.tables))
    remark = interval_text(priced) or "by the compact model of the search"
    fits: Badge = ("does not fit", "bad")
    if best.fits:
        fits = ("fits in memory", "good")
    return Heading(
        f"Tables of {name_of(found)} on {model.world.ranks} ranks of "
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


def _ranks(one: RankedPlan) -> Iterator[Part]:
    """Yield seconds and bytes of each rank that is shown."""
    ranks = shown_ranks(one)
    lookup_s, update_s = one.seconds("lookup_s"), one.seconds("update_s")
    times = [
        Bar(
            _name(one, rank),
            (own := float(lookup_s[rank] + update_s[rank])) * US,
            format_us(own * US),
            note=format_us(float(update_s[rank]) * US),
            kind="kernel",
        )
        for rank in ranks
    ]
    time = Bars(times, "Time of each rank", ("rank", "", "time", "updates"))
    sizes = [*_sizes(one, ranks)]
    size = Bars(sizes, "Memory of each rank", ("rank", "", "memory", "of its room"))
    yield Section("Lookups and updates", [time], level=3)
    yield Section("Memory that tables take", [size], level=3)
    if one.host_bytes.any():
        yield Text(on_host(one))
    yield quantity_table(load_lines(one), f"Load of the ranks under {one.name}")


def _sizes(one: RankedPlan, ranks: Sequence[int]) -> Iterator[Bar]:
    room = float(one.room_bytes[0])
    for rank in ranks:
        held = float(one.device_bytes[rank])
        note = format_percent(held / room) if room else ""
        yield Bar(_name(one, rank), held, format_bytes(held), note=note, kind="memory")


def _name(one: RankedPlan, rank: int) -> str:
    return f"rank {rank}" + (", last" if rank == one.last else "")
