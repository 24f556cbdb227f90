"""`perfc sweep` as it is typed."""

from __future__ import annotations

import contextlib
import csv
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.html_page import HtmlPage
from tests.tools.command import WORKLOAD, Command

from perfc.tools.cli import sweep as verb
from perfc.tools.sweeping import USUAL

ONNX = Path(__file__).parents[2] / "fixtures" / "onnx" / "bag_dynamo_sum_2d.onnx"
BATCHES = ("--vary", "batch=64:256:x2")
_PLUGIN = """
from perfc.ir import PASSES, register_plugin
from perfc.passes import Pass

class Told(Pass):
    name = "told-by-workers"

    def run(self, program, ctx):
        ctx.note("told-by-workers", "a worker has this pass")

register_plugin(PASSES, "told-by-workers", Told)
"""
SWEEP = ("sweep", WORKLOAD, *BATCHES, "--target", "a100")
LOCAL = ("--executor", "local:1")


def test_a_table(command: Command) -> None:
    """A row a configuration, the most samples a second first; progress on stderr."""
    outcome = command(*SWEEP, "--vary", "dtype=fp32,amp-fp16")
    table, _, _ = outcome.out.partition("\n\n")
    header, *rows = table.splitlines()

    assert 0 == outcome.code
    rates = [float(row.split()[3].replace(",", "")) for row in rows]

    assert ["batch", "dtype", "target", "samples/s"] == header.split()[:4]
    assert "256" == rows[0].split()[0]
    assert sorted(rates, reverse=True) == rates
    assert 6 == len(rows)
    assert re.fullmatch(
        r"perfc: 6 of 6 configurations; [\d.,]+ (?:a second|s each), 0:\d\d in all\n",
        outcome.err,
    )


def test_quiet(command: Command) -> None:
    """Nothing is said beside the result."""
    assert "" == command(*SWEEP, "-q").err


def test_selections(command: Command) -> None:
    """`--where`, `--pareto` and `--best` say which rows are shown, the best first."""
    best = command(*SWEEP, "--best", "2", "--metric", "samples_per_s,time_us")
    where = command(*SWEEP, "--where", "batch > 64 and time_us < 1e9")
    front = command(*SWEEP, "--pareto", "peak_memory_bytes,samples_per_s")

    def batches(text: str) -> list[str]:
        return [line.split()[0] for line in text.splitlines()[1:]]

    assert ["256", "128"] == batches(best.out)
    assert ["256", "128"] == batches(where.out)
    assert ["256", "128", "64"] == batches(front.out)


def test_the_document(command: Command) -> None:
    """JSON has what varied, the metrics and a row a configuration, errors too."""
    document = command(
        *("sweep", WORKLOAD, "--vary", "dtype=fp32,bf16", "--batch", "64"),
        *("--target", "v100", "--format", "json", "-q"),
    ).report
    first, second = document["rows"]

    assert "perfc.sweep/1" == document["schema"]
    assert {"dtype": ["fp32", "bf16"]} == document["varied"]
    assert [*USUAL] == document["metrics"]
    assert {
        "dtype",
        "target",
        *USUAL,
        "time_us_p05",
        "time_us_p95",
        "bound",
        "error",
    } == {*first}
    assert "" == first["error"]
    assert second["time_us"] is None
    assert "v100-sxm2-16g has no bf16 tensor cores" in second["error"]


def test_a_file_of_all_rows(command: Command, tmp_path: Path) -> None:
    """What is shown is selected, what is kept is not; no table where none is asked."""
    path = tmp_path / "rows.csv"
    shown = command(*SWEEP, "-q", "-o", str(path), "--best", "1")
    again = command(*SWEEP, "-q", "-o", str(path), "--resume")
    printed = command(*SWEEP, "-q", "--format", "csv")

    with path.open(encoding="utf-8") as stream:
        rows = [*csv.DictReader(stream)]
    assert ["64", "128", "256"] == [row["batch"] for row in rows]
    assert 2 == len(shown.out.splitlines())
    assert (0, "") == (again.code, again.out)
    assert path.read_text("utf-8") == printed.out


def test_a_page(command: Command, tmp_path: Path) -> None:
    """It has a table, a front and a plot for what varies, and loads nothing."""
    path = tmp_path / "rows.html"
    command(
        *(*SWEEP, "--vary", "dtype=fp32,fp16", "--target", "t4", "-q"),
        *("-o", str(path)),
    )
    page = HtmlPage.of(path.read_text("utf-8"))
    charts = {one["x"]["title"]: one for one in page.charts("chart")}

    assert {"memory", "batch", "dtype"} == set(charts)
    assert 1 + 12 == len(page.rows)
    assert "Samples/s and memory" in page.text
    for target in ("a100-sxm-80g", "t4"):
        assert target in {one["name"] for one in charts["batch"]["series"]}


def test_a_page_on_standard_output(command: Command) -> None:
    """`--format html` prints the page of the rows that are shown."""
    outcome = command(*SWEEP, "-q", "--format", "html", "--best", "2")
    page = HtmlPage.of(outcome.out)

    assert 0 == outcome.code
    assert 1 + 2 == len(page.rows)


