"""Loading of a target sheet in TOML, with overrides, into a `Target`."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import attrs

from perfc.costmodels import machine, sheets
from perfc.costmodels.sheets import price_section, sheet_fields, sheet_lint
from perfc.costmodels.sheets.catalog import find_sheet, is_path, shipped_sheet
from perfc.costmodels.sheets.power_section import check_cap, power_of
from perfc.costmodels.sheets.profile import is_profile, parse_calibration, refuse
from perfc.costmodels.sheets.sheet_physics import Fields
from perfc.ir import PerfcError, UsageError
from perfc.ir.support import path_text

OVERRIDDEN = "--set"
"""The source of a field that the caller has set."""

_GRAPH_GAP = "runtime.graph_gap_us"

_NO_OVERRIDES: Mapping[str, str] = {}


def load_target(
    name_or_path: str | os.PathLike[str], overrides: Mapping[str, str] = _NO_OVERRIDES
) -> machine.Target:
    """Return the target of that name, alias, sheet file or profile.

    *overrides* maps fields of the sheet, as `gpu.sm_clock_mhz`, to numbers in
    the sheet's units. What the sheet gives per clock, width or count follows: a
    GPU at half `gpu.sm_clock_mhz` has half the FLOP/s (see `PROPORTIONS`).
    A target is the same object each time, until its files change.
    Raises `UsageError` for an unknown target or a bad override, `TargetError`
    for a sheet that cannot be read or fails the linter.
    """
    name_or_path = path_text("target", name_or_path)
    if overrides:
        return sheets.kept_target(name_or_path, overrides, _overridden)
    path = shipped_sheet(name_or_path)
    return (
        shipped_target(path.stem)
        if path is not None
        else sheets.kept_target(name_or_path, overrides, _read)
    )


@functools.cache
def shipped_target(name: str) -> machine.Target:
    """Return a target that ships with perfc: it does not change meanwhile."""
    return _read(name, _NO_OVERRIDES)


def _overridden(name_or_path: str, overrides: Mapping[str, str]) -> machine.Target:
    found = _read(name_or_path, overrides)
    return attrs.evolve(found, unset=load_target(name_or_path))


def _read(name_or_path: str, overrides: Mapping[str, str]) -> machine.Target:
    where, document = _document(name_or_path)
    if is_profile(document):
        return _calibrated(document, where, name_or_path, overrides)
    return build_target(document, where, overrides)


def _document(name_or_path: str) -> tuple[str, sheet_lint.Table]:
    """Return where a sheet or a profile is, and its tables.

    A system's sheet has those of its GPUs, too.
    """
    where, content = find_sheet(name_or_path)
    document = (
        sheet_lint.parse_sheet(content, where) if isinstance(content, str) else content
    )
    if sheet_lint.TARGET in document and not is_profile(document):
        document = sheets.with_target(document, where)
    if sheet_fields.TIERS in document:
        document = sheets.with_devices(document, where)
    return where, document


def _calibrated(
    document: sheet_lint.Table, where: str, path: str, overrides: Mapping[str, str]
) -> machine.Target:
    """Return the target of a profile: its sheet, with what was measured."""
    found = parse_calibration(document, where)
    try:
        sheet = found.target
        if is_path(sheet):  # as it is found from the profile
            sheet = str(Path(path).parent / sheet)
        base_where, base = _document(sheet)
        if is_profile(base):
            message = f"device.target is {found.target!r}, expected a sheet"
            raise UsageError(message)
        fields, sources = _sheet_fields(base, base_where)
        measured = {name: str(value) for name, value in found.fields.items()}
        fields, sources = _override(fields, sources, measured)
        sources |= dict.fromkeys(measured, f"profile {found.name}: {found.source}")
    except PerfcError as error:
        message = f"{where}: profile: {error}"
        raise machine.TargetError(message.replace("--set", "device.fields")) from error
    if overrides:
        fields, sources = _set_by_hand(base, fields, sources, overrides)
    target = _build(base, fields, sources)
    refuse(list(sheets.coefficient_problems(found.fits, target.device)), where)
    host = target.host
    if found.has_host:
        host = attrs.evolve(host, overheads=path)
    # What was timed holds for the machine as it is, not for one that is imagined.
    timed, unused = found.measured, 0
    if any(sheet_fields.is_of_time(n) and not n.startswith("host.") for n in overrides):
        timed, unused = machine.MeasuredKernels(), len(found.measured)
    return attrs.evolve(
        target,
        host=host,
        profile=found.name,
        fits=machine.fits_of(found.fits),
        measured=timed,
        collectives=found.collectives,
        measured_unused=unused,
        spec_sha256=_profile_digest(target, document),
    )


def _profile_digest(target: machine.Target, document: sheet_lint.Table) -> str:
    content = json.dumps([target.spec_sha256, document], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def build_target(
    document: sheet_lint.Table, where: str, overrides: Mapping[str, str] = _NO_OVERRIDES
) -> machine.Target:
    """Return the target of a sheet's tables; *where* names them in messages."""
    fields, sources = _sheet_fields(document, where)
    if overrides:
        fields, sources = _set_by_hand(document, fields, sources, overrides)
    return _build(document, fields, sources)


