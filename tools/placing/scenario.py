"""Scenarios of placements: inputs with their sources, in files that ship with perfc.

    [setup]
    tiers = { value = "dram=64GB,optane=x2", source = "assumed" }

`[setup]` is what options of the command line say otherwise, `[[tables]]` are tables,
`[[fleet.groups]]` hosts that are alike, of the plan `base` or `tiers`: `hosts` of them,
or as many as serve `fleet.load_per_s` with `queries_per_host`, with `power` each, in a
unit of the scenario's, and a `utilisation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import attrs

from perfc.costmodels.tiers import HostGroup, hosts_for, saving
from perfc.ir import PerfcError, UsageError, spend
from perfc.ir.support import parse_toml, read_text
from perfc.tools.models import ListedTable, TableList

_FOLDER = Path(__file__).parent / "scenarios"
_BYTES = 2
"""Bytes of an element: fp16, so that rows have half as many columns."""

_LEAST, _MOST = 1e-9, 1e15
"""Range of a number: what is worked out from such ones is finite."""

BASE, TIERS = "base", "tiers"
"""The plans whose fleets a scenario has."""

SETUP = ("target", "tiers", "cache", "candidates", "queries_per_s", "popularity")


@attrs.frozen
class Input:
    """A number, or a text, of a scenario.

    Attributes:
        name: What it is.
        value: It.
        source: Where it comes from: `recalled`, `assumed`.

    """

    name: str
    value: str | float
    source: str


@attrs.frozen(kw_only=True)
class Group:
    """Hosts of a scenario that are alike.

    Attributes:
        plan: `base` or `tiers`.
        name: What they are called.
        hosts: How many.
        power: Of one, in the scenario's unit.
        utilisation: Share of each that the model has.

    """

    plan: str
    name: str
    hosts: float
    power: float
    utilisation: float = 1.0

    @property
    def drawing(self) -> HostGroup:
        """The hosts as a fleet has them."""
        return HostGroup(
            hosts=self.hosts, host_watts=self.power, utilisation=self.utilisation
        )


@attrs.frozen(kw_only=True, eq=False)
class Scenario:
    """Inputs of a placement, and two fleets.

    Attributes:
        name: Of the scenario.
        title: What it is about.
        inputs: All inputs, in the order of the file.
        setup: What options say otherwise.
        tables: The tables.
        users: Names of those that are looked up once a query.
        groups: Hosts of both fleets.
        power_unit: What power is counted in.

    """

    name: str
    title: str
    inputs: tuple[Input, ...]
    setup: Mapping[str, Any]
    tables: TableList
    users: tuple[str, ...]
    groups: tuple[Group, ...]
    power_unit: str

    def fleet(self, plan: str) -> list[Group]:
        """Return the hosts of a plan."""
        return [group for group in self.groups if group.plan == plan]

    def hosts(self, plan: str) -> float:
        """Return how many hosts a plan has."""
        return math.fsum(group.hosts for group in self.fleet(plan))

    def power(self, plan: str) -> float:
        """Return the power of a plan, in the scenario's unit."""
        return math.fsum(group.drawing.watts for group in self.fleet(plan))

    @property
    def saving(self) -> float:
        """Share of the base's power that tiers save."""
        base, tiers = (
            [group.drawing for group in self.fleet(plan)] for plan in (BASE, TIERS)
        )
        return saving(base, tiers)


