"""What every verb does alike: help, usage errors, exit codes, where output goes."""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
import numpy as np
import pytest
from tests.measurements.rows import measured
from tests.tools.command import SMALL, Command
from tests.traces.synthetic import Made

import perfc
from perfc.ir import PerfcError
from perfc.measurements import MEASUREMENTS, write_rows
from perfc.tools.cli import command_line as cli

ROOT = Path(__file__).parents[3]
VERBS = (
    *("analyze", "sweep", "replay", "rescale", "diff", "check", "validate"),
    *("parallel", "shard", "place", "quantize", "dedup"),
    *("measure", "calibrate", "locality", "opt", "targets", "ops", "passes", "models"),
)
_BUDGET = """
[[budget]]
name = "small"
model = "dlrm-default:tables=1,rows=1000"
target = "v100"
batch = 8
time_us = 1e6
"""
ANALYZE = ("analyze", *SMALL, "--target", "v100")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m perfc` in a process of its own, outside pytest's eyes."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return subprocess.run(
        [sys.executable, "-m", "perfc", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
    )


@pytest.mark.parametrize(
    "verb",
    [(), *((verb,) for verb in VERBS), ("targets", "show"), ("measure", "kernels")],
)
def test_help_shows_an_example_that_runs(
    command: Command,
    verb: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The help of every verb ends in one command that can be typed as it is."""
    monkeypatch.chdir(tmp_path)
    row = attrs.evolve(measured("gemm", b=1, m=64, n=64, k=64), target="h100-sxm-80g")
    write_rows(tmp_path / "measured.csv", [row], MEASUREMENTS)
    np.savez(tmp_path / "indices.npz", t=np.arange(6) % 4)
    made = Made()
    made.launch(0, 5, 10, 20)
    made.write(tmp_path / "trace.json.gz")
    (tmp_path / "budgets.toml").write_text(_BUDGET, "utf-8")
    for name, batch in (("base", "8"), ("head", "16")):
        asked = (*SMALL[:1], "--batch", batch, "--target", "v100", "--format", "json")
        assert 0 == command("analyze", *asked, "-o", f"{name}.json").code
    helped, short = (command(*verb, option) for option in ("--help", "-h"))

    assert (0, "") == (helped.code, helped.err)
    assert (0, "", helped.out) == (short.code, short.err, short.out)
    assert 1 == helped.out.count("Example: ")
    (example,) = re.findall(r"Example: (.*)", helped.out)
    words = shlex.split(example)
    assert ["perfc", *verb] == words[: 1 + len(verb)]
    assert 0 == command(*words[1:]).code


def test_help_lists_every_verb(command: Command) -> None:
    """The help of `perfc` has a line for each verb that is built."""
    listed = re.findall(r"^  ([a-z]+)  +\S", command("--help").out, re.MULTILINE)

    assert list(VERBS) == listed


def test_nothing_to_do(command: Command) -> None:
    """Without a verb, the help goes to stderr: that is no use of it."""
    outcome = command()

    assert (2, "") == (outcome.code, outcome.out)
    assert outcome.err.startswith("Usage: perfc [OPTIONS] VERB")


def test_version(command: Command) -> None:
    """`--version` prints that of the package."""
    assert f"perfc {perfc.__version__}\n" == command("--version").out


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        ('[project]\nname = "perfc"\nversion = "3.2.1"\n', "3.2.1"),
        ('[project]\nname = "other"\nversion = "3.2.1"\n', "unknown (not installed)"),
        ("[project", "unknown (not installed)"),
        ("", "unknown (not installed)"),
        (None, "unknown (not installed)"),
    ],
    ids=["checkout", "of-another-project", "damaged", "empty", "none"],
)
def test_version_where_nothing_is_installed(
    tmp_path: Path, project: str | None, expected: str
) -> None:
    """It is that of the project file of the checkout, if there is one."""
    for module in ("__init__", "__main__"):
        source = ROOT / "src" / "perfc" / f"{module}.py"
        copy = tmp_path / "src" / "perfc" / source.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(source.read_text("utf-8"), "utf-8")
    for package in ("tools", "ir"):
        (tmp_path / "src" / "perfc" / package).symlink_to(ROOT / package)
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project, "utf-8")

    assert f"perfc {expected}\n" == _run_uninstalled(tmp_path / "src", "--version")


def test_measuring_where_nothing_is_installed() -> None:
    """A checkout and `PYTHONPATH=src` are enough."""
    said = _run_uninstalled(ROOT / "src", "measure", "--help")

    assert said.startswith("Usage: ")
    assert all(f"\n  {verb} " in said for verb in ("kernels", "overheads", "workload"))


def _run_uninstalled(source: Path, *arguments: str) -> str:
    """Run the command line of a source tree where no metadata of perfc are found."""
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(source)!r})\n"
        "import perfc.installed\n"
        "perfc.installed.version = lambda name: None\n"
        "from perfc.tools.cli.command_line import main\n"
        "raise SystemExit(main())\n"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return done.stdout


@pytest.mark.parametrize(
    "option",
    ["--optimizer=lion", "--mode=profile"],
)
def test_options_that_are_not_built_are_absent(command: Command, option: str) -> None:
    """So are options and values of options."""
    assert "see `perfc analyze --help`" in command.refused([*ANALYZE, option], 2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["analyse", "x"], "no verb 'analyse'; did you mean 'analyze'? see"),
        (["xyz"], "no verb 'xyz'; verbs: analyze, sweep, replay, rescale, diff, check"),
        (["--verson"], "--verson"),
        (["analyze", "x", "--targt", "v100"], "'--target'"),
        (["analyze"], "Missing argument 'MODEL'; see `perfc analyze --help`"),
        (["analyze", "dlrm-ddp"], "Missing option '--target'"),
        (["analyze", "dlrm-dpd", "--target", "t4"], "did you mean 'dlrm-ddp'?"),
        (["analyze", "dlrm-ddp:table=2", "--target", "t4"], "it has embedding=bag"),
        (["analyze", "a.txt", "--target", "t4"], "no frontend reads .txt files; known"),
        ([*ANALYZE, "--target", "v1000"], "unknown target v1000; did you mean v100?"),
        ([*ANALYZE, "--pass", "fold-shape"], "did you mean 'fold-shapes'?"),
        ([*ANALYZE, "--pass", "overhead{x=1}"], "has no option 'x'; options: profile"),
        ([*ANALYZE, "--pipeline", "overhed"], "did you mean 'overhead'?"),
        ([*ANALYZE, "--pipeline", "a b"], "not a pipeline: 'a b'"),
        ([*ANALYZE, "--set", "gpu.sm_clok_mhz=1"], "close: gpu.sm_clock_mhz"),
        ([*ANALYZE, "--set", "gpu.sm_count"], "--set 'gpu.sm_count': expected NAME="),
        ([*ANALYZE, "--set", "gpu.sm_count=x"], "expected a number"),
        ([*ANALYZE, "--set", "gpu.sm_count=1", "--set", "gpu.sm_count=2"], "twice"),
        ([*ANALYZE, "--overheads", "sharde"], "unknown host profile 'sharde'"),
        ([*ANALYZE, "--batch", "0"], "'--batch': 0 is not in the range"),
        ([*ANALYZE, "--batch", "x"], "'--batch': 'x' is not a valid integer"),
        ([*ANALYZE, "--dim", "batch=-1"], "expected an integer from 0 to"),
        ([*ANALYZE, "--dim", "batch=9" * 30], "expected an integer from 0 to"),
        ([*ANALYZE, "--inputs", "disk"], "inputs='disk': expected host-pinned, "),
        ([*ANALYZE, "-q", "-v"], "--quiet and --verbose exclude each other"),
        (["targets", "show", "v1000"], "unknown target v1000; did you mean v100?"),
        (["targets", "shw", "v100"], "shw"),
        (["opt", "dlrm-ddp", "-p", "shape"], "unknown pass 'shape'"),
    ],
)
def test_usage(command: Command, arguments: list[str], expected: str) -> None:
    """A command that cannot be meant is one line and exit code 2."""
    assert expected in command.refused(arguments, 2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["analyze", "no/such.onnx", "--target", "t4"], "no/such.onnx: no such file"),
        (["analyze", "dlrm-ddp", "--target", "t4"], "batch (the batch); add --batch N"),
        ([*ANALYZE, "--dim", "n=3"], "--dim n: program dlrm-ddp has no such dimension"),
        ([*ANALYZE, "--dim", "batch=3"], "'batch' is the batch, so it has to be 64"),
        ([*ANALYZE, "--pooling", "3"], "the model leaves no number of lookups open"),
        ([*ANALYZE, "--plugin", "no_such"], "--plugin no_such: ModuleNotFoundError"),
        ([*ANALYZE, "--pipeline", "critical-path"], "requires launch.hosted, time."),
        (
            [*ANALYZE, "--pipeline", "shape-inference"],
            "ends without time.critical_path",
        ),
        (["opt", "dlrm-ddp", "-p", "overhead"], "requires launch.device, which no"),
    ],
)
def test_the_input_is_at_fault(
    command: Command, arguments: list[str], expected: str
) -> None:
    """What cannot be done with this input is one line and exit code 1."""
    assert expected in command.refused(arguments, 1)


def test_debug_shows_the_traceback(command: Command) -> None:
    """With `--debug` the traceback comes before the line."""
    outcome = command("analyze", "no.onnx", "--target", "t4", "--debug")

    lines = outcome.err.splitlines()
    assert (1, "") == (outcome.code, outcome.out)
    assert "Traceback (most recent call last):" == lines[0]
    assert "perfc: error: no.onnx: no such file" == lines[-1]


def test_errors_are_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a message holds, it is one line."""
    _replace(monkeypatch, PerfcError("first\n  second"))

    assert "first second" == command.refused(["ops"], 1)


def _replace(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let every verb raise *error*."""

    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_invoke", fail)


def test_interrupted(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control-C ends it with the code that shells use."""
    _replace(monkeypatch, KeyboardInterrupt())

    assert "interrupted" == command.refused(["ops"], 130)


def test_bugs_are_shown_to_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under pytest an exception that nobody foresaw escapes."""
    _replace(monkeypatch, ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        cli.main(["ops"])


def test_bugs_are_one_line_for_users(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere it is one line that says so and how to see more."""
    _replace(monkeypatch, ZeroDivisionError("by 0"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST")

    assert (
        "this is a bug of perfc (ZeroDivisionError: by 0); --debug shows where"
        == command.refused(["ops"], 1)
    )


def test_as_a_module() -> None:
    """`python -m perfc` is the command, and results go to stdout alone."""
    run = _run(*ANALYZE)

    assert (0, "") == (run.returncode, run.stderr)
    assert "time of one iteration" in run.stdout


def test_as_a_module_that_fails() -> None:
    """The exit code of the process is that of the error."""
    run = _run("analyze", "dlrm-ddp", "--target", "nowhere")

    assert (2, "") == (run.returncode, run.stdout)
    assert 1 == len(run.stderr.splitlines())


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """Yield the writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize("arguments", [("ops",), (*ANALYZE, "--format", "json")])
def test_the_reader_has_gone(closed_pipe: int, arguments: tuple[str, ...]) -> None:
    """`perfc ... | head` says nothing when head has seen enough."""
    run = subprocess.run(
        [sys.executable, "-m", "perfc", *arguments],
        check=False,
        stdout=closed_pipe,
        stderr=subprocess.PIPE,
        text=True,
    )

    assert (0, "") == (run.returncode, run.stderr)


@pytest.mark.parametrize("heavy", ["torch", "onnx", "networkx"])
def test_imports_are_lazy(heavy: str) -> None:
    """Analysing a workload loads neither torch nor onnx, nor networkx."""
    code = (
        "import sys; from perfc.tools.cli.command_line import main; "
        f"main({list(ANALYZE)!r}); sys.exit({heavy!r} in sys.modules)"
    )

    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)

    assert 0 == run.returncode


def test_targets(command: Command) -> None:
    """`targets` lists names and aliases, one a line."""
    lines = command("targets").out.splitlines()

    assert lines[0].startswith("name ")
    assert any(line.startswith("v100-sxm2-16g ") and " v100 " in line for line in lines)


def test_the_table_of_targets_fits_a_terminal(command: Command) -> None:
    """No line is longer than 100 columns, and no built-in target is missing."""
    lines = command("targets").out.splitlines()

    assert 1 + 27 <= len(lines)
    assert 100 >= max(map(len, lines))
    assert not [line for line in lines if line != line.rstrip()]


def test_a_target(command: Command) -> None:
    """`targets show` prints every field with its unit and its source."""
    shown = command("targets", "show", "v100").out
    title, *rows = shown.splitlines()

    assert title.startswith("v100-sxm2-16g   spec ")
    fields = {row.split()[0]: row for row in rows}
    assert {"gpu.sm_clock_mhz", "host_link.h2d_gb_per_s", "power.tdp_w"} <= set(fields)
    assert re.search(r" 1530 +MHz +NVIDIA .*whitepaper", fields["gpu.sm_clock_mhz"])
    assert all(len(row.split()) > 2 for row in rows)


def test_a_target_from_a_sheet(command: Command, tmp_path: Path) -> None:
    """`targets show` takes a file as `--target` does."""
    sheet = Path(__file__).parents[2] / "golden" / "test-target.toml"

    assert command("targets", "show", str(sheet)).out.startswith("test-target ")


def test_memories_are_listed_and_shown(command: Command) -> None:
    """`targets` lists them; `targets show` takes a name or an alias, also as JSON."""
    listed = command("targets").out

    assert re.search(
        r"^optane-p4800x +349 GiB +512 B +550,000 +8.9 us", listed, re.MULTILINE
    )
    title, *rows = command("targets", "show", "optane").out.splitlines()
    assert "optane-p4800x" == title
    assert rows[0].startswith("tiers.optane-p4800x.capacity_gb ")
    document = json.loads(command("targets", "show", "optane", "--format", "json").out)
    assert ("perfc.memory/1", "optane-p4800x") == (document["schema"], document["name"])
    assert len(rows) == len(document["fields"])
    assert {"name", "value", "unit", "source"} == set(document["fields"][0])


def test_tiers_of_a_target_are_shown(command: Command) -> None:
    """Each field with its unit and the source of the memory that it is of."""
    shown = command("targets", "show", "1s-server").out

    assert re.search(
        r"^tiers\.optane\.count +2 +assumed: two drives", shown, re.MULTILINE
    )
    assert re.search(
        r"^tiers\.optane\.read_iops +550000 +1/s +Intel's", shown, re.MULTILINE
    )


def test_ops(command: Command) -> None:
    """`ops` lists every op with what it does."""
    assert re.search(r"^relu +max\(x, 0\)$", command("ops").out, re.MULTILINE)


def test_passes(command: Command) -> None:
    """`passes` says what each pass needs and provides."""
    assert re.search(
        r"^kernel-cost +analysis +launch\.device +cost\.kernels +Price",
        command("passes").out,
        re.MULTILINE,
    )


def test_models(command: Command) -> None:
    """`models` lists the workloads with their parameters."""
    assert re.search(
        r"^dlrm-ddp .*\n +embedding=bag\|batched,tables=8,rows=80000,dim=128,pooling=",
        command("models").out,
        re.MULTILINE,
    )


def test_only_a_process_of_its_own_collects_no_garbage(command: Command) -> None:
    """A command that a program calls leaves its collector as it was."""
    assert gc.isenabled()
    assert 0 == command("targets").code
    assert gc.isenabled()

    code = (
        "import gc, sys\n"
        "from perfc.tools.cli import main\n"
        "sys.argv = ['perfc', 'targets']\n"
        "code = main()\n"
        "print(code, gc.isenabled(), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert "0 False\n" == done.stderr


@pytest.mark.parametrize(
    "verb", [(verb,) for verb in VERBS] + [("targets", "show"), ("measure", "workload")]
)
def test_help_has_every_option_once(command: Command, verb: tuple[str, ...]) -> None:
    """Groups neither lose an option of a verb nor repeat one."""
    with click.Context(cli.perfc_command, info_name="perfc") as ctx:
        found = cli.perfc_command.get_command(ctx, verb[0])
    for inner in verb[1:]:
        assert isinstance(found, click.Group)
        found = found.commands[inner]
    assert found is not None
    helped = command(*verb, "--help").out
    listed = re.findall(r"^  (?:-\w, )?(--[\w-]+)", helped, re.MULTILINE)

    options = [p for p in found.params if isinstance(p, click.Option) and not p.hidden]
    firsts = [
        next(name for name in one.opts if name.startswith("--")) for one in options
    ]
    assert sorted([*firsts, "--help"]) == sorted(listed)


def test_help_groups_options(command: Command) -> None:
    """Of a verb with many options, those of one kind stand under one heading."""
    helped = command("analyze", "--help").out

    headings = re.findall(r"^(\w+):$", helped, re.MULTILINE)
    assert ["Model", "Training", "Target", "Passes", "Output", "Other"] == headings
    assert helped.index("Training:") < helped.index("--optimizer")
    assert helped.index("--optimizer") < helped.index("Target:")


def test_help_groups_verbs(command: Command) -> None:
    """The help of `perfc` says what verbs are for, by groups."""
    headings = re.findall(r"^([A-Z][\w ]+):$", command("--help").out, re.MULTILINE)

    predict, *others = headings[1:]
    assert "Predict" == predict
    assert ["Compare and check", "Plan", "Measure and calibrate", "Inspect"] == others
