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
    command, temporary = Command(capsys), tmp_path / "temporary"
    workflow = yaml.safe_load((EXAMPLE / "perfc.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["predict"]
    places = [
        step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {})
    ]
    for place in (temporary, *(tmp_path / name for name in places)):
        place.mkdir()
    shutil.copy(EXAMPLE / "budgets.toml", tmp_path / "head")
    names = {"$MODEL": job["env"]["MODEL"], "$RUNNER_TEMP": str(temporary)}
    verbs: list[list[str]] = []

    for step in job["steps"]:
        line = step.get("run", "")
        if not line.startswith("perfc "):
            continue
        for name, value in names.items():
            line = line.replace(name, value)
        monkeypatch.chdir(tmp_path / step.get("working-directory", "."))
        verbs.append(line.split()[1:])
        assert 0 == command(*verbs[-1]).code, line

    # The base branch comes first: a link of the pull request cannot lead it elsewhere.
    assert ["base", "head"] == places
    assert ["analyze", "analyze", "diff", "check"] == [words[0] for words in verbs]
    assert "probability" in (temporary / "diff.md").read_text(encoding="utf-8")
    budgets = tmp_path / "head" / "budgets.toml"
    text = budgets.read_text(encoding="utf-8").replace("= 2500", "= 100")
    budgets.write_text(text, encoding="utf-8")
    assert 3 == command(*verbs[-1]).code
