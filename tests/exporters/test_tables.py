"""CSV, Markdown, pandas and networkx: the report's rows, nothing else."""

from __future__ import annotations

import csv
import io
import sys
from typing import Any

import pytest
from tests.exporters.predictions import report_of, two_ranks

import perfc
from perfc.ir import PerfcError
from perfc.tools import NODE_KEYS

REPORT = "dlrm-ddp"


def test_csv() -> None:
    """There is one row per node, with the report's values under their keys."""
    report = report_of(REPORT)
    rows = list(csv.DictReader(io.StringIO(str(report.export("csv")))))

    assert len(report.nodes) == len(rows)
    for node, row in zip(report.nodes, rows, strict=True):
        assert {"target": "a100-sxm-80g"} | {k: str(v) for k, v in node.items()} == row


def test_csv_columns_are_stable() -> None:
    """The columns are the target and the keys of nodes, whatever the model."""
    report = report_of(REPORT)
    heading = str(report.export("csv")).partition("\n")[0]

    assert set(NODE_KEYS) == report.nodes[0].keys()
    assert ",".join(("target", *NODE_KEYS)) == heading


def test_markdown() -> None:
    """Each table has as many cells in every row as in its heading."""
    text = str(report_of(REPORT).export("md"))
    tables = [block for block in text.split("\n\n") if block.startswith("|")]

    assert text.startswith("## dlrm-ddp · batch 2048")
    assert 4 == len(tables)
    for table in tables:
        rows = [line.replace("\\|", "").count("|") for line in table.splitlines()]
        assert 1 == len(set(rows))
    assert "**Bottleneck**: " in text


def test_markdown_says_what_the_table_says() -> None:
    """Times and labels are those of the text table."""
    report = report_of(REPORT)
    text, table = str(report.export("md")).replace("\\", ""), str(report)

    assert report.tables.breakdown
    for label, _, share in report.tables.breakdown[:3]:
        assert f"| {label} | " in text
        assert label in table
        assert f"| {share} |" in text


def test_markdown_of_odd_names() -> None:
    """What Markdown would take for markup is taken literally, on one line."""
    (row,) = (
        line for line in str(two_ranks().export("md")).splitlines() if "odd" in line
    )

    assert row.startswith('| aten::"odd"\\\\na\\|me\\_ | ')


def test_pandas() -> None:
    """The data frame has a row per node and keeps numbers numbers."""
    report = report_of(REPORT)
    frame = report.to_pandas()

    assert list(NODE_KEYS) == list(frame.columns)
    assert [node["id"] for node in report.nodes] == list(frame["id"])
    assert sum(node["flops"] for node in report.nodes) == frame["flops"].sum()
    assert "bool" == frame["on_critical_path"].dtype


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(PerfcError, match=r"pip install 'perfc\[pandas\]'"):
        report_of(REPORT).to_pandas()


def test_networkx() -> None:
    """Edges lead forward in time, and along the path without slack."""
    graph: Any = report_of(REPORT).to_networkx()

    for before, after in graph.edges:
        assert graph.nodes[before]["start_us"] <= graph.nodes[after]["start_us"]
    for _, task in graph.nodes(data=True):
        assert not task["on_critical_path"] or task["slack_us"] == 0
    kinds = {kind for *_, kind in graph.edges(data="kind")}
    assert {"order", "launch", "wait"} == kinds


def test_unknown_format_from_python() -> None:
    """`export` refuses what no exporter writes, and lists what there is."""
    with pytest.raises(
        PerfcError, match=r"unknown exporter 'x'; known: csv, html, json, md"
    ):
        report_of(REPORT).export("x")


def test_report_is_public() -> None:
    """What `perfc.analyze` returns has every export of the contract."""
    for name in (
        "to_json",
        "to_trace",
        "to_html",
        "to_networkx",
        "to_pandas",
        "export",
    ):
        assert callable(getattr(perfc.Report, name))
