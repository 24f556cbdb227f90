"""Configurations that are priced together: their rows are those of analyses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfc
from perfc import PerfcError
from perfc.costmodels import load_target
from perfc.tools.analysis import report_on
from perfc.tools.reports import Report
from perfc.tools.request import Request
from perfc.tools.sweeping import pricing
from perfc.tools.sweeping.pricing import forget, price
from perfc.tools.sweeping.space import INTERVAL, Configuration, Row, Space
from perfc.tools.sweeping.together import TOGETHER
from perfc.tools.sweeping.varied import varied_of

CLOSE = 1e-9
METRICS = tuple(sorted(TOGETHER))
TARGETS = ["a100", "a10", "h100", "l4", "v100", "b200"]

FIXTURES = Path(__file__).parents[2] / "fixtures"
ONNX = FIXTURES / "onnx" / "dlrm_small_dynamo_op20_dynbatch.onnx"

Varied = dict[str, st.SearchStrategy[Any]]
SPACES: dict[str, tuple[dict[str, Any], list[str], Varied]] = {
    "inference": (
        {"model": "dlrm-default:rows=1000"},
        [*TARGETS, "cpu"],
        {
            "batch": st.integers(1, 20_000),
            "dim": st.sampled_from([16, 64]),
            "tables": st.integers(1, 5),
            "dtype": st.sampled_from(["fp32", "tf32", "amp-bf16", "fp16"]),
        },
    ),
    "training": (
        {"model": "dlrm-mlperf:rows=1000", "mode": "training"},
        TARGETS[:3],
        {
            "batch": st.integers(1, 9_000),
            "optimizer": st.sampled_from(["sgd", "rowwise_adagrad"]),
            "gpu.memory_gb_per_s": st.integers(500, 3000),
        },
    ),
    "hosts": (
        {"model": "dlrm-ddp:tables=2,rows=1000", "mode": "training"},
        TARGETS[:4],
        {
            "batch": st.integers(1, 3_000),
            "host.speed": st.sampled_from([0.5, 2]),
            "runtime": st.sampled_from(["eager", "cudagraph"]),
            "inputs": st.sampled_from(["host-pinned", "device"]),
        },
    ),
    "convolutions": (
        {"model": "resnet50"},
        TARGETS[:4],
        {
            "batch": st.integers(1, 60),
            "dtype": st.sampled_from(["fp32", "tf32", "amp-fp16"]),
        },
    ),
    "transformer": (
        {"model": "gpt2:layers=1", "dtype": "bf16"},
        ["h100", "a100", "v100"],  # the first one is held down by its cap
        {
            "batch": st.integers(1, 40),
            "seq": st.integers(16, 512),
            "mode": st.sampled_from(["inference", "training"]),
            "carbon.g_per_kwh": st.sampled_from([50, 400]),
        },
    ),
    "ranks": (
        {"model": "dlrm-ddp:tables=2,rows=1000", "mode": "training"},
        ["dgx-a100", "dgx-h100"],
        {"batch": st.integers(64, 2_000), "ranks": st.sampled_from([1, 2])},
    ),
    "file": (
        {"model": str(ONNX)},
        TARGETS[:2],
        {
            "batch": st.integers(1, 900),
            "pooling": st.integers(1, 9),
            "nnz_1": st.integers(1, 900),
        },
    ),
    "placed": (
        {"model": "dlrm-default:rows=100000"},
        TARGETS[:3],
        {
            "batch": st.integers(1, 4_000),
            "place": st.sampled_from(["hbm", "uvm-caching{cache=0.2}", "uvm"]),
            "popularity": st.sampled_from(["uniform", "zipf(1.2)"]),
        },
    ),
}


@st.composite
def some_space(draw: st.DrawFn, name: str) -> Space:
    """Draw values of what varies: several sizes, one or two of the others."""
    request, targets, varied = SPACES[name]
    most = {"batch": 5}
    axes = [
        varied_of(
            axis,
            draw(st.lists(values, min_size=1, max_size=most.get(axis, 2), unique=True)),
        )
        for axis, values in varied.items()
    ]
    return Space.of(Request(**request), targets, axes, METRICS)


def analyzed(space: Space, one: Configuration) -> Row:
    """Return the row of an analysis from the start."""
    target = load_target(space.names[one.target], space.overrides(one))
    try:
        report = report_on(attrs.evolve(space.request_of(one), target=target))
    except PerfcError as error:
        return space.row_of(one, error=" ".join(str(error).split()))
    summary = report.summary
    usable = report.target.device.memory.usable_bytes
    found = {**summary, "fits": summary["peak_memory_bytes"] <= usable}
    cells = {name: found[name] for name in (*METRICS, *INTERVAL, "bound")}
    return space.row_of(one, **cells)


@pytest.mark.parametrize("name", SPACES)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_rows_are_analyses(name: str, data: st.DataObject) -> None:
    """Whatever varies, on targets that share hosts, SMs and caps, or do not."""
    _check(data.draw(some_space(name)))


def test_a_loaded_model() -> None:
    """It is bound to the sizes of all, at the types that it has."""
    model = perfc.load("dlrm-default:tables=2,rows=1000", batch=64, dtype="bf16")
    varied = [varied_of("batch", [3, 64, 100, 5000]), varied_of("dtype", ["bf16"])]
    request = Request(model=model)
    _check(Space.of(request, ["a100", "v100", "l4", "h200"], varied, METRICS))


def _check(space: Space) -> None:
    """Compare all rows of a space with analyses."""
    every = [*space]
    forget()
    rows = price(space, every).rows

    for one, row in zip(every, rows, strict=True):
        expected = analyzed(space, one)
        for column, cell in expected.items():
            is_float = isinstance(cell, float)
            said = pytest.approx(cell, rel=CLOSE) if is_float else cell
            assert said == row[column], (column, one)


def test_most_are_priced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two targets and six sizes are; those of unknown metrics are not."""
    alone: list[int] = []
    reported = report_on

    def counting(request: Request) -> Report:
        alone.append(1)
        return reported(request)

    monkeypatch.setattr(pricing, "report_on", counting)
    varied = [varied_of("batch", [8, 16, 24, 32, 40, 48])]
    request = Request(model="dlrm-default:tables=2,rows=1000")
    for metrics, expected in ((("time_us",), 2), (("time_us", "host_us"), 12)):
        space = Space.of(request, ["a100", "l4"], varied, metrics)
        alone.clear()
        rows = price(space, [*space]).rows

        assert 12 == len(rows)
        assert expected == len(alone)  # one of each target says what there is to say


