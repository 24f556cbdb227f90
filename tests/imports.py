"""What perfc's modules import when they are run, read from their source."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]


@attrs.frozen
class Door:
    """The three lists of a package whose names are loaded when asked for.

    Attributes:
        typed: Home of each name that type checkers see.
        homes: Home of each name that is loaded, both as full names of modules.
        offered: `__all__`.

    """

    typed: Mapping[str, str]
    homes: Mapping[str, str]
    offered: tuple[str, ...]


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module of perfc, a package's being its `__init__`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders: dict[str, str] = project["tool"]["setuptools"]["package-dir"]
    found: dict[str, Path] = {}
    for package, folder in folders.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / folder)
            if package != "perfc" or len(inside.parts) == 1:
                words = (package, *inside.with_suffix("").parts)
                found[".".join(words).removesuffix(".__init__")] = path
    return found


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def _is_for_types(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _children_that_run(node: ast.AST) -> Iterable[ast.AST]:
    if isinstance(node, ast.If) and _is_for_types(node):
        return node.orelse
    return ast.iter_child_nodes(node)


def _run(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports below a node that run, at any depth."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
        return
    for child in _children_that_run(node):
        yield from _run(child)


def _assigned(module: str, name: str) -> ast.expr | None:
    """Return what a module's own statements assign to a name."""
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    return None


@cache
def door_of(package: str) -> Door | None:
    """Return the door of a package that is lazy."""
    typed: dict[str, str] = {}
    homes: dict[str, str] = {}
    for node in tree_of(package).body:
        if not isinstance(node, ast.If) or not _is_for_types(node):
            continue
        for line in node.body:
            if isinstance(line, ast.ImportFrom):
                typed |= {a.asname or a.name: str(line.module) for a in line.names}
    for call in ast.walk(tree_of(package)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "door":
            table: dict[str, tuple[str, ...]] = ast.literal_eval(call.args[1])
            homes = {
                n: f"{package}.{home}" for home, names in table.items() for n in names
            }
    if not homes:
        return None
    return Door(typed, homes, offered(package))


def offered(package: str) -> tuple[str, ...]:
    """Return `__all__` of a package, or of a module."""
    names = _assigned(package, "__all__")
    return () if names is None else tuple(ast.literal_eval(names))


@cache
def home_of(module: str, name: str) -> str:
    """Return the module that a name, imported from a module, comes from."""
    if f"{module}.{name}" in modules():
        return f"{module}.{name}"
    door = door_of(module)
    if door and name in door.homes:
        return home_of(door.homes[name], name)
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return home_of(str(node.module), alias.name)
    return module


@cache
def read_of_modules(module: str) -> frozenset[tuple[str, str]]:
    """Return each module that a module has by its name, with what it reads of it."""
    named: dict[str, str] = {}
    for node in ast.walk(tree_of(module)):
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            if (name := f"{node.module}.{alias.name}") in modules():
                named[alias.asname or alias.name] = name
    return frozenset(
        (named[node.value.id], node.attr)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in named
    )


@cache
def imported(module: str) -> frozenset[str]:
    """Return the modules of perfc that a module imports when it runs."""
    found: set[str] = set()
    for node in _run(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules()}
        elif node.module in modules():
            found |= {home_of(str(node.module), alias.name) for alias in node.names}
    for used, name in read_of_modules(module):
        if used in found:
            found.add(home_of(used, name))
    return frozenset(found - {module})


def child_of(package: str, module: str) -> str:
    """Return the child of a package that a module is, or lies in; "" if none."""
    if not module.startswith(f"{package}."):
        return ""
    return module.removeprefix(f"{package}.").partition(".")[0]


def arrows_between_children(package: str) -> dict[str, dict[str, str]]:
    """Map each child of a package to those that it imports, each with an example."""
    found: dict[str, dict[str, str]] = {}
    for module in modules():
        start = child_of(package, module)
        for target in sorted(imported(module)) if start else ():
            end = child_of(package, target)
            if end and end != start:
                found.setdefault(start, {})[end] = f"{module} -> {target}"
    return found
