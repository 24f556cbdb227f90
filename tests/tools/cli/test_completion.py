"""Shells complete verbs, options and names."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfc.planning.strategies import METHODS, OBJECTIVES
from perfc.tools.cli import command_line as cli
from perfc.tools.cli.command_line import main

_SECONDS = 300


def _completed(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Return what bash is told to complete the last word of *line* with."""
    words = line.split(" ")
    monkeypatch.setenv("_PERFC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert 0 == main([])
    printed = capsys.readouterr()
    assert not printed.err
    return printed.out.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perfc an", ["plain,analyze"]),
        ("perfc --ver", ["plain,--version"]),
        ("perfc --version an", ["plain,analyze"]),
        ("perfc analyze x --tar", ["plain,--target"]),
        ("perfc analyze x --target h100-s", ["plain,h100-sxm-80g", "file,h100-s"]),
        ("perfc analyze x --target h100-8", ["plain,h100-80g", "file,h100-8"]),
        ("perfc analyze x --target=h100-s", ["plain,--target=h100-sxm-80g"]),
        ("perfc analyze x --target = h100-s", ["plain,h100-sxm-80g"]),
        ("perfc analyze dlrm-m", ["plain,dlrm-mlperf", "file,dlrm-m"]),
        ("perfc analyze dlrm-ddp:tab", ["part,dlrm-ddp:tables="]),
        ("perfc analyze dlrm-ddp : tab", ["part,tables="]),
        (
            "perfc analyze dlrm-ddp : tables = 2,emb",
            ["part,2,embedding="],
        ),
        (
            "perfc analyze dlrm-ddp : embedding =",
            ["plain,bag", "plain,batched"],
        ),
        ("perfc analyze dlrm-ddp:tables=2,tab", ["file,dlrm-ddp:tables=2,tab"]),
        ("perfc analyze x --mode tr", ["plain,training"]),
        ("perfc analyze x --pass fold", ["plain,fold-shapes"]),
        ("perfc opt -p fold-shapes,fold", ["plain,fold-shapes,fold-shapes"]),
        ("perfc analyze x --preset lin-v", ["plain,lin-v100", "file,lin-v"]),
        ("perfc analyze x --overheads lin", ["plain,lin-v100", "file,lin"]),
        ("perfc analyze x --set gpu.sm_cl", ["part,gpu.sm_clock_mhz="]),
        ("perfc analyze x --format js", ["plain,json"]),
        ("perfc analyze x --budget laun", ["part,launches="]),
        ("perfc analyze x --input-pipeline a", ["file,a"]),
        ("perfc sweep x --vary batc", ["part,batch="]),
        ("perfc parallel x --target dgx-h1", ["plain,dgx-h100", "file,dgx-h1"]),
        ("perfc rescale t.json --to h100-s", ["plain,h100-sxm-80g", "file,h100-s"]),
        ("perfc targets show h100-s", ["plain,h100-sxm-80g", "file,h100-s"]),
        ("perfc measure workload dlrm-m", ["plain,dlrm-mlperf", "file,dlrm-m"]),
        ("perfc diff a", ["file,a"]),
        ("perfc nothing --x", [""]),
        ("perfc analyze 'x --tar", ["plain,--target"]),
    ],
)
def test_completes(
    line: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Verbs, options, their choices, and the names of targets, models and passes."""
    assert expected == _completed(line, monkeypatch, capsys)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script of each shell asks `perfc` itself."""
    monkeypatch.setenv("_PERFC_COMPLETE", f"{shell}_source")

    assert 0 == main([])
    assert f"_PERFC_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize("asked", ["tcsh_source", "bash", "bash_eval"])
def test_other_shells(
    asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says which shells there are."""
    monkeypatch.setenv("_PERFC_COMPLETE", asked)

    assert 2 == main([])
    assert (
        f"perfc: error: _PERFC_COMPLETE={asked}: expected bash_source, zsh_source, "
        "fish_source\n"
    ) == capsys.readouterr().err


def test_help_does_not_wait_for_it() -> None:
    """Without the variable nothing of it is imported, nor any verb."""
    loaded = _loaded("main(['--help'])", {})

    assert not [
        name
        for name in loaded
        if name.startswith(
            ("perfc.tools.cli.completion", "perfc.tools.cli.analyze", "numpy")
        )
    ]


@pytest.mark.parametrize(
    "line",
    [
        *(f"perfc {verb} x --targ" for verb in ("analyze", "parallel", "shard")),
        *(f"perfc {verb} x --form" for verb in ("validate", "place", "opt", "replay")),
        "perfc calibrate --dev",
        "perfc measure workload dlrm",
        "perfc analyze x --target h",
        "perfc analyze dlrm-default:ta",
        "perfc analyze x --pass fo",
        "perfc analyze x --preset l",
    ],
)
def test_is_quick(line: str) -> None:
    """Nothing is loaded that takes long: no arrays, no formats of models."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    loaded = _loaded("main([])", {"_PERFC_COMPLETE": "bash_complete", **words})

    assert not {"numpy", "onnx", "torch", "scipy", "pyarrow", "lightgbm"} & loaded


def test_choices_of_planning() -> None:
    """The command line has those that it does not load planning for."""
    with cli.perfc_command.make_context("perfc", [], resilient_parsing=True) as ctx:
        verb = cli.perfc_command.get_command(ctx, "parallel")
    assert verb is not None
    types = {one.name: one.type for one in verb.params}

    assert list(METHODS) == list(getattr(types["method"], "choices", ()))
    assert list(OBJECTIVES) == list(getattr(types["objective"], "choices", ()))


def _loaded(call: str, environment: Mapping[str, str]) -> set[str]:
    """Return the modules that are there after a call of the command line."""
    code = (
        "import sys; from perfc.tools.cli.command_line import main; "
        f"{call}; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return set(done.stdout.splitlines()[-1].split())


_TYPED = (
    ("perfc ana", "perfc analyze "),
    ("perfc analyze x --target h100-s", "perfc analyze x --target h100-sxm-80g "),
    ("perfc analyze x --target=h100-s", "perfc analyze x --target=h100-sxm-80g "),
    ("perfc analyze dlrm-default:ta", "perfc analyze dlrm-default:tables="),
    ("perfc analyze dlrm-ddp:tables=4,di", "perfc analyze dlrm-ddp:tables=4,dim="),
    ("perfc opt -p fold-shapes,shape-i", "perfc opt -p fold-shapes,shape-inference "),
    ("perfc analyze x --set gpu.sm_cl", "perfc analyze x --set gpu.sm_clock_mhz="),
    ("perfc analyze my-m", "perfc analyze my-model.onnx "),
    ("perfc diff ba", "perfc diff base.json "),
)
"""A line, and what it becomes."""

_SETUP = {
    "bash": 'eval "$(_PERFC_COMPLETE=bash_source perfc)"',
    "zsh": "autoload -Uz compinit; compinit -u -D; "
    'eval "$(_PERFC_COMPLETE=zsh_source perfc)"',
}
_START = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, for a shell that finds `perfc`."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "perfc"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfc "$@"\n', "utf-8")
    script.chmod(0o755)
    for name in ("my-model.onnx", "base.json"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    return tmp_path


def _installed(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_in_a_shell(shell: str) -> None:
    """A tab completes a line, in a shell that was set up as the documents say."""
    pty = pytest.importorskip("pty", reason="the system has no pseudo-terminals")
    here, there = pty.openpty()
    process = subprocess.Popen(
        [_installed(shell), *_START[shell]],
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
    )
    os.close(there)
    try:
        _type(here, f"{_SETUP[shell]}; echo set$((1+1))\r", r"set2\r?\n")
        for line, expected in _TYPED:
            # The line is printed after the completion: Ctrl-A goes to its beginning.
            keys = f"{line}\t\x01echo got$((1+1)) '\x05'\r"
            found = _type(here, keys, r"got2 ([^\r\n]*)\r?\n")
            assert expected.rstrip() == found.rstrip()
    finally:
        process.kill()
        process.wait()
        os.close(here)


def _type(here: int, keys: str, expected: str) -> str:
    """Press keys, and return the first group of what is to be seen then."""
    os.write(here, keys.encode())
    seen, ends = "", time.monotonic() + _SECONDS
    while True:
        ready, _, _ = select.select([here], [], [], max(0.0, ends - time.monotonic()))
        assert ready, seen
        seen += os.read(here, 65536).decode("utf-8", "replace")
        if found := re.search(expected, seen):
            return found[1] if found.groups() else found[0]


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(("line", "expected"), _TYPED)
def test_in_fish(line: str, expected: str) -> None:
    """Fish says itself what it would complete a line with."""
    command = f"_PERFC_COMPLETE=fish_source perfc | source; complete -C '{line}'"
    done = subprocess.run(
        [_installed("fish"), "--no-config", "-c", command],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    words = [candidate.split("\t")[0] for candidate in done.stdout.splitlines()]

    assert [expected.rsplit(maxsplit=1)[-1]] == words
