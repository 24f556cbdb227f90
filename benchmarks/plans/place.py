"""How long `perfc place` takes: 100 and 1,000 tables over four tiers.

    python benchmarks/plans/place.py

CPU seconds of what the command does, with a cache and without. Bars: 2 s for 100
tables, 20 s for 1,000. `tests/planning/searches/test_tier_search.py` compares small
tasks with the best of all placements.
"""

from __future__ import annotations

import time

from perfc.costmodels import load_target
from perfc.tools.models import ListedTable, TableList
from perfc.tools.placing import QueriedModel, Question, place, read_tiers
from perfc.tools.request import Request


def _listed(count: int) -> TableList:
    """Return tables of many sizes, dimensions and popularities."""
    tables = tuple(
        ListedTable(
            name=f"t{number}",
            rows=10_000 * (1 + number * 7919 % 997),
            dim=(32, 64, 128)[number % 3],
            pooling=1 + number % 40,
            popularity=f"zipf({0.7 + 0.005 * (number % 100):.3f})",
        )
        for number in range(count)
    )
    return TableList(f"{count} tables", tables, None)


def _question(count: int, objective: str, cache_bytes: float) -> Question:
    wide = count // 25
    return Question(
        request=Request(),
        target=load_target("1s-server"),
        tiers=read_tiers(f"dram={wide}GB,cxl=x1,optane=x3,nand=x1"),
        cache_bytes=cache_bytes,
        objective=objective,
        candidates=10,
        queries_per_s=10.0,
    )


def speed() -> None:
    """Print the CPU seconds of searches."""
    for count in (100, 1000):
        for objective in ("time", "power"):
            for cache_bytes in (0.0, count * 1e7):
                question = _question(count, objective, cache_bytes)
                begun = time.process_time()
                found = place(QueriedModel(question=question, listed=_listed(count)))
                seconds = time.process_time() - begun
                shown = f"{count:,} tables, {objective}, cache {cache_bytes / 1e9:g} GB"
                amount = found.best.amount
                print(f"{shown}: {seconds:.2f} s CPU, {found.method}, {amount:.6g}")


if __name__ == "__main__":
    speed()
