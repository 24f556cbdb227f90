"""Pages in a browser: they are read, zoomed and searched, and nothing else runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import pytest
from tests.browser import Browser, browser

import perfc
from perfc.ir import Diagnostic, LaunchGraph, LaunchOp, Program, TaskKind
from perfc.ir.program import RankClass
from perfc.ir.support import Level
from perfc.tools import Model, Report, diff, pages
from perfc.tools.diffs.pages import FORMATS

WIDTHS = (390, 768, 1280)
HOSTILE = (
    "</script><img src=x onerror=window.ran=1>",
    "<script>window.ran=1</script>",
    "'\"><svg onload=window.ran=1>",
    "</title><script>window.ran=1</script>",
    "--><!--<script>window.ran=1</script>\u2028\u2029",
    "javascript:window.ran=1",
    "${window.ran=1}",
)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@cache
def _report(target: str = "a100") -> Report:
    model = perfc.load("dlrm-ddp", batch=2048, mode="training")
    return perfc.analyze(model, target)


@cache
def _sensitive() -> Report:
    model = perfc.load("dlrm-ddp", batch=2048)
    found = perfc.Oracle(model, target="a100").sensitivity()
    return attrs.evolve(perfc.analyze(model, "a100"), sensitivity=found)


@cache
def _page(name: str) -> str:
    """Return one of the pages of reports."""
    if name == "targets":
        from perfc.exporters.html import HtmlPage

        return HtmlPage().export([_report(), _report("h100"), _report("t4")], None)
    if name == "diff":
        return FORMATS["html"]([diff(_report(), _report("h100"))])
    if name == "sensitivity":
        return _sensitive().to_html()
    if name == "too large":
        model = perfc.load("gpt2", batch=512, mode="training")
        return perfc.analyze(model, "t4").to_html()
    return _report().to_html()


CONTROLS = "a, button, input, summary, [tabindex]"
PAGES = ("report", "targets", "diff", "sensitivity", "too large")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable(tab: Browser, name: str) -> None:
    """It has no script error, loads nothing, fits the window, and has contrast."""
    for scheme in ("light", "dark"):
        tab.open(_page(name), WIDTHS[0], scheme)
        tab.drawn()
        for width in WIDTHS:
            tab.resize(width)
            tab.drawn()

            assert 0 >= tab.too_wide(), f"{scheme}, {width}"
            assert [] == tab.cut_off()[1], f"{scheme}, {width}"
        tab.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        tab.drawn()
        count, low = tab.contrasts()

        assert 0 >= tab.too_wide()
        assert 30 < count
        assert [] == low, scheme
        assert [] == tab.loaded()
        assert [] == tab.errors()


def test_colours_follow_the_scheme(tab: Browser) -> None:
    """A page that is open when it gets dark is drawn again."""
    tab.open(_page("report"))
    tab.drawn()
    before = _picture(tab)
    tab.paint("dark")
    tab.drawn()

    assert before != _picture(tab)
    assert [] == tab.errors()


def _picture(tab: Browser, figure: str = ".timeline") -> str:
    script = "return document.querySelector(arguments[0] + ' canvas').toDataURL()"
    return str(tab.run(script, figure))


def _shown(tab: Browser) -> tuple[float, float]:
    """Return from when to when the timeline is shown, in nanoseconds."""
    script = "const d = document.querySelector('.timeline .plot').dataset;"
    start, end = tab.run(f"{script} return [Number(d.from), Number(d.to)]")
    return start, end


@pytest.mark.parametrize("how", ["button", "keys", "wheel"])
def test_the_timeline_zooms(tab: Browser, how: str) -> None:
    """Buttons, keys and the wheel show less of it, move it, and show all again."""
    tab.open(_page("report"))
    tab.drawn()
    tab.run("document.querySelector('.timeline').scrollIntoView({block: 'center'})")
    before = _picture(tab)
    start, end = _shown(tab)
    if how == "button":
        tab.click("[data-do=in]")
    elif how == "keys":
        tab.run("document.querySelector('.timeline .plot').focus()")
        tab.press("+")
    else:
        tab.run("return new Promise((done) => setTimeout(done, 400))")
        tab.wheel(".timeline .plot", -200)
    tab.drawn()
    first, last = _shown(tab)

    assert start == 0
    assert first >= start
    assert last - first < 0.9 * (end - start)
    assert before != _picture(tab)
    tab.click("[data-do=right]")
    tab.drawn()
    assert _shown(tab)[0] > first
    tab.click("[data-do=all]")
    tab.drawn()
    assert (start, end) == _shown(tab)
    assert [] == tab.errors()


def test_the_timeline_is_searched(tab: Browser) -> None:
    """What matches is counted and marked, and Enter goes there."""
    tab.open(_page("report"))
    tab.drawn()
    before, everything = _picture(tab), _shown(tab)
    tab.type(".timeline input", "EMB_L")
    tab.drawn()

    assert before != _picture(tab)
    assert "found" in tab.run("return document.querySelector('.found').textContent")
    tab.type(".timeline input", "\n")
    tab.drawn()
    assert everything != _shown(tab)
    assert "emb_l" in tab.run("return document.querySelector('.found').textContent")
    tab.type(".timeline input", "nobody")
    assert "none found" == tab.run(
        "return document.querySelector('.found').textContent"
    )
    assert [] == tab.errors()


def test_the_legend_picks_kinds(tab: Browser) -> None:
    """A button of the legend shows its kind alone, and says that it does."""
    tab.open(_page("report"))
    tab.drawn()
    before = _picture(tab)
    tab.click(".timeline .legend button")
    tab.drawn()
    pressed = "return document.querySelector('.timeline .legend button').ariaPressed"

    assert "true" == tab.run(pressed)
    assert before != _picture(tab)
    tab.click(".timeline .legend button")
    tab.drawn()
    assert before == _picture(tab)


def test_every_control_is_reached_by_keys(tab: Browser) -> None:
    """Tab goes through all that can be pressed or scrolled, and shows where it is."""
    tab.open(_page("report"))
    tab.drawn()
    wanted = tab.run(f"return document.querySelectorAll('{CONTROLS}').length")
    script = """
    const one = document.activeElement;
    one.dataset.reached = 1;
    return getComputedStyle(one).outlineStyle;
    """
    outlines: set[str] = set()
    for _ in range(wanted):
        tab.press("\ue004")
        outlines.add(tab.run(script))
    missing = tab.run(
        f"return [...document.querySelectorAll('{CONTROLS}')]"
        ".filter((e) => !e.dataset.reached && e.checkVisibility())"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )

    assert [] == missing
    assert outlines.isdisjoint({"none", "hidden"})


def test_tables_sort_and_are_searched(tab: Browser) -> None:
    """A heading sorts by number and says how; a search leaves the rows that match."""
    tab.open(_page("report"))
    table = "[...document.querySelectorAll('.table')].at(-1)"
    headings = f"[...{table}.querySelectorAll('th')]"
    column = f"{headings}.findIndex((h) => /FLOP/.test(h.textContent))"
    values = (
        f"return [...{table}.querySelectorAll('tbody tr')]"
        f".map((row) => Number(row.cells[{column}].dataset.v))"
    )
    for order in ("descending", "ascending"):
        tab.run(f"{table}.querySelectorAll('th button')[{column}].click()")
        found: list[float] = tab.run(values)
        sort = tab.run(f"return {table}.querySelectorAll('th')[{column}].ariaSort")

        assert len(set(found)) > 2
        assert sorted(found, reverse=order == "descending") == found
        assert order == sort
    tab.type(".filter", "emb_l.0")
    left = tab.run(
        f"return [...{table}.querySelectorAll('tbody tr')].filter((r) => !r.hidden)"
        ".map((r) => r.textContent)"
    )
    assert left
    assert all("emb_l.0" in row for row in left)


def test_numbers_of_a_chart_are_a_table(tab: Browser) -> None:
    """What a chart shows can be read without seeing it."""
    tab.open(_page("report"))
    tab.drawn()
    tab.run("document.querySelector('.numbers').open = true")
    tab.drawn()
    cells = tab.run(
        "return [...document.querySelectorAll('.numbers td')].map((c) => c.textContent)"
    )

    assert any("FLOP/s" in cell for cell in cells)
    assert [] == tab.errors()


def test_names_do_not_run(tab: Browser) -> None:
    """A name that looks like markup or a script is text, wherever a page has it."""
    tab.open(_hostile_report().to_html())
    _expect_harmless(tab)
    tab.open(pages.page(HOSTILE[0], [*_hostile_parts()]))
    _expect_harmless(tab)
    report = _hostile_report()
    tab.open(FORMATS["html"]([diff(report, _hostile_report("h100"))]))
    _expect_harmless(tab)
    tab.open(f"<!DOCTYPE html>{report._repr_html_()}")  # pyright: ignore[reportPrivateUsage]
    assert tab.run("return window.ran") is None


def _expect_harmless(tab: Browser) -> None:
    tab.drawn()
    tab.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    tab.drawn()

    assert tab.run("return window.ran") is None
    assert 0 == tab.run("return document.images.length")
    assert "onerror" in tab.run("return document.body.innerText")
    assert [] == tab.errors()


def _hostile_parts() -> Iterator[pages.Part]:
    for text in HOSTILE:
        axis = pages.Axis(text, words=HOSTILE)
        series = pages.Series(text, [0, 1], [1, 2], notes=[text, text], label="end")
        remark = Diagnostic(Level.WARNING, text, text, text)
        yield pages.Heading(text, [text], text, text, text, [(text, "bad")])
        yield pages.Remarks([remark], text)
        yield pages.Cards([pages.Card(text, text, text)])
        parts: list[pages.Part] = [
            pages.Text(text),
            pages.Preformatted(text),
            pages.Table([text], [[text]], text, search=True),
            pages.Bars([pages.Bar(text, 1.0, text, text)], text, [text] * 4),
            pages.Waterfall(
                (text, 1, text),
                [pages.Step(text, 1, text, text)],
                (text, 2, text),
                text,
                (text, text),
            ),
            pages.Chart(axis, pages.Axis(text, text), [series], text),
            pages.Data("data", f'"{text}"'),
        ]
        yield pages.Section(text, parts, text)


def _hostile_report(target: str = "a100") -> Report:
    """Return a report all of whose names are hostile."""
    graph = LaunchGraph(HOSTILE[0])
    thread, stream = graph.thread(HOSTILE[1]), graph.stream(HOSTILE[2])
    for text in HOSTILE:
        op = graph.add_op(LaunchOp(text, text))
        graph.task(TaskKind.HOST, thread, op=op, detail="T2", stated_s=5e-6)
        call = graph.task(TaskKind.CALL, thread, op=op, detail=text, stated_s=4e-6)
        graph.task(
            TaskKind.KERNEL, stream, op=op, issue=call, detail=text, stated_s=9e-6
        )
    program = Program(HOSTILE[3], (RankClass((0,), launches=graph),))
    annotations: Any = perfc.load("dlrm-ddp", batch=1).annotations
    return perfc.analyze(Model(program, annotations, program), target)
