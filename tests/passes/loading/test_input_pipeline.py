"""The pass `input-pipeline`: data loading as part of a step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import perfc
from perfc.ir import PerfcError

MODEL, TARGET = "dlrm-ddp:tables=4,rows=10000", "v100"
_PUBLISHED = (
    ("ogbn-arxiv", 441.007, 1062.552, 179.822, 1683.381),
    ("ogbn-products", 2415.684, 4800.256, 1715.368, 8931.308),
)
"""Training, sampling and transfer of an epoch of PyG, and the epoch, in ms."""


def _file(path: Path, mode: str, **stages: tuple[float, str]) -> str:
    lines = [f"mode = '{mode}'"]
    for name, (time_us, resource) in stages.items():
        lines += ["[[stages]]", f"name = '{name}'", f"time_us = {time_us!r}"]
        lines.append(f"resource = '{resource}'")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def _report(file: str | None = None, **options: object) -> perfc.Report:
    given = {"mode": "training", "batch": 512, **options}
    return perfc.analyze(MODEL, TARGET, input_pipeline=file, **given)  # type: ignore[arg-type] # options of several types


@pytest.mark.parametrize(("name", "train", "sample", "copy", "total"), _PUBLISHED)
def test_published_epochs(
    tmp_path: Path, name: str, train: float, sample: float, copy: float, total: float
) -> None:
    """Of PyG, which loads serially, phases add up to 1e-4; hiding alone gains less.

    The step takes what training takes, by a stage on the GPU besides.
    """
    plain = _report().time_us
    stages = {"sample": (sample * 1e3, "cores"), "copy": (copy * 1e3, "h2d")}
    stages["train"] = (train * 1e3 - plain, "gpu")
    serial = _report(_file(tmp_path / "s.toml", "serial", **stages))
    hidden = _report(_file(tmp_path / "o.toml", "overlapped", **stages))
    gains = {"ogbn-arxiv": 1.58, "ogbn-products": 1.86}

    assert total * 1e3 == pytest.approx(serial.time_us, rel=1e-4)
    assert serial.time_us / hidden.time_us == pytest.approx(gains[name], abs=0.005)


@pytest.mark.parametrize("mode", ["serial", "overlapped"])
@pytest.mark.parametrize("runtime", ["eager", "cudagraph", "compiled"])
def test_the_breakdown_sums(tmp_path: Path, mode: str, runtime: str) -> None:
    """Data loading is a row of it, of what it adds, to 1e-6."""
    file = _file(tmp_path / "s.toml", mode, a=(9000.0, "cores"), b=(500.0, "h2d"))
    plain, found = _report(runtime=runtime), _report(file, runtime=runtime)
    added = 9500.0 if mode == "serial" else 9000.0 - plain.time_us
    rows = {row["detail"]: row["time_us"] for row in found.breakdown}

    assert found.time_us == pytest.approx(plain.time_us + added)
    assert math.fsum(r["time_us"] for r in found.breakdown) == pytest.approx(
        found.time_us, rel=1e-6
    )
    assert rows["data loading"] == pytest.approx(added)
    active_us = plain.summary["gpu_active_us"]
    assert found.summary["gpu_active_us"] == pytest.approx(active_us)


def test_a_depth_of_nought_is_no_pipeline(tmp_path: Path) -> None:
    """Bit for bit."""
    file = _file(tmp_path / "s.toml", "serial", a=(9000.0, "cores"))
    off = f'input-pipeline{{file="{file}",depth=0}}'

    assert _report().to_json() == _report(passes=[off]).to_json()


def test_stages_that_hide(tmp_path: Path) -> None:
    """What is faster than the step adds nothing, and takes nothing of the schedule."""
    file = _file(tmp_path / "s.toml", "overlapped", a=(10.0, "cores"), b=(5.0, "h2d"))
    found = _report(file)
    entry = found.to_dict()["input_pipeline"]

    assert _report().time_us == found.time_us
    assert 0.0 == entry["exposed_us"]
    assert "the step" == entry["slowest"]
    assert entry["saved_by_hiding_us"] == pytest.approx(15.0)


def test_stages_on_the_device_take_turns(tmp_path: Path) -> None:
    """Their time is added to the step."""
    file = _file(tmp_path / "s.toml", "overlapped", a=(700.0, "gpu"), b=(5.0, "h2d"))

    assert _report(file).time_us == pytest.approx(_report().time_us + 700.0)


def test_what_is_hidden_saves_nothing(tmp_path: Path) -> None:
    """Behind a slow stage a faster op is no gain; a faster stage is."""
    file = _file(tmp_path / "s.toml", "overlapped", a=(50_000.0, "cores"))
    found = _report(file)

    assert ["faster a"] == [row["what"] for row in found.to_fix]
    assert found.to_fix[0]["saved_us"] == pytest.approx(25_000.0)
    assert [] == found.what_if["nodes"]


def test_what_hiding_saves(tmp_path: Path) -> None:
    """A serial pipeline is told so, first of all."""
    file = _file(tmp_path / "s.toml", "serial", a=(3000.0, "cores"), b=(900.0, "h2d"))
    first, *_ = _report(file).to_fix
    text = str(_report(file))

    assert "overlapped loading" == first["what"]
    assert "Data loading, serial: adds 3.90 ms" in text


def test_ranks_wait_alike(tmp_path: Path) -> None:
    """Every rank loads batches of its own."""
    file = _file(tmp_path / "s.toml", "serial", a=(3000.0, "cores"))
    options = {"ranks": 2, "passes": ["shard-embeddings"]}

    def time_us(file: str | None) -> float:
        return perfc.analyze(
            *(MODEL, "dgx-a100"),
            mode="training",
            batch=512,
            input_pipeline=file,
            **options,  # type: ignore[arg-type] # options of several types
        ).time_us

    assert time_us(file) == pytest.approx(time_us(None) + 3000.0)


def test_chunks_of_an_inference() -> None:
    """Where copies and kernels take long, chunks of them are worth a line."""
    found = _report(mode="inference", batch=65536, runtime="cudagraph")
    chunks = found.what_if["chunks"]
    parts = [chunks[f"{name}_us"] for name in ("copy_in", "compute", "copy_out")]
    count, overhead = chunks["chunks"], chunks["overhead_us"]
    expected = sum(parts) / count + (1 - 1 / count) * max(parts) + count * overhead

    assert count > 1
    assert expected == pytest.approx(chunks["time_us"])
    assert found.time_us - chunks["time_us"] == pytest.approx(chunks["saved_us"])
    assert f"split into {count} chunks" in {row["what"] for row in found.to_fix}
    assert None is _report().what_if["chunks"]


def test_an_oracle_agrees(tmp_path: Path) -> None:
    """Asked for other batches, it loads data for each anew."""
    file = _file(tmp_path / "s.toml", "overlapped", a=(6000.0, "cores"))
    oracle = perfc.Oracle(
        MODEL, TARGET, mode="training", batch=512, input_pipeline=file
    )
    found = oracle.batch({"batch": [512, 32768]})["time_us"]

    assert found == pytest.approx(
        [_report(file).time_us, _report(file, batch=32768).time_us]
    )


def test_it_is_given_once(tmp_path: Path) -> None:
    """As an option, or as a pass."""
    file = _file(tmp_path / "s.toml", "serial", a=(1.0, "cores"))
    with pytest.raises(PerfcError, match="say the same"):
        _report(file, passes=[f'input-pipeline{{file="{file}"}}'])
    with pytest.raises(PerfcError, match="expected 0 or more"):
        _report(passes=[f'input-pipeline{{file="{file}",depth=-2}}'])
