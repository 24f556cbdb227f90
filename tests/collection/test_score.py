"""Predictions against a folder of collected rows."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.collection.made_up import (
    GEMM,
    MADE_BY,
    RELU,
    TARGET,
    collect,
    count,
    kernel,
    launches,
    predicted,
    setting,
    step,
    timed,
)

from perfc.ir import PerfcError

collected: Any = importlib.import_module("collection.collected")
machine: Any = importlib.import_module("collection.machine")
scores: Any = importlib.import_module("collection.score")
texts: Any = importlib.import_module("collection.score_text")
command: Any = importlib.import_module("score")

EAGER = setting()
GRAPH = setting(runtime="cudagraph")
DLRM = setting("dlrm-ddp")


def _score(
    folder: Path,
    settings: Sequence[Any],
    kernels: Sequence[Any] = (),
    counts: Sequence[Any] = (),
) -> Any:
    made = predicted.Predictions(settings, kernels, counts, MADE_BY)
    return scores.score(collected.read_collected(folder), made)


def _line(score: Any, what: str, group: str = "all") -> Any:
    (line,) = [x for x in score.lines if (x.what, x.group) == (what, group)]
    return line


def _notes(score: Any) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {note.reason: (note.count, note.names) for note in score.notes}


def test_whole_steps(tmp_path: Path) -> None:
    """100 us for 80 and 125 are 25 % high and 20 % low; both in 50 to 150."""
    rows = [step(EAGER, 80.0, 80.0), step(GRAPH, 125.0, 100.0)]

    score = _score(collect(tmp_path, rows), [EAGER, GRAPH])

    line = _line(score, "whole steps")
    errors = line.errors
    assert 2 == errors.rows
    assert 0.225 == pytest.approx(errors.mape)
    assert 0.25 == pytest.approx(errors.gmae)
    assert math.sqrt(0.25 * 0.2) == pytest.approx(errors.geomean_ape)
    assert 0.245 == pytest.approx(errors.p90)
    assert 0.25 == pytest.approx(errors.max)
    assert 0.025 == pytest.approx(errors.bias)
    assert (1.0, 1.0) == (line.coverage90, line.width90)
    assert 0.25 == pytest.approx(_line(score, "whole steps", "eager").errors.max)
    assert 0.20 == pytest.approx(_line(score, "whole steps", "cudagraph").errors.max)


def test_gpu_active_time(tmp_path: Path) -> None:
    """The GPU's time has an interval of its own: 70 to 90 holds 80, not 100."""
    rows = [step(EAGER, 80.0, 80.0), step(GRAPH, 125.0, 100.0)]

    score = _score(collect(tmp_path, rows), [EAGER, GRAPH])

    line = _line(score, "GPU-active time")
    assert 0.1 == pytest.approx(line.errors.mape)
    assert (0.5, 0.25) == (line.coverage90, line.width90)


def test_families(tmp_path: Path) -> None:
    """Models of one family are scored together, families one by one, then runtimes."""
    settings = [GRAPH, DLRM, setting("dlrm-default"), setting("mine")]
    rows = [step(one, 100.0, 80.0) for one in settings]

    score = _score(collect(tmp_path, rows), settings)

    steps = [x for x in score.lines if x.what == "whole steps"]
    assert [
        ("DLRM", 2),
        ("GPT-2", 1),
        ("mine", 1),
        ("cudagraph", 1),
        ("eager", 3),
        ("all", 4),
    ] == [(x.group, x.errors.rows) for x in steps]


def test_kernels_alone(tmp_path: Path) -> None:
    """Each row is compared as it was timed: in a graph a gap follows the kernel."""
    made = [kernel("gemm", GEMM, 9.0), kernel("elementwise", RELU, 4.0)]
    rows = [timed("gemm", GEMM, 8.0), timed("elementwise", RELU, 5.0, "kernel")]

    score = _score(collect(tmp_path, [], rows), [EAGER], made)

    assert 0.25 == pytest.approx(_line(score, "kernels alone", "gemm fp32").errors.bias)
    relu = _line(score, "kernels alone", "elementwise fp32")
    assert -0.2 == pytest.approx(relu.errors.bias)
    assert (1.0, 1.5) == (relu.coverage90, relu.width90)


