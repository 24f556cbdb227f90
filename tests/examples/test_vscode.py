"""The tasks of `examples/vscode` run, and VS Code finds what they complain of."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.tools.command import Command

ROOT = Path(__file__).parents[2]
TASK_FILE = ROOT / "examples" / "vscode" / "tasks.json"
DOCUMENT: Any = json.loads(TASK_FILE.read_text(encoding="utf-8"))
TASKS: dict[str, Any] = {task["label"]: task for task in DOCUMENT["tasks"]}
FILE, BATCH, FUNCTION, BUDGETS = TASKS
SYMBOLIC = ROOT / "examples" / "models" / "dlrm_mlperf.onnx"
FIXED = ROOT / "tests" / "fixtures" / "onnx" / "bag_dynamo_sum_2d_static.onnx"


class Problem(NamedTuple):
    """A line of the panel Problems."""

    file: str
    line: str | None
    message: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """The `perfc` command."""
    return Command(capsys)


def _arguments(label: str, file: Path | str = "", function: str = "model") -> list[str]:
    """Return the arguments of a task, as VS Code fills them in."""
    inputs = {entry["id"]: entry["default"] for entry in DOCUMENT["inputs"]}
    values: dict[str, str] = {
        "${file}": str(file),
        "${input:target}": inputs["target"],
        "${input:batch}": inputs["batch"],
        "${input:function}": function,
    }
    found: list[str] = []
    for argument in TASKS[label]["args"]:
        for name, value in values.items():
            argument = argument.replace(name, value)  # noqa: PLW2901 - one after another
        assert "${" not in argument
        found.append(argument)
    return found


def _problems(label: str, output: str) -> list[Problem]:
    """Return what the task's matchers find: these expressions read alike in Python."""
    found: list[Problem] = []
    for matcher in TASKS[label]["problemMatcher"]:
        pattern = matcher["pattern"]
        # VS Code takes a pattern without a place for one of whole files.
        assert ("line" in pattern) != (pattern.get("kind") == "file")
        for line in output.splitlines():
            match = re.search(pattern["regexp"], line)
            if match is None:
                continue
            at = match[pattern["line"]] if "line" in pattern else None
            found.append(Problem(match[pattern["file"]], at, match[pattern["message"]]))
    return found


def test_analyze_the_open_file(command: Command) -> None:
    """The open model is analyzed; there is no problem."""
    outcome = command(*_arguments(FILE, FIXED))

    assert 0 == outcome.code, outcome.err
    assert [] == _problems(FILE, outcome.out + outcome.err)


def test_analyze_at_a_batch_size(command: Command) -> None:
    """A model whose batch is a symbol is analyzed at the size that is entered."""
    assert "add --batch N" in command(*_arguments(FILE, SYMBOLIC)).err

    outcome = command(*_arguments(BATCH, SYMBOLIC))

    assert 0 == outcome.code, outcome.err
    assert [] == _problems(BATCH, outcome.out + outcome.err)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("bad.onnx", None, "this is text, not an ONNX model"),
        ("bad.pt2", None, "cannot be read as an archive"),
        ("bad.perfc", "1", "expected 'graph', found 'junk'"),
    ],
)
def test_problems_of_a_file(
    command: Command, tmp_path: Path, name: str, line: str | None, message: str
) -> None:
    """One problem, at the file, and at its line where there is one."""
    path = tmp_path / name
    path.write_text("junk {\n", encoding="utf-8")

    outcome = command(*_arguments(FILE, path))

    assert 1 == outcome.code
    (problem,) = _problems(FILE, outcome.err)
    assert (str(path), line) == (problem.file, problem.line)
    assert problem.message.startswith(message)


def test_problems_of_a_function(command: Command, tmp_path: Path) -> None:
    """What a function of the open file raises is shown at its line."""
    path = tmp_path / "models.py"
    path.write_text(
        "def model():\n    raise ValueError('no sizes')\n", encoding="utf-8"
    )

    outcome = command(*_arguments(FUNCTION, path))

    assert 1 == outcome.code
    (problem,) = _problems(FUNCTION, outcome.err)
    assert (str(path), "2") == (problem.file, problem.line)
    assert "ValueError: no sizes" in problem.message


def test_budgets(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budgets of the folder are held; what is wrong in the file is a problem."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "ci" / "budgets.toml", tmp_path)

    assert 0 == command(*_arguments(BUDGETS)).code

    (tmp_path / "budgets.toml").write_text("junk\n", encoding="utf-8")
    outcome = command(*_arguments(BUDGETS))
    assert 1 == outcome.code
    (problem,) = _problems(BUDGETS, outcome.err)
    assert ("budgets.toml", None) == (problem.file, problem.line)


def test_every_task_is_whole() -> None:
    """Each runs `perfc`, and asks for nothing that is not an input."""
    assert "2.0.0" == DOCUMENT["version"]
    inputs = {entry["id"] for entry in DOCUMENT["inputs"]}
    for task in TASKS.values():
        assert ("process", "perfc") == (task["type"], task["command"])
        assert set(re.findall(r"\$\{input:(\w+)\}", " ".join(task["args"]))) <= inputs
