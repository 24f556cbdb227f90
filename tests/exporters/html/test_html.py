"""The HTML page: whole, self-contained, and the report's rows."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

import pytest
from tests.exporters.predictions import ONNX_FILE, report_of, two_ranks

from perfc.tools import Report

REFERENCES = {"src", "href", "data", "action", "xlink:href"}


class _Reader(HTMLParser):
    """Collects what a page has, and refuses tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(report: Report) -> _Reader:
    reader = _Reader()
    reader.feed(report.to_html())
    reader.close()
    assert [] == reader.open
    return reader


@pytest.fixture(params=["workload", "onnx", "two-ranks"])
def report(request: pytest.FixtureRequest) -> Report:
    """A prediction."""
    if request.param == "two-ranks":
        return two_ranks()
    name = "dlrm-ddp" if request.param == "workload" else str(ONNX_FILE)
    return report_of(name)


def test_a_page(report: Report) -> None:
    """Tags match; there is a row per node, and a bar per row of the breakdown."""
    page = _read(report)
    tables = report.tables
    rows = len(tables.headline) + len(tables.breakdown) + len(tables.to_fix)
    rows += len(tables.ranks)

    assert 1 + rows + len(report.nodes) == page.tags["tr"]
    assert len(report.tables.breakdown) == page.tags["span"]
    for label, *_ in report.tables.breakdown:
        assert label in page.text


def test_it_needs_nothing_else(report: Report) -> None:
    """Nothing is loaded from anywhere."""
    page = _read(report)

    assert set() == page.attributes & REFERENCES
    assert 0 == page.tags["link"] + page.tags["img"] + page.tags["iframe"]
    assert "http" not in report.to_html()
    assert "@import" not in report.to_html()


def test_odd_names() -> None:
    """Names are text, whatever they look like."""
    text = two_ranks().to_html()

    assert "aten::&quot;odd&quot;" in text
    assert 'aten::"odd"' in _read(two_ranks()).text


def test_remarks() -> None:
    """Diagnostics are on the page."""
    report = report_of(str(ONNX_FILE))

    assert report.diagnostics
    for remark in report.diagnostics:
        assert f"[{remark.code}]" in _read(report).text


def test_the_timeline_is_bounded() -> None:
    """However many ops there are, a lane has no more boxes than two a pixel."""
    page = _read(report_of("dlrm-default:tables=400"))

    assert len(report_of("dlrm-default:tables=400").nodes) > 800
    assert 0 < page.tags["rect"] <= 2 * 2 * 1200
