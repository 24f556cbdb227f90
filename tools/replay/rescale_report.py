"""The two forms of what `perfc rescale` says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from perfc.ir import Diagnostic
from perfc.passes.facts import Interval
from perfc.passes.timing import errors_of_interval, probabilities_best
from perfc.tools.replay.rescale import Method, Rescaled, Rescaling
from perfc.tools.reports import columns_text, format_percent

SCHEMA = "perfc.rescale/1"

_MEANING: Mapping[Method, str] = {
    Method.MODEL: "measured x model there / model here",
    Method.FACTS: "the same for copies and memsets, by their bytes",
    Method.TYPICAL: "the same of typical ones of their kind: sizes are not all told",
    Method.COLLECTIVE: "what is sent x model there / model here; waits as measured",
    Method.WAVE: "wave scaling",
    Method.KEPT: "as measured",
}


def rescale_json(
    rescaling: Rescaling, rescaled: Sequence[Rescaled], *, verbose: bool = False
) -> str:
    """Return `perfc.rescale/1`; *verbose* adds what each kernel was carried over by."""
    recorded = rescaling.ops.recorded
    trace = recorded.trace
    document = {
        "schema": SCHEMA,
        "trace": {
            "file": trace.file,
            "rank": trace.rank,
            "device": trace.device,
            "target": rescaling.origin.target.name,
        },
        "method": rescaling.method.value,
        "targets": [
            _target(rescaling, one, chance)
            | (_kernels_json(rescaling, one) if verbose else {})
            for one, chance in zip(rescaled, _chances(rescaled), strict=True)
        ],
        "diagnostics": [d.to_dict() for d in _diagnostics(rescaling, rescaled)],
    }
    return json.dumps(document, indent=2) + "\n"


_LEAST_US = 1e-3
"""Time of a trace that does nothing, of which no ratio is asked."""


def _chances(rescaled: Sequence[Rescaled]) -> list[float]:
    """Return how probable it is that a trace is the fastest on each target.

    Other hosts err together, as it is not said which they are; kernels do not, as they
    are carried over to each GPU by models of that one.
    """
    return probabilities_best(
        [
            errors_of_interval(
                max(one.replayed.simulated_us, _LEAST_US) * 1e-6, one.intervals.total
            )
            for one in rescaled
        ]
    )


def _target(rescaling: Rescaling, one: Rescaled, chance: float) -> dict[str, Any]:
    expected, intervals = one.replayed, one.intervals
    return {
        "target": one.target.name,
        "measured_us": expected.measured_us,
        "predicted_us": expected.simulated_us,
        **_ends_json(intervals.total),
        "uncertainty": {
            "session": intervals.host.session,
            "machine": intervals.host.machine,
            "device": intervals.device_sigma,
            "device_share": intervals.total.device_share,
        },
        "probability_best": chance,
        "speedup": _speedup(expected.measured_us, expected.simulated_us),
        "gpu_active_us": expected.gpu_active_us,
        "methods": _methods(rescaling, one),
        "steps": [
            {
                "name": step.name,
                "measured_us": step.measured_us,
                "predicted_us": step.simulated_us,
                **_ends_json(interval),
            }
            for step, interval in zip(expected.steps, intervals.steps, strict=True)
        ],
    }


def _ends_json(interval: Interval) -> dict[str, float]:
    return {
        "predicted_us_p05": interval.low_s * 1e6,
        "predicted_us_p95": interval.high_s * 1e6,
    }


@attrs.define
class _Kernels:
    """Equal kernels of one op that were carried over in one way.

    Attributes:
        name: The kernel, as the trace has it.
        op: The op that launched it, "" for none.
        method: How.
        by: The models on both GPUs, or the method.
        launches: How many.
        measured_s: What they took.
        predicted_s: What they take there.

    """

    name: str
    op: str
    method: str
    by: str
    launches: int = 0
    measured_s: float = 0.0
    predicted_s: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Predicted / measured."""
        return self.predicted_s / self.measured_s if self.measured_s else None


def _kernels(rescaling: Rescaling, one: Rescaled) -> list[_Kernels]:
    """Return kernels by name, op and method, what takes longest there first."""
    recorded = rescaling.ops.recorded
    op_of = {task: ops.op for ops in rescaling.ops.launches for task in ops.tasks}
    found: dict[tuple[str, ...], _Kernels] = {}
    for task, scaled in one.scaled.items():
        by = scaled.family or scaled.method.value
        key = (recorded.works[task].name, op_of.get(task, ""), scaled.method.value, by)
        own = found.setdefault(key, _Kernels(*key))
        own.launches += 1
        own.measured_s += recorded.graph.stated_s[task]
        own.predicted_s += scaled.seconds
    return sorted(found.values(), key=lambda own: (-own.predicted_s, own.name, own.op))


def _kernels_json(rescaling: Rescaling, one: Rescaled) -> dict[str, Any]:
    return {
        "kernels": [
            {
                "name": own.name,
                "op": own.op,
                "method": own.method,
                "by": own.by,
                "launches": own.launches,
                "measured_us": own.measured_s * 1e6,
                "predicted_us": own.predicted_s * 1e6,
            }
            for own in _kernels(rescaling, one)
        ]
    }


