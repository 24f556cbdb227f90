"""Tables whose parts are loaded when asked for say what is in their modules."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from perfc.frontends.aten.op_map import registry as aten
from perfc.frontends.onnx.op_map import registry as onnx
from perfc.ir.kernels import BUILTIN_KERNELS
from perfc.ir.ops import BUILTIN_OPS, FAMILIES
from perfc.lazy_table import LazyTable
from perfc.passes.autodiff import GRADIENT_RULES
from perfc.passes.control_flow.resolve_control_flow import RULES as CONTROL
from perfc.passes.lowering.eager.rule_table import RULES

AnyTable = LazyTable[Any]
TABLES: Mapping[str, tuple[AnyTable, str]] = {
    "ops": (FAMILIES, "OPS"),
    "kernels": (BUILTIN_KERNELS, "KERNELS"),
    "eager rules": (RULES, "RULES"),
    "gradient rules": (GRADIENT_RULES, "RULES"),
    "rules of control flow": (CONTROL, "[A-Z]+_RULES"),
    "handlers of ONNX": (onnx.HANDLERS, "[A-Z_]+_HANDLERS"),
    "handlers of ATen": (aten.HANDLERS, "[A-Z_]+_HANDLERS"),
}
"""Each table, and what the mappings in its modules are called."""

tables = pytest.mark.parametrize(("table", "called"), TABLES.values(), ids=TABLES)


@tables
def test_every_name_is_where_the_table_says(table: AnyTable, called: str) -> None:
    """A module has each name that the table says it has, and is asked for it."""
    for home, names in table.homes.items():
        part = table.part(home)
        assert re.fullmatch(rf"[a-z_.]+:{called}", home)
        assert [] == [name for name in names if table[name] is not part[name]]


@tables
def test_every_mapping_is_in_the_table(table: AnyTable, called: str) -> None:
    """Whatever such a mapping in a module of the package has, the table has."""
    found: dict[str, Mapping[str, object]] = {
        f"{module.__name__}:{attribute}": value
        for module in _modules(table.package)
        for attribute, value in vars(module).items()
        if re.fullmatch(called, attribute) and not isinstance(value, LazyTable)
    }
    homes = {f"{table.package}.{home}" for home in table.homes}
    named = {name for mapping in found.values() for name in mapping}

    assert homes <= found.keys()
    assert named == set(table)


def test_every_op_is_called_by_its_name() -> None:
    """The registry hands out an op by its name, and lists all in the table's order."""
    assert list(FAMILIES) == [op.name for op in BUILTIN_OPS]


def test_a_module_without_the_name_is_an_error() -> None:
    """A table that is wrong about a module is an error, not a rule that is missing."""
    table: LazyTable[object] = LazyTable("perfc.ir", {"ops.einsum:OPS": "einsum sum"})

    assert BUILTIN_OPS["einsum"] is table["einsum"]
    assert table.get("other") is None
    with pytest.raises(AttributeError, match=r"perfc.ir.ops.einsum:OPS has no 'sum'"):
        table.get("sum")


def _modules(package: str) -> list[ModuleType]:
    path = import_module(package).__path__
    names = [found.name for found in pkgutil.walk_packages(path, f"{package}.")]
    return [import_module(name) for name in names]
