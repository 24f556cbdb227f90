"""A report as text to read, at most 96 columns wide."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from perfc.costmodels import Device
from perfc.costmodels.machine import NEAR_ROWS
from perfc.ir.support import US, Json
from perfc.tools.cost import carbon_words, cost_words
from perfc.tools.models import common_place
from perfc.tools.reports import phase_table, rank_table
from perfc.tools.reports.numbers import (
    format_bytes,
    format_percent,
    format_quantity,
    format_share,
    format_us,
)
from perfc.tools.reports.weak_constants import WEAK_KINDS

if TYPE_CHECKING:
    from perfc.tools.reports.sensitivity import Sensitivity


_WIDTH = 96
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[KMG]iB|us\b|ms\b)")
_BAR_WIDTH = 24
_ROWS = 8
_FIXES = 6
_WORTH_FIXING = 0.005
_WORTH_SAYING = 0.03
_WEAK = {"assumed": "assumed", "single": "read off one case"}
_OP_WIDTH = 20
_WHERE_WIDTH = 18
_PLACE_WIDTH = 68
_HOST_LABELS = {
    "T1": "T1 between ops",
    "T2": "T2 op start to first launch",
    "T3": "T3 last launch to op end",
    "T4": "T4 in runtime calls",
    "T5": "T5 between launches, views",
}
_LABELS = {
    "kernel": "kernels: {}",
    "copy": "copies: {}",
    "comm": "communication: {}",
    "launch": "launch latency",
    "idle": "gaps between kernels",
    "sync": "synchronisation",
}
_COPIES = {"h2d": "host to device", "d2h": "device to host", "d2d": "on the device"}


@attrs.frozen
class Tables:
    """What a report says to people, before it is laid out.

    Attributes:
        title: What was asked.
        headline: Label, value and remark of each number about the iteration.
        breakdown: What the critical path is spent on, microseconds, and the share
            of the time, longest first.
        top_ops: A heading, and a row per kind of op, longest first; or nothing.
        to_fix: A heading, and a row per change that saves time, best first; or
            nothing.
        bottleneck: What limits the iteration, in words.
        phases: A heading, and a row per phase; or nothing, if there is only one.
        memory: What the peak is made of, bytes, and the share, largest first; or
            nothing, if there is only one phase.
        memory_at: Where the peak is: its phase and node.
        ranks: A heading, and a row per class of ranks; or nothing, of one GPU.
        slopes: What decides the time; None if that was not asked for.
        loading: A heading, and a row per stage of the input pipeline; or nothing.
        loading_at: How the stages follow each other, and what they add.
        kinds: What each row of the breakdown is, as segments of the path have it.

    """

    title: str
    headline: Sequence[tuple[str, str, str]]
    breakdown: Sequence[tuple[str, float, str]]
    top_ops: Sequence[tuple[str, ...]]
    to_fix: Sequence[tuple[str, ...]]
    bottleneck: str
    phases: Sequence[tuple[str, ...]]
    memory: Sequence[tuple[str, int, str]]
    memory_at: str
    ranks: Sequence[tuple[str, ...]]
    slopes: Sensitivity | None = None
    loading: Sequence[tuple[str, ...]] = ()
    loading_at: str = ""
    kinds: Mapping[str, str] = attrs.Factory(dict[str, str])


def report_tables(
    report: Json,
    device: Device,
    bound_share: float,
    slopes: Sensitivity | None = None,
) -> Tables:
    """Return the tables that a `perfc.report/1` shows to people.

    Args:
        report: The report.
        device: What it is of.
        bound_share: Share of the critical path spent on what bounds the time.
        slopes: What decides the time; None if that was not asked for.

    """
    rows, time_us = _merged(report["breakdown"]), report["summary"]["time_us"]
    model, target = report["model"], report["target"]
    batch = [] if model["batch"] is None else [f"batch {model['batch']}"]
    ranks = rank_table.world_size(report)
    count = model.get("microbatches", 1)
    batch += [f"{count:,} microbatches"] if count > 1 else []
    batch += [f"{ranks:,} ranks"] if ranks > 1 else []
    dtype = model["dtype"]
    if (tf32 := model.get("cudnn_tf32")) is not None:
        dtype += f", cuDNN in {'TF32' if tf32 else 'fp32'}"
    parts = [model["name"], *batch, model["mode"], dtype, target["name"]]
    parts += [report["runtime"], f"host profile {target['profile']}"]
    if target["calibration"] not in (None, target["profile"]):
        parts += [f"calibrated by {target['calibration']}"]
    parts += [f"preset {target['preset']}"] if "preset" in target else []
    return Tables(
        " · ".join(parts),
        list(_headline(report, device)),
        [(label, us, format_share(us, time_us)) for label, us in rows],
        _top_ops(report, name_of(device)),
        _to_fix(report),
        _bottleneck(report, rows, bound_share, name_of(device)),
        phase_table.phase_rows(report, name_of(device)),
        phase_table.memory_rows(report),
        phase_table.memory_place(report),
        rank_table.rank_rows(report),
        slopes,
        phase_table.loading_rows(report),
        phase_table.loading_place(report),
        {
            _label(row["kind"], row["detail"]): row["kind"]
            for row in report["breakdown"]
        },
    )


def name_of(device: Device) -> str:
    """Return the word for the device that computes."""
    return "device" if device.synchronous else "GPU"


def format_report(
    report: Json,
    device: Device,
    bound_share: float,
    slopes: Sensitivity | None = None,
) -> str:
    """Return a `perfc.report/1` as text: the time, where it goes, and why.

    The arguments are those of `report_tables`.
    """
    tables = report_tables(report, device, bound_share, slopes)
    time_us = report["summary"]["time_us"]
    lines = [*_wrapped(tables.title), ""]
    for label, value, remark in tables.headline:
        lines.append(f"  {label:<22} {value:>10}   {remark}")
    lines += ["", "Where the time goes (critical path)"]
    lines += _bars([row[:2] for row in tables.breakdown], time_us, format_us)
    if tables.loading:
        lines += ["", *_wrapped(tables.loading_at)]
        lines += _columns(tables.loading, "<<>>>>>")
    if tables.phases:
        lines += ["", "Phases of the step", *_columns(tables.phases, "<>>>>>>")]
        place = _cut_start(tables.memory_at, _PLACE_WIDTH)
        lines += ["", f"Device memory at its peak: {place}"]
        rows = [row[:2] for row in tables.memory]
        lines += _bars(rows, report["memory"]["peak_bytes"], format_bytes)
    if tables.ranks:
        lines += ["", "Ranks", *_columns(tables.ranks, "<<>>>>>>>")]
    lines += ["", "Top ops by device time"]
    lines += _columns(tables.top_ops, "<<<>><") or ["  none"]
    if tables.to_fix:
        lines += ["", "What to fix next", *_columns(tables.to_fix, "<<<>>>")]
    if slopes is not None and slopes.table:
        lines += ["", slopes.title, *_columns(slopes.table, "<<>><")]
    lines += ["", *_wrapped(f"Bottleneck: {tables.bottleneck}")]
    lines += _remarks(report["diagnostics"])
    return "\n".join(lines) + "\n"


def _headline(report: Json, device: Device) -> Iterator[tuple[str, str, str]]:
    summary, batch = report["summary"], report["model"]["batch"]
    time_us, busy_us = summary["time_us"], summary["gpu_active_us"]
    low, high = format_us(summary["time_us_p05"]), format_us(summary["time_us_p95"])
    interval = f"90 % interval {low} to {high}"
    if batch and time_us:
        rate = float(f"{batch / time_us * 1e6:.3g}")
        interval += f", {rate:,.10g} samples/s{_of_which(report)}"
    peak = summary["peak_memory_bytes"]
    usable = format_bytes(device.memory.usable_bytes)
    of_memory = f"of {usable}; {_memory(report['memory'])}"
    launches = f"{summary['launches']:,} kernels and copies"
    for label, value, remark in (
        ("time of one iteration", format_us(time_us), interval),
        ("of which device alone", *_device_alone(summary)),
        (
            f"{name_of(device)} busy",
            format_us(busy_us),
            f"{format_share(busy_us, time_us)} of the time, {launches}",
        ),
        ("communication", *rank_table.communication(report)),
        (
            "host busy",
            format_us(summary["host_us"]),
            f"{format_share(summary['host_us'], time_us)} of the time",
        ),
        (
            "work",
            format_quantity(summary["flops"], "FLOP"),
            f"{format_quantity(summary['bytes'], 'B')} moved",
        ),
        ("tokens a second", *_tokens(summary)),
        ("power", *_power(report)),
        ("device memory", format_bytes(peak), peak and of_memory),
        ("device times are", "", _provenance(report["coverage"])),
        ("they rest on", "", _weak_constants(report["coverage"])),
        ("cost", *cost_words(report, rank_table.world_size(report))),
        ("carbon", *carbon_words(report)),
    ):
        if remark:
            yield label, value, remark


def _device_alone(summary: Json) -> tuple[str, str]:
    """Return the time of the device alone and its share in words; "" on a CPU."""
    alone_us = summary["device_only_us"]
    if alone_us is None:
        return "", ""
    share = format_share(alone_us, summary["time_us"])
    return format_us(alone_us), f"{share} of the time, if the host took none"


def _tokens(summary: Json) -> tuple[str, str]:
    rate, mfu = summary["tokens_per_s"], summary["mfu"]
    if rate is None:
        return "", ""
    share = "unknown" if mfu is None else format_percent(mfu)
    return f"{float(f'{rate:.3g}'):,.10g}", f"of all ranks; MFU {share}"


def _power(report: Json) -> tuple[str, str]:
    """Return mean watts of a rank, and joules, samples for each and clock in words.

    Where boards have not been measured they are those of the nodes, by their sheets.
    """
    summary = report["summary"]
    joules, per_joule = summary["energy_j"], summary["samples_per_j"]
    if joules is None:
        return "", ""
    watts = joules * US / summary["time_us"] / rank_table.world_size(report)
    parts = [f"{format_quantity(joules, 'J')} an iteration"]
    parts += [f"{per_joule:.3g} samples/J"] if per_joule else []
    clock_mhz = summary["sm_clock_mhz"]
    by_node = "by the watts of the node's sheet"
    parts.append(f"mean SM clock {clock_mhz:,.0f} MHz" if clock_mhz else by_node)
    return f"{watts:.0f} W", ", ".join(parts)


def _of_which(report: Json) -> str:
    """Say whose batch the samples are: GPUs that share the work have one together."""
    replicas = report["model"]["replicas"]
    if replicas == 1:
        return ""
    if replicas == rank_table.world_size(report):
        return " each"
    return f" in each of {replicas:,} replicas"


def _memory(memory: Json) -> str:
    where = memory["at_node"]
    peak = f"peak at {_cut_start(where, _WHERE_WIDTH)}, " if where else ""
    return f"{peak}{format_bytes(memory['reserved_bytes'])} reserved"


def _provenance(coverage: Json) -> str:
    times: dict[str, float] = coverage["time_by_provenance"]
    total_us = math.fsum(times.values())
    ranked = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{format_share(time_us, total_us)} {name}" for name, time_us in ranked]
    unknown = sum(coverage["unknown_ops"].values())
    if unknown:
        parts.append(f"{unknown} x unknown op")
    return ", ".join(parts)


def _weak_constants(coverage: Json) -> str:
    """Say how much of the device's time no rows hold, if that is worth a line."""
    total_us = math.fsum(coverage["time_by_provenance"].values())
    times: dict[str, float] = coverage["time_by_weakest_constant"]
    if math.fsum(times.values()) <= _WORTH_SAYING * total_us:
        return ""
    shares = [
        f"{_WEAK[kind]} for {format_share(times[kind], total_us)}"
        for kind in WEAK_KINDS
        if kind in times
    ]
    return f"constants that were {', '.join(shares)}"


