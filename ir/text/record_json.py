"""Records as JSON objects: parameters of kernels in files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perfc.ir.record import AttrValue, Record


def record_of(items: Mapping[str, Any]) -> Record:
    """Return parsed JSON as a record; lists become tuples, nulls are left out."""
    return Record({key: _value(v) for key, v in items.items() if v is not None})


def json_of(value: AttrValue) -> str:
    """Write a record, or a value of one, as JSON."""
    return json.dumps(_plain(value))


def _value(value: Any) -> AttrValue:  # noqa: ANN401 - anything that JSON can say
    if isinstance(value, dict):
        return record_of(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return tuple(map(_value, cast("Sequence[Any]", value)))
    return cast("AttrValue", value)


def _plain(value: AttrValue) -> object:
    if isinstance(value, Record):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
