"""The workflow of `examples/ci` does what it says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it has no stubs
from tests.tools.command import Command

EXAMPLE = Path(__file__).parents[2] / "examples" / "ci"


def test_the_workflow(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its commands of perfc run, in order; a broken budget fails the last one."""
    command = Command(capsys)
    workflow = yaml.safe_load((EXAMPLE / "perfc.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["predict"]
    shutil.copy(EXAMPLE / "budgets.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    lines = [step["run"] for step in job["steps"] if "run" in step]
    verbs = [line.split() for line in lines if line.startswith("perfc ")]
    names = {"$MODEL": job["env"]["MODEL"], "$RUNNER_TEMP": str(tmp_path)}

    for words in verbs:
        for name, value in names.items():
            words[:] = [word.replace(name, value) for word in words]
        assert 0 == command(*words[1:]).code, words

    assert ["analyze", "analyze", "diff", "check"] == [words[1] for words in verbs]
    assert "probability" in (tmp_path / "diff.md").read_text(encoding="utf-8")
    budgets = tmp_path / "budgets.toml"
    text = budgets.read_text(encoding="utf-8").replace("= 2500", "= 100")
    budgets.write_text(text, encoding="utf-8")
    assert 3 == command(*verbs[-1][1:]).code
