"""Profiles: what was measured of a machine, in one TOML file.

    schema = "perfc.profile/1"
    name, source, date, software    texts
    [device]                        what `--target` takes
    target = "v100"                 the sheet that is refined
    [device.fields]                 fields of the sheet that were measured
    [[kernels]]                     one for each family of kernels that was fitted
    op, dtype, phase, kind          which; phase and kind may be absent
    rows, sigma_shared, sigma_independent
    shipped                         share of perfc's own rows of a CPU that holds here;
                                    may be absent, see `cpu/rows.py`
    values = { start_us = …, … }    coefficients, see `machine/kernel_fit.py` and
                                    `fit_check.py`
    [kernels.near]                  may be absent, see `machine/near_rows.py`
    octaves, unlike                 how far a row tells of others
    rows = ["-0.21 | 3.0 9.5 | nt"] weight, sizes and words of each
    [collectives]                   may be absent, see `collectives/rows.py`
    rows = ["all_reduce fp16 4096 2 1 2 0.3"]   op, dtype, bytes, ranks, nodes, GPUs of
                                    a node, weight
    [[measured]]                    kernels that were timed, see `measured_section.py`
    [host]                          what `--overheads` takes, see `host_profile.py`

A file may have a device, a host, or both. Keys of this schema that a version of perfc
does not know are an error, as in sheets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import attrs

from perfc.costmodels import machine, sheets
from perfc.costmodels.sheets.sheet_fields import FieldValue, quoted, shown

PROFILE_SCHEMA = "perfc.profile/1"
"""What profiles say of their format."""

PROFILE_TEXTS = ("name", "source", "date", "software")
"""What every profile says of itself."""

_KEYS = frozenset(
    {"schema", *PROFILE_TEXTS, "device", "kernels", "collectives", "measured", "host"}
)
_DEVICE_KEYS = frozenset({"target", "fields"})
_NUMBERS = ("sigma_shared", "sigma_independent")
_KERNEL_KEYS = frozenset(
    {"op", "dtype", "phase", "kind", "rows", "values", "near", "shipped", *_NUMBERS}
)
_NEAR_KEYS = ("octaves", "unlike", "rows")
_Table = Mapping[str, object]


@attrs.frozen
class Calibration:
    """The device of a profile.

    Attributes:
        name: Name of the profile.
        target: Name of the sheet that it refines.
        fields: Fields of the sheet that were measured, in its units.
        fits: What was fitted of kernels.
        measured: Kernels that were timed.
        collectives: What measured collectives say; None if none were.
        source: What to cite.
        has_host: Whether the file has a host, too.

    """

    name: str
    target: str
    fields: Mapping[str, FieldValue] = attrs.field(hash=False)
    fits: tuple[machine.KernelFit, ...]
    measured: machine.MeasuredKernels
    collectives: tuple[machine.MeasuredCollective, ...]
    source: str
    has_host: bool


def is_profile(document: _Table) -> bool:
    """Whether a TOML file is a profile, of any version."""
    schema = document.get("schema")
    return isinstance(schema, str) and schema.startswith("perfc.profile/")


def check_profile(document: _Table) -> Iterator[str]:
    """Yield the problems of a profile, its host apart."""
    schema = document.get("schema")
    if schema != PROFILE_SCHEMA:
        yield f"schema is {shown(schema)}, expected {PROFILE_SCHEMA!r}; calibrate again"
        return
    yield from _unknown(document, _KEYS, "")
    for key in PROFILE_TEXTS:
        value = document.get(key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            yield f"{key} is {_shown(value)}, expected a text of one line"
    device = document.get("device")
    if device is not None:
        yield from _device_problems(device)
    if "measured" in document:
        yield from sheets.measured_problems(document["measured"])
    yield from _collective_problems(document.get("collectives"))
    kernels = document.get("kernels", [])
    if not isinstance(kernels, list):
        yield f"kernels is {shown(kernels)}, expected [[kernels]]"
        return
    for index, entry in enumerate(cast("list[object]", kernels), 1):
        yield from (f"kernels {index}: {text}" for text in _kernel_problems(entry))


def parse_calibration(document: _Table, where: str) -> Calibration:
    """Return the device of a profile."""
    problems = list(check_profile(document))
    if not problems and "device" not in document:
        problems = ["no [device]: it holds a host only, for --overheads"]
    refuse(problems, where)
    device = cast("_Table", document["device"])
    entries = cast("list[_Table]", document.get("kernels", []))
    return Calibration(
        name=str(document["name"]),
        target=str(device["target"]),
        fields=dict(cast("Mapping[str, FieldValue]", device.get("fields", {}))),
        fits=tuple(map(_fit, entries)),
        measured=_measured(document, where),
        collectives=_collectives(document.get("collectives")),
        source=f"{document['source']} ({document['date']}, {document['software']})",
        has_host="host" in document,
    )


def refuse(problems: Sequence[str], where: str) -> None:
    """Name the first of the problems of a profile, if it has any."""
    if problems:
        rest = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        message = f"{where}: profile: {problems[0]}{rest}"
        raise machine.TargetError(message)


def _measured(document: _Table, where: str) -> machine.MeasuredKernels:
    """Return the kernels that were timed."""
    section = document.get("measured")
    listed = list(sheets.measured_kernels(section)) if section else []
    found = machine.MeasuredKernels.of(listed)
    if len(found) < len(listed):
        message = f"{where}: profile: measured has a kernel twice; calibrate again"
        raise machine.TargetError(message)
    return found


def _collective_problems(entry: object) -> Iterator[str]:
    if entry is None:
        return
    text = shown(entry)
    table: _Table = cast("_Table", entry) if isinstance(entry, dict) else {}
    rows = table.get("rows")
    listed = cast("list[object]", rows) if isinstance(rows, list) else []
    if {*table} != {"rows"} or not listed:
        yield f"collectives is {text}, expected a table of rows"
        return
    try:
        for row in listed:
            machine.MeasuredCollective.parse(str(row))
    except ValueError as error:
        yield (
            f"collectives.rows has {shown(str(error))}, expected 'op dtype bytes ranks "
            "nodes gpus-per-node weight'"
        )


def _collectives(entry: object) -> tuple[machine.MeasuredCollective, ...]:
    rows = cast("Mapping[str, list[str]]", entry)["rows"] if entry is not None else []
    return tuple(map(machine.MeasuredCollective.parse, rows))


def _shown(value: object) -> str:
    return "missing" if value is None else shown(value)


def _unknown(table: _Table, known: frozenset[str], where: str) -> Iterator[str]:
    for key in table:
        if key not in known:
            names = ", ".join(sorted(known))
            yield f"unknown key {where}{quoted(key)}; it has {names}"


def _device_problems(device: object) -> Iterator[str]:
    if not isinstance(device, dict):
        yield f"device is {shown(device)}, expected [device]"
        return
    table = cast("_Table", device)
    yield from _unknown(table, _DEVICE_KEYS, "device.")
    if not isinstance(table.get("target"), str):
        yield f"device.target is {_shown(table.get('target'))}, expected a target"
    if not isinstance(table.get("fields", {}), dict):
        yield f"device.fields is {shown(table['fields'])}, expected [device.fields]"


def _kernel_problems(entry: object) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{shown(entry)}, expected a table"
        return
    table = cast("_Table", entry)
    yield from _unknown(table, _KERNEL_KEYS, "")
    for key, absent in (("op", None), ("dtype", None), ("phase", ""), ("kind", "")):
        if not isinstance(table.get(key, absent), str):
            yield f"{key} is {_shown(table.get(key))}, expected a text"
    rows = table.get("rows")
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        yield f"rows is {_shown(rows)}, expected how many were fitted"
    for key in _NUMBERS:
        if not _is_amount(table.get(key)):
            yield f"{key} is {_shown(table.get(key))}, expected a number from 0 to 10"
    if not _is_amount(table.get("shipped", 0.0), 1.0):
        yield f"shipped is {shown(table['shipped'])}, expected a share from 0 to 1"
    yield from _value_problems(table.get("values"))
    if "near" in table:
        yield from _near_problems(table["near"])


def _value_problems(values: object) -> Iterator[str]:
    if not isinstance(values, dict) or not values:
        yield "values is missing, expected a table of coefficients"
        return
    for name, value in cast("_Table", values).items():
        if not _is_amount(value, math.inf):
            text = shown(value)
            yield f"values.{quoted(name)} is {text}, expected a number not below 0"


def _near_problems(near: object) -> Iterator[str]:
    text = shown(near)
    if not isinstance(near, dict) or {*cast("_Table", near)} != {*_NEAR_KEYS}:
        yield f"near is {text}, expected a table of {', '.join(_NEAR_KEYS)}"
        return
    table = cast("_Table", near)
    octaves, unlike, rows = (table[key] for key in _NEAR_KEYS)
    if not _is_amount(octaves, 64.0) or not octaves:
        yield f"near.octaves is {shown(octaves)}, expected up to 64"
    if not _is_amount(unlike, 1.0):
        yield f"near.unlike is {shown(unlike)}, expected 0 to 1"
    text = shown(rows)
    if not isinstance(rows, list) or not rows:
        yield f"near.rows is {text}, expected texts"
        return
    shapes: set[tuple[int, int]] = set()
    for row in cast("list[object]", rows):
        try:
            _, sizes, words = _near_row(row)
        except ValueError:
            yield f"near.rows has {shown(row)}, expected 'weight | sizes | words'"
            return
        shapes.add((len(sizes), len(words)))
    if len(shapes) > 1:
        yield "near.rows differ in how many sizes or words they have"


def _near_row(row: object) -> tuple[float, tuple[float, ...], tuple[str, ...]]:
    """Return a row's weight, sizes and words.

    Raises:
        ValueError: it is not `weight | sizes | words`.

    """
    weight, sizes, words = str(row).split("|")
    numbers = (float(weight), *map(float, sizes.split()))
    if not all(map(math.isfinite, numbers)):
        raise ValueError(row)
    return (
        numbers[0],
        numbers[1:],
        tuple(("" if word == machine.NO_WORD else word) for word in words.split()),
    )


def _is_amount(value: object, most: float = 10.0) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value <= most


def _fit(entry: _Table) -> machine.KernelFit:
    family = machine.Family(
        op=str(entry["op"]),
        dtype=str(entry["dtype"]),
        phase=str(entry.get("phase", machine.FORWARD)),
        kind=str(entry.get("kind", "")),
    )
    shared, own = (float(cast("float", entry[key])) for key in _NUMBERS)
    values = cast("Mapping[str, float]", entry["values"])
    coefficients = {name: float(value) for name, value in values.items()}
    near = cast("_Table | None", entry.get("near"))
    return machine.KernelFit(
        family,
        coefficients,
        shared,
        own,
        cast("int", entry["rows"]),
        None if near is None else _near(near),
        float(cast("float", entry.get("shipped", 0.0))),
    )


def _near(table: _Table) -> machine.NearRows:
    rows = [_near_row(row) for row in cast("list[object]", table["rows"])]
    weights, sizes, words = zip(*rows, strict=True)
    octaves, unlike = (float(cast("float", table[key])) for key in _NEAR_KEYS[:2])
    return machine.NearRows(octaves, unlike, weights, sizes, words)
