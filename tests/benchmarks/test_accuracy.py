"""`make accuracy`: its figures, verdicts, files and documents, of made-up rows."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import gemm

from perfc.costmodels import KernelTable, cost_models, load_target
from perfc.costmodels.gemm import gemms_of, simt_parameters
from perfc.fitting.scores import Z90, TablePricer, groups_of
from perfc.ir import Record
from perfc.measurements import MEASUREMENTS, Measurement, read_columns, write_rows

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
accuracy: Any = importlib.import_module("accuracy")
committed: Any = importlib.import_module("scoring.committed")
figures: Any = importlib.import_module("scoring.figures")
group: Any = importlib.import_module("scoring.group")
table: Any = importlib.import_module("scoring.table")

GPU = "v100-pcie-32g"


def _group(*errors: float, sigma: float = 0.1, **more: Any) -> Any:
    """Return rows that are off by some errors."""
    logs = np.log1p(np.array(errors))
    fields = {"kind": "size", "name": "gemm", "sigma": np.full(len(logs), sigma)}
    return group.Group.of(**{**fields, "logs": logs, **more})


def _line(*errors: float, **more: Any) -> Any:
    return figures.line_of(_group(*errors, **more), "sizes")


def _word(now: Any, before: Any) -> str:
    return str(committed.Verdict(now, before).word)


def test_figures_are_those_of_the_project() -> None:
    """Mean, ninetieth percentile and largest of the errors, bias, share inside."""
    found = figures.line_of(_group(0.1, -0.1, 0.2, -0.4), "sizes")

    assert found.figures == pytest.approx(
        {
            "mape": 0.2,
            "gmae": np.expm1(np.abs(np.log([1.1, 0.9, 1.2, 0.6])).mean()),
            "p90": np.quantile([0.1, 0.1, 0.2, 0.4], 0.9),
            "max": 0.4,
            "bias": -0.05,
            "inside": 0.5,
            "width": 2 * np.sinh(0.1 * Z90),
        },
        abs=1e-5,
    )


def test_noise_is_of_units_that_differ() -> None:
    """Rows that are off together tell less than as many that are off alone."""
    errors = [0.1] * 50 + [0.3] * 50
    alone = figures.noise_of(_group(*errors))
    units = np.repeat([0, 1], 50)
    twos = figures.noise_of(_group(*errors, units=units))

    assert alone["mape"] == pytest.approx(0.1 / np.sqrt(100), rel=0.2)
    assert twos["mape"] > 5 * alone["mape"]


@pytest.mark.parametrize("units", [None, np.zeros(1, dtype=np.intp)])
def test_figures_of_one_unit_may_move_by_what_is_printed(units: Any) -> None:
    """A tenth of a percent, for each figure that is gated."""
    noise = figures.noise_of(_group(0.2, units=units))

    assert dict.fromkeys(figures.GATED, 0.001) == noise


def test_rows_without_intervals_have_no_figures_of_them() -> None:
    """Neither a share inside nor a width."""
    line = figures.line_of(group.Group("size", "gemm", np.array([0.1])), "sizes")

    assert not {"inside", "width"} & {*line.figures, *line.noise}


@pytest.mark.parametrize(
    ("error", "expected"),
    [(0.10, ""), (0.1005, ""), (0.0995, ""), (0.12, "WORSE"), (0.08, "better")],
)
def test_a_figure_is_held_within_its_noise(error: float, expected: str) -> None:
    """One row: a tenth of a percent."""
    assert expected == _word(_line(error, sigma=9.0), _line(0.1, sigma=9.0))


def test_a_bias_of_the_other_sign_is_no_worse() -> None:
    """How far it is from none counts."""
    other = 1 / 1.1 - 1

    assert "WORSE" != _word(_line(other, sigma=9.0), _line(0.1, sigma=9.0))


def test_what_is_outside_is_worse_and_what_is_wide_is_worse() -> None:
    """An interval that no longer holds its row, and one that holds all there is."""
    before = _line(0.1, sigma=0.2)

    assert _word(_line(0.1, sigma=0.01), before) == "WORSE"
    assert _word(_line(0.1, sigma=0.8), before) == "WORSE"


def test_new_and_missing_lines() -> None:
    """What was never committed is new; what is no longer scored fails."""
    line = _line(0.1)

    assert _word(line, None) == "new"
    assert _word(None, line) == "MISSING"
    assert committed.Verdict(None, line).fails
    assert not committed.Verdict(line, None).fails


def test_lines_of_other_scorers_are_not_missed() -> None:
    """A run of some scorers says nothing of the others."""
    mine, other = _line(0.1), attrs.evolve(_line(0.1, name="conv"), scorer="hosts")
    known = committed.Committed([mine, other])

    found = committed.verdicts([mine], known, ["sizes"])

    assert [mine.key] == [one.line.key for one in found]


def test_a_run_of_some_scorers_writes_their_lines_only() -> None:
    """Others stay, and so do notes of lines that are left."""
    old, gone = _line(0.1), _line(0.1, name="gone")
    other = attrs.evolve(_line(0.2, kind="trace", name="replay"), scorer="replays")
    notes = {old.key: "why", gone.key: "why not"}
    known = committed.Committed([old, gone, other], notes)

    found = known.updated([_line(0.3)], ["sizes"], list(accuracy.SCORERS))

    assert [old.key, other.key] == [line.key for line in found.lines]
    assert found.lines[0].figures["mape"] == pytest.approx(0.3)
    assert {old.key: "why"} == found.notes


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The same figures give the same file."""
    path = tmp_path / "accuracy.json"
    beside = {"roofline": np.log([1.5, 1.7])}
    lines = [figures.line_of(_group(0.1, 0.2, beside=beside), "sizes")]
    committed.Committed(lines, {"size: gemm": "why"}).write(path)
    text = path.read_text(encoding="utf-8")

    again = committed.Committed.read(path)
    again.write(path)

    assert text == path.read_text(encoding="utf-8")
    assert lines == again.lines


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "x", "lines": [], "notes": {}}', '{"lines": 1}']
)
def test_a_damaged_file_is_one_line(
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is named, and what to do."""
    path = tmp_path / "accuracy.json"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(accuracy, "COMMITTED", path)

    assert accuracy.main([str(tmp_path), "--only", "rescale"]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"accuracy: error: {path}: ")
    assert "anew" in line


def test_families_are_listed_as_one_and_one_by_one() -> None:
    """The short table has the whole, the long one its members; one alone is short."""
    members = [_group(0.1, name=f"gemm, {gpu}", family="gemm") for gpu in "ab"]
    alone = _group(0.1, name="conv, a", family="conv")
    groups = list(accuracy.with_families([*members, alone]))
    lines = [figures.line_of(one, "sizes") for one in groups]

    assert ["gemm", "conv, a"] == [line.what for line in table.short(lines)]
    assert ["gemm, a", "gemm, b"] == [line.what for line in table.long(lines)]
    assert lines[0].rows == 2
    assert lines[0].units == 2


def test_a_line_is_not_hidden_by_the_family_of_another_scorer() -> None:
    """What a family does not hold stands in the short table."""
    members = [_group(0.1, name=f"gemm, {gpu}", family="gemm") for gpu in "ab"]
    whole = [figures.line_of(g, "networks") for g in accuracy.with_families(members)]
    other = figures.line_of(_group(0.1, name="gemm, c", family="gemm"), "sizes")

    assert ["gemm", "gemm, c"] == [line.what for line in table.short([*whole, other])]


def test_published_figures_are_beside_by_their_own_statistic() -> None:
    """Lin et al. state a geometric mean: perfc's is one, too."""
    rows = _group(0.01, 0.04, kind="whole step", name="DLRM, V100")

    found = {one.name: one for one in committed.published(rows)}

    lin = found["Lin et al., own host times"]
    assert (lin.statistic, lin.value) == ("geomean", 0.0756)
    assert lin.own == pytest.approx(0.02)


def test_published_figures_are_of_committed_lines() -> None:
    """A line that is renamed would lose them without a word."""
    known = {line.key for line in committed.Committed.read(accuracy.COMMITTED).lines}
    listed = committed.predictors()

    assert set(listed) <= known


@pytest.mark.parametrize(("error", "word"), [(0.079, "met"), (0.081, "**missed**")])
def test_bars_that_are_missed_stand_in_the_table(error: float, word: str) -> None:
    """What is aimed at is said beside the figures, and whether it is reached."""
    rows = _group(error, kind="whole step", name="CNNs, V100")

    text = table.markdown_table([figures.line_of(rows, "lin-steps")])

    assert f"| MAPE 8.0 %: {word} |" in text


@pytest.mark.parametrize("sigma", [0.01, 9.0])
def test_intervals_that_hold_too_few_or_too_many(sigma: float) -> None:
    """Of lines with rows enough to say so."""
    errors = np.linspace(0.05, 0.1, 50)

    text = table.markdown_table([_line(*errors, sigma=sigma)])
    few = table.markdown_table([_line(*errors[:9], sigma=sigma)])

    assert "85 to 95 % inside: **missed**" in text
    assert "inside" not in few


def test_a_family_says_how_many_of_its_lines_miss() -> None:
    """The short table shows what only the long one has figures of."""
    errors = np.linspace(0.05, 0.1, 50)
    good = _group(*errors, name="gemm, a", family="gemm", sigma=0.0551)
    bad = _group(*errors, name="gemm, b", family="gemm", sigma=0.01)
    lines = [figures.line_of(g, "sizes") for g in accuracy.with_families([good, bad])]

    text = table.markdown_table(table.short(lines), table.long(lines))

    assert "1 of 2 lines: **missed**" in text


def test_bars_are_of_committed_lines() -> None:
    """A bar of a line that is gone would be missed without a word."""
    known = {line.key for line in committed.Committed.read(accuracy.COMMITTED).lines}

    assert set(table.bars()) <= known


# The command


def _made(factor: float) -> Iterator[Measurement]:
    for rows in (256, 512, 1024, 2048, 4096, 8192):
        for cols in (1024, 1500, 2048, 4096, 5000):
            yield Measurement(
                target=GPU,
                op="elementwise",
                dtype="fp32",
                params=Record(
                    {"kind": "add", "rows": rows, "cols": cols, "tensor_inputs": 2}
                ),
                latency_us=factor,
                timing="event",
                source="made up",
            )


def _folder(path: Path, factor: float) -> Path:
    """Write a table of rows that take so many times what perfc says."""
    file = path / "measurements" / "made.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = list(_made(1.0))
    write_rows(file, rows, MEASUREMENTS)
    columns = read_columns(file)
    ((key, at),) = groups_of(columns)
    pricer, target = TablePricer(columns), load_target(GPU)
    (found,) = pricer.predict(key, at, target, cost_models(), Counter())
    us = (found.timed.seconds * 1e6 * factor).tolist()
    timed = [attrs.evolve(r, latency_us=t) for r, t in zip(rows, us, strict=True)]
    write_rows(file, timed, MEASUREMENTS)
    return path


@pytest.fixture
def figures_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where figures are committed, for a run that writes no documents."""
    path = tmp_path / "accuracy.json"
    pages = {name: tmp_path / f"{name}.md" for name in table.PAGES}
    for page in pages.values():
        page.write_text(f"before\n{table.BEGIN}\n{table.END}\nafter\n", "utf-8")
    monkeypatch.setattr(accuracy, "COMMITTED", path)
    monkeypatch.setattr(table, "PAGES", pages)
    return path


def _run(data: Path, *arguments: str) -> int:
    return int(accuracy.main([str(data), "--only", "sizes", *arguments]))


def test_a_folder_is_scored_from_end_to_end(
    figures_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows a tenth slower than predicted are committed; slower ones then fail."""
    data = _folder(tmp_path / "data", 1.1)

    assert _run(data, "--write") == 0
    (line,) = json.loads(figures_file.read_text(encoding="utf-8"))["lines"]
    assert line["what"] == f"elementwise fp32, {GPU}"
    assert 0 < line["rows"] < 30
    assert line["figures"]["mape"] == pytest.approx(1 - 1 / 1.1, abs=1e-4)
    assert line["figures"]["bias"] == pytest.approx(1 / 1.1 - 1, abs=1e-4)
    page = (tmp_path / "accuracy.md").read_text("utf-8")
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert f"| size | elementwise fp32, {GPU} |" in page

    assert _run(data) == 0
    assert _run(_folder(tmp_path / "data", 1.0)) == 0
    capsys.readouterr()
    assert _run(_folder(tmp_path / "data", 1.3)) == 1
    out = capsys.readouterr().out
    assert f"WORSE: size: elementwise fp32, {GPU}: mape 9.1% -> 23.1%" in out


def test_what_is_kept_is_not_scored_again(
    figures_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was cut off goes on."""
    data, keep = _folder(tmp_path / "data", 1.1), tmp_path / "keep"
    assert _run(data, "--keep", str(keep)) == 0
    assert "scored sizes in" in capsys.readouterr().err

    assert _run(_folder(tmp_path / "data", 9.0), "--keep", str(keep)) == 0

    done = capsys.readouterr()
    assert "scoring" not in done.err
    assert "9.1 %" in done.out


@pytest.mark.parametrize("form", ["table", "md", "json"])
def test_formats(
    form: str,
    figures_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each names the line and its figures."""
    assert _run(_folder(tmp_path / "data", 1.1), "--format", form) == 0

    out = capsys.readouterr().out
    assert f"elementwise fp32, {GPU}" in out
    if form == "json":
        assert json.loads(out)[0]["verdict"] == "new"
    else:
        assert "9.1 %" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 1, "nowhere: no such folder; DATA=folder names the measurements"),
        ([".", "--only", "sizes"], 1, "measurements: no such file or folder"),
        ([".", "--only", "rain"], 2, "--only rain: no kind of unseen and no scorer"),
    ],
)
def test_input_at_fault_is_one_line(
    arguments: Sequence[str],
    code: int,
    message: str,
    figures_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what is missing, before anything is scored; no file is written."""
    monkeypatch.chdir(tmp_path)

    assert accuracy.main([*arguments, "--write"]) == code

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("accuracy: error: ")
    assert message in line
    assert not figures_file.exists()


def test_kinds_and_scorers_choose() -> None:
    """A kind takes all scorers of it; quick ones fit no network."""
    traces = {*accuracy.chosen(["trace"])}

    assert {"replays", "rescale", "trace-kernels"} == traces
    assert ["megatron"] == list(accuracy.chosen(["megatron"]))
    assert {"networks", "sessions"} == {*accuracy.SCORERS} - {
        *accuracy.chosen([], quick=True)
    }


def test_every_kind_has_a_scorer() -> None:
    """None is promised and never scored."""
    scored = {kind for scorer in accuracy.SCORERS.values() for kind in scorer.kinds}

    assert scored == set(group.KINDS)


@pytest.mark.parametrize("name", sorted(accuracy.SCORERS))
def test_every_scorer_is_there(name: str) -> None:
    """Its module has its function."""
    module, _, function = accuracy.SCORERS[name].function.partition(":")

    assert callable(getattr(importlib.import_module(f"scoring.{module}"), function))


# What is committed


def test_the_documents_have_what_is_committed() -> None:
    """The tables of both pages are those of the file."""
    known = committed.Committed.read(accuracy.COMMITTED)
    for name, path in table.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert table.BEGIN in page
        assert page == table.with_table(page, name, known)


def test_committed_lines_are_of_scorers_and_kinds() -> None:
    """Each once, by a scorer that there is, in the order of the table."""
    lines = committed.Committed.read(accuracy.COMMITTED).lines
    keys = [line.key for line in lines]

    assert lines
    assert len(keys) == len(set(keys))
    assert list(lines) == committed.in_order(lines, list(accuracy.SCORERS))
    for line in lines:
        assert line.kind in accuracy.SCORERS[line.scorer].kinds
        assert set(line.noise) == set(figures.GATED) & set(line.figures)


def test_notes_are_of_committed_lines() -> None:
    """A note of a line that is gone says nothing."""
    known = committed.Committed.read(accuracy.COMMITTED)
    found: Mapping[str, str] = known.notes

    assert set(found) <= {line.key for line in known.lines}


def test_the_power_of_fmas_is_that_which_rows_say() -> None:
    """Rows of a T4 that may draw half as many watts: its FMAs draw twice as much."""
    boards: Any = importlib.import_module("scoring.boards")
    training: Any = importlib.import_module("training.gemm")
    t4, usual, sides = load_target("t4"), simt_parameters(), (2048, 4096, 8192)
    gemms = gemms_of(KernelTable([gemm(m, m, m) for m in sides]), t4)
    nothing = np.zeros(len(sides))
    rows = training.GemmRows(t4, gemms, nothing, nothing, nothing, simt=True)
    weak = attrs.evolve(rows, target=attrs.evolve(t4, watts=t4.watts / 2))
    measured = attrs.evolve(rows, measured_s=weak.kernel_s(usual))

    assert pytest.approx(2.0) == boards._power_of([measured], usual)
    assert pytest.approx(0.0) == boards._logs([measured], usual, 2.0)
