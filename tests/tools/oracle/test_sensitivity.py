"""What decides the time: slopes against what the oracle answers a little further."""

from __future__ import annotations

import functools
import json
import math
import pickle
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.exporters.predictions import two_ranks
from tests.tools.oracle.test_oracle import MODELS, oracle_of

from perfc import Oracle, PerfcError, edits, load
from perfc.costmodels import load_target
from perfc.costmodels.sheets import FIELDS
from perfc.tools.reports import Sensitivity, Slope

STEP = 1e-4
CLOSE = 1e-3
"""Slopes differ by less: prices bend by their second derivative."""


@functools.cache
def slopes_of(name: str) -> Sensitivity:
    """Return the slopes of a model."""
    return oracle_of(name).sensitivity()


def asked(oracle: Oracle, slope: Slope, factor: float) -> float:
    """Return the time with a number that many times as large."""
    if slope.kind == "target":
        value = float(oracle.target.fields.get(slope.name, 1.0))
        return oracle.ask(edits.Target(**{slope.name: value * factor}))
    return oracle.ask(edits.Duration(slope.name, factor=factor))


def sides(oracle: Oracle, slope: Slope) -> tuple[float, float]:
    """Return the slopes upwards and downwards, by difference."""
    time_us = oracle.time_us
    up = (asked(oracle, slope, 1 + STEP) / time_us - 1) / STEP
    down = (asked(oracle, slope, 1 - STEP) / time_us - 1) / -STEP
    return up, down


def is_asked(slope: Slope) -> bool:
    """Whether an edit says the same: a node, a kernel, a field that is no count."""
    if slope.kind == "target":
        return not FIELDS[slope.name].whole
    return slope.kind == "op" or (
        slope.kind == "kernel" and slope.name != "gaps between kernels"
    )


