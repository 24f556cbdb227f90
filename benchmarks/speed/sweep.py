"""How fast `perfc sweep` is: CPU seconds of 10,000 configurations of a DLRM.

    python benchmarks/speed/sweep.py [--workers 2] [--dask]

Prints the configurations, their wall and CPU seconds (those of workers too), and CPU
seconds as a ratio to a fixed loop of plain Python, which tells machines apart. With
`--dask` it sweeps once more on a Dask cluster of this machine with as many workers, of
which one is killed midway, and says whether the rows are the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import time
from typing import Any

import perfc

BATCHES = (256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384)
VARY: dict[str, Any] = {
    "batch": BATCHES,
    "dim": (16, 32, 64, 128, 256),
    "tables": (4, 8, 12, 16, 24),
    "dtype": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
}
TARGETS = (
    *("a100", "a100-40g", "a10", "a30", "h100"),
    *("h100-pcie", "h200", "l40s", "l4", "b200"),
)
_LOOP = 1_000_000


def _cpu_s() -> float:
    """Return CPU seconds of this process and of the workers that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _loop_s() -> float:
    """Return the CPU seconds of a fixed loop, the least of several."""
    times: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        total = 0
        for number in range(_LOOP):
            total += number * number
        times.append(time.process_time() - begun)
    return min(times)


def _dask(workers: int, expected: Any) -> None:
    """Sweep on a cluster of which a worker dies, and compare the rows."""
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None
    )
    victim = next(iter(cluster.workers.values())).pid
    killed: list[int] = []

    def kill(progress: Any) -> None:
        if not killed and progress.new > progress.total // 3:
            os.kill(victim, signal.SIGKILL)
            killed.append(progress.new)

    begun = time.monotonic()
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    swept = perfc.sweep("dlrm-default", TARGETS, VARY, executor=address, progress=kill)
    wall_s = time.monotonic() - begun
    cluster.close()
    same = "the same rows" if [*swept.rows] == [*expected] else "OTHER ROWS"
    print(
        f"Dask, {workers} workers, one killed after {killed[0]:,} configurations: "
        f"{len(swept.rows):,} rows in {wall_s:.1f} s, {same}"
    )


def main() -> None:
    """Sweep, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dask", action="store_true")
    asked = parser.parse_args()
    loop_s, begun, before_s = _loop_s(), time.monotonic(), _cpu_s()
    executor = f"local:{asked.workers}"
    swept = perfc.sweep("dlrm-default", TARGETS, VARY, executor=executor)
    wall_s, cpu_s = time.monotonic() - begun, _cpu_s() - before_s
    print(
        f"{executor}: {len(swept.rows):,} configurations in {wall_s:.1f} s, "
        f"{cpu_s:.1f} CPU s ({1e3 * cpu_s / len(swept.rows):.2f} ms each, "
        f"{cpu_s / loop_s:,.0f} times a loop of {1e3 * loop_s:.0f} ms)"
    )
    if asked.dask:
        _dask(asked.workers, swept.rows)


if __name__ == "__main__":
    main()
