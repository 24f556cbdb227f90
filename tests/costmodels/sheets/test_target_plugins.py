"""Targets of other distributions, through the entry points `perfc.targets`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from perfc.costmodels import load_target, target_names
from perfc.costmodels.sheets import catalog
from perfc.installed import EntryPoint
from perfc.ir import PerfcError, register_plugin
from perfc.ir.support import entry_points as installed_plugins

L4 = Path(catalog.__file__).parents[1].joinpath("targets") / "l4.toml"
ATTRIBUTES: dict[str, object] = {
    "path": L4,
    "text_path": str(L4),
    "tables": MappingProxyType(tomllib.loads(L4.read_text(encoding="utf-8"))),
    "function": lambda: L4,
    "number": 4,
    "odd_tables": {"name": b"toy"},
}


def _install(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Let `toy_plugin` be importable, and *values* be entry points named toy."""
    module = ModuleType("toy_plugin")
    vars(module).update(ATTRIBUTES)
    monkeypatch.setitem(sys.modules, "toy_plugin", module)
    points = [EntryPoint("toy", value, "perfc.targets") for value in values]

    def entry_points(*, group: str) -> list[EntryPoint]:
        return points if group == "perfc.targets" else []

    monkeypatch.setattr("perfc.ir.support.plugins.installed_points", entry_points)


@pytest.fixture(autouse=True)
def _forget_plugins() -> Iterator[None]:
    """Look for plugins anew, here and in the tests that follow."""
    installed_plugins.cache_clear()
    yield
    installed_plugins.cache_clear()


def test_a_plugin_may_be_registered_in_the_process() -> None:
    """`register_plugin` makes a target known to this process."""
    register_plugin("perfc.targets", "toy-registered", L4)

    assert load_target("l4") == load_target("toy-registered")
    assert "toy-registered" in target_names()


@pytest.mark.parametrize("attribute", ["path", "text_path", "tables", "function"])
def test_a_plugin_gives_a_path_or_tables(
    attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry point's attribute may be a path, tables, or a function giving one."""
    _install(monkeypatch, f"toy_plugin:{attribute}")

    assert load_target("l4") == load_target("toy")
    assert "toy" in target_names()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("toy_plugin:nothing",), "toy_plugin:nothing cannot be loaded: Attribute"),
        (("no_such_module:x",), "no_such_module:x cannot be loaded: ModuleNot"),
        (("toy_plugin:number",), "expected a path or tables, found int"),
        (("toy_plugin:odd_tables",), "values that TOML has not"),
        (("a:b", "c:d"), "claimed twice: by a:b and by c:d"),
    ],
)
def test_a_broken_plugin_fails_loudly(
    values: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that cannot give a sheet is an error that names it."""
    _install(monkeypatch, *values)

    with pytest.raises(PerfcError, match=message):
        load_target("toy")


def test_plugins_are_consulted_for_unknown_names_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A built-in target is loaded without looking at installed distributions."""

    def entry_points(**_: str) -> list[EntryPoint]:
        pytest.fail("looked for plugins")

    monkeypatch.setattr("perfc.ir.support.plugins.installed_points", entry_points)

    assert "t4" == load_target("t4").name
