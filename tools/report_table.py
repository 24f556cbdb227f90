"""A report as text to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfc.ir import Level

if TYPE_CHECKING:
    from perfc.tools.report import Report

_BAR_WIDTH = 24
_ROWS = 8
_PERCENT = 100
_LABELS = {
    "T1": "T1 between ops",
    "T2": "T2 op start to first launch",
    "T3": "T3 last launch to op end",
    "T4": "T4 launch calls",
    "T5": "T5 between launches",
    "kernel": "kernels",
    "copy": "copies",
    "launch": "launch latency",
    "idle": "gap on the stream",
    "sync": "synchronisation",
    "comm": "communication",
}


def format_report(report: Report) -> str:
    """Return the report as text: the time, where it goes, top ops, and why."""
    lines = [_title(report), ""]
    lines += _headline(report)
    lines += ["", "Where the time goes (critical path)"]
    lines += _breakdown_rows(report)
    lines += ["", "Top ops by device time"]
    lines += _op_rows(report)
    lines += ["", f"Bottleneck: {bottleneck(report)}"]
    lines += _remarks(report)
    return "\n".join(lines) + "\n"


def _title(report: Report) -> str:
    parts = [report.model.name]
    if report.model.batch is not None:
        parts.append(f"batch {report.model.batch}")
    parts += ["inference", report.dtype, f"on {report.target.name}", report.runtime]
    return " · ".join([*parts, f"host profile {report.profile}"])


def _headline(report: Report) -> Iterator[str]:
    summary = report.summary
    low_us, high_us = report.interval_us
    time_us = report.time_us
    rate = ""
    if report.model.batch and time_us:
        rate = f"   {report.model.batch / time_us * 1e6:,.0f} samples/s"
    interval = f"90 % interval {format_us(low_us)} to {format_us(high_us)}"
    yield f"  time of one iteration  {format_us(time_us):>10}   {interval}{rate}"
    yield f"  GPU busy               {format_us(summary['gpu_active_us']):>10}   " + (
        _share(summary["gpu_active_us"], time_us)
        + f" of the time, {summary['launches']} launches"
    )
    yield f"  host busy              {format_us(summary['host_us']):>10}   " + (
        _share(summary["host_us"], time_us) + " of the time"
    )
    yield (
        f"  work                   {format_quantity(summary['flops'], 'FLOP'):>10}   "
        f"{format_quantity(summary['bytes'], 'B')} moved"
    )
    peak = summary["peak_memory_bytes"] / 2**30
    yield (
        f"  memory                 {peak:>6.2f} GiB   of "
        f"{report.target.device.memory.usable_bytes / 2**30:.1f} GiB"
    )


def _breakdown_rows(report: Report) -> Iterator[str]:
    rows = report.breakdown
    if not rows:
        yield "  nothing to do"
        return
    shown, rest = rows[:_ROWS], rows[_ROWS:]
    longest_us = max(row["time_us"] for row in rows)
    for row in shown:
        yield _bar_row(_label(row), row["time_us"], report.time_us, longest_us)
    if rest:
        rest_us = sum(row["time_us"] for row in rest)
        label = f"{len(rest)} more"
        yield _bar_row(label, rest_us, report.time_us, longest_us)


def _label(row: dict[str, Any]) -> str:
    kind, detail = row["kind"], row["detail"]
    if kind in ("kernel", "copy", "comm"):
        return f"{_LABELS[kind]}: {detail}"
    if kind == "host":
        return f"host: {_LABELS.get(detail, detail)}"
    return _LABELS.get(kind, kind)


def _bar_row(label: str, time_us: float, total_us: float, longest_us: float) -> str:
    length = round(_BAR_WIDTH * time_us / longest_us) if longest_us else 0
    bar = "█" * length
    share = _share(time_us, total_us)
    return f"  {label:<36} {format_us(time_us):>10} {share:>6}  {bar}".rstrip()


def _op_rows(report: Report) -> Iterator[str]:
    device = [n for n in report.nodes if n["stream"]]
    ranked = sorted(device, key=lambda n: (-n["duration_us"], n["start_us"]))[:_ROWS]
    if not ranked:
        yield "  none"
        return
    busy_us = report.summary["gpu_active_us"]
    yield "  " + _columns("op", "where", "time", "of GPU", "priced by")
    for node in ranked:
        where = node["module"] or node["id"]
        time = format_us(node["duration_us"])
        share = _share(node["duration_us"], busy_us)
        model = f"{node['cost_model']} ({node['provenance']})"
        yield "  " + _columns(node["op"], where, time, share, model)


def _columns(op: str, where: str, time: str, share: str, model: str) -> str:
    return f"{_cut(op, 34):<34} {_cut(where, 20):<20} {time:>10} {share:>7}  {model}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[1 - width :]


def bottleneck(report: Report) -> str:
    """Say in one sentence what limits the iteration."""
    rows = report.breakdown
    if not rows:
        return "there is nothing to run."
    bound = report.summary["bound"]
    top = rows[0]
    share = _share(top["time_us"], report.time_us)
    busy = _share(report.summary["gpu_active_us"], report.time_us)
    subject = {
        "host": f"the host: the GPU is busy only {busy} of the time",
        "memory": f"memory traffic: the GPU is busy {busy} of the time, moving bytes",
        "compute": f"arithmetic: the GPU is busy {busy} of the time, computing",
        "network": "communication between GPUs",
    }[bound]
    return f"{subject}; the largest part is {_label(top)} ({share})."


def _remarks(report: Report) -> Iterator[str]:
    if report.diagnostics:
        yield ""
    for remark in report.diagnostics:
        prefix = "Warning" if remark.level is Level.WARNING else "Note"
        yield f"{prefix}: {remark.message} [{remark.code}]"


def _share(part: float, whole: float) -> str:
    return f"{_PERCENT * part / whole:.0f} %" if whole else "0 %"


def format_us(time_us: float) -> str:
    """Write a time with three significant digits and a fitting unit."""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= scale:
            return f"{_digits(time_us / scale)} {unit}"
    return f"{_digits(time_us)} us"


def format_quantity(amount: float, unit: str) -> str:
    """Write an amount with a decimal prefix."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= scale:
            return f"{_digits(amount / scale)} {prefix}{unit}"
    return f"{_digits(amount)} {unit}"


def _digits(value: float) -> str:
    magnitudes: Sequence[tuple[float, int]] = ((100, 0), (10, 1))
    for limit, decimals in magnitudes:
        if value >= limit:
            return f"{value:.{decimals}f}"
    return f"{value:.2f}"