def _merged(breakdown: Sequence[Json]) -> list[tuple[str, float]]:
    """Return labels and microseconds, largest first; equal labels are one row."""
    sums_us: dict[str, float] = {}
    for row in breakdown:
        label = _label(row["kind"], row["detail"])
        sums_us[label] = sums_us.get(label, 0.0) + row["time_us"]
    return sorted(sums_us.items(), key=lambda item: -item[1])


def _label(kind: str, detail: str) -> str:
    if kind == "host":
        return f"host: {_HOST_LABELS.get(detail, detail)}"
    return _LABELS[kind].format(_COPIES.get(detail, detail))


def _bars(
    rows: Sequence[tuple[str, float]], total: float, written: Callable[[float], str]
) -> Iterator[str]:
    if not rows:
        yield "  nothing takes time"
        return
    shown, rest = list(rows[:_ROWS]), rows[_ROWS:]
    if rest:
        shown.append((f"{len(rest)} more", math.fsum(amount for _, amount in rest)))
    longest = max(amount for _, amount in shown)
    for label, amount in shown:
        bar = "█" * round(_BAR_WIDTH * amount / longest)
        share = format_share(amount, total)
        yield f"  {label:<36} {written(amount):>9} {share:>6}  {bar}".rstrip()


def _top_ops(report: Json, device: str) -> list[tuple[str, ...]]:
    """One row per kind of op: those that do the same work in the same time."""
    rank = rank_table.critical_rank(report)
    groups: dict[tuple[object, ...], list[Json]] = {}
    keys = ("op", "flops", "bytes", "duration_us", "cost_model", "provenance")
    for node in report["nodes"]:
        if node["stream"] and node["rank"] == rank:
            groups.setdefault(tuple(node[key] for key in keys), []).append(node)
    times = [(len(nodes) * nodes[0]["duration_us"], nodes) for nodes in groups.values()]
    times.sort(key=lambda item: -item[0])
    rows: list[tuple[str, ...]] = [
        ("op", "where", "", "time", f"of {device}", "priced by")
    ]
    for time_us, nodes in times[:_ROWS]:
        first, count = nodes[0], len(nodes)
        rows.append(
            (
                first["op"],
                common_place([node["module"] or node["id"] for node in nodes]),
                f"x {count}" if count > 1 else "",
                format_us(time_us),
                _share_of(time_us, report["summary"]["gpu_active_us"]),
                _priced_by(first),
            )
        )
    return rows if times else []


