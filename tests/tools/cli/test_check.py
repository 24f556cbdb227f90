"""`perfc check` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.tools.command import WORKLOAD, Command

HEAD = f'[[budget]]\nname = "a<b"\nmodel = "{WORKLOAD}"\ntarget = "v100"\nbatch = 64\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where budgets are written."""
    return tmp_path / "budgets.toml"


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("time_us = 1e6\ntime_us_p95 = 1e7\nunknown_ops = 0\nlaunches = 999", 0),
        ("time_us = 1", 3),
        ("time_us_p95 = 1", 3),
        ("peak_memory_bytes = 1", 3),
        ("launches = 1", 3),
    ],
)
def test_limits(limits: str, code: int, file: Path, command: Command) -> None:
    """A limit that is broken is exit code 3."""
    file.write_text(HEAD + limits, encoding="utf-8")
    outcome = command("check", str(file), "--format", "json")

    assert code == outcome.code
    assert "perfc.check/1" == outcome.report["schema"]
    assert (not code) == outcome.report["ok"]


def test_a_model_that_does_not_fit(file: Path, command: Command) -> None:
    """Exit code 5, and a line that says what is too large, whatever else is broken."""
    text = HEAD.replace(WORKLOAD, "dlrm-mlperf") + "time_us = 1\n"
    file.write_text(text, encoding="utf-8")
    outcome = command("check", str(file), "--format", "json")
    limits = outcome.report["budgets"][0]["limits"]

    assert 5 == outcome.code
    assert ["time_us", "fits"] == [one["limit"] for one in limits]


def test_a_regression(file: Path, command: Command) -> None:
    """`--update` writes the baseline; what is slower than that by more is named."""
    text = f'{HEAD}regression = "5 %"\nbaseline = "base.json"\n'
    file.write_text(text, encoding="utf-8")
    missing = command("check", str(file))
    assert 1 == missing.code
    assert "budget[0].baseline: there is no file" in missing.error

    assert 0 == command("check", str(file), "--update").code
    assert 0 == command("check", str(file)).code

    file.write_text(text.replace("tables=2", "tables=6"), encoding="utf-8")
    slower = command("check", str(file))
    assert 3 == slower.code
    assert "mostly aten::" in slower.out


def test_junit(file: Path, command: Command) -> None:
    """A test case a budget, with a failure where it is broken; names are escaped."""
    file.write_text(f"{HEAD}time_us = 1\n", encoding="utf-8")
    suites = ET.fromstring(  # noqa: S314 - perfc has written it
        command("check", str(file), "--format", "junit").out
    )
    (suite,) = suites
    (case,) = suite

    assert ("testsuites", "testsuite", "testcase") == (suites.tag, suite.tag, case.tag)
    assert ("1", "1") == (suite.attrib["tests"], suite.attrib["failures"])
    assert "a<b" == case.attrib["name"]
    assert "failure" == case[0].tag


def test_sarif(file: Path, command: Command) -> None:
    """A result a broken limit, whose rule is listed, at the line of the budget."""
    file.write_text(f"\n{HEAD}time_us = 1\n", encoding="utf-8")
    found = json.loads(command("check", str(file), "--format", "sarif").out)
    (run,) = found["runs"]
    (result,) = run["results"]
    (place,) = result["locations"]

    assert "2.1.0" == found["version"]
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert result["message"]["text"].startswith("a<b: time_us")
    assert 2 == place["physicalLocation"]["region"]["startLine"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "budget: expected tables [[budget]]"),
        (HEAD, "budget[0]: it has no limit; give one of time_us"),
        (f"{HEAD}time_us = 'x'", "budget[0].time_us: expected a number from 0 on"),
        (f"{HEAD}time_us = 1\nbatsch = 1", "takes no option 'batsch'"),
        (f"{HEAD}regression = '5 %'", "budget[0].baseline: missing"),
        (f"{HEAD}regression = '5'\nbaseline = 'b'", "regression: expected a share"),
        (f"{HEAD}time_us = 1\n{HEAD}time_us = 1", "budget[1].name: expected one of"),
        ("[[budget]]\nname = 'x'\ntime_us = 1\ntarget = 't4'", "budget[0].model"),
        (
            f"{HEAD}time_us = 1".replace("v100", "none"),
            "unknown target none",
        ),
    ],
)
def test_budgets_at_fault(
    text: str, message: str, file: Path, command: Command
) -> None:
    """One line names the file and the key."""
    file.write_text(text, encoding="utf-8")
    outcome = command("check", str(file))

    assert 1 == outcome.code
    assert message in outcome.error
    assert str(file) in outcome.error


def test_the_fixture(file: Path, tmp_path: Path) -> None:
    """A test that asks for `perfc_budget` fails where a limit is broken."""
    test = tmp_path / "test_budgets.py"
    test.write_text(
        "def test_it(perfc_budget):\n    perfc_budget('budgets.toml')\n",
        encoding="utf-8",
    )
    plugin = "perfc.tools.pytest_plugin"
    words = ("-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", str(test))
    codes: list[int] = []
    for most in ("1e9", "1"):
        file.write_text(f"{HEAD}time_us = {most}\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        codes.append(done.returncode)

    assert [0, 1] == codes
    assert "BROKEN" in done.stdout
