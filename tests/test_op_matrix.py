"""Every op is documented and tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfc.ir.opdef import OpDef
from perfc.ir.ops import BUILTIN_OPS

GOLDEN = Path(__file__).parent / "golden"
WITHOUT_GOLDEN: dict[str, str] = {}
"""Ops that need no golden file, and why."""

_TEXT = "\n".join(path.read_text() for path in sorted(GOLDEN.rglob("*.perfc")))
_OPS = {op.name: op for op in BUILTIN_OPS}


@pytest.mark.parametrize("name", sorted(_OPS))
def test_golden_file(name: str) -> None:
    """A golden file shows the op, or the list of exceptions says why not."""
    shown = re.search(rf"(?:^|[ =]){re.escape(name)}\(", _TEXT) is not None

    assert shown != (name in WITHOUT_GOLDEN)


@pytest.mark.parametrize("op", _OPS.values(), ids=list(_OPS))
def test_summary(op: OpDef) -> None:
    """An op says in one line what it is."""
    assert op.summary == op.summary.strip()
    assert 0 < len(op.summary) < 80


def test_exceptions_are_ops() -> None:
    """The list of exceptions names ops that exist."""
    assert set() == set(WITHOUT_GOLDEN) - set(_OPS)
