"""Several models and targets in one table, as it is typed."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import WORKLOAD, Command

from perfc.tools.reports.comparison import KEYS, SORTED

OTHER = "dlrm-ddp:tables=4,rows=500"
MODELS = (WORKLOAD, OTHER)
TARGETS = ("v100-sxm2-16g", "t4", "rtx-4090")
ASKED = (
    *("--batch", "64"),
    *(word for target in TARGETS for word in ("--target", target)),
)
UNITS = {
    "time_us": float,
    "time_us_p05": float,
    "time_us_p95": float,
    "device_only_us": float,
    "busy_share": float,
    "bound": str,
    "peak_memory_bytes": int,
    "fits": bool,
    "samples_per_s": float,
}


def compared(command: Command, *more: str) -> Any:
    """Return the JSON of two models on three targets."""
    outcome = command("analyze", *MODELS, *ASKED, "--format", "json", *more)
    assert (0, "") == (outcome.code, outcome.err)
    return outcome.report


def test_a_row_for_each_pair(command: Command) -> None:
    """Models follow each other, each on all targets, as they were given."""
    report = compared(command)

    assert "perfc.reports/1" == report["schema"]
    pairs = [*itertools.product(MODELS, TARGETS)]
    rows = report["comparison"]
    assert pairs == [(row["model"], row["target"]) for row in rows]
    assert [f"{m} on {t}" for m, t in pairs] == [p["name"] for p in report["plans"]]
    assert [one["target"]["name"] for one in report["reports"]] == [t for _, t in pairs]


def test_rows_say_what_reports_say(command: Command) -> None:
    """Numbers are those of the reports; what is not known is null."""
    report = compared(command)

    for row, whole in zip(report["comparison"], report["reports"], strict=True):
        summary = whole["summary"]
        assert set(KEYS) == set(row)
        for key in set(row) & set(summary):
            assert row[key] == summary[key]
        assert row["busy_share"] == summary["gpu_active_us"] / summary["time_us"]
        assert {k: kind for k, kind in UNITS.items() if type(row[k]) is not kind} == {}
        assert (row["target"] == "rtx-4090") == (row["usd_per_million_samples"] is None)
        assert row["gco2e_per_million_samples"] is None


def test_a_report_is_that_of_the_pair_alone(command: Command) -> None:
    """It does not depend on what it is compared with."""
    report = compared(command)["reports"][4]

    alone = command("analyze", OTHER, *ASKED[:2], "--target", "t4", "--format", "json")

    assert alone.report == report


def test_the_first_is_no_faster_than_itself(command: Command) -> None:
    """Its probability is null; the others have one."""
    chances = [row["probability_faster"] for row in compared(command)["comparison"]]

    assert chances[0] is None
    assert all(0 <= chance <= 1 for chance in chances[1:])


@pytest.mark.parametrize("key", SORTED)
def test_sorted(command: Command, key: str) -> None:
    """Rows come best first, or worst first; ties as given, unknown ones last."""
    plain = compared(command)["comparison"]
    high = key in {"fits", "busy_share", "samples_per_s", "samples_per_j"}
    for text, from_high in ((key, high), (f"-{key}", not high)):
        report = compared(command, "--sort", text)
        rows = report["comparison"]
        known = [row for row in plain if row[key] is not None]
        known.sort(key=lambda row: row[key], reverse=from_high)
        order = [*known, *(row for row in plain if row[key] is None)]
        names = [(row["model"], row["target"]) for row in order]

        assert names == [(row["model"], row["target"]) for row in rows]
        assert [one["target"]["name"] for one in report["reports"]] == [
            target for _, target in names
        ]


def test_table(command: Command) -> None:
    """Below a heading is a row for each pair, and below those where prices are from."""
    outcome = command("analyze", *MODELS, *ASKED)

    heading, *rows = outcome.out.splitlines()
    assert heading.startswith("model ")
    pairs = [tuple(row.split()[:2]) for row in rows[:6]]
    assert [*itertools.product(MODELS, TARGETS)] == pairs
    assert ["price of v100-sxm2-16g", "price of t4"] == [
        note.partition(":")[0] for note in rows[6:]
    ]
    assert all("list price" in note and "as of 20" in note for note in rows[6:])


def test_one_model_needs_no_name(command: Command) -> None:
    """The column of the model is there for several alone, as is that of carbon."""
    usual = command("analyze", WORKLOAD, *ASKED).out.splitlines()
    carbon = command("analyze", WORKLOAD, *ASKED, "--carbon", "400", "--price", "2")

    assert usual[0].startswith("target ")
    assert "CO2e" not in usual[0]
    heading, *rows = carbon.out.splitlines()
    assert "CO2e/M samples" in heading
    assert [*(f"price of {t}: 2 USD an hour a GPU; as given" for t in TARGETS)] == (
        rows[3:6]
    )
    assert rows[6].startswith("CO2e at 400 g/kWh, of the energy of GPUs")


def test_csv(command: Command) -> None:
    """A row a pair, with the keys of JSON; with `-v` nodes, as of one report."""
    rows = compared(command)["comparison"]
    text = command("analyze", *MODELS, *ASKED, "--format", "csv").out
    nodes = command("analyze", *MODELS, *ASKED, "--format", "csv", "-v").out

    found = list(csv.DictReader(io.StringIO(text)))
    assert KEYS == tuple(found[0])
    assert [
        {key: "" if row[key] is None else str(row[key]) for key in row} for row in rows
    ] == [dict(row) for row in found]
    assert nodes.startswith("target,id,op,")


def test_markdown(command: Command) -> None:
    """The table comes first, and the reports behind it."""
    text = command("analyze", *MODELS, *ASKED, "--format", "md").out

    heading, _, names, sides, *rows = text.splitlines()
    assert heading == "## dlrm-ddp, compared"
    assert names.startswith("| model | target | time |")
    assert names.count("|") == sides.count("|")
    assert 6 == sum(row.startswith("| dlrm-ddp:") for row in rows)
    assert 6 == text.count("### Top ops by device time")


def test_html(command: Command) -> None:
    """The page has the table."""
    text = command("analyze", *MODELS, *ASKED, "--format", "html").out

    assert OTHER in text
    assert "P(faster)" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            (*MODELS, *ASKED, "--format", "trace"),
            "holds one report, not 6: give one MO",
        ),
        ((*MODELS, *ASKED, "--sort", "tme_us"), "--sort 'tme_us' is none of target, "),
        ((*MODELS, *ASKED, "--sort", "tme_us"), "; did you mean time_us?"),
        ((WORKLOAD, "--target", "t4", "--sort", "bound"), "--sort bound: there is one"),
        ((*MODELS, *ASKED, "--print-pipeline"), "--print-pipeline is of one MODEL, fo"),
        ((*ASKED,), "Missing argument 'MODEL'"),
        ((*MODELS, *ASKED, "--price", "-3"), "--price: expected a number from 0.0001"),
        ((*MODELS, *ASKED, "--price", "x"), "--price: expected a number of USD/h or "),
        ((*MODELS, *ASKED, "--carbon", "x"), "--carbon: expected a number of g/kWh, "),
    ],
)
def test_what_cannot_be(
    command: Command, arguments: tuple[str, ...], says: str
) -> None:
    """It is refused in one line before anything is analyzed."""
    assert says in command.refused(("analyze", *arguments), 2)


def test_a_price_sheet_of_no_target(command: Command, tmp_path: Path) -> None:
    """A price of what perfc does not know is a fault of the file."""
    path = tmp_path / "prices.toml"
    path.write_text('[h1000]\nusd_per_hour = 1\nsource = "x"\ndate = "2026-10"')

    error = command.refused(("analyze", *MODELS, *ASKED, "--price", str(path)), 1)

    assert error.startswith(f"{path}: h1000: unknown target h1000; did you mean")


def test_a_model_that_is_not_there(command: Command) -> None:
    """One that cannot be loaded is an error of all: no row is left out."""
    outcome = command("analyze", WORKLOAD, "no.onnx", *ASKED)

    assert (1, "") == (outcome.code, outcome.out)
    assert "no.onnx" in outcome.error


def test_budgets_take_a_price(command: Command, tmp_path: Path) -> None:
    """A budget's report has the options of `analyze`, a price too."""
    path = tmp_path / "budgets.toml"
    budget = {"name": "a", "model": WORKLOAD, "target": "t4", "time_us": 1e9}
    lines = [f"{key} = {json.dumps(value)}" for key, value in budget.items()]
    path.write_text("\n".join(["[[budget]]", *lines, "batch = 64", "price = 2.0"]))

    assert 0 == command("check", str(path)).code
