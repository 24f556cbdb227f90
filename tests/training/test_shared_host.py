"""One profile of several hosts, and how fast each of them is."""

from __future__ import annotations

import math
import os
import runpy
from collections.abc import Mapping
from pathlib import Path

import pytest
from training.shared_host import (
    host_means,
    is_stalled,
    left_out_hosts,
    pool,
    shared_profile,
)

from perfc.costmodels import load_profile
from perfc.costmodels.sheets import parse_profile
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.trace_host import HostTime, Stall

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("PERFC_DATA", ROOT.parent / "shared" / "data"))
TRACES = DATA / "traces"

OPS = ("aten::linear", "aten::relu", "aten::cat", "aten::bmm", "aten::sum")
CALLS = ("cudaLaunchKernel", "cudaMemcpyAsync")


def _times(
    slowness: float, us: Mapping[str, float] | None = None, *, count: int = 20
) -> list[HostTime]:
    """Return the times of a host: each op takes 10 us more than the one before."""
    base = us or {name: 10.0 * (i + 1) for i, name in enumerate(OPS)}
    found = [
        HostTime(kind, name, slowness * op_us, 0, None)
        for name, op_us in base.items()
        for kind in ("T1", "T2", "T3", "T5", "T0")
        for _ in range(count)
    ]
    calls = [HostTime("T4", call, slowness * 5.0, 0, None) for call in CALLS]
    return (
        found
        + calls * count
        + [HostTime("sync", "cudaStreamSynchronize", 3.0, 0, None)]
    )


def test_hosts_that_differ_by_their_speed_alone() -> None:
    """Of hosts that are 1, 2 and 4 times as slow the profile is the middle one's."""
    hosts = {
        name: host_means(_times(by)) for name, by in (("a", 1), ("b", 2), ("c", 4))
    }

    found = pool(hosts)

    assert {"a": 2.0, "b": 1.0, "c": 0.5} == pytest.approx(found.speed, rel=1e-3)
    linear_us = found.predicted_us(("T2", "aten::linear"))
    assert linear_us < found.default_us["T2"] < found.predicted_us(("T2", "aten::sum"))
    assert hosts["b"].total_us(hosts["b"].us) == pytest.approx(
        sum(hosts["b"].count[key] * found.predicted_us(key) for key in hosts["b"].us)
    )


def _with_gaps(slowness: float, **us: float) -> list[HostTime]:
    """Return the times of a host, with one gap of each kind that is named."""
    gaps = [
        HostTime(kind.replace("_", "-"), "", slowness * gap_us, 0, None)
        for kind, gap_us in us.items()
    ]
    return _times(slowness) + gaps


def test_the_ways_to_autograd_and_back_are_pooled() -> None:
    """They are means of logarithms at the median host's speed, as other times are."""
    hosts = {
        "a": _with_gaps(1, hand_over=50.0, hand_back=30.0, phase=900.0, end=70.0),
        "b": _with_gaps(2, hand_over=100.0, hand_back=30.0, phase=5.0, end=70.0),
        "c": _with_gaps(4, hand_over=200.0, phase=10.0, end=70.0),
        "d": _times(2),
    }

    found = shared_profile(hosts)

    # 100, 200 and 400 us as fast as "b" and "d", which are in the middle; two hosts
    # tell no way back, and what lies at labels and at the end is the script's.
    assert {"hand_over": 200e-6} == pytest.approx(found.between_s, rel=1e-2)


def test_a_stall_is_no_way_to_autograd() -> None:
    """What stood still on the way is left out."""
    stalled = HostTime("hand-over", "", 9e5, 0, Stall.LAZY)
    hosts = {name: [*_with_gaps(1, hand_over=50.0), stalled] for name in "abc"}

    assert {"hand_over": 50e-6} == pytest.approx(shared_profile(hosts).between_s)


