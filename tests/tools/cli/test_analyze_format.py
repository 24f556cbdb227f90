"""`perfc analyze --format`: every format on the command line."""

from __future__ import annotations

import errno
import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest
from tests.tools.command import SMALL, Command

from perfc.ir import EXPORTERS
from perfc.ir.support import plugin_names

TARGET = ("--target", "t4")


def test_help_names_every_format(command: Command) -> None:
    """`--help` lists the built-in formats."""
    text = "".join(command("analyze", "--help").out.split())

    for name in (
        "csv",
        "html",
        "json",
        "md",
        "model-explorer",
        "onnx",
        "table",
        "trace",
    ):
        assert name in plugin_names(EXPORTERS)
        assert name in text


def test_unknown_format(command: Command) -> None:
    """A name that nobody registered is a usage error that lists what is known."""
    error = command.refused(["analyze", *SMALL, *TARGET, "--format", "pdf"], 2)

    assert error.startswith("unknown exporter 'pdf'; known: csv, html, json, md, ")


def test_unknown_format_is_refused_first(command: Command) -> None:
    """It is refused before any work: the model need not exist."""
    arguments = ["analyze", "no.onnx", *TARGET, "--format", "jsom"]

    assert "unknown exporter 'jsom'; did you mean 'json'?" == command.refused(
        arguments, 2
    )


@pytest.mark.parametrize("form", ["trace", "model-explorer"])
def test_one_report_only(command: Command, form: str) -> None:
    """A format that holds one report refuses several targets."""
    arguments = ["analyze", *SMALL, *TARGET, "--target", "a100", "--format", form]

    error = command.refused(arguments, 2)

    assert f"format '{form}' holds one report, not 2: give one --target" == error


def test_needs_a_file(command: Command) -> None:
    """Bytes are not printed."""
    arguments = ["analyze", *SMALL, *TARGET, "--format", "onnx"]

    assert "format 'onnx' cannot be printed: give the file with -o FILE" == (
        command.refused(arguments, 2)
    )


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html", "onnx"])
def test_no_folder(command: Command, tmp_path: Path, form: str) -> None:
    """A format that is one file says so of a folder, before anything is computed."""
    arguments = ["analyze", *SMALL, *TARGET, "--format", form, "-o", str(tmp_path)]

    assert (
        f"format '{form}' writes one file, and {tmp_path} is a folder: name a file"
        == command.refused(arguments, 2)
    )


def test_a_folder_of_traces(command: Command, tmp_path: Path) -> None:
    """A folder gets a trace of each rank, and nothing is printed."""
    outcome = command.analyze("--format", "trace", "-o", str(tmp_path))

    assert "" == outcome.out
    assert ["rank0.json.gz"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("form", ["csv", "html", "md"])
def test_several_targets(command: Command, form: str) -> None:
    """Tables hold several targets, and say which row is whose."""
    text = command.analyze("--target", "a100", "--format", form).out

    assert "v100-sxm2-16g" in text
    assert "a100-sxm-80g" in text
    if form == "csv":
        lines = text.splitlines()
        assert 1 == sum(line.startswith("target,") for line in lines)
        assert 0 == (len(lines) - 1) % 2


@pytest.mark.parametrize(
    "form", ["csv", "html", "json", "md", "model-explorer", "trace"]
)
def test_compressed(command: Command, tmp_path: Path, form: str) -> None:
    """Any format is compressed into a file called `.gz`."""
    path = tmp_path / "out.gz"

    command.analyze("--format", form, "-o", str(path))

    printed = command.analyze("--format", form).out
    assert printed == gzip.decompress(path.read_bytes()).decode()


@pytest.mark.parametrize("form", ["csv", "html", "md", "model-explorer", "trace"])
def test_deterministic(command: Command, form: str) -> None:
    """Two runs write the same bytes."""
    first, second = (command.analyze("--format", form).out for _ in range(2))

    assert first == second


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["json", "trace"])
def test_full_disk(command: Command, form: str) -> None:
    """A full disk is one line."""
    arguments = ["analyze", *SMALL, *TARGET, "--format", form, "-o", "/dev/full"]

    assert "cannot write /dev/full: No space left on device" == command.refused(
        arguments, 1
    )


def test_read_only_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is read-only is one line, and stays empty."""

    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)  # root may write anywhere
    path = tmp_path / "t.json"

    error = command.refused(
        ["analyze", *SMALL, *TARGET, "--format", "trace", "-o", str(path)], 1
    )

    assert f"cannot write {path}: Permission denied" == error
    assert [] == list(tmp_path.iterdir())


def test_onnx_of_a_workload(command: Command, tmp_path: Path) -> None:
    """Only a model that came from an ONNX file can be annotated."""
    path = tmp_path / "a.onnx"
    arguments = ["analyze", *SMALL, *TARGET, "--format", "onnx", "-o", str(path)]

    error = command.refused(arguments, 1)

    assert (
        "format 'onnx' annotates the ONNX file that a model came from; this one is "
        "the built-in workload dlrm-ddp" == error
    )
    assert [] == list(tmp_path.iterdir())


def test_trace_on_the_command_line(command: Command, tmp_path: Path) -> None:
    """`-o FILE` gets the trace, and stdout nothing."""
    path = tmp_path / "t.json"

    outcome = command.analyze("--format", "trace", "-o", str(path))

    assert (0, "", "") == (outcome.code, outcome.out, outcome.err)
    assert json.loads(path.read_text())["traceEvents"]
