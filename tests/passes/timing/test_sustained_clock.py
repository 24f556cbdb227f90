"""Steps that a board's power cap slows down, and those that it does not."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfc
from perfc.costmodels import Target, load_target
from perfc.ir import Graph, LaunchGraph, TaskKind, single
from perfc.ir.support import Level
from perfc.tools.models import Dimensions, Model, prepare

CAP = "gpu.power_cap_watts"
UNCAPPED = load_target("h100", {CAP: "10000"})


@functools.cache
def model(name: str, batch: int, mode: str = "inference") -> Model:
    """Return a workload."""
    return perfc.load(name, batch=batch, mode=mode)


def busy(target: Target | str = "h100", **options: str) -> perfc.Report:
    """Return the report of a step of GEMMs that keeps a GPU busy."""
    wanted = {"runtime": "cudagraph", "dtype": "bf16", **options}
    return perfc.analyze(model("gpt3-xl:layers=4", 8), target, **wanted)  # type: ignore[arg-type]


def capped(watts: float) -> Target:
    """Return an H100 with a cap."""
    return load_target("h100", {CAP: repr(watts)})


def codes(report: perfc.Report) -> Mapping[str, Level]:
    """Return the codes of the remarks about power, and their levels."""
    found = {d.code: d.level for d in report.diagnostics}
    return {code: level for code, level in found.items() if "cap" in code}


def test_a_busy_step_is_slower_under_the_cap() -> None:
    """And the report says so in a line, with the clock."""
    free, held = busy(UNCAPPED), busy("h100")

    assert 1.01 < held.time_us / free.time_us < 1.15
    assert ({}, {"power-cap": Level.NOTE}) == (codes(free), codes(held))
    assert free.summary["sm_clock_mhz"] > held.summary["sm_clock_mhz"]


@given(st.floats(140, 1500), st.floats(140, 1500))
@settings(max_examples=15, deadline=None)
def test_a_higher_cap_makes_no_step_slower(one: float, other: float) -> None:
    """And the step stays within the cap where any clock can keep it so."""
    low, high = busy(capped(min(one, other))), busy(capped(max(one, other)))

    assert low.time_us >= high.time_us
    watts = low.summary["energy_j"] / (low.time_us / 1e6)
    assert watts <= min(one, other) * (1 + 1e-6) or "cap-not-kept" in codes(low)


def test_a_step_that_fills_the_gpu_draws_its_cap() -> None:
    """Joules are watts times seconds."""
    report = busy(capped(500))

    watts = report.summary["energy_j"] / (report.time_us / 1e6)
    assert pytest.approx(500, rel=1e-3) == watts


def test_samples_for_a_joule_are_those_of_the_step() -> None:
    """All replicas together, over the joules of all boards."""
    summary = busy().summary
    eight = perfc.load("gpt3-xl:layers=1", batch=8, ranks=8, mode="training")
    many = perfc.analyze(eight, "dgx-h100", runtime="cudagraph", dtype="bf16").summary

    assert pytest.approx(8 / summary["energy_j"]) == summary["samples_per_j"]
    assert pytest.approx(64 / many["energy_j"]) == many["samples_per_j"]


@pytest.mark.parametrize(("name", "batch"), [("dlrm-ddp", 512), ("bert-base", 1)])
def test_a_step_that_waits_for_its_host_is_not_slowed_down(
    name: str, batch: int
) -> None:
    """A GPU that is idle draws little: nothing changes, to the last digit."""
    held = perfc.analyze(model(name, batch, "training"), "h100")
    free = perfc.analyze(model(name, batch, "training"), UNCAPPED)

    assert free.time_us == held.time_us
    assert {} == codes(held)


def test_a_step_that_waits_for_memory_hardly_moves() -> None:
    """Lookups and optimizers of embeddings take as long at a lower clock."""
    name = "dlrm-default:embedding=batched"
    held, free = (
        perfc.analyze(model(name, 4096), target, runtime="cudagraph").time_us
        for target in (capped(500), UNCAPPED)
    )

    assert pytest.approx(free, rel=0.02) == held


def test_a_cap_that_no_clock_keeps_is_said() -> None:
    """Streaming kernels draw what they draw: a warning has the watts."""
    model_ = model("gpt2", 16, "training")
    report = perfc.analyze(model_, capped(140), runtime="cudagraph")

    assert Level.WARNING == codes(report)["cap-not-kept"]


def test_a_target_that_nobody_has_measured_keeps_its_prices() -> None:
    """Its report has no joules, and a cap by hand changes nothing but a warning."""
    plain = busy("a100")
    asked = busy(load_target("a100", {CAP: "200"}))

    keys = ("energy_j", "samples_per_j", "sm_clock_mhz")
    assert [None] * 3 == [plain.summary[key] for key in keys]
    assert plain.time_us == asked.time_us
    assert ({}, {"cap-without-power": Level.WARNING}) == (codes(plain), codes(asked))


def test_arithmetic_without_joules_gives_none() -> None:
    """The clock is known, the energy is not."""
    h100 = load_target("h100")
    assert h100.power is not None
    bare = attrs.evolve(h100, power=attrs.evolve(h100.power, joules_per_flop={}))

    summary = busy(bare).summary

    assert (None, None) == (summary["energy_j"], summary["samples_per_j"])


def test_measured_launches_stay_as_they_are() -> None:
    """A trace took what it took: nothing is said of its power."""
    graph = LaunchGraph("t")
    graph.task(TaskKind.KERNEL, graph.stream(), stated_s=1.0)
    program = single(graph)
    facts = perfc.load("dlrm-ddp", batch=1).annotations

    report = perfc.analyze(Model(program, facts, program), "h100")

    assert (1e6, None) == (report.time_us, report.summary["energy_j"])


def test_an_empty_step_draws_what_an_idle_board_does() -> None:
    """No kernel, no slow-down."""
    nothing = prepare(single(Graph("nothing")), Dimensions(), None, [])

    summary = perfc.analyze(nothing, "h100").summary

    assert pytest.approx(130 * summary["time_us"] / 1e6) == summary["energy_j"]
    assert 1980 == summary["sm_clock_mhz"]


def test_the_interval_has_what_is_not_known_of_the_clock() -> None:
    """Of a step that is held down it is wider than of one that is not."""

    def width(report: perfc.Report) -> float:
        low, high = report.interval_us
        return math.log(high / low)

    assert width(busy(capped(300))) > 1.2 * width(busy(UNCAPPED))


def test_a_pipeline_without_the_pass_keeps_the_prices() -> None:
    """It is one of the list, and can be left out."""
    text = (
        "lower-kernels,capture-graph,kernel-cost,overhead,stream-schedule,"
        "critical-path,time-interval"
    )
    report = busy("h100", pipeline=text)

    assert report.time_us == busy(UNCAPPED).time_us
    assert report.summary["energy_j"] is None
