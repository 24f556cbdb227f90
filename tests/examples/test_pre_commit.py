"""The hook that this repository offers to others."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it has no stubs

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
EXAMPLE = ROOT / "examples" / "pre-commit" / ".pre-commit-config.yaml"

needs_pre_commit = pytest.mark.skipif(
    importlib.util.find_spec("pre_commit") is None or shutil.which("git") is None,
    reason="needs pre-commit and git: `make install`",
)


def _hook() -> Any:
    (hook,) = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    return hook


def test_the_example_uses_the_hook() -> None:
    """It names the hook that there is, and the hook needs no arguments of its user."""
    (repo,) = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["repos"]
    hook = _hook()

    assert [hook["id"]] == [used["id"] for used in repo["hooks"]]
    assert ("perfc check", "python") == (hook["entry"], hook["language"])
    assert ["budgets.toml"] == hook["args"]


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing of this machine's configuration is read."""
    nowhere = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    home = {"PRE_COMMIT_HOME": str(folder.parent / "cache"), "HOME": str(folder.parent)}
    return subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **nowhere, **home},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@needs_pre_commit
@pytest.mark.parametrize(
    ("verb", "file"), [("validate-manifest", MANIFEST), ("validate-config", EXAMPLE)]
)
def test_pre_commit_reads_it(tmp_path: Path, verb: str, file: Path) -> None:
    """Both files are what pre-commit expects, without a warning."""
    folder = tmp_path / "project"
    folder.mkdir()

    done = _run(folder, sys.executable, "-m", "pre_commit", verb, str(file))

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with budgets that runs the hook by the perfc of these tests.

    pre-commit would install perfc from the network.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / "ci" / "budgets.toml", folder)
    verb = _hook()["entry"].removeprefix("perfc ")
    entry = f"{sys.executable} -m perfc {verb}"
    hook = {**_hook(), "language": "system", "entry": entry}
    config = {"repos": [{"repo": "local", "hooks": [hook]}]}
    text = yaml.safe_dump(config)
    (folder / ".pre-commit-config.yaml").write_text(text, encoding="utf-8")
    assert 0 == _run(folder, "git", "init", "--quiet").returncode
    assert 0 == _run(folder, "git", "add", ".").returncode
    return folder


@needs_pre_commit
def test_the_hook_holds_budgets(project: Path) -> None:
    """It passes as long as the budgets hold, and says which one is broken."""
    command = (sys.executable, "-m", "pre_commit", "run")

    done = _run(project, *command)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "Passed" in done.stdout

    budgets = project / "budgets.toml"
    text = budgets.read_text(encoding="utf-8").replace("= 2500", "= 100")
    budgets.write_text(text, encoding="utf-8")
    assert 0 == _run(project, "git", "add", ".").returncode
    broken = _run(project, *command)
    assert 1 == broken.returncode
    assert "exit code: 3" in broken.stdout
    assert "0 of 1 budgets hold" in broken.stdout


@needs_pre_commit
def test_other_files_are_let_through(project: Path) -> None:
    """A commit that touches no model, no code and no budget is not held up."""
    (project / "notes.md").write_text("# Notes\n", encoding="utf-8")

    done = _run(
        project, sys.executable, "-m", "pre_commit", "run", "--files", "notes.md"
    )

    assert 0 == done.returncode
    assert "no files to check" in done.stdout
