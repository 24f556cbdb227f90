"""What has moved is named where somebody asks for it by its old name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tests.tools.command import Command

from perfc.ir.support import moved_to
from perfc.ir.support.moved import _moved


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "from perfc.passes.eager_product import RULES",
            "perfc.passes.eager_product is in perfc.passes.lowering.eager.gemm.product",
        ),
        ("from perfc.ir import Dim", "perfc.ir.Dim is in perfc.ir.dims now"),
        ("import perfc.ir.parser", "perfc.ir.parser is in perfc.ir.text.parser now"),
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
    """The table leads to modules that have the names."""
    for asked, new in _moved().items():
        module = importlib.import_module(new) if "torch" not in new else None
        name = asked.partition(":")[2]
        assert module is None or not name or hasattr(module, name), asked
