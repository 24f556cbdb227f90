"""What batches answer besides times: what reports say, one by one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc import Oracle, edits

CLOSE = 1e-9
WANTED = (
    "time_us",
    "time_us_p05",
    "time_us_p95",
    "gpu_active_us",
    "peak_memory_bytes",
)
MODELS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "inference": ("dlrm-default:tables=3,rows=1000", "a100", {}, 40_000),
    "autocast": (
        "dlrm-default:tables=2",
        "h100-sxm",
        {"mode": "training", "dtype": "amp-bf16"},
        9_000,
    ),
    "mlperf": (
        "dlrm-mlperf:rows=1000",
        "v100",
        {"mode": "training", "optimizer": "adagrad"},
        5_000,
    ),
    "gpt2": ("gpt2:layers=2", "a100", {"mode": "training"}, 40),
    "resnet50": ("resnet50", "a100", {}, 60),
    "graph": ("dlrm-default:tables=2", "l4", {"runtime": "cudagraph"}, 9_000),
    "compiled": ("dlrm-default:tables=2", "a100", {"runtime": "compiled"}, 9_000),
    "placed": (
        "dlrm-default:tables=3",
        "h100",
        {"passes": ["place-embeddings{tier=uvm-caching,cache=0.2}"]},
        9_000,
    ),
    "cpu": ("dlrm-default:tables=2,rows=1000", "cpu", {}, 3_000),
}


@functools.cache
def oracle_of(name: str) -> Oracle:
    """Return an oracle that is asked again and again."""
    model, target, options, _ = MODELS[name]
    return Oracle(model, target, batch=8, **options)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_sizes_are_reports(name: str, data: st.DataObject) -> None:
    """Whatever the sizes are, alone or beside durations and a host's speed."""
    most = MODELS[name][3]
    sizes = data.draw(st.lists(st.integers(1, most), min_size=6, max_size=12))
    columns: dict[str, Any] = {"batch": [*sizes, 1, most, sizes[0]]}
    count = len(columns["batch"])
    if data.draw(st.booleans()):
        speeds = st.lists(
            st.sampled_from([0.5, 1.0, 3.0]), min_size=count, max_size=count
        )
        columns["host.speed"] = data.draw(speeds)
    if data.draw(st.booleans()):
        columns["factor:gemm"] = np.linspace(0.0, 3.0, count).tolist()
    found = oracle_of(name).batch(columns, want=WANTED)

    for at in range(count):
        one = {key: values[at] for key, values in columns.items()}
        asked: list[Any] = [edits.Bind(batch=one["batch"])]
        if "host.speed" in one:
            asked.append(edits.Target(**{"host.speed": one["host.speed"]}))
        if "factor:gemm" in one:
            asked.append(edits.Duration("gemm", factor=one["factor:gemm"]))
        summary = oracle_of(name).report(*asked).summary
        for wanted in WANTED:
            said = found[wanted][at]
            assert said == pytest.approx(summary[wanted], rel=CLOSE), (wanted, one)


def test_targets_and_types() -> None:
    """What differs in its network is solved by itself; a duration that is set stays."""
    oracle = Oracle("dlrm-default:tables=2,rows=1000", "a100", batch=64)
    oracle.apply(edits.Duration("bot_l.0.linear", us=90.0))
    columns: dict[str, Any] = {
        "batch": [16, 32, 64, 128] * 4,
        "gpu.memory_gb_per_s": [900.0, 900.0, 1800.0, 1800.0] * 4,
        "dtype": ["fp32"] * 8 + ["bf16"] * 8,
    }
    found = oracle.batch(columns, want=WANTED)

    for at in range(0, 16, 3):
        field = {"gpu.memory_gb_per_s": columns["gpu.memory_gb_per_s"][at]}
        summary = oracle.report(
            edits.Target(**field),
            edits.Dtype("*", columns["dtype"][at]),
            edits.Bind(batch=columns["batch"][at]),
        ).summary
        for wanted in WANTED:
            assert found[wanted][at] == pytest.approx(summary[wanted], rel=CLOSE)


def test_what_is_looked_at_one_by_one() -> None:
    """Ranks that wait for each other; the answers say so, and are the same."""
    oracle = Oracle(
        "dlrm-ddp:tables=2,rows=1000", "dgx-a100", batch=64, mode="training", ranks=2
    )
    columns = {"factor:gemm": [1.0, 400.0]}
    answers = oracle.batch(columns, want=WANTED)

    assert ["one-by-one"] == [one.code for one in answers.diagnostics]
    for at in range(2):
        edit = edits.Duration("gemm", factor=columns["factor:gemm"][at])
        summary = oracle.report(edit).summary
        for wanted in WANTED:
            assert answers[wanted][at] == pytest.approx(summary[wanted], rel=CLOSE)


def test_a_cap_that_holds_at_other_sizes() -> None:
    """A size that is not the oracle's may reach the cap, beside a faster host."""
    oracle = Oracle(
        "gpt2:layers=4",
        "h100-sxm",
        batch=1,
        mode="training",
        dtype="bf16",
        overrides={"gpu.power_cap_watts": "500"},
    )
    sizes, speeds = [1, 2, 3, 4, 6, 8, 16, 32], [0.03, 0.3, 1.0]
    columns: dict[str, Any] = {
        "batch": sizes * 3,
        "host.speed": [s for s in speeds for _ in sizes],
    }
    columns["factor:gemm"] = np.linspace(0.5, 1.5, 24).tolist()
    found = oracle.batch(columns, want=WANTED)

    capped: set[bool] = set()
    for at in range(0, 24, 2):
        asked = (
            edits.Target(**{"host.speed": columns["host.speed"][at]}),
            edits.Bind(batch=columns["batch"][at]),
        )
        report = oracle.report(
            *asked, edits.Duration("gemm", factor=columns["factor:gemm"][at])
        )
        sustained = report.results.sustained
        assert sustained is not None
        capped.add(sustained.slowdown > 1.01)
        for wanted in WANTED:
            said = report.summary[wanted]
            assert said == pytest.approx(found[wanted][at], rel=CLOSE), (wanted, at)
    assert {True, False} == capped