def test_remarks_are_those_of_analyses() -> None:
    """Whether configurations are priced together or not, each thing is said once."""
    varied = [varied_of("batch", [8, 16, 24, 32]), varied_of("dtype", ["tf32", "fp32"])]
    request = Request(model="dlrm-default:tables=2,rows=1000")
    space = Space.of(request, ["a100", "t4", "b200"], varied)
    together_said = price(space, [*space]).remarks
    forget()
    apart_said = [said for one in space for said in price(space, [one]).remarks]

    assert together_said
    assert {*apart_said} == {*together_said}


def test_parts_do_not_depend_on_workers(tmp_path: Path) -> None:
    """Two processes, or one that goes on with a part of the rows, say the same."""
    asked: dict[str, Any] = {
        "vary": {"batch": [*range(8, 72, 4)], "dim": [16, 32], "tables": [2, 3]},
        "target": ["a100", "l4", "h100"],
    }
    model = "dlrm-default:rows=1000"
    rows = [*perfc.sweep(model, **asked).rows]
    file = tmp_path / "rows.csv"
    journal = tmp_path / "rows.csv.part.csv"

    assert rows == [*perfc.sweep(model, **asked, executor="local:2").rows]

    perfc.sweep(model, **asked, output=file)
    lines = file.read_text().splitlines()
    file.unlink()
    journal.write_text("\n".join([*lines[:9], *lines[40:45]]) + "\n")
    again = perfc.sweep(model, **asked, output=file, resume=True)
    assert rows == [*again.rows]
    assert lines == file.read_text().splitlines()