def test_an_op_of_few_hosts_is_partly_like_all_ops() -> None:
    """Seen on one host an op lies half way, in logarithms, to the mean of its kind."""
    plain = {"aten::relu": 10.0, "aten::cat": 10.0}
    hosts = {
        "a": host_means(_times(1, {**plain, "aten::rare": 40.0})),
        "b": host_means(_times(1, plain)),
    }

    found = pool(hosts)

    rare_us = found.predicted_us(("T2", "aten::rare"))
    ratio = rare_us / found.default_us["T2"]
    log = math.log(40.0 * found.speed["a"] / found.default_us["T2"])
    assert ratio == pytest.approx(math.exp(log / 2), rel=0.05)


def test_a_host_left_out_is_predicted_by_its_speed() -> None:
    """Its own speed unknown the sum is off by that, else by what kinds lend to ops."""
    hosts = {str(by): host_means(_times(by)) for by in (1, 1.5, 2, 8)}

    found = {host.name: host for host in left_out_hosts(hosts)}

    assert math.log(1.5 / 8) == pytest.approx(found["8"].error, abs=0.05)
    assert found["8"].scaled_error < 0.1


def test_stalls_that_nothing_names() -> None:
    """A host whose mean T2 is far above the median stood still; no named stalls."""
    usual = _times(1)
    long = [HostTime("T2", "aten::relu", 1e5, 0, None)]
    named = [HostTime("T2", "aten::relu", 1e5, 0, Stall.ALLOCATOR)]

    assert not is_stalled(usual)
    assert is_stalled(usual + long)
    assert not is_stalled(usual + named)


def test_the_profile_can_be_read_back() -> None:
    """It says what hosts differ by, with their speeds known and not."""
    hosts = {str(by): _times(by) for by in (1, 2, 4)}
    profile = shared_profile(hosts)
    head = ProfileHead(name="n", source="s", date="2026-01-01", software="w")

    again = parse_profile(profile_text(head, host=profile), "here")

    assert again.sigma_scaled is not None
    assert again.sigma_scaled < again.sigma_shared
    assert again.calls_s.of("cudaStreamSynchronize") < again.calls_s.of(
        "cudaLaunchKernel"
    )
    assert again.t2_s.of("aten::addmm") == again.t2_s.of("aten::linear")
    assert again.t2_s.of("aten::silu") == again.t2_s.of("aten::relu")


def test_shipped_profile_is_pooled() -> None:
    """`shared` says how sure it is of a host whose speed is known."""
    shared = load_profile("shared")

    assert shared.sigma_scaled is not None
    assert shared.sigma_scaled < shared.sigma_shared


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="no public traces; set PERFC_DATA")
def test_the_shipped_profile_is_what_make_fit_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same traces give the same file, byte for byte."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    fit = runpy.run_path(str(ROOT / "benchmarks" / "fits" / "hosts.py"))
    shipped = ROOT / "costmodels" / "profiles" / "shared.toml"

    times = {name: fit["_times"](TRACES, where) for name, where in fit["HOSTS"].items()}
    at_work = {name: us for name, us in times.items() if not is_stalled(us)}

    assert 8 == len(at_work)
    assert shipped.read_text("utf-8") == fit["_shared_text"](at_work, shipped)


def test_a_profile_at_another_speed() -> None:
    """A host that is twice as fast takes half of every time, less surely."""
    for name in ("shared", "lin-v100"):
        profile = load_profile(name)

        fast = profile.at_speed(2.0)

        assert fast.t1_s == profile.t1_s / 2
        assert fast.t2_s.of("aten::relu") == profile.t2_s.of("aten::relu") / 2
        assert fast.t5_s.default_s == profile.t5_s.default_s / 2
        assert fast.calls_s.of("cudaLaunchKernel") == (
            profile.calls_s.of("cudaLaunchKernel") / 2
        )
        assert fast.compiled_s["graph"] == profile.compiled_s["graph"] / 2
    assert load_profile("shared").at_speed(2.0).sigma_shared == (
        load_profile("shared").sigma_scaled
    )
    assert load_profile("lin-v100").at_speed(2.0).sigma_shared > 0.35