def _share_of(time_us: float, active_us: float) -> str:
    """Return a share of the device's time; what others do beside it may be more."""
    return "beside" if time_us > active_us else format_share(time_us, active_us)


def _priced_by(node: Json) -> str:
    """Return the model and what kind of number it is; the rows are for JSON."""
    model, near, _ = node["cost_model"].partition(NEAR_ROWS)
    provenance: str = node["provenance"]
    if model == provenance:
        return provenance
    return f"{model}{' between rows' if near else ''} ({provenance})"


def _to_fix(report: Json) -> list[tuple[str, ...]]:
    """What saves most; less than half a percent of the time is not worth a row."""
    least_us = report["summary"]["time_us"] * _WORTH_FIXING
    rows: list[tuple[str, ...]] = [
        ("", "where", "", "saves", "2x faster", "at its bound")
    ]
    for row in report["what_if"]["ranked"]:
        if row["saved_us"] < least_us or len(rows) > _FIXES:
            break
        count = len(row["nodes"])
        savings_us = (row["saved_us"], row["saved_2x_us"], row["saved_at_bound_us"])
        rows.append(
            (
                row["what"],
                row["where"],
                f"x {count}" if count > 1 else "",
                *("" if us is None else format_us(us) for us in savings_us),
            )
        )
    return rows if rows[1:] else []


