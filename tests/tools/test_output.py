"""What leaves perfc is text that no name can turn into something else."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.tools.command import Command

from perfc.ir.support import printable, write_file
from perfc.ir.text import parse_graph, print_graph

ROOT = Path(__file__).parents[2]
_NAME = "a\x1b[31m\x07\x00\r\x9b\u202eb"
_ODD_MODEL = f"""graph @"{_NAME}"(%"{_NAME}x": f32[8,8]) {{
  %"=1+{_NAME}" = relu(%"{_NAME}x") : f32[8,8] loc {{module = "{_NAME}"}}
  %"@y" = unknown(%"=1+{_NAME}") {{op = "odd{_NAME}"}} : f32[8,8]
  return %"@y"
}}
"""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
_SMALL = ("analyze", "dlrm-ddp:tables=1,rows=1000", "--batch", "8", "--target", "a100")


@pytest.fixture
def odd_model(tmp_path: Path) -> Path:
    """A model whose names would clear a terminal."""
    path = tmp_path / "m.perfc"
    path.write_bytes(_ODD_MODEL.encode())
    return path


@pytest.mark.parametrize(
    "form", ["table", "json", "csv", "md", "html", "trace", "model-explorer"]
)
def test_control_characters_of_names_are_escaped(
    command: Command, odd_model: Path, tmp_path: Path, form: str
) -> None:
    """No format hands them to a terminal, on stdout or in a file."""
    words = ("analyze", str(odd_model), "--target", "a100", "--format", form)
    printed = command(*words)
    command(*words, "-o", str(tmp_path / "out"))
    written = (tmp_path / "out").read_text(encoding="utf-8")

    assert (0, []) == (printed.code, _CONTROLS.findall(printed.out + printed.err))
    assert [] == _CONTROLS.findall(written)
    assert "a\\u001b[31m" in printed.out.replace("\\\\", "\\").replace("\\[", "[")


def test_control_characters_of_errors_are_escaped(command: Command) -> None:
    """What a user or a file wrote comes back on stderr without them, too."""
    found = command("analyze", f"no-{_NAME}.onnx", "--target", "a100")

    assert [] == _CONTROLS.findall(found.err)
    assert "\\u001b[31m\\u0007" in found.error


def test_escaped_names_can_be_read_again() -> None:
    """Assembly with odd names says the same after printing and parsing."""
    graph = parse_graph(_ODD_MODEL)
    text = print_graph(graph)

    assert [] == _CONTROLS.findall(text)
    assert text == print_graph(parse_graph(text))
    assert graph.name == parse_graph(text).name == _NAME


def test_json_stays_json() -> None:
    """Escaping a whole document changes no string that it says."""
    said = {"name": "\x9b\\\x1b", "other": ["\u2028", 'a\\"\x7f']}

    assert said == json.loads(printable(json.dumps(said, ensure_ascii=False)))


def test_names_in_csv_are_no_formulas(command: Command, odd_model: Path) -> None:
    """Cells that spreadsheets would run begin with an apostrophe; numbers do not."""
    found = command("analyze", str(odd_model), "--target", "a100", "--format", "csv")
    rows = list(csv.reader(io.StringIO(found.out)))
    cells = [cell for row in rows for cell in row]

    assert [] == [c for c in cells if c[:1] in "=+@" and c]
    assert any(cell.startswith("'=1+") for cell in cells)


def _run(
    words: tuple[str, ...], env: Mapping[str, str], redirect: str = ""
) -> subprocess.CompletedProcess[bytes]:
    shell = f'"$0" -m perfc "$@" {redirect}'
    return subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable, *words],
        env={**os.environ, **env},
        capture_output=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("form", ["table", "html", "md"])
def test_any_encoding_of_stdout_will_do(encoding: str, form: str) -> None:
    """Text for people is written in it, documents are UTF-8 always."""
    found = _run((*_SMALL, "--format", form), {"PYTHONIOENCODING": encoding})
    text = found.stdout.decode(encoding if form == "table" else "utf-8")

    assert (0, b"") == (found.returncode, found.stderr)
    dot = "-" if encoding == "ascii" else "·"
    between = {"table": f" {dot} ", "md": " · ", "html": "</li><li>"}[form]
    assert f"batch 8{between}inference" in text


@pytest.mark.parametrize(
    ("redirect", "reason"),
    [(">&-", "it is closed; name a file with -o"), (">/dev/full", "No space left")],
)
@pytest.mark.parametrize("words", [_SMALL, ("targets",), ("--help",), ("--version",)])
def test_output_that_goes_nowhere_is_said(
    words: tuple[str, ...], redirect: str, reason: str
) -> None:
    """A closed or full stdout is exit code 1 and one line."""
    found = _run(words, {}, redirect)
    (line,) = found.stderr.decode().splitlines()

    assert 1 == found.returncode
    assert line.startswith(f"perfc: error: cannot write to standard output: {reason}")


def test_a_file_is_written_where_stdout_is_closed(tmp_path: Path) -> None:
    """Who names a file needs no stdout."""
    path = tmp_path / "r.txt"
    found = _run((*_SMALL, "-o", str(path)), {}, ">&-")

    assert (0, b"") == (found.returncode, found.stderr)
    assert "dlrm-ddp" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_errors_that_nobody_reads_keep_their_code(redirect: str) -> None:
    """Without a stderr the exit code is what is left."""
    found = _run(("analyze", "nothing", "--target", "a100"), {}, redirect)

    assert (2, b"", b"") == (found.returncode, found.stdout, found.stderr)


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html", "trace"])
def test_a_model_whose_file_name_is_no_text(tmp_path: Path, form: str) -> None:
    """A name that is not UTF-8 is escaped, in every format, also in a file."""
    path = os.fsencode(tmp_path) + b"/m\xff.perfc"
    Path(os.fsdecode(path)).write_text(
        "graph @g(%x: f32[8]) {\n  %y = relu(%x) : f32[8]\n  return %y\n}\n",
        encoding="utf-8",
    )
    words = ("analyze", os.fsdecode(path), "--target", "a100", "--format", form)
    found = _run((*words, "-o", str(tmp_path / "out")), {})

    assert (0, b"") == (found.returncode, found.stderr)
    assert (tmp_path / "out").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_half_written_file(tmp_path: Path, number: int) -> None:
    """Who ends perfc while it writes finds one line, 128 + N, and no file."""
    script = (
        "import sys, time\n"
        "from perfc.ir.support import files\n"
        "from perfc.tools.cli import command_line as cli\n"
        "whole = files._chunks\n"
        "def slow(content):\n"
        "    yield from whole(content)\n"
        "    print('writing', file=sys.stderr, flush=True); time.sleep(60)\n"
        "files._chunks = slow\n"
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    words = (*_SMALL, "-o", str(tmp_path / "r.txt"))
    script = (
        "import signal\n"
        "for n in (signal.SIGHUP, signal.SIGINT):  # a shell may have them ignored\n"
        "    signal.signal(n, signal.SIG_DFL)\n"
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\n{script}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "writing\n" == process.stderr.readline()
        time.sleep(0.1)
        process.send_signal(number)
        said = process.stderr.read()

    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert (128 + number, f"perfc: error: {word}\n") == (process.returncode, said)
    assert [] == list(tmp_path.iterdir())


def test_python_writes_files_alike(tmp_path: Path) -> None:
    """`write_file` escapes the text of every caller."""
    write_file(tmp_path / "f", f"{_NAME}\n\tx\n")

    assert "a\\u001b[31m\\u0007\\u0000\\u000d\\u009b\\u202eb\n\tx\n" == (
        tmp_path / "f"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["tools", "exporters"])
def test_one_module_writes_to_the_terminal(folder: str) -> None:
    """What must hold of all output is in one place, which nothing goes around."""
    direct = re.compile(
        r"click\.echo|^ +print\(|sys\.(stdout|stderr)\.(write|buffer)", re.MULTILINE
    )
    found = [
        path.name
        for path in sorted((ROOT / folder).glob("**/*.py"))
        if direct.search(path.read_text(encoding="utf-8"))
    ]

    assert (["files.py"] if folder == "tools" else []) == found


def test_budgets_are_an_option_of_every_verb(command: Command) -> None:
    """What a budget refuses, the option lets through."""
    refused = command(*_SMALL, "--budget", "launches=4")
    code = command(*_SMALL, "--budget", "launches=4e4").code

    assert (1, 0) == (refused.code, code)
    assert "expected at most 4; if that is meant, raise it: --budget launches=" in (
        refused.error
    )


def test_seconds_are_a_budget(command: Command) -> None:
    """A command that takes longer than it may ends in one line."""
    found = command(
        "parallel", "gpt2", "--batch", "8", *_FOUR, "--budget", "seconds=0.2"
    )

    assert 1 == found.code
    assert found.error.startswith("0.2 seconds that a command may take, expected at")


_FOUR = ("--target", "a100", "--ranks", "4")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"),
    ],
    ids=["Python", "the system", "PyTorch"],
)
def test_memory_that_is_not_there_is_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is no bug of perfc, whoever asked for the memory."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("perfc.tools.cli.analyze.find_exporter", fail)
    found = command(*_SMALL)

    assert 1 == found.code
    assert found.error.startswith("it needs more memory than there is")
