"""`perfc targets show T --constants`: the constants that hold on a target."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from perfc.costmodels import Target
from perfc.costmodels.constants import (
    CONSTANTS_FOLDER,
    Constant,
    Value,
    constant_files,
    constants,
)
from perfc.ir.support import Json
from perfc.tools.reports import columns_text

SCHEMA = "perfc.target/1"


class _Applied(NamedTuple):
    """A constant, and what of its value holds on a target."""

    name: str
    value: Value
    constant: Constant


def _applied(target: Target) -> Iterator[_Applied]:
    words = target.device.words
    for file in constant_files():
        for constant in constants(file):
            if (value := constant.part(words)) is not None:
                yield _Applied(f"{file}.{constant.name}", value, constant)


def constants_text(target: Target) -> str:
    """Return a table: a line a number, with the kind and source of each constant."""
    head = ("name", "value", "kind", "source")
    return columns_text([head, *_rows(target)])


def _rows(target: Target) -> Iterator[tuple[str, ...]]:
    for name, value, constant in _applied(target):
        rows = f" ({constant.rows})" if constant.rows else ""
        said = (constant.kind, constant.source + rows)
        for key, number in _lines(name, value):
            yield (key, number, *said)
            said = ("", "")
    for file in _written_files(target):
        numbers = f"{file['numbers']} numbers"
        yield (file["name"], numbers, "fitted", f"{file['source']}, {file['date']}")


def _lines(name: str, value: Value) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name}.{key}", _text(part)
    else:
        yield name, _text(value)


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    return f"{value:.10g}" if isinstance(value, int | float) else str(value)


def constants_json(target: Target) -> Json:
    """Return a target's `constants` for programs, and `fitted_files` beside them."""
    return {
        "constants": [
            {
                "name": name,
                "value": _plain(value),
                "kind": constant.kind,
                "source": constant.source,
                "rows": constant.rows,
            }
            for name, value, constant in _applied(target)
        ],
        "fitted_files": list(_written_files(target)),
    }


def target_json(target: Target, content: Json) -> str:
    """Return `perfc.target/1`: which target, and what is asked of it."""
    which = {"name": target.name, "spec_sha256": target.spec_sha256}
    return json.dumps({"schema": SCHEMA, **which, **content}, indent=2) + "\n"


def _plain(value: Value) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _written_files(target: Target) -> Iterator[Json]:
    """Yield the files that `make fit` writes, which are of GPUs alone."""
    if target.device.synchronous:
        return
    for path in sorted(CONSTANTS_FOLDER.parent.glob("*.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        source, date = content.pop("source"), content.pop("date")
        numbers = sum(map(_count, content.values()))
        yield {"name": path.name, "numbers": numbers, "source": source, "date": date}


def _count(value: object) -> int:
    if isinstance(value, dict):
        return sum(map(_count, cast("dict[str, object]", value).values()))
    return len(cast("list[object]", value)) if isinstance(value, list) else 1
