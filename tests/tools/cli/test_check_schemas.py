"""`perfc check` writes JUnit and SARIF as their schemas have them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import WORKLOAD, Command

SCHEMAS = Path(__file__).parents[2] / "fixtures" / "schemas"
_REASON = "needs the packages jsonschema and xmlschema: `make install`"
jsonschema: Any = pytest.importorskip("jsonschema", reason=_REASON)
xmlschema: Any = pytest.importorskip("xmlschema", reason=_REASON)

BUDGET = """
[[budget]]
name = "{name}"
model = "{model}"
target = "v100"
batch = 64
{limits}
"""
HOLDS, BROKEN = "time_us = 1e9", "time_us = 1\nlaunches = 1"
FILES = {
    "one that holds": [("fits", HOLDS)],
    "one that is broken": [("late", BROKEN)],
    "some of each": [("fits", HOLDS), ("late", BROKEN), ("later", BROKEN)],
    "names of any letters": [("a<b> & 'c' \\\"d\\\" é \\u0007 \\uffff", BROKEN)],
}


@pytest.fixture(params=list(FILES.values()), ids=list(FILES))
def budgets(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a file of budgets, in a folder whose name is no URI."""
    folder = tmp_path / "my budgets 100 %"
    folder.mkdir()
    text = "".join(
        BUDGET.format(name=name, model=WORKLOAD, limits=limits)
        for name, limits in request.param
    )
    (folder / "budgets.toml").write_text(text, encoding="utf-8")
    return str(folder / "budgets.toml")


def test_junit(budgets: str, tmp_path: Path, command: Command) -> None:
    """What Jenkins and others read: the schema of the xUnit plugin."""
    output = tmp_path / "junit.xml"
    command("check", budgets, "--format", "junit", "-o", str(output))

    xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd").validate(output)


def test_sarif(budgets: str, command: Command) -> None:
    """What code scanning reads: the schema of OASIS, formats such as URIs included."""
    found = json.loads(command("check", budgets, "--format", "sarif").out)
    with gzip.open(SCHEMAS / "sarif-2.1.0-rtm.5.json.gz") as file:
        schema = json.load(file)
    formats = jsonschema.Draft4Validator.FORMAT_CHECKER
    validator = jsonschema.Draft4Validator(schema, format_checker=formats)

    assert [] == [error.message for error in validator.iter_errors(found)]
    for run in found["runs"]:
        for result in run["results"]:
            place = result["locations"][0]["physicalLocation"]
            assert " " not in place["artifactLocation"]["uri"]
            assert "100%20%25" in place["artifactLocation"]["uri"]


@pytest.mark.parametrize("key", ["version", "runs"])
def test_the_schema_refuses(key: str) -> None:
    """A document without what SARIF needs does not pass."""
    with gzip.open(SCHEMAS / "sarif-2.1.0-rtm.5.json.gz") as file:
        schema = json.load(file)
    document: dict[str, Any] = {"version": "2.1.0", "runs": []}
    del document[key]

    assert not jsonschema.Draft4Validator(schema).is_valid(document)
