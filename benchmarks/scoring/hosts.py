"""Host times in public traces, each host by what the others say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from fits.hosts import times_of_hosts
from training.shared_host import (
    LeftOutHost,
    host_means,
    is_stalled,
    left_out_host,
    left_out_hosts,
    pool,
)

from scoring.group import Group


def of_hosts(data: Path) -> Iterator[Group]:
    """Yield the sums of host times, by the profile `shared` of the other hosts."""
    times = times_of_hosts(data / "traces")
    means = {name: host_means(us) for name, us in times.items()}
    at_work = {n: mean for n, mean in means.items() if not is_stalled(times[n])}
    found = left_out_hosts(at_work)
    everyone = pool(at_work)
    stalled = [
        left_out_host(name, mean, everyone)
        for name, mean in means.items()
        if name not in at_work
    ]
    for what, hosts in (("hosts", found), ("stalled hosts", stalled)):
        yield from _groups(f"all times of {what}", hosts, [(h.error,) for h in hosts])
        speed_known = f"half the times of {what}, speed known"
        yield from _groups(speed_known, hosts, [h.scaled for h in hosts])


def _groups(
    what: str, hosts: Sequence[LeftOutHost], logs: Sequence[Sequence[float]]
) -> Iterator[Group]:
    for host, each in zip(hosts, logs, strict=True):
        name = f"{what}: {host.name}"
        none = np.zeros(len(each), dtype=np.intp)
        yield Group("board", name, np.array(each), units=none, family=what)
