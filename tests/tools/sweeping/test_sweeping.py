"""`perfc.sweep`: its rows are what analyses of the configurations say."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import attrs
import pytest

import perfc
from perfc.tools.request import Request
from perfc.tools.sweeping import METRICS, Space, read_varied
from perfc.tools.sweeping.pricing import price

CACHED = "uvm-caching{cache=0.5}"
MODEL = "dlrm-ddp:tables=2,rows=1000"
ONNX = (
    Path(__file__).parents[2]
    / "fixtures"
    / "onnx"
    / "dlrm_small_dynamo_op20_dynbatch.onnx"
)


def _expected(report: perfc.Report, metrics: list[str]) -> dict[str, Any]:
    summary = report.summary
    usable = report.target.device.memory.usable_bytes
    found = {**summary, "fits": summary["peak_memory_bytes"] <= usable}
    names = (*metrics, "time_us_p05", "time_us_p95", "bound")
    return {"target": report.target.name, **{name: found[name] for name in names}}


def _same(row: dict[str, Any], report: perfc.Report, varied: dict[str, Any]) -> None:
    metrics = [name for name in METRICS if name in row]
    expected = {**varied, **_expected(report, metrics), "error": ""}
    assert expected == row


def test_metrics_are_those_of_reports() -> None:
    """A metric is a number of a summary, or `fits`."""
    report = perfc.analyze("dlrm-ddp", "a100", batch=64)

    assert {*METRICS} - {"fits"} == {*report.summary} - {"bound"}


def test_rows_are_what_analyses_say() -> None:
    """All kinds of names at once: each row has the numbers of its own analysis."""
    swept = perfc.sweep(
        MODEL,
        ["a100", "v100"],
        {
            "batch": [64, 96],
            "dim": [16, 32],
            "dtype": ["fp32", "amp-fp16"],
            "mode": ["inference", "training"],
            "gpu.memory_gb_per_s": [700, 900.5],
        },
        metric=list(METRICS),
        optimizer="adagrad",
    )

    assert 2 * 2 * 2 * 2 * 2 * 2 == len(swept.rows)
    for row in swept.rows[::5]:
        is_training = row["mode"] == "training"
        report = perfc.analyze(
            f"{MODEL},dim={row['dim']}",
            row["target"],
            batch=row["batch"],
            dtype=row["dtype"],
            mode=row["mode"],
            overrides={"gpu.memory_gb_per_s": row["gpu.memory_gb_per_s"]},
            optimizer="adagrad" if is_training else None,
        )
        names = ("batch", "dim", "dtype", "mode", "gpu.memory_gb_per_s")
        _same(row, report, {name: row[name] for name in names})


@pytest.mark.parametrize(
    ("vary", "options"),
    [
        (
            {"place": [CACHED]},
            {"passes": ["place-embeddings{cache=0.5}"]},
        ),
        ({"popularity": ["zipf(1.2)"]}, {"popularity": "zipf(1.2)"}),
        ({"runtime": ["cudagraph"]}, {"runtime": "cudagraph"}),
        ({"ranks": [2]}, {"ranks": 2, "mode": "training"}),
        ({"accumulate": [4]}, {"accumulate": 4, "mode": "training"}),
        ({"inputs": ["device"]}, {"inputs": "device"}),
        ({"optimizer": ["adam"]}, {"optimizer": "adam", "mode": "training"}),
    ],
)
def test_what_a_name_stands_for(vary: dict[str, Any], options: dict[str, Any]) -> None:
    """A varied name does what the option of its name does."""
    mode = options.get("mode", "inference")
    (row,) = perfc.sweep(MODEL, "dgx-a100", vary, batch=64, mode=mode).rows
    report = perfc.analyze(MODEL, "dgx-a100", batch=64, **options)

    _same(row, report, {name: values[0] for name, values in vary.items()})


def test_dimensions_of_a_file() -> None:
    """The symbols of an ONNX file vary by their names, lookups also by `pooling`."""
    vary = {"batch": [8, 16], "pooling": [2, 5], "nnz_1": [24], "dim:nnz_2": [32]}
    swept = perfc.sweep(str(ONNX), "a100", vary)

    assert 4 == len(swept.rows)
    for row in swept.rows:
        sizes = {"batch": row["batch"], "pooling": row["pooling"]}
        report = perfc.analyze(ONNX, "a100", dims={"nnz_1": 24, "nnz_2": 32}, **sizes)
        _same(row, report, {name: row[name] for name in vary})


def test_a_loaded_model() -> None:
    """It is bound to each size; what can only be done on loading is the row's error."""
    model = perfc.load(MODEL, batch=64)
    swept = perfc.sweep(
        model, "a100", {"batch": [64, 128], "mode": ["inference", "training"]}
    )
    by_mode = {
        mode: [r for r in swept.rows if r["mode"] == mode]
        for mode in ("inference", "training")
    }

    for row in by_mode["inference"]:
        report = perfc.analyze(MODEL, "a100", batch=row["batch"])
        _same(row, report, {"batch": row["batch"], "mode": "inference"})
    assert all("is loaded for inference" in r["error"] for r in by_mode["training"])