def _sheet_fields(
    document: sheet_lint.Table, where: str
) -> tuple[dict[str, sheet_fields.FieldValue], dict[str, str]]:
    """Return the fields of a sound sheet, and the citation of each.

    Of a sheet that was read before (`parse_sheet`) they are known.
    """
    found = _FIELDS.get(id(document))
    if found is None or found[0] is not document:
        if len(_FIELDS) >= _MOST_SHEETS:
            _FIELDS.clear()
        sheet_lint.check_sheet(document, where)
        fields = sheet_lint.field_values(document)
        sources = sheet_lint.citations(document, fields)
        if _GRAPH_GAP not in fields and not sheet_fields.is_synchronous(fields):
            gap_us = fields["runtime.stream_gap_us"]
            fields = _ordered({**fields, _GRAPH_GAP: gap_us})
            sources[_GRAPH_GAP] = sheet_fields.GRAPH_GAP_SOURCE
        found = _FIELDS[id(document)] = (document, *(fields, sources))
    return found[1], found[2]


_FIELDS: dict[
    int, tuple[sheet_lint.Table, dict[str, sheet_fields.FieldValue], dict[str, str]]
] = {}
_MOST_SHEETS = 64


def describe(
    target: machine.Target,
) -> list[tuple[str, sheet_fields.FieldValue, str, str]]:
    """Return (field, value, unit, source) of every field, in the sheet's units."""
    known = sheet_fields.fields_with(sheet_fields.tiers_in(target.fields))
    return [
        (name, value, known[name].unit, target.sources[name])
        for name, value in target.fields.items()
    ]


def describe_modes(
    name_or_path: str | os.PathLike[str],
) -> list[tuple[str, sheet_fields.FieldValue, str, str]]:
    """Return (field, value, unit, source) of the power modes of a target's sheet."""
    _, document = _document(path_text("target", name_or_path))
    return [] if is_profile(document) else list(sheets.described_modes(document))


def _set_by_hand(
    document: sheet_lint.Table,
    fields: Fields,
    sources: Mapping[str, str],
    overrides: Mapping[str, str],
) -> tuple[dict[str, sheet_fields.FieldValue], dict[str, str]]:
    """Return the fields of a sheet with overrides, and the citation of each."""
    if sheet_fields.MODE in overrides:
        overrides = sheets.with_mode(document, overrides)
    if not is_path(overrides.get(sheet_fields.USD_PER_HOUR, "")):
        return _override(fields, sources, overrides)
    overrides, cited = sheets.with_price(document, overrides)
    fields, sources = _override(fields, sources, overrides)
    return fields, {**sources, **cited}


def _override(
    fields: Fields, sources: Mapping[str, str], overrides: Mapping[str, str]
) -> tuple[dict[str, sheet_fields.FieldValue], dict[str, str]]:
    if sheet_fields.tiers_in(overrides):
        sheets.check_tier_names(overrides)
    values = {name: _parsed(name, text) for name, text in overrides.items()}
    fields = {
        name: fields[name]
        for name in fields
        if name not in price_section.out_of_force(values)
    }
    merged = {**fields, **values}
    cited = {**sources, **dict.fromkeys(values, OVERRIDDEN)}
    for proportion in sheet_fields.PROPORTIONS:
        ratio = proportion.level(merged) / proportion.level(fields)
        if ratio == 1:
            continue
        for name in proportion.followers:
            if name in fields and name not in values:
                merged[name] = float(merged[name]) * ratio
                cited[name] = f"{sources[name]}; scaled by {OVERRIDDEN}"
    _check_overridden(merged)
    ordered = _ordered(merged)
    return ordered, {name: cited[name] for name in ordered}


def _ordered(fields: Fields) -> dict[str, sheet_fields.FieldValue]:
    known = sheet_fields.fields_with(sheet_fields.tiers_in(fields))
    return {name: fields[name] for name in known if name in fields}