def test_composition(tmp_path: Path) -> None:
    """Measured kernels take the place of their prices; the rest stays as predicted.

    Of 80 us three kernels of 20 are predicted. They took 24 each, one gap of 1 us left
    out: 80 - 60 + 72 = 92 us, of 115 that were measured.
    """
    made = [kernel("gemm", GEMM, 20.0), kernel("elementwise", RELU, 5.0)]
    folder = collect(tmp_path, [step(EAGER, 130.0, 115.0)], [timed("gemm", GEMM, 25.0)])

    score = _score(folder, [EAGER], made, [count(0, 0, 3), count(0, 1, 4)])

    assert 92 / 115 - 1 == pytest.approx(_line(score, "composition").errors.bias)
    assert 60 / 72 - 1 == pytest.approx(_line(score, "kernels summed").errors.bias)
    assert None is _line(score, "composition").coverage90
    (said,) = [reason for reason in _notes(score) if reason.startswith("composition")]
    assert said.startswith("composition: 75% of the GPU-active time are measured")


def test_kernels_that_the_profiler_timed(tmp_path: Path) -> None:
    """Such a time holds no gap."""
    rows = [timed("gemm", GEMM, 25.0), timed("gemm", GEMM, 22.0, "kernel")]
    folder = collect(tmp_path, [step(EAGER, 130.0, 82.0)], rows)

    score = _score(folder, [EAGER], [kernel("gemm", GEMM, 20.0)], [count(0, 0, 1)])

    assert 0.0 == pytest.approx(_line(score, "composition").errors.max)


def test_a_setting_without_measured_kernels(tmp_path: Path) -> None:
    """It has no composition: the prediction would be compared once more."""
    made = [kernel("gemm", GEMM, 20.0)]
    folder = collect(tmp_path, [step(EAGER, 130.0, 82.0)], [])

    score = _score(folder, [EAGER], made, [count(0, 0, 1)])

    assert [] == [x for x in score.lines if x.what in ("composition", "kernels summed")]
    reason = "composition, left out: no kernel of the suite was measured"
    assert (1, (str(EAGER),)) == _notes(score)[reason]


def test_launches(tmp_path: Path) -> None:
    """Kernels and copies count, memsets do not."""
    rows = [launches(EAGER, *["kernel"] * 9, "gpu_memcpy", "gpu_memset")]
    steps = [step(EAGER, 100.0, 80.0), step(GRAPH, 100.0, 80.0)]

    score = _score(collect(tmp_path, steps, [], rows), [EAGER, GRAPH])

    assert 12 / 10 - 1 == pytest.approx(_line(score, "launches").errors.bias)
    named = _notes(score)["launches, left out: none were traced"]
    assert (1, (str(GRAPH),)) == named


def test_the_manifest_that_is_read() -> None:
    """It is what a collection writes."""
    assert machine.SCHEMA == collected.SCHEMA


def test_what_is_missing(tmp_path: Path) -> None:
    """A setting without a row, a row of no setting, tables that are not there."""
    rows = [step(setting(batch=5), 80.0, 80.0), step(EAGER, 80.0, None)]
    relu = kernel("elementwise", RELU, 4.0)
    folder = collect(tmp_path, rows, [timed("gemm", GEMM, 8.0)])

    score = _score(folder, [EAGER, DLRM], [relu])

    assert {
        "there is no launches.parquet": (0, ()),
        "planned, without a row": (1, (str(DLRM),)),
        "left out: no planned setting": (
            1,
            ("gpt2, batch 5, inference, fp32, eager",),
        ),
        "kernels of the suite without a row": (1, ("1 elementwise fp32",)),
        "left out: kernels of other suites": (1, ("1 gemm fp32",)),
        "GPU-active time, left out: not measured": (1, (str(EAGER),)),
    } == _notes(score)
    assert ["whole steps"] * 3 == [x.what for x in score.lines]


def test_attention_tells_settings_apart(tmp_path: Path) -> None:
    """What PyTorch was told to take is another setting; empty is what it chooses."""
    flash = setting(attention="flash")
    rows = [
        attrs.evolve(step(EAGER, 80.0, 80.0), attention=""),
        step(flash, 125.0, 80.0),
    ]

    score = _score(collect(tmp_path, rows), [EAGER, flash])

    assert 2 == _line(score, "whole steps").errors.rows
    assert str(flash).endswith(", eager, flash attention")


def test_rows_that_are_left_out(tmp_path: Path) -> None:
    """Rows of another GPU, twice the same, no time, and times with the host's call."""
    rows = [
        step(EAGER, 80.0, 80.0),
        step(EAGER, 90.0, 80.0),
        step(GRAPH, 0.0, 0.0),
        step(attrs.evolve(EAGER, target="l40s"), 80.0, 80.0),
    ]
    folder = collect(tmp_path, rows, [timed("gemm", GEMM, 8.0, "event")], [])

    score = _score(folder, [EAGER])

    name = str(EAGER)
    assert {
        "left out: rows of l40s, not h100-sxm-80g": (1, (name,)),
        "left out: took no time": (1, (str(GRAPH),)),
        "left out: measured before in the same folder": (1, (name,)),
        "rows of kernels left out: timed as event": (1, ()),
    } == {k: v for k, v in _notes(score).items() if "left out" in k and k[0] != "c"}
    assert 1 == _line(score, "whole steps").errors.rows


