"""What has moved is named where somebody asks for it by its old name."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.tools.command import Command

from perfc.ir.support import moved_to
from perfc.ir.support.moved import MOVED_TABLE


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "from perfc.passes.eager_product import RULES",
            "perfc.passes.eager_product is in perfc.passes.lowering.eager.gemm.matmul",
        ),
        ("from perfc.ir import Dim", "perfc.ir.Dim is in perfc.ir.dims now"),
        ("import perfc.ir.parser", "perfc.ir.parser is in perfc.ir.text.parser now"),
        (
            "from perfc.costmodels import GEMM",
            "perfc.costmodels.GEMM is in perfc.costmodels.gemm now",
        ),
    ],
)
def test_a_plugin_that_names_an_old_place(
    command: Command, tmp_path: Path, line: str, said: str
) -> None:
    """It gets one line with the new one."""
    plugin = tmp_path / "old_plugin.py"
    plugin.write_text(line + "\n", encoding="utf-8")
    outcome = command("passes", "--plugin", str(plugin))

    assert 1 == outcome.code
    assert 1 == len(outcome.err.splitlines())
    assert said in outcome.err


def test_what_never_was_is_not_explained() -> None:
    """An error of another kind, or of a name that was never there, is left as it is."""
    with pytest.raises(ImportError) as caught:
        importlib.import_module("perfc.nothing")

    assert not moved_to(caught.value)
    assert not moved_to(ValueError("perfc.ir.parser"))


def test_every_new_place_is_there() -> None:
    """The table leads from modules that are gone to modules that are there."""
    lines = MOVED_TABLE.read_text(encoding="utf-8").splitlines()
    moved = dict(line.split() for line in lines)

    assert len(moved) == len(lines) > 300
    assert [] == [new for new in moved.values() if find_spec(new) is None]
    assert [] == [old for old in moved if _is_module(old)]


def _is_module(name: str) -> bool:
    """Whether there is a module, not a room, of this name."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return False
    return spec is not None and spec.submodule_search_locations is None
