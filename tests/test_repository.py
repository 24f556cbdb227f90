"""Rules for the files of the repository."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from tests.imports import arrows_between_children, door_of, modules, offered

ROOT = Path(__file__).parents[1]
MAX_LINES = 500
MAX_FUNCTION_LINES = 80
MAX_FILES = 25
MORE_FILES = {"ir/ops": 45}
"""A file a family of ops."""
MAX_NAMES = 30
"""Of the door of a layer."""
PACKAGES = sorted(name for name, file in modules().items() if file.stem == "__init__")
PRODUCT = {name.split(".")[1] for name in PACKAGES if "." in name}
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/tutorial.md")
MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(?:work|tmp|root|home)/")
MAKE = re.compile(r"\bmake ([a-z]+)(?=`|\s*(?:#.*)?$)", re.MULTILINE)
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


@cache
def _tracked() -> list[Path]:
    """Files that git holds or would add."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip(f"git refuses: {listed.stderr.strip()}")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def test_no_machine_paths() -> None:
    """No file names a folder of the machine it was written on."""
    named = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked()
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]

    assert [] == named


def test_files_are_short() -> None:
    """A longer file holds two nouns: split it."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_bytes().splitlines())
        for path in _tracked()
        if path.suffix == ".py"
    }

    assert {} == {name: n for name, n in lengths.items() if n > MAX_LINES}


def test_functions_are_no_longer_than_two_screens() -> None:
    """Complexity is ruff's to cap (C901); tests and scripts may be longer."""
    functions = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": _lines_of(node)
        for path in _tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PRODUCT
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef)
    }

    assert len(functions) > 1000
    assert {} == {name: n for name, n in functions.items() if n > MAX_FUNCTION_LINES}


def _lines_of(node: ast.FunctionDef) -> int:
    """Count the lines of a function without its docstring."""
    first = node.body[0]
    told = ast.get_docstring(node) is not None
    said = (first.end_lineno or 0) - first.lineno + 1 if told else 0
    return (node.end_lineno or 0) - node.lineno + 1 - said


def test_folders_are_small() -> None:
    """A folder that holds more is two rooms; tests and data aside."""
    files = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path in _tracked()
        if path.suffix == ".py" and path.name != "__init__.py"
    )
    found = {name: n for name, n in files.items() if not name.startswith("tests")}

    assert found.keys() > {"benchmarks", "examples", "ir/ops", "measure"}
    assert {} == {n: k for n, k in found.items() if k > MORE_FILES.get(n, MAX_FILES)}


@pytest.mark.parametrize("package", PACKAGES)
def test_children_do_not_import_in_circles(package: str) -> None:
    """Of modules and packages side by side, one lies above the other."""
    examples = arrows_between_children(package)
    arrows = [(start, end) for start, ends in examples.items() for end in ends]
    graph: nx.DiGraph[str] = nx.DiGraph(arrows)
    circles = [c for c in nx.strongly_connected_components(graph) if len(c) > 1]

    assert [] == [
        examples[start][end]
        for circle in circles
        for start, end in arrows
        if {start, end} <= circle
    ]


def test_arrows_are_seen() -> None:
    """What the rule above reads: every import that runs, by the home of its names."""
    found = arrows_between_children("perfc")

    assert {"costmodels", "ir", "passes"} <= found["planning"].keys()
    assert {"door", "installed", "lazy_table"} == found["ir"].keys()
    assert {"ir", "door"} <= found["costmodels"].keys()


def test_doors_of_layers_are_small() -> None:
    """A layer offers what others use; the rest is imported from its rooms."""
    layers = [name for name in PACKAGES if name.count(".") == 1]
    names = {name: len(offered(name)) for name in layers}

    assert {} == {name: n for name, n in names.items() if n > MAX_NAMES}


LAZY = [name for name in PACKAGES if "perfc.door" in modules()[name].read_text("utf-8")]


@pytest.mark.parametrize("package", LAZY)
def test_the_lists_of_a_door_agree(package: str) -> None:
    """Names for type checkers, homes for the run, and `__all__` are the same."""
    door = door_of(package)

    assert door is not None
    assert door.typed == door.homes
    assert sorted(door.homes) == sorted(door.offered)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_exist(document: str) -> None:
    """Every `make x` of a document is a target of the Makefile."""
    named = set(MAKE.findall((ROOT / document).read_text()))

    assert set() == named - set(TARGET.findall((ROOT / "Makefile").read_text()))