def _columns(rows: Sequence[Sequence[str]], alignment: str) -> list[str]:
    """Lay rows out; ops lose their end and places their start to fit the width."""
    if not rows:
        return []
    _, _, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    ops = [_cut(row[0], _OP_WIDTH) for row in rows]
    room = _WIDTH - max(map(len, ops)) - sum(others) - 2 * len(alignment)
    places = [_cut_start(row[1], room) for row in rows]
    shown = [
        (op, place, *row[2:]) for op, place, row in zip(ops, places, rows, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines: list[str] = []
    for row in shown:
        cells = zip(row, alignment, widths, strict=True)
        padded = [f"{cell:{side}{width}}" for cell, side, width in cells]
        lines.append(f"  {'  '.join(padded)}".rstrip())
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _cut_start(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[1 - width :]}"


def _bottleneck(
    report: Json, rows: Sequence[tuple[str, float]], bound_share: float, device: str
) -> str:
    """Say what limits the iteration."""
    if not rows:
        return "there is nothing to run."
    summary = report["summary"]
    time_us = summary["time_us"]
    of_path = f"{format_percent(bound_share)} of the critical path"
    idle = f"the {device} has nothing to do "
    idle += format_share(summary["gpu_idle_us"], time_us)
    subject = {
        "host": f"the host, {of_path}; {idle} of the time",
        "memory": f"moving bytes, {of_path}",
        "compute": f"arithmetic, {of_path}",
        "network": f"communication between GPUs, {of_path}",
    }[summary["bound"]]
    label, largest_us = rows[0]
    return (
        f"{subject}. The longest row is {label} ({format_share(largest_us, time_us)})."
    )


def _remarks(diagnostics: Iterable[Json]) -> Iterator[str]:
    for number, remark in enumerate(diagnostics):
        if number == 0:
            yield ""
        message = " ".join(remark["message"].split())
        text = f"{remark['level'].capitalize()}: {message} [{remark['code']}]"
        yield from _wrapped(text)


def _wrapped(text: str) -> list[str]:
    joined = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(
        joined, _WIDTH, subsequent_indent="  ", break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
