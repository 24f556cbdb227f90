"""Parts of pages, as markup: nothing that they hold can become more than text."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.html_page import HtmlPage

from perfc.ir import Diagnostic
from perfc.ir.support import Level
from perfc.tools import pages

TEXTS = st.text() | st.sampled_from(["</script>", "<!--", "]]>", "\u2028", "&lt;"])


@given(st.recursive(TEXTS | st.integers() | st.none(), st.lists, max_leaves=20))
def test_data_is_what_it_was(value: object) -> None:
    """JSON in a script cannot end it, and is read as it was written."""
    text = pages.json_script(value)
    inner = text.removeprefix('<script type="application/json">')
    inner = inner.removesuffix("</script>")

    assert not re.search("[<>&\u2028\u2029]", inner)
    assert value == json.loads(inner)


@given(TEXTS, TEXTS)
def test_text_is_text(name: str, cell: str) -> None:
    """Whatever a table, a bar or a remark says, there is no more markup for it."""
    name, cell = (text.replace("\r", "").replace("\0", "") for text in (name, cell))
    name = name or "a page without a title has no heading of its own"
    parts = [
        pages.Heading(name, [cell], cell, cell, cell, [(cell, "bad")]),
        pages.Remarks([Diagnostic(Level.WARNING, cell, cell, cell)]),
        pages.Cards([pages.Card(cell, cell, cell)]),
        pages.Table([name], [[cell]], name),
        pages.Bars([pages.Bar(cell, 1.0, cell, cell)], name),
        pages.Section(name, [pages.Text(cell)], cell),
    ]
    page = HtmlPage.of(pages.page(name, parts))
    plain = HtmlPage.of(pages.page("x", parts[:0]))

    assert page.is_alone
    assert [*filter(None, [name]), "Warning", name] == page.headings
    assert page.rows[-1][0] == page.rows[1][0] == cell
    assert plain.policy == page.policy


def test_warnings_are_first() -> None:
    """They are a box that is open; notes are a list to open."""
    note = Diagnostic(Level.NOTE, "n", "a note")
    warning = Diagnostic(Level.WARNING, "w", "a warning", "file.onnx")
    text = "".join(pages.Remarks([note, warning]).html())

    assert text.index("a warning") < text.index("<details") < text.index("a note")
    assert "(file.onnx)" in text
    assert "" == "".join(pages.Remarks([]).html())


def test_an_answer_in_each_format() -> None:
    """One list of parts is text, Markdown and a page; what is drawn is on the page."""
    note = Diagnostic(Level.NOTE, "n", "a note")
    parts = [
        pages.Heading("m: a step", ["of 8 samples"], answer="1 us"),
        pages.table([{"plan": "a|b", "time": "1 us"}], "Plans"),
        pages.Section("Tiers", [pages.Text("none")], titled=True),
        pages.Section("Only on the page", [pages.Text("seen")]),
        pages.Drawn(lambda: [pages.Text("drawn")], [pages.Text("instead")]),
        pages.Remarks([note], form="{0.level.value}: {0.message} [{0.code}]"),
    ]
    page = HtmlPage.of(pages.answer_page("m", parts))

    assert (
        "m: a step\nof 8 samples\n\nplan  time\na|b   1 us\n\nTiers\nnone\n\nseen\n\n"
        "instead\n\nnote: a note [n]"
    ) == pages.text_of(parts)
    assert (
        "## m: a step\n\nof 8 samples\n\n| plan | time |\n| --- | --- |\n"
        "| a\\|b | 1 us |\n\n### Tiers\n\nnone\n\nseen\n\ninstead\n\n- note: a note"
    ) == pages.markdown_of(parts)
    assert ["m: a step", "Plans", "Tiers", "Only on the page"] == page.headings
    assert page.text.index("a note") < page.text.index("plan")
    assert "drawn" in page.text
    assert "instead" not in page.text


def test_only_some_remarks_are_printed() -> None:
    """Those of other codes are on the page; without a form none is printed."""
    remarks = [Diagnostic(Level.NOTE, code, code) for code in ("a", "b", "c")]

    assert "" == pages.Remarks(remarks).printed()
    assert (
        "a; c"
        == pages.Remarks(
            remarks, form="{0.message}", between="; ", codes=("a", "c")
        ).printed()
    )


def test_a_waterfall_meets_its_ends() -> None:
    """Each step begins where the one before it ended; the last meets the end."""
    steps = [pages.Step("a", -4.0, "-4"), pages.Step("b", 2.0, "+2")]
    part = pages.Waterfall(("base", 10, "10"), steps, ("head", 8, "8"), "steps")
    boxes = re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)"', "".join(part.html()))
    (_, base), (first, down), (second, up), (_, head) = [
        (float(left), float(width)) for left, width in boxes
    ]

    assert first + down == pytest.approx(base)
    assert second == pytest.approx(first)
    assert second + up == pytest.approx(head)


def test_a_waterfall_far_from_nothing_is_cut() -> None:
    """Small steps between large totals are drawn large."""
    steps = [pages.Step("a", 1.0, "+1")]
    part = pages.Waterfall(("base", 1000, ""), steps, ("head", 1001, ""), "steps")
    widths = [float(w) for w in re.findall(r'width="([\d.]+)"', "".join(part.html()))]

    assert widths[1] > 50


def test_a_table_says_what_it_leaves_out() -> None:
    """Rows beyond the most are not shown, and counted."""
    rows = [[str(number)] for number in range(12)]
    text = "".join(pages.Table(["n"], rows, most=5, order="largest").html())

    assert 1 + 5 == text.count("<tr>")
    assert "The 5 largest of 12." in text


def test_sections_are_linked() -> None:
    """A page of several sections lists them, and each is there."""
    parts = [pages.Section(name, [pages.Text(name)]) for name in ("a", "b", "a")]
    text = pages.page("t", parts)
    links, anchors = re.findall('href="#(.+?)"', text), re.findall('id="(.+?)"', text)

    assert ["s0", "s1", "s2"] == links == anchors


def test_a_fragment_runs_nothing() -> None:
    """What notebooks show has a style of its own and no script."""
    text = pages.fragment([pages.Text("x")])

    assert "<script" not in text
    style = text.partition("<style>")[2].partition("</style>")[0]
    for rule in re.sub(r"@media[^{]+{", "", style).split("}"):
        selector = rule.partition("{")[0].strip()
        assert not selector or selector.startswith(".perfc")


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 400)), min_size=1),
    st.integers(1, 5000),
)
def test_neighbours_are_put_together(spans: list[tuple[int, int]], most: int) -> None:
    """However small the data has to be, boxes cover what they covered, in order."""
    lengths = np.array([length for _, length in spans])
    ends = np.cumsum(np.array(spans).sum(axis=1))
    zeros = np.zeros(len(spans), np.int64)
    slices = pages.Slices(zeros, zeros, ends - lengths, ends)
    lane = pages.TimelineLane("lane", slices)
    part = pages.Timeline([lane], ["x"], ["kind"], [0], "text", most)
    (data,) = HtmlPage.of("".join(part.html())).charts("timeline")
    (drawn,) = data["lanes"]
    merged = {int(key): count for key, count in drawn["merged"].items()}
    counts = [merged.get(index, 1) for index in range(len(drawn["ns"]))]

    assert len(spans) == sum(counts)
    assert int(ends[-1]) == sum(drawn["gap"]) + sum(drawn["ns"])
    assert drawn["gap"][0] == int(ends[0] - lengths[0])
    assert sum(drawn["ns"]) >= int(lengths.sum())


def test_a_chart_refuses_what_has_no_place() -> None:
    """A number that is none is a mistake of whoever draws."""
    axis = pages.Axis("x")
    chart = pages.Chart(axis, axis, [pages.Series("s", [0.0], [float("nan")])], "")

    with pytest.raises(ValueError, match="nan cannot be drawn"):
        list(chart.html())
