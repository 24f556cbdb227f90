"""Options that say one field of a target's sheet in the words of the question.

Each stands for `--set FIELD=VALUE`, from the command line, from Python and in presets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import attrs

from perfc.ir import UsageError
from perfc.ir.support import path_text
from perfc.tools.given import read_field
from perfc.tools.option import Option


class SheetOptions(TypedDict, total=False):
    """What calls in Python take."""

    price: float | str | os.PathLike[str] | None
    carbon: float | None


@attrs.frozen(kw_only=True)
class SheetOption:
    """One such option.

    Attributes:
        field: The field.
        takes_file: Whether a file may say it, for each target its own.
        option: How the command line spells it.

    """

    field: str
    takes_file: bool = False
    option: Option


SHEET_OPTIONS: Mapping[str, SheetOption] = {
    "price": SheetOption(
        field="price.usd_per_hour",
        takes_file=True,
        option=Option(
            flag="--price",
            metavar="USD_PER_HOUR|FILE.toml",
            help="What an hour of one GPU costs, or a price sheet of several targets; "
            "the target's list price if not given.",
        ),
    ),
    "carbon": SheetOption(
        field="carbon.g_per_kwh",
        option=Option(
            flag="--carbon",
            metavar="G_PER_KWH",
            help="Grams of CO2 equivalent that a kWh stands for where it runs.",
        ),
    ),
}
"""They, by name."""


def said_as_fields(
    read: Mapping[str, Any], given: Mapping[str, object]
) -> dict[str, dict[str, str]]:
    """Return the `overrides` of a request with what options say, if they say anything.

    Args:
        read: Fields of a request.
        given: Options by name, among others.

    """
    found = with_sheet_options(read.get("overrides", {}), given)
    return {"overrides": found} if found else {}


def with_sheet_options(
    overrides: Mapping[str, str], given: Mapping[str, object]
) -> dict[str, str]:
    """Return fields that are set, with those that options say.

    Args:
        overrides: Fields that are set by their names.
        given: Options by name, among others; None for one that is not given.

    """
    found = dict(overrides)
    for name, known in SHEET_OPTIONS.items():
        if given.get(name) is None:
            continue
        flag, text = known.option.flag, _text(name, known, given[name])
        if known.field in overrides:
            msg = f"{flag} and --set {known.field} say the same: give one"
            raise UsageError(msg)
        _check(known, text)
        found[known.field] = text
    return found


def _text(name: str, known: SheetOption, value: object) -> str:
    if known.takes_file and isinstance(value, Path):
        return path_text(name, value)
    return read_field(name, value)


def _check(known: SheetOption, text: str) -> None:
    from perfc.costmodels.sheets import FIELDS, is_path

    flag = known.option.flag
    try:
        complaint = FIELDS[known.field].complaint(float(text))
    except ValueError:
        if known.takes_file and is_path(text):
            if not Path(text).is_file():
                msg = f"{flag} {text}: there is no such price sheet"
                raise UsageError(msg) from None
            return
        expected = f"a number of {FIELDS[known.field].unit}"
        expected += " or the .toml file of a price sheet" if known.takes_file else ""
        complaint = expected, repr(text)
    if complaint is not None:
        expected, found = complaint
        msg = f"{flag}: expected {expected}, found {found}"
        raise UsageError(msg)
