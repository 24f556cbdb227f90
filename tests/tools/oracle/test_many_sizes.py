"""Batches of sizes: the times that analyses from the start have, one by one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfc
from perfc import Oracle, PerfcError, edits
from perfc.tools.oracle.setting import Setting

CLOSE = 1e-9
APART = "sizes are looked at one by one: "

MODELS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "inference": ("dlrm-default:tables=3,rows=1000", "a100", {}, 40_000),
    "training": ("dlrm-default:tables=2", "a100", {"mode": "training"}, 9_000),
    "mlperf": (
        "dlrm-mlperf",
        "v100",
        {"mode": "training", "optimizer": "adagrad"},
        5_000,
    ),
    "gpt2": ("gpt2:layers=2", "h100-sxm", {"mode": "training"}, 40),
    "resnet50": ("resnet50", "a100", {}, 200),
    "bert": ("bert-base:layers=2", "l4", {"dtype": "bf16"}, 90),
    "graph": ("dlrm-default:tables=2", "a100", {"runtime": "cudagraph"}, 9_000),
    "compiled": ("dlrm-default:tables=2", "a100", {"runtime": "compiled"}, 9_000),
    "cpu": ("dlrm-default:tables=2,rows=1000", "cpu", {}, 3_000),
}


def setting_of(oracle: Any) -> Setting:
    """Return what an oracle is of."""
    setting: Setting = oracle._states[-1].setting
    return setting


@functools.cache
def oracle_of(name: str) -> Oracle:
    """Return an oracle that is asked again and again."""
    model, target, options, _ = MODELS[name]
    return Oracle(model, target, batch=8, **options)


@functools.cache
def analyzed_us(name: str, batch: int) -> float:
    """Return the time of an analysis from the start."""
    model, target, options, _ = MODELS[name]
    runtime = {k: v for k, v in options.items() if k == "runtime"}
    rest = {k: v for k, v in options.items() if k != "runtime"}
    return perfc.analyze(
        perfc.load(model, batch=batch, **rest), target, **runtime
    ).time_us


@st.composite
def some_sizes(draw: st.DrawFn, most: int) -> list[int]:
    """Draw sizes, small ones and large ones, some twice, in any order."""
    few = st.lists(st.integers(1, min(most, 40)), min_size=5, max_size=9)
    large = st.lists(st.integers(1, most), min_size=2, max_size=6)
    found = [*draw(few), *draw(large), 1, 2**20 if most > 10_000 else most]
    return draw(st.permutations([*found, found[0]]))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_a_batch_of_sizes_is_an_analysis_of_each(
    name: str, data: st.DataObject
) -> None:
    """Whatever the sizes are, and whatever was asked before."""
    sizes = data.draw(some_sizes(MODELS[name][3]))
    found = oracle_of(name).batch({"batch": np.array(sizes)})["time_us"]

    expected = [analyzed_us(name, size) for size in sizes]
    assert expected == pytest.approx(found, rel=CLOSE)


def test_convolutions_in_tf32_are_chosen_by_arrays() -> None:
    """Sizes that take a TF32 convolution and those that do not are parted."""
    answers = oracle_of("resnet50").batch({"batch": np.arange(1, 100, 7)})

    assert () == answers.diagnostics


def test_sizes_of_many_structures() -> None:
    """GEMMs are split at some batches: sizes are parted by their tasks."""
    oracle = Oracle("dlrm-default", "a100", batch=2048, mode="training")
    sizes = np.concatenate([np.arange(1, 60), np.arange(100, 9000, 300)])
    answers = oracle.batch({"batch": sizes})

    assert () == answers.diagnostics
    assert 1 < len(setting_of(oracle).lowered)
    for at in range(0, len(sizes), 5):
        asked_us = oracle.ask(edits.Bind(batch=int(sizes[at])))
        assert asked_us == pytest.approx(answers["time_us"][at], rel=CLOSE)


def test_sizes_beside_other_columns() -> None:
    """Types, fields of the target and of the host, durations: all at once."""
    oracle = Oracle("dlrm-default:tables=3,rows=1000", "a100", batch=64)
    chance = np.random.default_rng(3)
    count = 60
    columns: dict[str, Any] = {
        "batch": chance.integers(1, 3000, count),
        "dtype": chance.choice(["fp32", "bf16"], count),
        "gpu.memory_gb_per_s": chance.choice([900.0, 1800.0], count),
        "host.speed": chance.choice([0.5, 2.0], count),
        "factor:gemm": chance.random(count) * 2,
        "us:bot_l.0.linear": chance.random(count) * 30,
    }
    found = oracle.batch(columns)["time_us"]

    for at in range(0, count, 7):
        one = {name: values[at].item() for name, values in columns.items()}
        asked: list[Any] = [
            edits.Target(
                **{name: one[name] for name in ("gpu.memory_gb_per_s", "host.speed")}
            ),
            edits.Dtype("*", one["dtype"]),
            edits.Bind(batch=one["batch"]),
            edits.Duration("gemm", factor=one["factor:gemm"]),
            edits.Duration("bot_l.0.linear", us=one["us:bot_l.0.linear"]),
        ]
        assert oracle.ask(*asked) == pytest.approx(found[at], rel=CLOSE)


def test_durations_that_were_set_stay() -> None:
    """What is applied to the oracle counts at every size."""
    oracle = Oracle("dlrm-default:tables=3,rows=1000", "a100", batch=64)
    oracle.apply(edits.Duration("bot_l.0.linear", us=500.0))
    sizes = np.arange(8, 800, 24)
    found = oracle.batch({"batch": sizes})["time_us"]

    for at in range(0, len(sizes), 9):
        asked_us = oracle.ask(edits.Bind(batch=int(sizes[at])))
        assert asked_us == pytest.approx(found[at], rel=CLOSE)


def test_parts_of_a_node_that_vary_apart() -> None:
    """A GEMM and the kernel that joins its parts are set together, at each size."""
    oracle = Oracle("dlrm-default:tables=2", "a100", batch=40)
    places = setting_of(oracle).step.places
    named = [n["id"] for n in oracle.report().nodes if n["duration_us"] > 0]
    node = next(n for n in named if len(places.units(n)[0]) > 1)
    columns = {"batch": np.arange(40, 56), f"us:{node}": np.linspace(1, 90, 16)}
    found = oracle.batch(columns)["time_us"]

    for at in (0, 7, 15):
        timed = edits.Duration(node, us=columns[f"us:{node}"][at])
        asked_us = oracle.ask(edits.Bind(batch=40 + at), timed)
        assert asked_us == pytest.approx(found[at], rel=CLOSE)


def test_sizes_too_large_for_arrays() -> None:
    """Work of more than 64 bits is counted as Python counts."""
    wide = "dlrm-default:tables=2,bottom=8192-8192"
    oracle = Oracle(wide, "a100", batch=40)
    sizes = [*range(8, 14), 2**38, 2**40]
    answers = oracle.batch({"batch": sizes})

    assert any("size by size" in d.message for d in answers.diagnostics)
    for size, found_us in zip(sizes, answers["time_us"], strict=True):
        assert oracle.ask(edits.Bind(batch=size)) == pytest.approx(found_us, rel=CLOSE)


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        ("dlrm-default:tables=2", {"runtime": "compiled"}, "fuse-kernels may depend"),
        ("gpt2:layers=2", {"overrides": {"gpu.power_cap_watts": "300"}}, "the cap of"),
    ],
)
def test_what_is_looked_at_one_by_one(
    model: str, options: dict[str, Any], why: str
) -> None:
    """It is said, and answers are the same."""
    oracle = Oracle(model, "h100-sxm", batch=8, **options)
    sizes = np.arange(20, 36, 2)
    answers = oracle.batch({"batch": sizes})

    assert ["one-by-one"] == sorted({d.code for d in answers.diagnostics})
    assert any(why in d.message for d in answers.diagnostics)
    for at in (0, 7):
        asked_us = oracle.ask(edits.Bind(batch=int(sizes[at])))
        assert asked_us == pytest.approx(answers["time_us"][at], rel=CLOSE)


@pytest.mark.parametrize(
    "sizes",
    [
        [8, 0, 9, 10, 11, 12, 13],
        [8, -3, 9, 10, 11, 12, 13],
        [8, 2**62, 9, 10, 11, 12, 13],
        [8.5, 9, 10, 11, 12, 13, 14],
    ],
)
def test_a_size_that_cannot_be(sizes: list[float]) -> None:
    """What its analysis raises is raised."""
    oracle = Oracle("dlrm-default:tables=2", "a100", batch=8)
    messages: list[str] = []
    for size in sizes:
        try:
            perfc.load("dlrm-default:tables=2", batch=size)  # type: ignore[arg-type]
            oracle.ask(edits.Bind(batch=size))
        except PerfcError as error:
            messages.append(str(error).rpartition(":")[2])

    with pytest.raises(PerfcError) as caught:
        oracle.batch({"batch": sizes})
    assert any(str(caught.value).endswith(end) for end in messages)


def test_microbatches_that_do_not_divide() -> None:
    """A batch that leaves a rest raises as it does alone."""
    oracle = Oracle(
        "dlrm-default:tables=2,rows=1000",
        "a100",
        batch=8,
        mode="training",
        accumulate=4,
    )
    good = np.arange(8, 80, 4)
    found = oracle.batch({"batch": good})["time_us"]

    assert oracle.ask(edits.Bind(batch=40)) == pytest.approx(found[8], rel=CLOSE)
    with pytest.raises(PerfcError, match="does not divide into"):
        oracle.batch({"batch": np.arange(8, 20)})
