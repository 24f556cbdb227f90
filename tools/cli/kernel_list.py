"""`perfc ops --kernels`: the kernels that are declared, as a table and as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from perfc.ir.kernels import COMMON, KernelDef, KernelParam, declared_kernels
from perfc.ir.record import format_attribute
from perfc.tools.reports import columns_text

_HEAD = ("kernel", "parameter", "type", "unit", "default", "written by", "what it is")
_EVERY = "every kernel"


def kernels_table() -> str:
    """Return every kernel with its parameters, one a line; those of all come last."""
    lines: list[Sequence[str]] = [_HEAD]
    for definition in declared_kernels().values():
        lines += _lines_of(definition)
    lines += (_line(_EVERY, param.name, param, ()) for param in COMMON)
    return columns_text(lines)


def kernels_json() -> str:
    """Return every kernel as JSON: `perfc.kernels/1`."""
    document = {
        "schema": "perfc.kernels/1",
        "kernels": [
            {
                "name": definition.name,
                "summary": definition.summary,
                "written_by": list(definition.writers),
                "params": [_plain(p, definition.writers) for p in definition.params],
            }
            for definition in declared_kernels().values()
        ],
        "common": [_plain(param, ()) for param in COMMON],
    }
    return json.dumps(document, indent=2)


def _lines_of(definition: KernelDef) -> Iterator[Sequence[str]]:
    name, writers = definition.name, definition.writers
    yield (name, "", "", "", "", ", ".join(writers), definition.summary)
    for param in definition.params:
        yield _line(name, param.name, param, writers)
        for field in param.fields:
            yield _line(name, f"{param.name}.{field.name}", field, writers)


def _line(
    kernel: str, name: str, param: KernelParam, writers: tuple[str, ...]
) -> Sequence[str]:
    return (
        kernel,
        name,
        ", ".join(param.choices) or param.type.value,
        param.unit or "-",
        "required"
        if param.is_required
        else (format_attribute(param.default) if param.default != "" else "-"),
        ", ".join(param.writers or writers),
        param.summary,
    )


def _plain(param: KernelParam, writers: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": param.name,
        "type": param.type.value,
        "unit": param.unit or None,
        "required": param.is_required,
        "default": param.value_without,
        "choices": list(param.choices),
        "written_by": list(param.writers or writers),
        "summary": param.summary,
    }
    if param.fields:
        found["fields"] = [_plain(field, writers) for field in param.fields]
    return found