@pytest.mark.parametrize("name", MODELS)
def test_host_and_kernels_are_the_whole_time(name: str) -> None:
    """One percent more of everything is one percent more time."""
    parts = [s for s in slopes_of(name).slopes if s.kind in {"host", "kernel"}]

    assert math.fsum(s.slower for s in parts) == pytest.approx(1.0, abs=1e-9)
    assert math.fsum(s.faster for s in parts) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_the_breakdown(name: str) -> None:
    """Of one critical path, the slopes of its parts are their shares of the time."""
    report = oracle_of(name).report()
    shares: dict[str, float] = {}
    for row in report.breakdown:
        if row["kind"] in {"host", "sync"}:
            shares[row["detail"]] = row["time_us"] / report.time_us
    slopes = {s.name: s.faster for s in slopes_of(name).of("host")}
    slopes.pop("launch latency", None)

    assert shares == pytest.approx(slopes, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_slopes_are_what_the_oracle_answers(name: str, data: st.DataObject) -> None:
    """Of any field, kernel or node, a little more and a little less."""
    listed = [s for s in slopes_of(name).slopes if is_asked(s)]
    slope = data.draw(st.sampled_from(listed))
    up, down = sides(oracle_of(name), slope)
    faster, slower = (up, down) if up + down <= 0 else (down, up)

    assert faster == pytest.approx(slope.faster, abs=CLOSE)
    assert slower == pytest.approx(slope.slower, abs=CLOSE)


@settings(max_examples=6, deadline=None)
@given(
    batch=st.sampled_from([16, 100, 700, 3000]),
    width=st.sampled_from([16, 48, 64]),
    tables=st.integers(1, 4),
    target=st.sampled_from(["v100", "a100", "t4", "cpu"]),
    data=st.data(),
)
def test_slopes_of_random_models(
    batch: int, width: int, tables: int, target: str, data: st.DataObject
) -> None:
    """Of other sizes and targets, away from where the time bends."""
    model = f"dlrm-default:tables={tables},rows=1000,dim={width}"
    oracle = Oracle(model, target, batch=batch)
    listed = [s for s in oracle.sensitivity().slopes if is_asked(s) and not s.remark]
    slope = data.draw(st.sampled_from(listed))
    up, down = sides(oracle, slope)
    assume(abs(up - down) < CLOSE)

    assert (up + down) / 2 == pytest.approx(slope.faster, abs=CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_everything_that_matters_is_there(name: str) -> None:
    """A field without a slope changes nothing."""
    oracle, told = oracle_of(name), {s.name for s in slopes_of(name).of("target")}
    for field, value in oracle.target.fields.items():
        if isinstance(value, str) or FIELDS[field].whole or field in told or not value:
            continue
        time_us = oracle.ask(edits.Target(**{field: value * (1 + STEP)}))

        assert oracle.time_us == pytest.approx(time_us, rel=1e-9)


def test_counts_are_one_more_and_one_less() -> None:
    """108 SMs take one wave of tiles less than 107, and as many as 109."""
    oracle = Oracle("dlrm-default", "a100", batch=2048)
    (slope,) = [s for s in oracle.sensitivity().slopes if s.name == "gpu.sm_count"]
    less = math.log(oracle.ask(edits.Target(**{"gpu.sm_count": 107})) / oracle.time_us)

    assert slope.slower == pytest.approx(less / math.log(107 / 108))
    assert slope.faster > slope.slower + 0.1
    assert "one more, one less" == slope.remark


def test_the_host_of_a_sheet_without_its_speed() -> None:
    """How fast the host is, is a number of every target."""
    oracle = oracle_of("dlrm")
    speed = next(s for s in slopes_of("dlrm").slopes if s.name == "host.speed")
    hosts = [s for s in slopes_of("dlrm").of("host") if s.name != "launch latency"]

    assert "host.speed" not in oracle.target.fields
    assert -math.fsum(s.faster for s in hosts) == pytest.approx(speed.faster, abs=1e-4)


def test_two_paths_as_long() -> None:
    """At a tie nothing is won by one of them alone, and all is lost by it."""
    oracle = Oracle(load(MODELS["dlrm"][0], batch=64), "a100")
    node = "top_l.0.linear"
    low, high = 1.0, 10_000.0
    for _ in range(200):
        middle = (low + high) / 2
        longer = oracle.ask(edits.Duration(node, us=middle)) > oracle.ask(
            edits.Duration(node, us=1.0)
        )
        low, high = (low, middle) if longer else (middle, high)
    oracle.apply(edits.Duration(node, us=low))
    found = oracle.sensitivity()
    (slope,) = [s for s in found.of("op") if s.name == node]

    assert 0.0 == slope.faster
    assert slope.slower == pytest.approx(low / oracle.time_us)
    assert "another path is as long" == slope.remark
    kept = [s for s in found.slopes if s.kind in {"host", "kernel"}]
    assert math.fsum(s.slower for s in kept) > 1.0 > math.fsum(s.faster for s in kept)


def test_another_piece_near_by() -> None:
    """Where another kernel is chosen within one percent, the slope says so."""
    oracle = Oracle("resnet50", "v100", batch=32)
    clock = next(s for s in oracle.sensitivity().slopes if s.name == "gpu.sm_clock_mhz")
    far = oracle.ask(edits.Target(**{"gpu.sm_clock_mhz": 1530 * 1.01})) / oracle.time_us

    assert 1530 == oracle.target.fields["gpu.sm_clock_mhz"]
    assert "another piece within 1 %: conv2d" == clock.remark
    assert abs((far - 1) / 0.01 - clock.faster) > 0.1


def test_a_field_at_the_end_of_its_range() -> None:
    """The sheet cannot say more: the slope is that of the other side."""
    oracle = Oracle(MODELS["dlrm"][0], "a100", batch=64, overrides={"host.speed": 100})
    speed = next(s for s in oracle.sensitivity().slopes if s.name == "host.speed")

    assert "the sheet allows nothing larger" == speed.remark
    assert speed.faster == speed.slower < 0


def test_what_is_set_stays_set() -> None:
    """A duration that is set follows no field."""
    oracle = Oracle(MODELS["dlrm"][0], "a100", batch=64)
    oracle.apply(edits.Duration("gemm", us=3_000))
    found = {s.name: s for s in oracle.sensitivity().slopes}
    fresh = oracle.ask(edits.Target(**{"gpu.sm_clock_mhz": 1410 * (1 + STEP)}))

    assert found["gemm"].faster > 0.5
    change = (fresh / oracle.time_us - 1) / STEP
    assert change == pytest.approx(found["gpu.sm_clock_mhz"].faster, abs=CLOSE)
    assert abs(change) < 0.1


def test_tasks_that_slow_each_other_down() -> None:
    """Under contention slopes hold as long as tasks do so as now, and say so."""
    oracle = Oracle("gpt2:layers=1", "dgx-a100", batch=4, mode="training", ranks=8)
    found = oracle.sensitivity()
    parts = [s for s in found.slopes if s.kind in {"host", "kernel"}]

    assert ["shared"] == [remark.code for remark in found.diagnostics]
    assert math.fsum(s.faster for s in parts) == pytest.approx(1.0, abs=1e-9)
    for slope in found.of("kernel")[:3]:
        for side in sides(oracle, slope):
            assert side == pytest.approx(slope.faster, abs=0.01)


def test_a_target_whose_sheet_is_not_known() -> None:
    """Its fields have no slopes, which is said; all else has."""
    told = load_target("a100", {"gpu.sm_clock_mhz": "1200"})
    known = Oracle(load(MODELS["dlrm"][0], batch=64), told).sensitivity()
    hidden = pickle.loads(pickle.dumps(told))  # noqa: S301 - our own
    object.__setattr__(hidden, "spec_sha256", "other")
    found = Oracle(load(MODELS["dlrm"][0], batch=64), hidden).sensitivity()

    assert known.of("target")
    assert () == known.diagnostics
    assert [] == found.of("target")
    assert known.of("host") == found.of("host")
    (remark,) = found.diagnostics
    assert "no-slopes-of-fields" == remark.code
    assert "was given as an object" in remark.message


def test_a_step_without_kernels(tmp_path: Path) -> None:
    """All of it is the host's; what takes no time has no slopes."""
    path = tmp_path / "nothing.perfc"
    path.write_text("graph @nothing(%x: f32[4]) {\n  return %x\n}\n", encoding="utf-8")
    oracle = Oracle(str(path), "a100", inputs="device")
    found = oracle.sensitivity()
    oracle.apply(edits.Duration("*", us=0))
    none = oracle.sensitivity()

    assert [] == found.of("kernel")
    assert math.fsum(s.faster for s in found.of("host")) == pytest.approx(1.0)
    assert 0.0 == oracle.time_us == none.time_us
    assert () == none.slopes
    assert [] == none.table


def test_launches_that_are_given() -> None:
    """Of two ranks that meet, the parts of the time are those of both."""
    report = two_ranks()
    found = Oracle(report.model, "v100").sensitivity()
    parts = [s for s in found.slopes if s.kind in {"host", "kernel"}]

    assert math.fsum(s.faster for s in parts) == pytest.approx(1.0)
    assert "host.speed" not in {s.name for s in found.of("target")}


def test_it_is_data() -> None:
    """A table, JSON, one line, and a pickle."""
    found = slopes_of("dlrm")
    document = json.loads(found.to_json())

    assert "perfc.sensitivity/1" == document["schema"]
    assert [s.name for s in found.slopes] == [row["name"] for row in document["slopes"]]
    assert sorted(found.slopes, key=lambda s: -s.size) == [*found.slopes]
    assert 1 == repr(found).count("\n") + 1
    assert repr(found).startswith("<Sensitivity dlrm-default on a100-sxm-80g, eager: ")
    assert found.slopes == pickle.loads(pickle.dumps(found)).slopes  # noqa: S301
    assert "gpu.memory_gb_per_s" in str(found) or "host.speed" in str(found)


def test_a_field_that_does_what_its_follower_does_is_not_shown() -> None:
    """A wider bus is more bandwidth: the table has the bandwidth."""
    found = oracle_of("capped").sensitivity()
    shown = {s.name for s in found.shown}
    rate = next(s for s in found.slopes if s.name == "gpu.memory_data_rate_gt_per_s")

    assert ("gpu.memory_gb_per_s",) == rate.moves
    assert "gpu.memory_gb_per_s" in shown
    assert rate.name not in shown


def test_it_ends_with_a_schedule() -> None:
    """An oracle without the pass that solves schedules is none."""
    with pytest.raises(PerfcError, match="needs the pass stream-schedule"):
        Oracle(
            MODELS["dlrm"][0], "a100", batch=64, pipeline="lower-kernels,kernel-cost"
        )


def test_an_oracle_keeps_what_it_has() -> None:
    """A look at all fields leaves targets and prices of the oracle as they were."""
    oracle = Oracle(MODELS["dlrm"][0], "a100", batch=64)
    state = oracle._states[-1]  # pyright: ignore[reportPrivateUsage]
    memory = state.setting.memory
    before = {name: dict(kernels) for name, kernels in memory.prices.items()}
    found = oracle.sensitivity()

    assert before == memory.prices
    assert found.slopes == oracle.sensitivity().slopes