def test_a_page_holds_any_name(command: Command, tmp_path: Path) -> None:
    """Text of a user is text of the page, also inside of its JSON."""
    folder = tmp_path / "a<"
    folder.mkdir()
    path, model = tmp_path / "rows.html", folder / "script><script>&amp;.onnx"
    model.write_bytes(ONNX.read_bytes())
    words = ("sweep", str(model), "--vary", "batch=8,16", "--target", "a100", "-q")
    first = command(*words, "-o", str(path))
    again = command(*words, "-o", str(path), "--resume", "--best", "1")

    assert 0 == first.code == again.code
    page = HtmlPage.of(path.read_text("utf-8"))
    assert page.is_alone
    assert "script><script>&amp;" in page.text


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--vary", "batch"), 2, "--vary 'batch': expected NAME=a,b,c or NAME=lo:hi"),
        (("--vary", "bathc=1"), 2, "--vary bathc: no such setting, parameter or dim"),
        (("--vary", "batch=8", "--vary", "batch=9"), 2, "--vary batch is given twice"),
        (("--vary", "batch=8", "--metric", "sped"), 2, "metric 'sped' is none of"),
        (("--vary", "batch=8", "--where", "sped < 3"), 2, "--where: no column 'sped'"),
        (("--vary", "batch=8", "--where", "bound < 3"), 2, "a text and a number"),
        (("--vary", "batch=8", "--pareto", "time_us"), 2, "two metrics or more"),
        (("--vary", "batch=8", "--pareto", "time_us,mfu"), 2, "--metric adds it"),
        (("--vary", "batch=8", "--best", "0"), 2, "0 is not in the range x>=1"),
        (("--vary", "batch=8", "--resume"), 2, "--resume goes on with a file"),
        (("--vary", "batch=8", "-o", "x.txt"), 2, "a name that ends in one of .csv"),
        (("--vary", "batch=8", "--executor", "x"), 2, "executor 'x': expected local"),
        (("--vary", "batch=8", "--target", "a1000"), 2, "a1000"),
        (
            (
                "--vary",
                "gpu.wings=2",
            ),
            2,
            "--vary gpu.wings",
        ),
        (("--vary", "batch=1:999999999:1"), 1, "configurations of a sweep, expected"),
        ((), 2, "Missing option '--vary'"),
    ],
)
def test_mistakes(
    command: Command, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """One line that names what is wrong, before anything is priced."""
    line = command.refused(["sweep", WORKLOAD, "--target", "a100", *arguments], code)

    assert says in line


def test_nothing_can_be(command: Command) -> None:
    """Rows say why, and the exit code that no configuration was priced."""
    words = ("sweep", WORKLOAD, "--vary", "dtype=bf16,amp-bf16", "--batch", "64")
    outcome = command(*words, "--target", "v100", "-q")

    assert 1 == outcome.code
    assert "2 configurations cannot be:" in outcome.out
    assert "none of 2 configurations can be; of 2: v100-sxm2-16g has no" in outcome.err


def test_a_model_that_is_not_there(command: Command) -> None:
    """It is no row's error: there is one line."""
    line = command.refused(["sweep", "no.onnx", *BATCHES, "--target", "a100"], 1)

    assert "no.onnx: no such file" in line


def test_processes_say_the_same(command: Command) -> None:
    """Two processes of this machine write the rows that one writes."""
    words = (*SWEEP, "--vary", "dim=16:96:4", "--vary", "dtype=fp32,fp16", "-q")

    alone = command(*words, *LOCAL, "--format", "json")
    both = command(*words, "--executor", "local:2", "--format", "json")

    assert 3 * 21 * 2 == len(alone.report["rows"])
    assert alone.out == both.out


def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    """A parent that is killed leaves no worker behind, which would hold its stderr."""
    words = ("--vary", "batch=64:100000:1", "--target", "a100", "--executor", "local:2")
    with subprocess.Popen(
        [sys.executable, "-m", "perfc", "sweep", WORKLOAD, *words, "-o", "rows.csv"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            while not _size_of(tmp_path / "rows.csv.part.csv"):
                assert process.poll() is None
                time.sleep(0.01)
        finally:
            process.kill()
        process.communicate(timeout=60)  # which ends when nobody has the pipe

    assert -9 == process.returncode


def _size_of(path: Path) -> int:
    """Return the bytes of a file that may come and go, 0 where it is not there."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def test_usual_metrics_are_those_of_the_library() -> None:
    """The option says the default of `perfc.sweep`."""
    (option,) = (p for p in verb.sweep.params if p.name == "metric")

    assert ",".join(USUAL) == option.default


def test_plugins_are_imported_by_workers(command: Command, tmp_path: Path) -> None:
    """What `--plugin` registers is there in each process."""
    plugin = tmp_path / "told_by_workers.py"
    plugin.write_text(_PLUGIN, encoding="utf-8")
    more = ("--plugin", str(plugin), "--pass", "told-by-workers", "-q")
    words = (*SWEEP, "--vary", "dim=16:100:4", *more, "--format", "json")

    report = command(*words, "--executor", "local:2").report

    assert {""} == {row["error"] for row in report["rows"]}
    assert "told-by-workers" in {remark["code"] for remark in report["diagnostics"]}