def test_rows_to_know_of(tmp_path: Path) -> None:
    """A GPU that slowed down, or was busy for longer than the iteration, is said."""
    rows = [attrs.evolve(step(EAGER, 80.0, 81.0), throttled=True)]

    score = _score(collect(tmp_path, rows, [], []), [EAGER])

    notes = _notes(score)
    assert (1, (str(EAGER),)) == notes["the GPU slowed down meanwhile, yet scored"]
    longer = "the GPU was busy for longer than the iteration took"
    assert (1, (str(EAGER),)) == notes[longer]
    assert 1 == _line(score, "whole steps").errors.rows


def test_another_gpu(tmp_path: Path) -> None:
    """A folder of a GPU that nothing was predicted for is an error that names both."""
    folder = collect(tmp_path, [], target="l40s")

    with pytest.raises(PerfcError, match=r"is of l40s; predicted were h100-sxm-80g$"):
        _score(folder, [EAGER])


def _folders(tmp_path: Path) -> tuple[str, ...]:
    """Return the arguments that name a folder of rows and one of predictions."""
    made = predicted.Predictions([EAGER], [], [], MADE_BY)
    made.write(tmp_path / "made")
    rows = collect(tmp_path / "rows", [step(EAGER, 80.0, 80.0)])
    return str(rows), "--predictions", str(tmp_path / "made")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints one line a group, and below what is missing."""
    assert 0 == command.main([*_folders(tmp_path)])

    lines = capsys.readouterr().out.splitlines()
    assert f"{TARGET}, as predicted by 0123456789ab on 2026-11-26" == lines[0]
    assert "whole steps" == lines[3][:11]
    assert ["1", "25.0", "%"] == lines[3].split()[3:6]
    assert "there is no kernels.parquet" in lines


def test_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that stands on a page as it comes out."""
    command.main([*_folders(tmp_path), "--format", "md"])

    lines = capsys.readouterr().out.splitlines()
    errors = "25.0 % | 25.0 % | 25.0 % | 25.0 % | 25.0 % | 25.0 % | 100.0 % | 100.0 %"
    assert f"| whole steps | GPT-2 | 1 | {errors} |" == lines[4]
    assert "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|" == lines[3]
    assert "- there is no kernels.parquet" in lines


def test_what_models_of_today_predict_is_scored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--now` nothing that was predicted before is read."""
    settings: Any = importlib.import_module("collection.plan").planned()
    monkeypatch.setattr(command, "planned", lambda: settings[:1])
    rows = importlib.import_module("collection.provenance").ROOT / "benchmarks/rows"

    assert 0 == command.main([str(rows / TARGET), "--now", "--format", "json"])

    found = json.loads(capsys.readouterr().out)
    (steps,) = [
        line
        for line in found["scores"]
        if (line["what"], line["group"]) == ("whole steps", "all")
    ]
    assert (1, "this perfc") == (steps["rows"], found["predictions"]["perfc_commit"])


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fractions by name, the predictions' manifest, and the notes."""
    command.main([*_folders(tmp_path), "--format", "json"])

    found = json.loads(capsys.readouterr().out)
    assert ("perfc.collection_score/1", TARGET) == (found["schema"], found["target"])
    first = found["scores"][0]
    assert ("whole steps", "GPT-2", 1, 0.25) == (
        *(first["what"], first["group"], first["rows"]),
        first["mape"],
    )
    assert "0123456789abcdef" == found["predictions"]["perfc_commit"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is no folder of collected rows"),
        ("{", "is damaged"),
        ('{"schema": "other"}', "expected schema perfc.collection/2, found 'other'"),
        ("[]", "expected schema perfc.collection/2, found None"),
        ('{"schema": "perfc.collection/2"}', "the manifest names no target"),
    ],
)
def test_a_folder_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    """One line on stderr says so; the exit code is 1."""
    rows, *made = _folders(tmp_path)
    manifest = Path(rows) / "manifest.json"
    manifest.unlink() if content is None else manifest.write_text(content)

    assert 1 == command.main([rows, *made])

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("score: error: ")
    assert said in line


def test_a_damaged_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that was cut off is an error that names it."""
    rows, *made = _folders(tmp_path)
    table = Path(rows) / "workloads.parquet"
    table.write_bytes(table.read_bytes()[:100])

    assert 1 == command.main([rows, *made])

    said = "workloads.parquet: cannot be read as a Parquet file"
    assert said in capsys.readouterr().err