def scenario_names() -> list[str]:
    """Return the names of the scenarios that ship with perfc, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def is_scenario(text: str) -> bool:
    """Whether a model is a scenario: by its name, or as a file of TOML."""
    return text in scenario_names() or text.lower().endswith(".toml")


def read_scenario(text: str) -> Scenario:
    """Read a scenario that ships with perfc, or a file."""
    path = _FOLDER / f"{text}.toml" if text in scenario_names() else Path(text)
    if not path.is_file():
        known = ", ".join(scenario_names())
        msg = f"no scenario {text}; there are {known}, and files of TOML"
        raise UsageError(msg)
    content = read_text(path, PerfcError, "a scenario")
    return _Reader(text).read(parse_toml(content, PerfcError, text))


class _Reader:
    """A file, and what its errors begin with."""

    def __init__(self, where: str) -> None:
        self._where, self._inputs = where, list[Input]()

    def read(self, document: Mapping[str, Any]) -> Scenario:
        """Return the scenario."""
        setup, fleet = self._table(document, "setup"), self._table(document, "fleet")
        name = self._text(document, "name", Path(self._where).stem)
        given = {key: self._setup(setup, key) for key in SETUP if key in setup}
        tables: list[ListedTable] = []
        users: list[str] = []
        for entry in self._list(document, "tables"):
            listed = self._tables(entry, str(given.get("popularity", "")))
            tables += listed
            users += [table.name for table in listed] if self._flag(entry) else []
            spend("parts", len(tables), self._where)
        load = 0.0
        if "load_per_s" in fleet:
            load = self._number(fleet, "load_per_s", "fleet.load_per_s")
        groups = [self._group(entry, load) for entry in self._list(fleet, "groups")]
        found = Scenario(
            name=name,
            title=self._text(document, "title", ""),
            inputs=tuple(self._inputs),
            setup=given,
            tables=TableList(name, tuple(tables), None),
            users=tuple(users),
            groups=tuple(groups),
            power_unit=self._text(fleet, "power_unit", "units"),
        )
        for plan in (BASE, TIERS):
            if not found.fleet(plan):
                self._refuse(f"no fleet.groups of the plan {plan!r}")
        return found

    def _tables(self, entry: Mapping[str, Any], popularity: str) -> list[ListedTable]:
        name = self._text(entry, "name", "table")
        count = self._whole(entry, "count", f"{name}: count")
        spend("parts", count, self._where)
        row_bytes = self._whole(entry, "row_bytes", f"{name}: row_bytes")
        if row_bytes % _BYTES:
            self._refuse(f"{name}: row_bytes {row_bytes}: expected an even number")
        table = ListedTable(
            name=name,
            rows=self._whole(entry, "rows", f"{name}: rows"),
            dim=row_bytes // _BYTES,
            pooling=self._number(entry, "pooling", f"{name}: pooling"),
            dtype="fp16",
            popularity=popularity,
        )
        return [attrs.evolve(table, name=f"{name}{n}") for n in range(count)]

    def _group(self, entry: Mapping[str, Any], load: float) -> Group:
        plan, name = (
            self._text(entry, *of) for of in (("plan", ""), ("name", "hosts"))
        )
        at = f"{plan}: {name}"
        if plan not in {BASE, TIERS}:
            self._refuse(f"fleet.groups: plan {plan!r} is none of {BASE}, {TIERS}")
        if "hosts" in entry:
            hosts = self._number(entry, "hosts", f"{at}: hosts")
        else:
            what = f"{at}: queries a second of a host"
            hosts = hosts_for(load, self._number(entry, "queries_per_host", what))
        share = 1.0
        if "utilisation" in entry:
            share = self._number(entry, "utilisation", f"{at}: utilisation")
        power = self._number(entry, "power", f"{at}: power of a host")
        return Group(plan=plan, name=name, hosts=hosts, power=power, utilisation=share)

    def _number(self, table: Mapping[str, Any], key: str, what: str) -> float:
        found = self._value(table, key, what)
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if not number or not _LEAST <= found <= _MOST:
            expected = f"a number above 0, from {_LEAST:g} to {_MOST:g}"
            self._refuse(f"{what} is {found!r}, expected {expected}")
        return float(found)

    def _whole(self, table: Mapping[str, Any], key: str, what: str) -> int:
        found = self._number(table, key, what)
        if not found.is_integer():
            self._refuse(f"{what} is {found:g}, expected a whole number")
        return int(found)

    def _setup(self, setup: Mapping[str, Any], key: str) -> float | str:
        what = f"setup.{key}"
        if key == "queries_per_s":
            return self._number(setup, key, what)
        if key == "candidates":
            return self._whole(setup, key, what)
        found = self._value(setup, key, what)
        if not isinstance(found, str) or not found:
            self._refuse(f"{what} is {found!r}, expected text")
        return found

    def _text(self, table: Mapping[str, Any], key: str, usual: str) -> str:
        found = table.get(key, usual)
        if not isinstance(found, str):
            self._refuse(f"{key} is {found!r}, expected text")
        return found

    def _flag(self, entry: Mapping[str, Any]) -> bool:
        found = entry.get("users", False)
        if not isinstance(found, bool):
            self._refuse(f"users is {found!r}, expected true or false")
        return found

    def _value(self, table: Mapping[str, Any], key: str, what: str) -> Any:  # noqa: ANN401 - of TOML
        entry = table.get(key)
        fields: Mapping[str, Any] = {}
        if isinstance(entry, dict):
            fields = cast("Mapping[str, Any]", entry)
        if "value" not in fields or "source" not in fields:
            self._refuse(f"{what}: expected {key} = {{ value = ..., source = ... }}")
        source = self._text(fields, "source", "")
        self._inputs.append(Input(what, fields["value"], source))
        return fields["value"]

    def _table(self, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        found = document.get(key, {})
        if not isinstance(found, dict):
            self._refuse(f"{key} is no table")
        return cast("Mapping[str, Any]", found)

    def _list(
        self, document: Mapping[str, Any], key: str
    ) -> Sequence[Mapping[str, Any]]:
        found = document.get(key, [])
        if not isinstance(found, list) or not found:
            self._refuse(f"no [[{key}]]")
        entries = cast("list[object]", found)
        if not all(isinstance(entry, dict) for entry in entries):
            self._refuse(f"[[{key}]] are no tables")
        return cast("list[Mapping[str, Any]]", entries)

    def _refuse(self, problem: str) -> NoReturn:
        msg = f"scenario {self._where}: {problem}"
        raise PerfcError(msg)
