"""Time of what is said of a table of a billion rows: `locality.py`."""

from __future__ import annotations

import time
from collections.abc import Callable

from perfc.costmodels import unique_row_count
from perfc.costmodels.locality import (
    ZipfMandelbrot,
    batch_fill,
    cold_misses,
    lru_miss_share,
    row_curve,
)

ROWS, LOOKUPS, CACHED = 10**9, 10**6, 10**5
RUNS = 20


def seconds(call: Callable[[ZipfMandelbrot], object]) -> float:
    """Return the median time of a call, with a popularity that is new each time."""
    times: list[float] = []
    for run in range(RUNS):
        popularity = ZipfMandelbrot(1.05 + run / 1000, 100)
        start = time.perf_counter()
        call(popularity)
        times.append(time.perf_counter() - start)
    return sorted(times)[RUNS // 2]


CALLS: dict[str, Callable[[ZipfMandelbrot], object]] = {
    "rows touched": lambda p: unique_row_count(p, ROWS, LOOKUPS),
    "misses of a cold cache": lambda p: cold_misses(p, ROWS, CACHED, LOOKUPS),
    "misses of a warm cache": lambda p: lru_miss_share(p, ROWS, CACHED),
    "rows that a batch fetches": lambda p: batch_fill(
        row_curve(p, ROWS), CACHED, LOOKUPS / 20
    ),
}


def main() -> None:
    """Print the times."""
    for name, call in CALLS.items():
        print(f"{name:<26} {seconds(call) * 1e3:6.2f} ms")


if __name__ == "__main__":
    main()
