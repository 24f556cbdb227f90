"""`perfc check` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree as ET

import pytest
from tests.tools.command import WORKLOAD, Command

from perfc.ir import PerfcError
from perfc.tools.checks import budget_of

Json: TypeAlias = dict[str, Any]
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


NO_OPS: Json = {
    "schema": "perfc.report/1",
    "model": {"name": "m"},
    "target": {"name": "v100"},
    "runtime": "eager",
    "summary": {"time_us": 0.0},
    "nodes": [],
    "critical_path": [],
    "uncertainty": [],
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file {base}; write it with --update"),
        ('{"schema": "perfc.report/0"}', "{base}: schema: expected perfc.report/1"),
        ('{"schema": "perfc.check/1"}', "{base}: schema: expected perfc.report/1"),
        ('{"schema": ', "{base}: cannot be read as a report"),
        ("", "{base}: cannot be read as a report"),
        (json.dumps(NO_OPS), "head: nodes: none is of an op that {base} has"),
        (
            json.dumps({"schema": "perfc.reports/1", "reports": [NO_OPS, NO_OPS]}),
            "{base}: reports: expected one, found 2",
        ),
        (
            json.dumps({**NO_OPS, "summary": {"time_us": "1"}}),
            "{base}: summary.time_us: expected a number from 0 on, found '1'",
        ),
    ],
)
def test_baselines_at_fault(
    text: str | None, message: str, file: Path, tmp_path: Path, command: Command
) -> None:
    """One line names the budget's key, the baseline, and the key in it."""
    file.write_text(f"{HEAD}regression = '5 %'\nbaseline = 'b.json'", encoding="utf-8")
    base = tmp_path / "b.json"
    if text is not None:
        base.write_text(text, encoding="utf-8")
    outcome = command("check", str(file), "-o", str(tmp_path / "out"))

    assert 1 == outcome.code
    assert outcome.error.startswith(
        f"{file}: budget[0].baseline: {message.format(base=base)}"
    )
    assert not (tmp_path / "out").exists()


def test_a_baseline_that_cannot_be_written(file: Path, command: Command) -> None:
    """`--update` says which budget it is of."""
    text = f"{HEAD}regression = '5 %'\nbaseline = 'none/b.json'"
    file.write_text(text, encoding="utf-8")
    outcome = command("check", str(file), "--update")

    assert 1 == outcome.code
    assert outcome.error.startswith(f"{file}: budget[0].baseline: cannot write ")


def _tested(folder: Path, body: str, *words: str) -> tuple[int, str]:
    """Return the exit code of a test of that body, and what it prints."""
    test = folder / "test_budgets.py"
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    test.write_text(f"def test_it(perfc_budget):\n{lines}", encoding="utf-8")
    plugin = ("-p", "perfc.tools.pytest_plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, str(test), *words],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_the_fixture(file: Path, tmp_path: Path) -> None:
    """A test that asks for `perfc_budget` fails where a limit is broken."""
    body = "perfc_budget('budgets.toml')"
    file.write_text(f"{HEAD}time_us = 1e9\n", encoding="utf-8")
    assert 0 == _tested(tmp_path, body)[0]

    file.write_text(f"{HEAD}time_us = 1\n", encoding="utf-8")
    code, out = _tested(tmp_path, body)
    assert 1 == code
    assert "over budget:\n  a<b: time_us: " in out
    assert "BROKEN" in out


def test_the_fixture_takes_keywords(tmp_path: Path) -> None:
    """A model and its limits may stand in the test itself."""
    call = f"perfc_budget('{WORKLOAD}', target='v100', batch=64, {{}})"
    assert 0 == _tested(tmp_path, call.format("time_us=1e9, unknown_ops=0"))[0]

    code, out = _tested(tmp_path, call.format("time_us=1, launches=1"))
    assert 1 == code
    assert f"  {WORKLOAD} on v100: time_us: " in out
    assert f"  {WORKLOAD} on v100: launches: " in out


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "perfc_budget: it has no limit; give one of time_us"),
        ({"time_us": "1"}, "perfc_budget.time_us: expected a number from 0 on"),
        ({"time_us": 1, "batsch": 1}, "takes no option 'batsch'"),
        ({"time_us": 1, "target": 3}, "perfc_budget.target: expected a text, found 3"),
    ],
)
def test_keywords_at_fault(said: Json, message: str) -> None:
    """The error names the keyword."""
    with pytest.raises(PerfcError) as raised:
        budget_of(WORKLOAD, {"target": "v100", **said})

    assert message in str(raised.value)


def test_the_fixture_writes_baselines(tmp_path: Path) -> None:
    """`--perfc-update` does, as `--update` of the command does."""
    call = (
        "from pathlib import Path\n"
        "perfc_budget('{}', target='v100', batch=64, regression='5 %',\n"
        "    baseline=Path('base.json'))"
    )
    code, out = _tested(tmp_path, call.format(WORKLOAD))
    assert (1, True) == (code, "perfc_budget.baseline: there is no file" in out)

    assert 0 == _tested(tmp_path, call.format(WORKLOAD), "--perfc-update")[0]
    assert (tmp_path / "base.json").exists()
    assert 0 == _tested(tmp_path, call.format(WORKLOAD))[0]

    slower = WORKLOAD.replace("tables=2", "tables=6")
    code, out = _tested(tmp_path, call.format(slower))
    assert (1, True) == (code, "regression: " in out)
