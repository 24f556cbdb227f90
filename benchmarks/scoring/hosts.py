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
    yield from _groups("host times", found)
    yield from _groups("host times of stalled hosts", stalled)


def _groups(what: str, hosts: Sequence[LeftOutHost]) -> Iterator[Group]:
    if not hosts:
        return
    yield Group("board", f"{what}, sum", np.array([host.error for host in hosts]))
    halves = [host.scaled for host in hosts]
    units = np.repeat(np.arange(len(hosts)), [len(each) for each in halves])
    logs = np.concatenate([np.array(each) for each in halves])
    yield Group("board", f"{what}, half of them, speed known", logs, units=units)