def test_what_cannot_be_is_a_row() -> None:
    """Others are priced all the same, also where the first of a model cannot be."""
    swept = perfc.sweep(
        MODEL,
        ["v100", "a100"],
        {"dtype": ["amp-bf16", "fp32"], "batch": [6, 8]},
        mode="training",
        accumulate=4,
    )
    wrong = [(r["dtype"], r["batch"], r["target"]) for r in swept.rows if r["error"]]

    assert 8 == len(swept.rows)
    assert [
        ("amp-bf16", 6, "v100-sxm2-16g"),
        ("amp-bf16", 6, "a100-sxm-80g"),
        ("amp-bf16", 8, "v100-sxm2-16g"),
        ("fp32", 6, "v100-sxm2-16g"),
        ("fp32", 6, "a100-sxm-80g"),
    ] == wrong
    assert any("does not divide into 4 microbatches" in e for e in swept.errors)
    assert any("has no bf16 tensor cores" in e for e in swept.errors)
    assert "5 configurations cannot be:" in str(swept)
    refused = next(row for row in swept.rows if row["error"])
    assert refused["time_us"] is None
    assert "" == refused["bound"]


def test_rows_do_not_depend_on_how_they_are_divided() -> None:
    """Each configuration alone, all at once, and in the other order say the same."""
    varied = [read_varied("batch=64:128:32"), read_varied("dtype=fp32,amp-fp16")]
    space = Space.of(Request(model=MODEL), ["a100", "t4"], varied)
    together = price(space, [*space]).rows
    alone = [row for one in space for row in price(space, [one]).rows]
    back = price(space, [*space][::-1]).rows

    assert [*together] == alone == [*back][::-1]


def test_selections() -> None:
    """A condition, the best and the front are sweeps of fewer rows."""
    swept = perfc.sweep(MODEL, "a100", {"batch": "64:4096:x2"})

    few = swept.where("batch <= 256")
    assert [64, 128, 256] == [row["batch"] for row in few.rows]
    (fastest,) = swept.best(1, "time_us").rows
    assert min(row["time_us"] for row in swept.rows) == fastest["time_us"]
    assert 4096 == swept.best().rows[0]["batch"]
    front = swept.pareto("time_us", "samples_per_s")
    assert {row["batch"] for row in front.rows} >= {4096}
    assert len(front.rows) < 7
    with pytest.raises(
        perfc.PerfcError, match=r"'mfu' is none of .*; --metric adds it"
    ):
        swept.best(1, "mfu")
    with pytest.raises(perfc.PerfcError, match="two metrics or more, found 1"):
        swept.pareto("time_us", "time_us")


def test_forms_in_python() -> None:
    """A data frame with a column a cell, and a pickle that says the same."""
    swept = perfc.sweep(MODEL, "a100", {"batch": [64, 128]})
    frame = swept.to_pandas()

    assert [*swept.rows[0]] == [*frame.columns]
    assert [row["time_us"] for row in swept.rows] == frame["time_us"].tolist()
    assert swept.to_json() == pickle.loads(pickle.dumps(swept)).to_json()  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("vary", "options", "says"),
    [
        ({"bach": [1]}, {}, "--vary bach: no such setting, .*; did you mean batch"),
        ({"quark": [1]}, {}, "there are batch, dtype, mode, ranks, runtime, place, "),
        ({"gpu.wheels": [1]}, {}, "gpu.wheels"),
        ({"tables": [0]}, {}, "expected an integer from 1"),
        ({"dtype": ["fp99"]}, {}, "--vary dtype: .*'fp99' is none of"),
        ({"batch": [1.5]}, {}, "expected a whole number"),
        ({"runtime": ["fast"]}, {}, "'fast' is none of eager"),
        ({"place": ["attic"]}, {}, "unknown tier attic"),
        ({"target": ["a100"]}, {}, "say --target once for each"),
        ({"time_us": [1]}, {}, "no such setting"),
        ({"batch": []}, {}, "'batch' has no values"),
        (
            {"batch": [1]},
            {"metric": "speed"},
            "metric 'speed' is none of samples_per_s",
        ),
        ({"batch": [1]}, {"executor": "cloud"}, "executor 'cloud': expected local"),
        ({"batch": [1]}, {"executor": "local:0"}, "expected local, local:N"),
        ({"batch": [1]}, {"output": "rows.txt"}, "ends in one of .csv, .parquet"),
        ({"batch": range(1, 10**6), "dim": [1, 2]}, {}, "configurations of a sweep"),
        ({"batch": [1]}, {"ranks": "x"}, "ranks"),
        ({"batch": [1]}, {"speed": 2}, "perfc.sweep takes no option 'speed'"),
    ],
)
def test_mistakes(vary: Any, options: dict[str, Any], says: str) -> None:
    """They are told before anything is priced, in one line."""
    with pytest.raises(perfc.PerfcError, match=says) as refused:
        perfc.sweep(MODEL, "a100", vary, **options)

    assert 1 == len(str(refused.value).splitlines())


def test_targets_by_two_names() -> None:
    """A target is itself under an alias, and rows could not be told apart."""
    with pytest.raises(perfc.PerfcError, match="--target a100-sxm-80g is given twice"):
        perfc.sweep(MODEL, ["a100", "a100-80g"], {"batch": [1]})


def test_a_worker_that_cannot_price() -> None:
    """Another version, or a file that it lacks, ends the sweep: no row may say so."""
    space = Space.of(Request(model=str(ONNX)), ["a100"], [read_varied("batch=8")])

    with pytest.raises(perfc.PerfcError, match=r"a worker has perfc .*, expected 99"):
        price(attrs.evolve(space, version="99", digest="a"), [*space])
    with pytest.raises(perfc.PerfcError, match="a worker finds no file /nowhere"):
        price(attrs.evolve(space, file="/nowhere.onnx", digest="b"), [*space])
