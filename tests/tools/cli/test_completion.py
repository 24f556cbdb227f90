"""Shells complete verbs, options and names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perfc.tools.cli.command_line import main


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
        ("perfc analyze x --tar", ["plain,--target"]),
        ("perfc analyze x --target h100-s", ["plain,h100-sxm-80g", "file,h100-s"]),
        ("perfc analyze dlrm-m", ["plain,dlrm-mlperf", "file,dlrm-m"]),
        ("perfc analyze x --mode tr", ["plain,training"]),
        ("perfc analyze x --pass fold", ["plain,fold-shapes", "file,fold"]),
        ("perfc parallel x --target dgx-h1", ["plain,dgx-h100", "file,dgx-h1"]),
        ("perfc targets show h100-s", ["plain,h100-sxm-80g", "file,h100-s"]),
        ("perfc nothing --x", [""]),
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
    code = (
        "import sys; from perfc.tools.cli.command_line import main; main(['--help']); "
        "print([n for n in sys.modules if n.startswith("
        "('perfc.tools.cli.completion', 'perfc.tools.cli.analyze', 'numpy'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "[]" == done.stdout.splitlines()[-1]