def _parsed(name: str, text: str) -> float:
    field = sheet_fields.field_of(name)
    if field is None:
        known = sheet_fields.fields_with(sheet_fields.tiers_in([name]))
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"close: {', '.join(near)}" if near else f"fields: {', '.join(known)}"
        message = (
            f"--set {sheet_fields.quoted(name)}: no such field of a target; {hint}"
        )
        raise UsageError(message)
    if field.text:
        message = f"--set {name}: expected a field with a number, found one with a text"
        raise UsageError(message)
    try:
        value = float(text)
    except ValueError as error:
        message = f"--set {name}: expected a number of {field.unit or 'units'}, "
        message += f"found {text!r}"
        raise UsageError(message) from error
    _refuse(field, value)
    return int(value) if field.whole else value


def _refuse(field: sheet_fields.SheetField, value: object) -> None:
    name, complaint = field.name, field.complaint(value)
    if complaint:
        message = f"--set {name}: expected {complaint[0]}, found {complaint[1]}"
        raise UsageError(message)


def _check_overridden(fields: Fields) -> None:
    known = sheet_fields.fields_with(sheet_fields.tiers_in(fields))
    for name, value in fields.items():
        _refuse(known[name], value)
    begun = {known[n].section for n in fields}
    synchronous = sheet_fields.is_synchronous(fields)
    for name, field in known.items():
        section = field.section
        wanted = section in begun and sheet_fields.is_required(
            field, synchronous=synchronous
        )
        if wanted and name not in fields:
            do = "name a system (`perfc targets`)" if field.text else f"set {name} too"
            message = f"--set {section}: this target has no [{section}]; {do}"
            raise UsageError(message)
    usable, capacity = (
        float(fields.get(name, fields["gpu.memory_gib"]))
        for name in ("gpu.memory_usable_gib", "gpu.memory_gib")
    )
    if usable > capacity:
        message = (
            f"--set gpu.memory_usable_gib: expected at most gpu.memory_gib = "
            f"{capacity:g}, found {usable:g}"
        )
        raise UsageError(message)
    check_cap(fields)
    price_section.check_price(fields)
    if sheet_fields.tiers_in(fields):
        sheets.check_tiers(fields)


def _build(
    document: sheet_lint.Table, fields: Fields, sources: Mapping[str, str]
) -> machine.Target:
    name = cast("str", document["name"])
    device = _device(str(document.get(sheet_lint.TARGET, name)), fields)
    names = {
        "nvlink": f"NVLink {fields.get('nvlink.generation')}",
        "xgmi": "Infinity Fabric",
    }
    links = tuple(
        machine.Link(
            name=name,
            bytes_per_s=_si(fields, f"{section}.gb_per_s_per_direction", 1e9),
            sub_links=int(fields[f"{section}.links"]),
        )
        for section, name in names.items()
        if f"{section}.links" in fields
    )
    return machine.Target(
        name=name,
        aliases=tuple(cast("list[str]", document.get("aliases", []))),
        device=device,
        host=_host(fields),
        host_link=_host_link(fields),
        links=links,
        system=sheets.system_of(name, fields, next(iter(links), None), device)
        if "node.gpus" in fields
        else None,
        runtime=machine.RuntimeConstants(
            launch_latency_s=_si(fields, "runtime.launch_latency_us", 1e-6, 0)
        ),
        watts=_si(fields, "power.tdp_w", 1),
        power=power_of(fields),
        resources=sheets.host_resources(fields) if "host.sockets" in fields else None,
        node_power=sheets.node_power(fields)
        if "power.node_w" in fields or "power.host_w" in fields
        else None,
        tiers=sheets.tiers_of(fields, sources) if sheet_fields.tiers_in(fields) else (),
        usd_per_hour=price_section.usd_per_hour(fields),
        g_per_kwh=price_section.g_per_kwh(fields),
        fields=fields,
        sources=sources,
        spec_sha256=_digest(name, fields),
    )


def _si(fields: Fields, name: str, scale: float, absent: float | None = None) -> float:
    """Return a field in SI units; *absent* is that of a CPU, which has it not."""
    value = fields[name] if absent is None else fields.get(name, absent)
    return float(value) * scale


