"""The documentation says what is true: its examples run, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import attrs
import pytest
from tests.documents import ROOT, Page, StaleError

import perfc

PAGES = sorted(
    page.relative_to(ROOT)
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
)

SLOW = {Path("docs/how-to/export-from-pytorch.md")}
"""Pages that import torch."""


_BY_NAME = ("inputs", "ops", "_provenance", "_constant", "cuda_graph")


def _page(tmp_path: Path, text: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    return Page(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, as Python's prompt sees it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    "name",
    [pytest.param(p, marks=[pytest.mark.slow] if p in SLOW else []) for p in PAGES],
    ids=str,
)
def test_examples(name: Path, folder: Path, pytestconfig: pytest.Config) -> None:
    """Every command and every line of Python of a page does what the page says."""
    update = bool(pytestconfig.getoption("update_golden"))

    Page(ROOT / name).run(folder, update=update)


@pytest.mark.parametrize("name", PAGES, ids=str)
def test_links(name: Path) -> None:
    """Every link within the repository names a file, and a heading of it."""
    page = Page(ROOT / name)

    for link in page.links:
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = page.path.parent / target if target else page.path
        assert path.exists(), link
        assert not anchor or anchor in Page(path).anchors, link


@pytest.mark.parametrize("name", PAGES, ids=str)
def test_files_are_named(name: Path) -> None:
    """The text names every file that a reader has to write: a title is not shown."""
    page = Page(ROOT / name)
    text = page.path.read_text(encoding="utf-8")

    assert [] == [file for file in page.files if f"`{file}`" not in text]


def test_the_site_builds(tmp_path: Path) -> None:
    """`make docs` has nothing to complain of: links, headings, docstrings."""
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "dummy", "-d"]
    folders = [str(tmp_path), str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *words, *folders], capture_output=True, text=True, check=False
    )

    assert "" == done.stderr
    assert 0 == done.returncode


def test_the_makefile_shows_what_the_readme_shows() -> None:
    """`make demo` prints what stands in the README."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    settings = dict(
        line.split(" ?= ", 1) for line in makefile.splitlines() if " ?= " in line
    )
    demo = f"$ perfc analyze {settings['DEMO_MODEL']} {settings['DEMO_ARGS']}\n"

    assert demo in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "Differences"),
        ("```console\n$ false\n```\n", "exit 1"),
        ("```console\n$ echo perfc: error: no\nperfc: error: no\n```\n", "exit 0"),
        ("```console\necho one\n```\n", "starts with"),
        ("```sh\nfalse\ntrue\n```\n", "exit 1"),
        ("```python\n1 / 0\n```\n", "nobody checks a block of 'python'"),
        ("```\nperfc\n```\n", "nobody checks a block of ''"),
        ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected"),
        ("```pycon\n>>> one\n```\n", "NameError"),
        ("<!-- run: false -->\n", "exit 1"),
    ],
)
def test_a_wrong_example_is_found(text: str, message: str, tmp_path: Path) -> None:
    """An example that is not true fails its page."""
    with pytest.raises(StaleError, match=message):
        _page(tmp_path, text).run(tmp_path)


def test_blocks_build_on_each_other(tmp_path: Path) -> None:
    """Files, and the names of a Python session, live as long as the page."""
    page = _page(
        tmp_path,
        "<!-- run: echo 1 > a.txt -->\n\n"
        '```text title="b.txt"\n2\n```\n\n'
        "```console\n$ cat \\\n  a.txt b.txt\n1\n2\n$ ls examples/models\n...x\n```\n"
        "```pycon\n>>> one = 1\n```\n"
        "```pycon\n>>> one + 1\n2\n```\n",
    )

    page.run(tmp_path)

    assert "2\n" == (tmp_path / "b.txt").read_text(encoding="utf-8")


def test_update(tmp_path: Path) -> None:
    """`--update-golden` writes outputs again."""
    page = _page(tmp_path, "Text.\n```console\n$ echo a\nb\n$ echo c\n```\nMore.\n")

    page.run(tmp_path, update=True)

    right = "Text.\n```console\n$ echo a\na\n$ echo c\nc\n```\nMore.\n"
    assert right == page.path.read_text(encoding="utf-8")


def test_update_leaves_what_is_left_out(tmp_path: Path) -> None:
    """Nobody knows what to leave out of a new output: it is for the author."""
    page = _page(tmp_path, "```console\n$ echo a\nb...\n```\n")

    with pytest.raises(StaleError, match="Differences"):
        page.run(tmp_path, update=True)


def test_links_are_found(tmp_path: Path) -> None:
    """Links in text and tables count, those in code do not; anchors are GitHub's."""
    page = _page(
        tmp_path,
        "# What it *is*, in short\n\n[a](b.md)\n\n| x |\n|---|\n| [c](d.md#e) |\n\n"
        "`[f](g.md)`\n",
    )

    assert ["b.md", "d.md#e"] == page.links
    assert {"what-it-is-in-short"} == page.anchors


def _keys(value: object, name: str = "") -> Iterator[str]:
    """Keys of a report, lists as `name[]`; tables by name or kind are one key."""
    if isinstance(value, dict) and not name.endswith(_BY_NAME):
        for key, item in cast("dict[str, object]", value).items():
            path = f"{name}.{'*' if name == 'what_if.host' else key}"
            yield from _keys(item, path.removeprefix("."))
    elif isinstance(value, list) and value:
        yield from _keys(cast("list[object]", value)[0], f"{name}[]")
    else:
        yield name


def test_the_keys_of_the_report(tmp_path: Path) -> None:
    """The reference names every key of a report, and no other."""
    stages = tmp_path / "stages.toml"
    stage = "[[stages]]\nname = 'read'\ntime_us = 1\nresource = 'cores'\n"
    stages.write_text(stage, encoding="utf-8")
    model = perfc.load("dlrm-mlperf", batch=2048)
    sensitivity = perfc.Oracle(model, "a100").sensitivity()
    analyzed = perfc.analyze(model, "a100", input_pipeline=stages)
    report = attrs.evolve(analyzed, sensitivity=sensitivity)
    page = (ROOT / "docs/reference/report.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in page.splitlines() if "| `" in line]
    listed = [key for row in rows for key in re.findall(r"`([\w.\[\]*]+)`", row)]

    assert sorted(set(_keys(report.to_dict()))) == sorted(listed)
