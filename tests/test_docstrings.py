"""Docstrings begin with a sentence, not with a fragment that something goes before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and any(path.rglob("*.py")) and not path.name.startswith(".")
)
REFUSED = re.compile(
    r"(?:Of|The same|Return (?:what|the same)|Yield (?:what|the same)|By|As|That|Those|"
    r"These|Which|Where|So|Else|Without|From|Also|And|Or|Such|Same|Into|Behind|Beside|"
    r"Besides|But|Not|No|Nothing)\b"
)
"""First words of what is no sentence: the subject is not named, or left to "what"."""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, those of constants too."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, owners):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text
            for before, after in zip(node.body, node.body[1:], strict=False):
                constant = isinstance(before, ast.Assign | ast.AnnAssign)
                if constant and isinstance(after, ast.Expr):
                    value = after.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield after.lineno, value.value


@pytest.mark.parametrize(
    "folder", [name for name in FOLDERS if name not in {"tests", "build", "fuzz"}]
)
def test_docstrings_name_what_they_are_about(folder: str) -> None:
    """Of every module, class, function and constant that is not a test."""
    files = [path for path in (ROOT / folder).rglob("*.py") if not path.is_symlink()]

    assert [] == [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in files
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if REFUSED.match(text.strip())
    ]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("Of a block.", True),
        ("The same of one kernel.", True),
        ("Return what a kernel takes.", True),
        ("Return the seconds of a kernel.", False),
        ("Offsets of rows.", False),
        ("Whether rows are sorted.", False),
    ],
)
def test_what_is_no_sentence(text: str, refused: bool) -> None:
    """The rule refuses fragments and nothing else."""
    assert refused == bool(REFUSED.match(text))
