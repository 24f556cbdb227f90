"""Price sheets: a user's prices of several targets, in place of those of their sheets.

    [h100]
    usd_per_hour = 2.49
    source = "our contract"
    date = "2026-10"

Tables are called as `--target` calls targets: a name, an alias, or, quoted, the path of
a sheet from where the price sheet lies.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, cast

from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets.catalog import find_sheet, is_path, shipped_sheet
from perfc.costmodels.sheets.sheet_fields import FIELDS, USD_PER_HOUR, quoted, shown
from perfc.costmodels.sheets.sheet_file import read_sheet, shown_path
from perfc.costmodels.sheets.sheet_lint import TARGET, parse_sheet
from perfc.costmodels.sheets.sheet_physics import Problem
from perfc.ir import PerfcError

Table = Mapping[str, object]

_KEYS = ("usd_per_hour", "source", "date")


def with_price(
    document: Table, overrides: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return overrides with the price that a price sheet has, and its citation.

    Args:
        document: The target's own sheet. That of a system also names its GPU's, whose
            price holds where the price sheet has none of the system.
        overrides: The price among them is the path of the price sheet. A target that
            the price sheet does not have keeps its own price.

    """
    prices = _Prices(Path(overrides[USD_PER_HOUR])).read()
    rest = {name: text for name, text in overrides.items() if name != USD_PER_HOUR}
    for name in (str(document["name"]), str(document.get(TARGET))):
        if name in prices:
            usd, citation = prices[name]
            cited = {USD_PER_HOUR: f"--price: {citation}"}
            return {**rest, USD_PER_HOUR: repr(usd)}, cited
    return rest, {}


class _Prices:
    """Reads a price sheet."""

    def __init__(self, path: Path) -> None:
        """Say which."""
        self._path, self._where = path, shown_path(str(path))

    def read(self) -> dict[str, tuple[float, str]]:
        """Return prices and citations by the names of targets."""
        text = read_sheet(self._path, "price sheet", TargetError)
        found: dict[str, tuple[float, str]] = {}
        for key, entry in parse_sheet(text, self._where).items():
            name = self._target(key)
            if name in found:
                self._refuse(
                    quoted(key), f"one price of {name}", "two", "leave one out"
                )
            found[name] = self._price(key, entry)
        if not found:
            self._refuse("price", "a table for each target", "none", "add [h100]")
        return found

    def _refuse(self, field: str, expected: str, found: str, advice: str) -> NoReturn:
        msg = f"{self._where}: {Problem(field, expected, found, advice)}"
        raise TargetError(msg)

    def _target(self, key: str) -> str:
        """Return the name of the target that a table is called by."""
        shipped = shipped_sheet(key)
        if shipped is not None:
            return shipped.stem
        name = str(self._path.parent / key) if is_path(key) else key
        try:
            place, content = find_sheet(name)
        except PerfcError as error:
            msg = f"{self._where}: {quoted(key)}: {error}"
            raise TargetError(msg) from None
        sheet = parse_sheet(content, place) if isinstance(content, str) else content
        return str(sheet.get("name"))

    def _price(self, key: str, entry: object) -> tuple[float, str]:
        field = quoted(key)
        if not isinstance(entry, dict):
            self._refuse(field, "a table", shown(entry), f"write [{field}]")
        table = cast("Table", entry)
        for one in table:
            if one not in _KEYS:
                name = f"{field}.{quoted(one)}"
                expected = f"one of {', '.join(_KEYS)}"
                self._refuse(name, expected, "an unknown key", "remove it")
        usd = table.get("usd_per_hour")
        complaint = FIELDS[USD_PER_HOUR].complaint(usd)
        if complaint is not None:
            expected, found = complaint
            found = "nothing" if usd is None else found
            self._refuse(f"{field}.usd_per_hour", expected, found, "say what it costs")
        said = [self._text(field, table, name) for name in ("source", "date")]
        return float(cast("float", usd)), f"{', '.join(said)} ({self._where})"

    def _text(self, field: str, table: Table, name: str) -> str:
        value = table.get(name)
        if isinstance(value, dt.date):
            return value.isoformat()
        if not (isinstance(value, str) and value.strip() and value.isprintable()):
            found = "nothing" if value is None else shown(value)
            advice = "prices change: say where and when it was read"
            self._refuse(f"{field}.{name}", "a text", found, advice)
        return str(value)
