"""`perfc analyze --sensitivity`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.tools.command import SMALL, Command

from perfc import Oracle
from perfc.tools.reports import Sensitivity

DECIDES = Sensitivity.title


def test_a_table_below_the_report(command: Command) -> None:
    """The report is as without the option, and one section longer."""
    plain, asked = command.analyze(), command.analyze("--sensitivity")
    before, heading, after = asked.out.partition(f"{DECIDES}\n")
    table, _, rest = after.partition("\n\n")

    assert (0, "") == (asked.code, asked.err)
    assert DECIDES == heading.strip()
    assert plain.out == before + rest
    assert {"target", "host", "op"} <= {
        row.split()[0] for row in table.splitlines()[1:]
    }
    assert ["if", "faster", "if", "slower"] == table.splitlines()[0].split()
    assert max(map(len, asked.out.splitlines())) <= 96


def test_json_has_it_only_if_asked(command: Command) -> None:
    """The key is added; everything else stays, and it is what an oracle says."""
    plain = command.analyze("--format", "json").report
    asked = command.analyze("--format", "json", "--sensitivity").report
    found = asked.pop("sensitivity")
    oracle = Oracle(SMALL[0], "v100", batch=64)

    assert plain == asked
    assert [*oracle.sensitivity().rows] == [
        {**row, "moves": (*row["moves"],)} for row in found
    ]
    assert {"kind", "name", "faster", "slower", "remark", "moves"} == found[0].keys()


def test_of_several_targets_with_fields_that_are_set(command: Command) -> None:
    """Each report has its own; what was set by hand stays set."""
    outcome = command(
        *("analyze", SMALL[0], "--batch", "16384", "--format", "json"),
        *("--sensitivity", "--target", "v100", "--target", "a100"),
        *("--set", "gpu.sm_clock_mhz=1000"),
    )
    reports = outcome.report["reports"]
    set_by_hand = {"gpu.sm_clock_mhz": 1000}
    oracle = Oracle(SMALL[0], "a100", batch=16384, overrides=set_by_hand)
    names = [row["name"] for row in reports[1]["sensitivity"]]

    assert 2 == len(reports)
    assert reports[0]["sensitivity"] != reports[1]["sensitivity"]
    assert [slope.name for slope in oracle.sensitivity().slopes] == names


def test_markdown_and_page(command: Command) -> None:
    """Both have the section; the page has a bar for each row of it."""
    text = command.analyze("--format", "md", "--sensitivity").out
    plain = command.analyze("--format", "html").out
    page = command.analyze("--format", "html", "--sensitivity").out
    section = page.partition(f"<h2>{DECIDES}</h2>")[2].partition("<h2>")[0]

    assert f"### {DECIDES}" in text
    assert "| host | T2 |" in text
    assert DECIDES not in plain
    assert section.count("<svg") == section.count('<th scope="row">') > 4
    assert "host.speed" in section


def test_contention_is_said(command: Command) -> None:
    """What there is to say about slopes is a remark of the report."""
    arguments = ("--mode", "training", "--ranks", "2", "--sensitivity")
    outcome = command.analyze(*arguments, target="dgx-v100")

    assert 0 == outcome.code
    assert "[shared]" in outcome.out


@pytest.mark.parametrize("form", ["csv", "trace", "model-explorer"])
def test_formats_without_it(command: Command, form: str) -> None:
    """A format that cannot say it is refused, before anything is worked out."""
    arguments = ("analyze", *SMALL, "--target", "v100", "--format", form)
    line = command.refused([*arguments, "--sensitivity"], 2)

    assert f"--sensitivity: format '{form}' has no place for it" in line


def test_nothing_is_loaded_unless_asked() -> None:
    """An analysis without it loads no oracle."""
    code = (
        "import sys; from perfc.tools.cli.command_line import main; "
        f"main(['analyze', {SMALL[0]!r}, '--batch', '64', '--target', 'v100']); "
        "found = [m for m in sys.modules if 'oracle' in m or 'sensitivity' in m "
        "or 'critical_ways' in m]; print(found, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert "[]\n" == run.stderr
