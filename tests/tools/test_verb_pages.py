"""`--format html` of the verbs that search, compare and replay, as it is typed."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.browser import Browser, browser
from tests.html_page import HtmlPage
from tests.traces.synthetic import Made

from perfc.tools.cli.command_line import main
from perfc.tools.pages.quantities import quantity

WIDTHS = (390, 768, 1280)
ODD = "<script>window.ran=1</script>"
"""Letters of a name that would run if they were not text."""

_MODEL = "dlrm-ddp:tables=2,rows=1000"
_LOSSES = ("bot_l.0", "bot_l.2", "bot_l.4", "emb_l.0", "emb_l.1")
_TOP = ("top_l.0", "top_l.2", "top_l.4", "top_l.6", "top_l.8")
VERBS = (
    *("shard", "parallel", "pipeline", "network", "madmax", "place", "lookahead"),
    *("sweep", "replay", "dedup", "quantize"),
)


def _tables(path: Path, name: str) -> str:
    listed = [
        {"name": f"{name}{n}", "rows": 100_000, "dim": 16, "pooling": 5}
        for n in range(4)
    ]
    path.write_text(json.dumps({"tables": listed, "batch": 64}), encoding="utf-8")
    return str(path)


def _network(path: Path) -> str:
    nodes = "".join(
        f'[[nodes]]\nname = "{name}"\ntarget = "t4"\ncount = 1\n'
        for name in ("a", ODD.replace("/", ""))
    )
    path.write_text(f"[default]\nmbit_per_s = 800\n\n{nodes}", encoding="utf-8")
    return str(path)


def _trace(path: Path) -> str:
    made = Made()
    for number in range(3):
        begin = 1000.0 * number
        made.op(f"ProfilerStep#{number + 1}", begin, 1000)
        made.op(f"aten::{ODD}", begin + 10, 100)
        made.launch(begin + 15, 5, begin + 25, 40)
        made.call("cudaDeviceSynchronize", begin + 200, 20)
    return str(made.write(path))


def _quantized(folder: Path) -> tuple[str, ...]:
    losses = folder / "losses.csv"
    rows = [f"{op},{0.0001 * n:g}" for n, op in enumerate((*_LOSSES, *_TOP))]
    losses.write_text("\n".join(["op,loss", *rows]) + "\n", encoding="utf-8")
    types = ("--embeddings", "int8", "--linear", "int8", "--runtime", "cudagraph")
    return (
        *("quantize", _MODEL, "--batch", "512", "--target", "a100", *types),
        *("--losses", str(losses), "--budget", "0.001", "--compare", "fp16"),
    )


def _arguments(folder: Path) -> Mapping[str, Callable[[], tuple[str, ...]]]:
    a100 = ("--target", "dgx-a100", "-q")
    return {
        "shard": lambda: (
            *("shard", _tables(folder / "t.json", ODD), *a100, "--ranks", "4"),
            *("--search", "greedy"),
        ),
        "parallel": lambda: (
            *("parallel", "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101", *a100),
            *("--ranks", "2", "--batch", "8"),
        ),
        "pipeline": lambda: (
            *("parallel", "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101", *a100),
            *("--ranks", "2", "--batch", "8", "--strategy", "pp:2 mb:4"),
        ),
        "network": lambda: (
            *("parallel", "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101", "-q"),
            *("--network", _network(folder / "n.toml"), "--batch", "8"),
            *("--microbatches", "4"),
        ),
        "madmax": lambda: (
            *("parallel", "dlrm_a", "--target", "zionex", "--compat", "madmax"),
            *("--ranks", "128"),
        ),
        "place": lambda: (
            *("place", _tables(folder / "p.json", ODD), "--target", "1s-server"),
            *("--tiers", "dram=8MB,optane=x2", "--cache", "4MB", "-q"),
        ),
        "lookahead": lambda: (
            *("place", "dlrm-ddp", "--tiers", "remote", "--target", "p3.16xlarge"),
            *("--batch", "512", "--lookahead", "3", "--cache-rows", "100000", "-q"),
        ),
        "sweep": lambda: (
            *("sweep", _MODEL, "--vary", "batch=64,128,256", "--target", "a100"),
            *("--vary", "dtype=fp32,fp16", "--target", "t4", "-q"),
        ),
        "replay": lambda: ("replay", _trace(folder / "replayed.json")),
        "dedup": lambda: (
            *("dedup", _MODEL, "--session", "9", "--target", "t4", "--batch", "64"),
            *("--stay", "[<script>e]mb_l.*=0.9", "-q"),
        ),
        "quantize": lambda: _quantized(folder),
    }


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the page of a verb, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")
    arguments = _arguments(folder)

    @functools.cache
    def made(verb: str) -> Path:
        path = folder / f"{verb}.html"
        words = arguments[verb]()
        form = () if verb == "sweep" else ("--format", "html")  # or by its ending
        assert 0 == main([*words, *form, "-o", str(path)])
        return path

    return made


@pytest.fixture
def parsed(page_of: Callable[[str], Path]) -> Callable[[str], HtmlPage]:
    """Return the page of a verb, taken apart."""
    return lambda verb: HtmlPage.of(page_of(verb).read_text("utf-8"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_page_is_whole(verb: str, parsed: Callable[[str], HtmlPage]) -> None:
    """It is one file: elements nest, nothing is loaded, and one script runs."""
    page = parsed(verb)

    assert page.is_alone
    assert "script-src 'sha256-" in page.policy
    assert page.headings[0]
    assert page.rows


@pytest.mark.parametrize("verb", VERBS)
def test_names_are_text(verb: str, page_of: Callable[[str], Path]) -> None:
    """Nothing of a name is markup, wherever it stands."""
    text = page_of(verb).read_text("utf-8")

    assert "<script>window" not in text
    assert text.count("<script") == text.count("</script>")
    assert 1 == text.count("<script>")


@pytest.mark.parametrize("verb", VERBS)
def test_units(verb: str, parsed: Callable[[str], HtmlPage]) -> None:
    """Sizes are in GiB, MiB or KiB everywhere, and nothing has changed by -0 %."""
    text = parsed(verb).text

    assert [] == re.findall(r"\d [kMGT]B\b(?!/s| moved| \(zionex)", text)
    assert [] == re.findall(r"-0(?:\.0+)? ?%", text)


@pytest.mark.parametrize("verb", ["shard", "place", "replay", "network"])
def test_odd_names_are_shown(verb: str, parsed: Callable[[str], HtmlPage]) -> None:
    """They are shown letter by letter, or held in the data of a picture."""
    page = parsed(verb)
    name = ODD.replace("/", "") if verb == "network" else ODD
    shown = page.text + json.dumps(page.charts("timeline"))

    assert name in shown


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("shard", "the fastest plan:"),
        ("parallel", "Step with"),
        ("network", "Step of placed:"),
        ("madmax", "Step with"),
        ("place", "A query under best:"),
        ("lookahead", "Step with"),
        ("sweep", "Best samples/s, at"),
        ("replay", "Waited most for: "),
        ("dedup", "Step with lookups deduplicated:"),
        ("quantize", "Step of"),
    ],
)
def test_the_answer_comes_first(
    verb: str, answer: str, parsed: Callable[[str], HtmlPage]
) -> None:
    """What was asked for stands in the header, before any table."""
    page = parsed(verb)

    title, first, *_ = page.headings

    assert page.text.index(title) < page.text.index(answer) < page.text.rindex(first)


def test_plans_of_a_page_are_those_of_the_document(
    parsed: Callable[[str], HtmlPage], page_of: Callable[[str], Path]
) -> None:
    """Each plan of `plans` is a row of the table, and no other."""
    folder = page_of("quantize").parent
    path = folder / "quantize.json"
    words = _quantized(folder)
    assert 0 == main([*words, "--format", "json", "-o", str(path)])
    plans = json.loads(path.read_text("utf-8"))["plans"]
    rows = parsed("quantize").rows
    begin = next(n for n, row in enumerate(rows) if row[:2] == ["plan", "time"])

    names = [row[0] for row in rows[begin + 1 : begin + 1 + len(plans)]]

    assert [plan["name"] for plan in plans] == names


def test_a_frontier_is_drawn(parsed: Callable[[str], HtmlPage]) -> None:
    """Of losses there is a chart, with a point for each plan and the budget."""
    page = parsed("quantize")
    (chart,) = (d for d in page.charts("chart") if d["x"]["title"] == "loss")
    series = {one["name"]: one for one in chart["series"]}

    assert [0.001, 0.001] == series["budget"]["x"]
    assert len(series["plans"]["y"]) == len(series["plans"]["notes"])
    assert sorted(series["plans"]["y"], reverse=True) == series["plans"]["y"]


def test_a_sweep_is_drawn(
    parsed: Callable[[str], HtmlPage], page_of: Callable[[str], Path]
) -> None:
    """There is a chart of memory and one of each thing that varies, with intervals."""
    page = parsed("sweep")
    charts = {d["x"]["title"]: d for d in page.charts("chart")}
    text = page_of("sweep").read_text("utf-8")
    held = text.partition('id="perfc-sweep">')[2].partition("</script>")[0]
    names = {one["name"] for one in charts["batch"]["series"]}

    assert {"memory", "batch", "dtype"} == set(charts)
    assert {"t4", "t4, best", "t4, 5 %", "t4, 95 %"} <= names
    assert ["fp32", "fp16"] == charts["dtype"]["x"]["words"]
    assert 12 == len(json.loads(held)["rows"])


def test_stages_are_drawn(parsed: Callable[[str], HtmlPage]) -> None:
    """Stages of a network and of a pipeline have lanes; nothing overlaps in one."""
    for verb, lanes in (("network", "stage 0"), ("pipeline", "rank 0")):
        (timeline,) = parsed(verb).charts("timeline")
        labels = [lane["label"] for lane in timeline["lanes"]]
        assert any(label.startswith(lanes) for label in labels)
        for lane in timeline["lanes"]:
            assert min(lane["gap"]) >= 0
            assert min(lane["ns"]) >= 0


def test_steps_are_compared(parsed: Callable[[str], HtmlPage]) -> None:
    """A replay draws what each step took beside what is simulated."""
    (chart,) = parsed("replay").charts("chart")
    measured, simulated = chart["series"]

    assert ["1", "2", "3"] == chart["x"]["words"]
    assert [1000, 1000, 1000] == measured["y"]
    assert measured["y"] == pytest.approx(simulated["y"], rel=0.01)


def test_a_cache_is_drawn(parsed: Callable[[str], HtmlPage]) -> None:
    """Power saved, over sizes of the cache from none on."""
    (chart,) = parsed("place").charts("chart")

    assert "size of the cache" == chart["x"]["title"]
    assert 0 == chart["series"][0]["x"][0]
    assert 1 < len(chart["series"][0]["x"])


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all pages."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_page_is_readable(
    tab: Browser, page_of: Callable[[str], Path], verb: str, scheme: str
) -> None:
    """It has no script error, loads nothing, fits the window, and has contrast.

    What is cut off at a side says that it scrolls, and nothing else does.
    """
    tab.open(page_of(verb).read_text("utf-8"), WIDTHS[0], scheme)
    tab.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    for width in WIDTHS:
        tab.resize(width)
        tab.drawn()

        assert 0 >= tab.too_wide(), width
        cut, wrong = tab.cut_off()
        assert [] == wrong, width
        assert cut or width > WIDTHS[0]
    count, low = tab.contrasts()

    assert 20 < count
    assert [] == low
    assert tab.run("return window.ran") is None
    assert [] == tab.loaded()
    assert [] == tab.errors()


def test_a_table_sorts_quantities(tab: Browser, page_of: Callable[[str], Path]) -> None:
    """Times of several units are in the order of what they say."""
    tab.open(page_of("sweep").read_text("utf-8"))
    tab.drawn()
    column = (
        "[...document.querySelectorAll('.table')].at(-1)"
        ".querySelectorAll('th, td:nth-child(5)')"
    )
    tab.run(
        "[...document.querySelectorAll('.table')].at(-1)"
        ".querySelectorAll('th button')[4].click()"
    )
    cells = tab.run(f"return [...{column}].map((c) => c.textContent)")
    times = [cell for cell in cells if cell.endswith((" us", " ms"))]
    found = [quantity(cell) or 0.0 for cell in times]

    assert 12 == len(times)
    assert sorted(found, reverse=True) == found
