"""A profile pooled from several hosts: what they share, and how fast each is.

Hosts differ by one factor more than by anything else: a slow CPU, an old PyTorch or a
profiler that records much makes all host times longer. So each host's mean times are
divided by how slow it is, and what is left is averaged over hosts, each counting the
same. The profile is at the speed of the median host.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.costmodels import HostProfile, PerName
from perfc.costmodels.sheets import GRAPH_LAUNCH, GRAPH_NODE_US
from perfc.fitting.trace_host import BETWEEN_GAPS, HostTime
from perfc.traces import Gap

_KINDS = ("T1", "T2", "T3", "T5", "T0", "T4", "sync")
_ROUNDS = 30
"""Speeds and means tell each other; after ten the speeds change by less than 1e-3."""

_STALLED = 3.0
_FEWEST_TIMES = 10
"""An op that was seen less often takes what its kind does."""

_SPLITS = 10
_SIGMA_MOST = 1.0
_SYNC_CALLS = (
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
)
_ELEMENTWISE = tuple(
    f"aten::{name}" for name in ("add", "sub", "mul", "relu", "sigmoid", "tanh", "gelu")
)
_LOOKUP_BACKWARD = "torch::autograd::CppNode<SplitLookupFunction_{}_Op>"
_LIKE: Mapping[str, tuple[str, ...]] = {
    **{f"aten::{name}": _ELEMENTWISE for name in ("div", "silu", "exp", "pow", "neg")},
    **dict.fromkeys(_ELEMENTWISE, _ELEMENTWISE),
    "aten::addmm": ("aten::linear",),
    "aten::matmul": ("aten::bmm",),
    **{
        _LOOKUP_BACKWARD.format(kind): (_LOOKUP_BACKWARD.format("rowwise_adagrad"),)
        for kind in ("sgd", "adam")
    },
    "fbgemm::split_embedding_codegen_lookup": (
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
    ),
}
"""Ops whose host times are those of others: the same code of PyTorch around another
kernel, or another name of the same op."""

_CALLS_US: Mapping[str, float] = {
    "cudaEventRecord": 1.4,
    "cudaStreamWaitEvent": 1.5,
    "cuLaunchKernel": 4.5,
    GRAPH_LAUNCH: 2.0,
}
"""Calls of which the traces tell too little. The first three are trimmed means over
newer traces of the same sources (0.3 to 2.4, 1 to 2, and 4.5 us for Triton's launch);
graphs are not recorded: see `GRAPH_NODE_US`."""

_WAYS = (Gap.HAND_OVER, Gap.HAND_BACK)
"""What lies between two ops of any training step: the ways to autograd's thread and
back. What lies at labels, and at the beginning and the end of an iteration, is the
script's, and differs from host to host by up to a thousand times."""

_FEWEST_HOSTS = 3

Key: TypeAlias = tuple[str, str]
"""Kind of a host time, and the op or call."""


@attrs.frozen
class HostMeans:
    """The host times of one host.

    Attributes:
        us: Mean of each kind and name.
        count: How many there were of each.

    """

    us: Mapping[Key, float]
    count: Mapping[Key, int]

    def total_us(self, keys: Iterable[Key]) -> float:
        """Return the sum of all times of these kinds and names."""
        return sum(self.us[key] * self.count[key] for key in keys)

    def mean_us(self, kind: str) -> float:
        """Return the mean of all times of a kind; 0 if there are none."""
        keys = [key for key in self.us if key[0] == kind]
        count = sum(self.count[key] for key in keys)
        return self.total_us(keys) / count if count else 0.0


@attrs.frozen
class Pooled:
    """What hosts share.

    Attributes:
        default_us: Mean of a kind, at the speed of the median host.
        named_us: Mean of a kind and name, likewise.
        speed: How fast each host is, relative to the median one; the sum of that one's
            times is that of the profile.

    """

    default_us: Mapping[str, float]
    named_us: Mapping[Key, float]
    speed: Mapping[str, float]

    def predicted_us(self, key: Key) -> float:
        """Return the time of a kind and name, 0 for a kind that no host has."""
        return self.named_us.get(key, self.default_us.get(key[0], 0.0))

    def speed_of(self, host: HostMeans, keys: Iterable[Key] | None = None) -> float:
        """Return how fast a host is, by its times of some kinds and names or of all."""
        chosen = list(host.us if keys is None else keys)
        predicted_us = sum(host.count[k] * self.predicted_us(k) for k in chosen)
        return predicted_us / host.total_us(chosen)


@attrs.frozen
class LeftOutHost:
    """How well the other hosts predict one; errors are logarithms of the ratio.

    Attributes:
        name: The host.
        error: Of the sum of its times, predicted / measured, its speed unknown.
        scaled: The same of half of its ops, the other half telling its speed; one for
            each way to halve them.

    """

    name: str
    error: float
    scaled: tuple[float, ...]

    @property
    def scaled_error(self) -> float:
        """Root mean square of `scaled`."""
        return _rms(self.scaled)


def host_means(times: Iterable[HostTime]) -> HostMeans:
    """Return the means of what was no stall."""
    found: dict[Key, list[float]] = defaultdict(list)
    for time in times:
        if time.stall is None and time.kind in _KINDS:
            found[_key(time)].append(time.us)
    return HostMeans(
        {key: statistics.fmean(us) for key, us in found.items()},
        {key: len(us) for key, us in found.items()},
    )


def _key(time: HostTime) -> Key:
    return time.kind, "" if time.kind == "T1" else time.name


def is_stalled(times: Iterable[HostTime]) -> bool:
    """Whether a host stood still for reasons that nothing in its traces names.

    Then the mean of T2 is far from the median: on hosts at work it is at most 2.7
    times as long.
    """
    t2_us = [time.us for time in times if time.kind == "T2" and time.stall is None]
    return statistics.fmean(t2_us) > _STALLED * statistics.median(t2_us)


def pool(hosts: Mapping[str, HostMeans]) -> Pooled:
    """Return the times that hosts share, and how fast each host is.

    Means of logarithms over hosts. For an op the mean of its kind counts as one host
    more: few hosts tell less of an op than of all ops.
    """
    pooled = _averaged(hosts, dict.fromkeys(hosts, 1.0))
    for _ in range(_ROUNDS):
        pooled = _averaged(hosts, pooled.speed)
    return pooled


def _averaged(hosts: Mapping[str, HostMeans], speed: Mapping[str, float]) -> Pooled:
    """Average over hosts whose speeds are about known, and tell them better."""
    kinds: dict[str, list[float]] = defaultdict(list)
    names: dict[Key, list[float]] = defaultdict(list)
    for name, host in hosts.items():
        for kind in _KINDS:
            if mean_us := host.mean_us(kind):
                kinds[kind].append(math.log(mean_us * speed[name]))
        for key, us in host.us.items():
            names[key].append(math.log(us * speed[name]))
    default = {kind: statistics.fmean(logs) for kind, logs in kinds.items()}
    named = {
        key: statistics.fmean([*logs, default[key[0]]])
        for key, logs in names.items()
        if sum(host.count.get(key, 0) for host in hosts.values()) >= _FEWEST_TIMES
    }
    pooled = Pooled(
        {kind: math.exp(log) for kind, log in default.items()},
        {key: math.exp(log) for key, log in named.items()},
        {},
    )
    found = {name: pooled.speed_of(host) for name, host in hosts.items()}
    middle = math.exp(statistics.median(map(math.log, found.values())))
    return Pooled(
        {kind: us / middle for kind, us in pooled.default_us.items()},
        {key: us / middle for key, us in pooled.named_us.items()},
        {name: value / middle for name, value in found.items()},
    )


def left_out_hosts(hosts: Mapping[str, HostMeans]) -> list[LeftOutHost]:
    """Predict each host from the others."""
    found: list[LeftOutHost] = []
    for name, host in hosts.items():
        others = pool({n: other for n, other in hosts.items() if n != name})
        found.append(left_out_host(name, host, others))
    return found


def left_out_host(name: str, host: HostMeans, others: Pooled) -> LeftOutHost:
    """Compare a host with what others make of it."""
    scaled: list[float] = []
    for told, asked in _halves(host):
        told_log, asked_log = (
            math.log(others.speed_of(host, keys)) for keys in (told, asked)
        )
        scaled.append(asked_log - told_log)
    return LeftOutHost(name, math.log(others.speed_of(host)), tuple(scaled))


def _halves(host: HostMeans) -> Iterator[tuple[list[Key], list[Key]]]:
    """Yield ways to halve a host's ops, by a hash of their names."""
    for salt in range(_SPLITS):
        halves: tuple[list[Key], list[Key]] = ([], [])
        for key in sorted(host.us):
            halves[zlib.crc32(f"{salt} {key}".encode()) % 2].append(key)
        if all(halves):
            yield halves


def shared_profile(hosts: Mapping[str, Sequence[HostTime]]) -> HostProfile:
    """Return the profile of some hosts, at the speed of the median one.

    Args:
        hosts: Host times of each.

    """
    means = {name: host_means(times) for name, times in hosts.items()}
    pooled, left_out = pool(means), left_out_hosts(means)

    def table(kind: str) -> PerName:
        named_s = {
            name: us * 1e-6
            for (of, name), us in pooled.named_us.items()
            if of == kind and name
        }
        return PerName(pooled.default_us[kind] * 1e-6, named_s | _alike(named_s))

    between_s = {
        BETWEEN_GAPS[gap]: math.exp(statistics.fmean(logs)) * 1e-6
        for gap in _WAYS
        for logs in [[*_way_logs(hosts, pooled, gap)]]
        if len(logs) >= _FEWEST_HOSTS
    }
    calls, syncs = table("T4"), table("sync")
    fixed_s = {name: us * 1e-6 for name, us in _CALLS_US.items()}
    waits_s = dict.fromkeys(_SYNC_CALLS, syncs.default_s)
    return HostProfile(
        name="",
        t1_s=pooled.default_us["T1"] * 1e-6,
        t2_s=table("T2"),
        t3_s=table("T3"),
        t5_s=table("T5"),
        t0_s=table("T0"),
        calls_s=PerName(
            calls.default_s, {**fixed_s, **waits_s, **calls.named_s, **syncs.named_s}
        ),
        graph_node_s=GRAPH_NODE_US * 1e-6,
        between_s=between_s,
        sigma_shared=_sigma(host.error for host in left_out),
        sigma_scaled=_sigma(host.scaled_error for host in left_out),
        sigma_independent=_sigma(
            math.log(time.us / means[name].us[key])
            for name, times in hosts.items()
            for time in times
            for key in [_key(time)]
            if key in means[name].us and time.stall is None
        ),
        source="",
        date="",
        software="",
    )


def _way_logs(
    hosts: Mapping[str, Sequence[HostTime]], pooled: Pooled, gap: Gap
) -> Iterator[float]:
    """Yield the logarithm of a gap's mean on each host, at the median one's speed."""
    for name, times in hosts.items():
        own = [t.us for t in times if t.kind == gap.value and t.stall is None]
        if own:
            yield math.log(statistics.fmean(own) * pooled.speed[name])


def _alike(named_s: Mapping[str, float]) -> dict[str, float]:
    """Return the times of ops that are those of others."""
    found: dict[str, float] = {}
    for name, others in _LIKE.items():
        known = [math.log(named_s[other]) for other in others if other in named_s]
        if known:
            found[name] = math.exp(statistics.fmean(known))
    return found


def _sigma(logs: Iterable[float]) -> float:
    return min(_rms(list(logs)), _SIGMA_MOST)


def _rms(logs: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(log * log for log in logs))
