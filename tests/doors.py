"""The contract that import-linter holds rooms to: a package is entered by its door.

A module of a room, which is a package within one of perfc's layers, is imported by that
room and what lies in it. All others import what the room's `__init__` offers, or the
room, of which they read no more than that.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from tests.imports import modules, offered, read_of_modules

_LAYER = 2
"""Names in the module name of a layer, as `perfc.passes`."""


class DoorContract(Contract):
    """No module imports what lies inside a room that it is not in itself."""

    open_packages = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find imports that go past a door."""
        wrong = {
            (importer, imported)
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if self._is_past_a_door(importer, imported)
        }
        wrong |= {
            (importer, f"{room}.{name}")
            for importer in modules()
            for room, name in read_of_modules(importer)
            if modules()[room].stem == "__init__"
            and (names := offered(room))
            and name not in names
        }
        return ContractCheck(kept=not wrong, metadata={"wrong": sorted(wrong)})

    @property
    def _open(self) -> set[str]:
        named: Any = self.open_packages
        return {*(named or ())}

    def _is_past_a_door(self, importer: str, imported: str) -> bool:
        room = imported.rpartition(".")[0]
        inside = importer == room or importer.startswith(f"{room}.")
        is_room = room.count(".") >= _LAYER and room not in self._open
        return is_room and not inside

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each import, with the door that it should take."""
        wrong: Any = check.metadata["wrong"]
        for importer, imported in wrong:
            room = imported.rpartition(".")[0]
            output.print_error(f"{importer} imports {imported}, not {room}", bold=False)