def _device(name: str, fields: Fields) -> machine.Device:
    sm_clock_mhz = fields["gpu.sm_clock_mhz"]
    base_clock_mhz = fields.get("gpu.base_clock_mhz")
    return machine.Device(
        name=name,
        vendor=str(fields["gpu.vendor"]),
        architecture=str(fields["gpu.architecture"]),
        compute_capability=str(fields["gpu.compute_capability"]),
        sm_count=int(fields["gpu.sm_count"]),
        lanes_per_sm=int(fields["gpu.lanes_per_sm"]),
        sm_clock_hz=_si(fields, "gpu.sm_clock_mhz", 1e6),
        tensor_clock_hz=float(fields.get("gpu.tensor_clock_mhz", sm_clock_mhz)) * 1e6,
        base_clock_hz=None if base_clock_mhz is None else float(base_clock_mhz) * 1e6,
        flops_per_s={
            mode: _si(fields, f"gpu.rates_tflops.{mode}", 1e12)
            for mode in machine.MATH_MODES
            if f"gpu.rates_tflops.{mode}" in fields
        },
        memories=_memories(fields),
        shared_memory_bytes_per_sm=_bytes(
            fields, "gpu.shared_memory_kib_per_sm", 2**10, 0
        ),
        registers_per_sm=int(fields.get("gpu.registers_per_sm", 0)),
        max_threads_per_sm=int(fields.get("gpu.max_threads_per_sm", 1)),
        warp_size=int(fields.get("gpu.warp_size", 32)),
        kernel_floor_s=_si(fields, "runtime.kernel_floor_us", 1e-6, 0),
        stream_gap_s=_si(fields, "runtime.stream_gap_us", 1e-6, 0),
        graph_gap_s=_si(fields, _GRAPH_GAP, 1e-6, 0),
        synchronous=sheet_fields.is_synchronous(fields),
        has_host_memory=fields.get(sheet_fields.MEMORY_OF) == sheet_fields.OF_HOST,
        library_bytes=_bytes(fields, "gpu.library_mib", 2**20, 0),
    )


def _bytes(fields: Fields, name: str, scale: int, absent: float | None = None) -> int:
    return round(_si(fields, name, scale, absent))


def _memories(fields: Fields) -> tuple[machine.Memory, ...]:
    l2_bytes = _bytes(fields, "gpu.l2_mib", 2**20)
    whole_gib = "gpu.memory_gib"
    usable_gib = "gpu.memory_usable_gib"
    usable_gib = usable_gib if usable_gib in fields else whole_gib
    return (
        machine.Memory(
            name="l2",
            capacity_bytes=l2_bytes,
            usable_bytes=l2_bytes,
            bytes_per_s=_si(fields, "gpu.l2_gb_per_s", 1e9),
        ),
        machine.Memory(
            name="memory",
            capacity_bytes=_bytes(fields, whole_gib, 2**30),
            usable_bytes=_bytes(fields, usable_gib, 2**30),
            bytes_per_s=_si(fields, "gpu.memory_gb_per_s", 1e9),
        ),
    )


def _host(fields: Fields) -> machine.Host:
    speed = fields.get("host.speed")
    return machine.Host(
        overheads=str(fields.get("host.overheads", "shared")),
        speed=None if speed is None else float(speed),
    )


def _host_link(fields: Fields) -> machine.HostLink:
    if "host_link.pcie_generation" not in fields:
        # The way from a CPU's memory to itself: what is copied stays there.
        rate = _si(fields, "gpu.memory_gb_per_s", 1e9)
        return machine.HostLink(
            name="none",
            h2d_bytes_per_s=rate,
            d2h_bytes_per_s=rate,
            pageable_bytes_per_s=rate,
            latency_s=0.0,
            peak_bytes_per_s=rate,
        )
    generation = int(fields["host_link.pcie_generation"])
    lanes = int(fields["host_link.pcie_lanes"])
    c2c = "host_link.c2c_gb_per_s" in fields
    h2d_bytes_per_s = _si(fields, "host_link.h2d_gb_per_s", 1e9)
    known = c2c or generation in sheet_fields.PCIE_GB_PER_S_PER_LANE
    name = "NVLink-C2C" if c2c else f"PCIe {generation} x{lanes}"
    return machine.HostLink(
        name="one memory"
        if fields.get(sheet_fields.MEMORY_OF) == sheet_fields.OF_HOST
        else name,
        h2d_bytes_per_s=h2d_bytes_per_s,
        d2h_bytes_per_s=_si(fields, "host_link.d2h_gb_per_s", 1e9),
        pageable_bytes_per_s=_si(fields, "host_link.pageable_gb_per_s", 1e9),
        latency_s=_si(fields, "host_link.latency_us", 1e-6),
        peak_bytes_per_s=sheet_fields.host_link_gb_per_s(fields) * 1e9
        if known
        else h2d_bytes_per_s,
    )


def _digest(name: str, fields: Fields) -> str:
    values = {
        key: value if isinstance(value, str) else float(value)
        for key, value in fields.items()
    }
    content = json.dumps({"name": name, "fields": values}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
