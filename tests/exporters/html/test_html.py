"""The HTML page: whole, self-contained, and the report's rows."""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import pytest
from tests.exporters.predictions import ONNX_FILE, report_of, two_ranks
from tests.html_page import HtmlPage as Page

import perfc
from perfc.exporters.html import HtmlPage
from perfc.ir import Kernel, LaunchGraph, LaunchOp, Program, TaskKind, Work
from perfc.ir.program import RankClass
from perfc.ir.record import EMPTY
from perfc.tools import Model, Report

MOST_BYTES = 1_500_000


@cache
def _read(report: Report) -> Page:
    return Page.of(report.to_html())


@pytest.fixture(params=["workload", "onnx", "two-ranks"])
def report(request: pytest.FixtureRequest) -> Report:
    """A prediction."""
    if request.param == "two-ranks":
        return two_ranks()
    name = "dlrm-ddp" if request.param == "workload" else str(ONNX_FILE)
    return report_of(name)


def test_a_page(report: Report) -> None:
    """It begins with the answer, and has a row per part of the time and per node."""
    page = _read(report)
    tables = report.tables

    assert f"perfc: {report.model.name} on {report.target.name}" == page.title
    for label, value, remark in tables.headline:
        assert value in page.text
        assert remark.partition(",")[0] in page.text
        assert label in page.text.lower() or label in page.text
    for label, *_ in tables.breakdown[:12]:
        assert label in page.text
    rows = [row for row in page.rows if row[0] in {node["id"] for node in report.nodes}]
    assert len(report.nodes) <= len(rows)


def test_it_needs_nothing_else(report: Report) -> None:
    """Nothing is loaded from anywhere, and the page forbids it."""
    page = _read(report)

    assert page.is_alone
    assert "default-src 'none'" in page.policy
    assert "unsafe" not in page.policy
    assert "@import" not in report.to_html()
    assert "url(" not in report.to_html()


def test_the_licence_of_the_charts_is_in_it() -> None:
    """Whoever is sent a page has the licence of what draws in it."""
    text = report_of("dlrm-ddp").to_html()

    assert "uPlot" in text
    assert "Permission is hereby granted" in text


def test_odd_names() -> None:
    """Names are text, whatever they look like."""
    text = two_ranks().to_html()

    assert "aten::&quot;odd&quot;" in text
    assert 'aten::"odd"' in _read(two_ranks()).text


def test_remarks() -> None:
    """Diagnostics are on the page, warnings before all numbers but the time."""
    report = report_of(str(ONNX_FILE))
    warned = perfc.analyze(perfc.load("gpt2", batch=512, mode="training"), "t4")
    text = _read(warned).text

    assert report.diagnostics
    for remark in report.diagnostics:
        assert f"[{remark.code}]" in _read(report).text
    assert text.index("[out-of-memory]") < text.index("GPU busy")
    assert "does not fit" in text


def test_targets_are_compared_first() -> None:
    """A page of several targets begins with their comparison; each has its own part."""
    names = ("a100", "h100", "t4")
    reports = [report_of("dlrm-ddp", name) for name in names]
    page = Page.of(HtmlPage().export(reports, None))
    own = [one.target.name for one in reports]

    assert "Comparison" == page.headings[1]
    assert own == [row[0] for row in page.rows if row[0] in own][len(own) :]
    assert len(own) == len(page.charts("timeline"))


def test_the_timeline() -> None:
    """It has a lane for the path and one per thread and stream, and whole times."""
    report = report_of("dlrm-ddp")
    (data,) = _read(report).charts("timeline")
    path, host, device = data["lanes"]

    assert "critical path" == path["label"]
    assert len(data["kinds"]) == len(data["colors"])
    assert report.summary["gpu_active_us"] == pytest.approx(sum(device["ns"]) / 1e3)
    assert report.summary["launches"] == len(device["ns"])
    assert {node["id"] for node in report.nodes} >= {
        data["names"][number] for number in (*host["name"], *device["name"])
    }
    ends = _ends(path)
    assert max(ends) == pytest.approx(report.time_us * 1e3, abs=1)


def _ends(lane: dict[str, Any]) -> list[int]:
    steps = (gap + ns for gap, ns in zip(lane["gap"], lane["ns"], strict=True))
    return [*accumulate(steps)]


def test_every_kernel_is_on_the_roofline() -> None:
    """Its points are the ops that compute, below the roofs, and say their time."""
    report = report_of("dlrm-ddp")
    data = next(c for c in _read(report).charts("chart") if c["x"]["log"])
    points = [series for series in data["series"] if series["drawn"] == "points"]
    roofs = [series["name"] for series in data["series"] if series["label"]]
    computing = [n for n in report.nodes if n["flops"] and n["stream"] == "compute"]
    notes = [note for series in points for note in series["notes"]]
    alike = sum(
        int(found[1]) for n in notes if (found := re.search(r"and (\d+) al", n))
    )

    assert len(computing) == len(notes) + alike
    assert any("FLOP/s" in name for name in roofs)
    assert any("B/s" in name for name in roofs)


def test_memory_over_time_has_the_peak() -> None:
    """Areas sum to the report's peak where most is held."""
    report = perfc.analyze(perfc.load("dlrm-ddp", batch=512, mode="training"), "a100")
    data = next(c for c in _read(report).charts("chart") if not c["x"]["log"])
    areas = [series["y"] for series in data["series"] if series["drawn"] == "area"]
    sums = [sum(moment) for moment in zip(*areas, strict=True)]

    assert report.summary["peak_memory_bytes"] == pytest.approx(max(sums), rel=1e-5)
    assert all(start <= end for start, end in pairwise(data["series"][0]["x"]))


def _large(count: int) -> Model:
    """Return a program of so many ops, each with long names and a kernel of its own."""
    graph = LaunchGraph("large")
    thread, stream = graph.thread(), graph.stream()
    for number in range(count):
        name = f"model.layers.{number // 20}.self_attention.projection_{number}"
        op = graph.add_op(LaunchOp("aten::linear", name))
        work = Work(1000 + 37 * number, 4000 + 11 * number, 400 + number)
        kernel = graph.intern(Kernel("odd", "fp32", "fp32", EMPTY, work, known=False))
        graph.task(TaskKind.HOST, thread, op=op, detail="T2", stated_s=5e-6)
        call = graph.task(TaskKind.CALL, thread, op=op, detail="cudaLaunchKernel")
        graph.task(TaskKind.KERNEL, stream, op=op, kernel=kernel, issue=call)
    program = Program("large", (RankClass((0,), launches=graph),))
    return Model(program, perfc.load("dlrm-ddp", batch=1).annotations, program)


def test_large_models_make_small_pages() -> None:
    """A page of ten thousand ops stays below a megabyte and a half, also of targets."""
    report = perfc.analyze(_large(10_000), "a100")
    text = report.to_html()
    several = HtmlPage().export([report] * 3, None)

    assert len(report.nodes) == 10_000
    assert MOST_BYTES > len(text.encode())
    assert MOST_BYTES > len(several.encode())
    assert "The 1,000 longest of 10,000." in text
    for data in Page.of(several).charts("timeline"):
        for lane in data["lanes"]:
            assert len(lane["name"]) == len(lane["ns"]) == len(lane["kind"])
