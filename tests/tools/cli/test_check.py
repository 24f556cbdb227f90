"""`perfc check` as it is typed."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree as ET

import pytest
from tests.tools.command import WORKLOAD, Command

from perfc.ir import PerfcError
from perfc.tools.checks import budget_of
from perfc.tools.checks.budget_file import KEYS
from perfc.tools.checks.keys import in_keys

Json: TypeAlias = dict[str, Any]
ROOT = Path(__file__).parents[3]
PROFILE = ROOT / "costmodels" / "profiles" / "server-2017.toml"
REFERENCE = ROOT / "docs" / "reference" / "check.md"
HEAD = f'[[budget]]\nname = "a<b"\nmodel = "{WORKLOAD}"\ntarget = "v100"\nbatch = 64\n'
NAMELESS = HEAD.replace('name = "a<b"', "time_us = 1")


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
    assert WORKLOAD == outcome.report["budgets"][0]["model"]
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

    file.write_text(text.replace("tables=2", "tables=6").replace("5 %", "900 %"))
    held = command("check", str(file))
    assert 0 == held.code
    assert "mostly" not in held.out


def test_numbers_that_look_alike(file: Path, command: Command) -> None:
    """They have as many digits as it takes to tell them apart."""
    found = command.analyze("--format", "json").report["summary"]["time_us"]
    below = math.nextafter(found, 0)
    for most in (float(f"{found:.7g}"), below, found):
        file.write_text(f"{HEAD}time_us = {most!r}\n", encoding="utf-8")
        outcome = command("check", str(file))
        row = next(one for one in outcome.out.splitlines() if "time_us" in one)
        _, _, *numbers, holds = row.split()

        assert (found != most) == (numbers[0] != numbers[1])
        assert holds == ("ok" if found <= most else "BROKEN")

    digits = [len(number.replace(",", "")) for number in numbers]
    assert max(digits) <= 7  # of numbers that are equal, as few as ever


def test_a_name_of_several_lines(file: Path, command: Command) -> None:
    """It is one row of the table, and one line of Markdown."""
    name = 'name = "one\\n two"'
    text = f"{HEAD}time_us = 1e9\n".replace('name = "a<b"', name)
    file.write_text(text, encoding="utf-8")

    for form in ("table", "md"):
        rows = command("check", str(file), "--format", form).out.splitlines()
        assert 1 == len([row for row in rows if "one two" in row and "ok" in row])
    report = command("check", str(file), "--format", "json").report
    assert "one\n two" == report["budgets"][0]["name"]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"v100"', '"h100"', "of target v100-sxm2-16g, and the budget of target h100-"),
        ("batch = 64", "batch = 32", "of batch 64, and the budget of batch 32"),
        (
            "batch = 64",
            'batch = 64\nmode = "training"',
            "of mode inference, and the budget of mode training",
        ),
        (
            WORKLOAD,
            "dlrm-default",
            "of model dlrm-ddp, and the budget of model dlrm-default",
        ),
        (
            "batch = 64",
            'batch = 64\nruntime = "compiled"\ndtype = "fp16"',
            "of dtype fp32, runtime eager, and the budget of dtype fp16, runtime comp",
        ),
    ],
)
def test_a_baseline_of_something_else(
    old: str, new: str, what: str, file: Path, tmp_path: Path, command: Command
) -> None:
    """What is slower by nature would let any regression pass: it is refused."""
    text = f'{HEAD}regression = "5 %"\nbaseline = "base.json"\n'
    file.write_text(text, encoding="utf-8")
    assert 0 == command("check", str(file), "--update").code
    file.write_text(text.replace(old, new), encoding="utf-8")

    error = command.refused(["check", str(file)], 1)
    base = tmp_path / "base.json"
    assert error.startswith(f"{file}: budget[0].baseline: {base} is {what}")
    assert 0 == command("check", str(file), "--update").code
    assert 0 == command("check", str(file)).code


def test_baselines_of_two_budgets(file: Path, command: Command) -> None:
    """`--update` would leave the last alone: only the very same question may share."""
    one = f'{HEAD}regression = "5 %"\nbaseline = "b.json"\n'
    same = one.replace("a<b", "the same").replace("b.json", "../{}/b.json")
    same = same.format(file.parent.name)
    file.write_text(f"{one}{same}", encoding="utf-8")
    assert 0 == command("check", str(file), "--update").code
    assert 0 == command("check", str(file)).code

    (file.parent / "b.json").unlink()
    file.write_text(f"{one}{same.replace('= 64', '= 32')}", encoding="utf-8")
    error = command.refused(["check", str(file), "--update"], 1)
    assert error.startswith(f"{file}: budget[1].baseline: expected one of its own, ")
    assert "b.json is that of 'a<b', which asks something else" in error
    assert not (file.parent / "b.json").exists()


@pytest.mark.parametrize("several", [False, True])
def test_a_baseline_that_is_gzipped(
    several: bool,
    file: Path,
    tmp_path: Path,
    command: Command,
) -> None:
    """It is read, alone or as the one report of several, and is of the same."""
    report = json.loads(command.analyze("--format", "json").out)
    if several:
        report = {"schema": "perfc.reports/1", "reports": [report]}
    base = tmp_path / "base.json.gz"
    base.write_bytes(gzip.compress(json.dumps(report).encode()))
    text = f'{HEAD}regression = "5 %"\nbaseline = "base.json.gz"\n'
    file.write_text(text, encoding="utf-8")
    assert 0 == command("check", str(file)).code

    file.write_text(text.replace("v100", "h100"), encoding="utf-8")
    assert "of target v100-" in command.refused(["check", str(file)], 1)


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
        (f"{NAMELESS}\n{NAMELESS}", "@v100' is taken; without a name it is model@tar"),
        ("[[budget]]\nname = 'x'\ntime_us = 1\ntarget = 't4'", "budget[0].model"),
        ("[[budget]]\nname = ''\ntime_us = 1\nmodel = 'x'\ntarget = 't4'", "[0].name"),
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
    ("line", "message"),
    [
        ("timeus = 3", "a budget takes no option 'timeus'; did you mean time_us?"),
        ("time_us = 1\ntimeus = 3", "takes no option 'timeus'; did you mean time_us?"),
        ("time_us = 1\nzzz = {}", "takes no option 'zzz'; it takes name, "),
        ("time_us = 1\ninstruments = []", "takes no option 'instruments'; it takes"),
        ('time_us = 1\npass = "x"', "pass='x' is one text: expected a list; write p"),
        ("time_us = 1\nset = 3", "set=3 is an int: expected a mapping, as set={"),
        ("time_us = 1\ndim = 3", "dim=3 is an int: expected a mapping, as dim={"),
        (
            'time_us = 1\nprice = 1\nset = {"price.usd_per_hour" = 2}',
            "price and set price.usd_per_hour say the same: give one",
        ),
        ('time_us = 1\nset = {"gpu.x" = 2}', "set gpu.x"),
    ],
)
def test_keys_at_fault(line: str, message: str, file: Path, command: Command) -> None:
    """Errors call keys as the file does, and offer those that there are."""
    file.write_text(f"{HEAD}{line}\n", encoding="utf-8")
    error = command.refused(["check", str(file)], 1)

    assert error.startswith(f"{file}: budget[0]: ")
    assert message in error
    assert "--" not in error
    _, _, offered = error.partition("; it takes ")
    assert not {"transforms", "instruments", "overrides"} & {*offered.split(", ")}
    assert not offered or {"time_us", "set", "pass"} < {*offered.split(", ")}


def test_a_batch_that_is_missing(file: Path, command: Command) -> None:
    """What is to be added is named by its key."""
    text = HEAD.replace("batch = 64\n", "time_us = 1\n")
    file.write_text(text, encoding="utf-8")
    error = command.refused(["check", str(file)], 1)

    assert error.endswith("number: batch (the batch); add batch = N")


def test_the_reference_has_all_keys() -> None:
    """Whatever a budget takes is in the table of its keys."""
    _, _, text = REFERENCE.read_text(encoding="utf-8").partition("## The file")
    rows = [row for row in text.partition("\n## ")[0].splitlines() if row[:3] == "| `"]
    listed = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows))

    assert sorted(KEYS) == sorted(listed)


@pytest.mark.parametrize(
    ("message", "keys"),
    [
        ("add --batch N --dim s=N --dim t=N", "add batch = N, dim.s = N, dim.t = N"),
        ("use --dtype fp16", "use dtype fp16"),
        ("--input-pipeline and --pass", "input_pipeline and pass"),
        ("write it with --update", "write it with --update"),
    ],
)
def test_flags_as_keys(message: str, keys: str) -> None:
    """Flags of options become keys; others stay."""
    assert keys == in_keys(message)


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


SHARDED = {
    "tables": {
        f"emb_l.{table}": {"sharding_type": "table_wise", "ranks": [table]}
        for table in range(2)
    }
}
STAGES = "[[stages]]\nname = 'read'\ntime_us = 1.0\nresource = 'cores'\n"
HITS = "hits,rows\n2,5\n1,995\n"
PRICE = '[v100]\nusd_per_hour = 1\nsource = "x"\ndate = "2026-10"\n'


@pytest.mark.parametrize(
    ("key", "name", "content"),
    [
        ('price = "{}"', "price.toml", PRICE),
        ('preset = "{}"', "preset.toml", "inputs = 'device'\n"),
        ('overheads = "{}"', "host.toml", PROFILE.read_text(encoding="utf-8")),
        ('input_pipeline = "{}"', "stages.toml", STAGES),
        ('popularity = "{}"', "hits.csv", HITS),
        ('popularity = {{ "emb_l.0" = "{}" }}', "hits.csv", HITS),
        ('pass = ["input-pipeline{{file={}}}"]', "stages.toml", STAGES),
        ('pass = ["set-popularity{{popularity={}}}"]', "hits.csv", HITS),
        (
            'pass = ["pin-copies,shard-embeddings{{ranks=2,plan={},per-node=2}}"]',
            "plan.json",
            json.dumps(SHARDED),
        ),
    ],
)
def test_paths_of_options(
    key: str, name: str, content: str, file: Path, command: Command
) -> None:
    """They are relative to the file of budgets, wherever the command is typed."""
    line = key.format(f"a b/{name}")
    file.write_text(f"{HEAD}time_us = 1e9\n{line}\n", encoding="utf-8")
    beside = file.parent / "a b" / name
    command.refused(["check", str(file)], 1)

    beside.parent.mkdir()
    beside.write_text(content, encoding="utf-8")
    assert 0 == command("check", str(file)).code


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
    assert f"  {WORKLOAD}@v100: time_us: " in out
    assert f"  {WORKLOAD}@v100: launches: " in out


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
    assert (1, True) == (code, "write it with --perfc-update" in out)

    assert 0 == _tested(tmp_path, call.format(WORKLOAD), "--perfc-update")[0]
    assert (tmp_path / "base.json").exists()
    assert 0 == _tested(tmp_path, call.format(WORKLOAD))[0]

    slower = WORKLOAD.replace("tables=2", "tables=6")
    code, out = _tested(tmp_path, call.format(slower))
    assert (1, True) == (code, "regression: " in out)