def _kernels_text(rescaling: Rescaling, one: Rescaled) -> str:
    header = (f"on {one.target.name}", "measured", "predicted", "ratio", "by", "op")
    rows: list[tuple[str, ...]] = [(*header, "kernel")]
    rows += [
        (
            f"{own.launches:,} launches",
            f"{own.measured_s * 1e3:,.3f} ms",
            f"{own.predicted_s * 1e3:,.3f} ms",
            "-" if own.ratio is None else f"{own.ratio:.2f}",
            own.by,
            own.op or "-",
            own.name if len(own.name) <= _WIDE else f"{own.name[:_WIDE]}…",
        )
        for own in _kernels(rescaling, one)
    ]
    return columns_text(rows)


_WIDE = 60
"""Characters of a kernel's name in a table."""


def _speedup(measured_us: float, predicted_us: float) -> float | None:
    return measured_us / predicted_us if predicted_us else None


def _methods(rescaling: Rescaling, one: Rescaled) -> dict[str, dict[str, float]]:
    """Return launches, times and share of the predicted device time by method."""
    stated_s = rescaling.ops.recorded.graph.stated_s
    total_s = math.fsum(task.seconds for task in one.scaled.values())
    found: dict[str, dict[str, float]] = {}
    for method in Method:
        own = {t: s for t, s in one.scaled.items() if s.method is method}
        predicted_s = math.fsum(s.seconds for s in own.values())
        found[method.value] = {
            "launches": len(own),
            "measured_us": math.fsum(stated_s[task] for task in own) * 1e6,
            "predicted_us": predicted_s * 1e6,
            "share": predicted_s / total_s if total_s else 0.0,
        }
    return found


def _diagnostics(
    rescaling: Rescaling, rescaled: Sequence[Rescaled]
) -> Iterator[Diagnostic]:
    said: dict[Diagnostic, None] = {}
    for diagnostics in (
        rescaling.ops.recorded.diagnostics,
        (d for d in rescaling.origin.diagnostics if d.code not in _SAID_ELSEWHERE),
        *(one.diagnostics for one in rescaled),
    ):
        said |= dict.fromkeys(diagnostics)
    yield from said


_SAID_ELSEWHERE = frozenset({"kernels-measured", "collectives-measured"})
"""Remarks about prices that are of no use here: another method takes over."""


def rescale_text(
    rescaling: Rescaling,
    rescaled: Sequence[Rescaled],
    *,
    quiet: bool = False,
    verbose: bool = False,
) -> str:
    """Return tables: targets and steps, methods, and what is missing.

    Args:
        rescaling: The trace.
        rescaled: What it takes on each target.
        quiet: Whether to leave out what is missing.
        verbose: Whether to say what each kernel was carried over by.

    """
    origin = rescaling.origin.target.name
    header = ("target", "step", f"on {origin}", "predicted", "90 %", "speed-up")
    several = len(rescaled) > 1
    rows: list[tuple[str, ...]] = [(*header, "P(fastest)") if several else header]
    for one, chance in zip(rescaled, _chances(rescaled), strict=True):
        expected, intervals = one.replayed, one.intervals
        whole = (expected.measured_us, expected.simulated_us)
        best = (format_percent(chance),) if several else ()
        rows.append((one.target.name, "all", *_cells(whole, intervals.total), *best))
        for step, interval in zip(expected.steps, intervals.steps, strict=True):
            times = (step.measured_us, step.simulated_us)
            rows.append(("", step.name, *_cells(times, interval), *("",) * several))
    blocks = [columns_text(rows)]
    blocks += [_methods_text(rescaling, one) for one in rescaled]
    blocks += [_kernels_text(rescaling, one) for one in rescaled if verbose]
    said = () if quiet else _diagnostics(rescaling, rescaled)
    notes = [remark.line for remark in said]
    return "\n\n".join(filter(None, [*blocks, "\n".join(notes)])) + "\n"


def _cells(times_us: tuple[float, float], interval: Interval) -> Iterator[str]:
    yield from (f"{us / 1e3:,.2f} ms" for us in times_us)
    yield f"{interval.low_s * 1e3:,.2f} to {interval.high_s * 1e3:,.2f} ms"
    speedup = _speedup(*times_us)
    yield "-" if speedup is None else f"{speedup:.2f}x"


def _methods_text(rescaling: Rescaling, one: Rescaled) -> str:
    header = (f"kernels on {one.target.name}", "share", "measured", "predicted", "")
    rows: list[tuple[str, ...]] = [header]
    for method, own in _methods(rescaling, one).items():
        if own["launches"]:
            rows.append(
                (
                    f"{own['launches']:,} launches",
                    f"{100 * own['share']:.1f} %",
                    f"{own['measured_us'] / 1e3:,.2f} ms",
                    f"{own['predicted_us'] / 1e3:,.2f} ms",
                    _MEANING[Method(method)],
                )
            )
    return columns_text(rows)
