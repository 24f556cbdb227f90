"""Predict everything that the plan measures, by the perfc of this checkout."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from collection.gpu import device_of
from collection.plan import Planned, passes
from collection.predicted import (
    INPUTS,
    CallCount,
    KernelKey,
    KernelPrediction,
    Prediction,
    rounded,
)
from perfc.costmodels import Estimate, load_target
from perfc.costmodels.kernels import Floats
from perfc.fitting.scores import Z90
from perfc.ir import Kernel, Record
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import US
from perfc.measure.case import Case
from perfc.measure.models import Setting, find_subject
from perfc.passes import task_mask
from perfc.passes.timing import kernel_numbers
from perfc.tools import Model, Report, Results, analyze, conversions, load

TARGETS = ("h100-sxm-80g", "h200-sxm-141g")


class Call(Protocol):
    """A call of PyTorch that an iteration makes."""

    @property
    def case(self) -> Case | None:
        """What the suite `workloads` measures of it, if anything runs it alone."""
        ...

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """What it launches."""
        ...


CallsOf: TypeAlias = Callable[[Report, int], Sequence[Call]]
"""Tells the calls of an iteration from its report and the samples in the batch."""


def predict_all(
    calls_of: CallsOf, settings: Sequence[Planned], targets: Sequence[str] = TARGETS
) -> tuple[list[Prediction], list[KernelPrediction], list[CallCount]]:
    """Predict settings, each of their calls alone, and how often each makes each.

    A call is priced as the first setting that makes it has it.

    Args:
        calls_of: Tells the calls of an iteration.
        settings: What to predict.
        targets: On what: all settings on each.

    Raises:
        PerfcError: something cannot be predicted.

    """
    workloads: list[Prediction] = []
    kernels: list[KernelPrediction] = []
    counts: list[CallCount] = []
    for target in targets:
        rows: dict[KernelKey, int] = {}
        for setting in settings:
            name, params = subject_on(setting, target)
            report = _report(name, params, setting, target)
            for key, calls in _by_case(calls_of(report, setting.batch)).items():
                if key not in rows:
                    rows[key] = len(kernels)
                    kernels.append(predicted_call(report, key, calls[0].kernels))
                counts.append(
                    CallCount(
                        workload=len(workloads), kernel=rows[key], count=len(calls)
                    )
                )
            workloads.append(_prediction(report, name, params, setting))
    return workloads, kernels, counts


def _by_case(calls: Sequence[Call]) -> dict[KernelKey, list[Call]]:
    """Return the calls that can be measured alone, by what is measured."""
    found: defaultdict[KernelKey, list[Call]] = defaultdict(list)
    for call in calls:
        if call.case is not None:
            found[call.case.op, call.case.dtype, call.case.params].append(call)
    return found


def predicted(setting: Planned, target: str) -> Prediction:
    """Predict one iteration of a setting on a target.

    Raises:
        PerfcError: it cannot be predicted.

    """
    name, params = subject_on(setting, target)
    return _prediction(_report(name, params, setting, target), name, params, setting)


def subject_on(setting: Planned, target: str) -> tuple[str, Record]:
    """Return the model of a setting and its parameters as a measured row has them.

    They are those of its twin, which may be others than `perfc analyze` takes if none
    are given, with tables cut where they do not fit into the target's memory.
    """
    subject = find_subject(setting.model)
    asked = Setting(
        batch=setting.batch,
        mode=setting.mode,
        optimizer=setting.optimizer,
        dtype=setting.dtype,
        runtime=setting.runtime,
        inputs=INPUTS,
    )
    return subject.name, subject.params_on(device_of(load_target(target)), asked)


@functools.cache
def _report(name: str, params: Record, setting: Planned, target: str) -> Report:
    text = ",".join(f"{key}={value}" for key, value in params.items())
    what = (setting.batch, setting.mode, setting.optimizer, setting.dtype)
    model = _loaded(f"{name}:{text}", *what)
    return analyze(
        model,
        target,
        runtime=setting.runtime,
        dtype=setting.dtype,
        inputs=INPUTS,
        passes=passes(setting.dtype),
    )


@functools.lru_cache(maxsize=1)  # settings of other runtimes follow each other
def _loaded(text: str, batch: int, mode: str, optimizer: str, dtype: str) -> Model:
    return load(
        text,
        batch=batch,
        mode=mode,
        optimizer=optimizer or None,
        transforms=conversions(dtype),
    )


def _prediction(
    report: Report, name: str, params: Record, setting: Planned
) -> Prediction:
    summary = report.summary
    active_us = float(summary["gpu_active_us"])
    low, high = _interval(_active_sigma(report.results))
    return Prediction(
        target=report.target.name,
        model=name,
        params=params,
        mode=setting.mode,
        runtime=setting.runtime,
        dtype=setting.dtype,
        batch=setting.batch,
        optimizer=setting.optimizer,
        inputs=INPUTS,
        attention=setting.attention,
        predicted_attention=_attention(report.results),
        time_us=rounded(summary["time_us"]),
        time_us_p05=rounded(summary["time_us_p05"]),
        time_us_p95=rounded(summary["time_us_p95"]),
        gpu_active_us=rounded(active_us),
        gpu_active_us_p05=rounded(active_us * low),
        gpu_active_us_p95=rounded(active_us * high),
        peak_memory_bytes=round(summary["peak_memory_bytes"]),
        launches=int(summary["launches"]),
        bound=str(summary["bound"]),
    )


def _attention(results: Results) -> str:
    """Return the algorithms of the attention kernels, in words."""
    kernels = (kernel for graph in results.graphs for kernel in graph.kernels)
    found = {str(k.params["algorithm"]) for k in kernels if k.op == "attention"}
    return " and ".join(sorted(found))


def _active_sigma(results: Results) -> float:
    """Return the relative uncertainty of the time that the device works, one rank's."""
    (hosted,), (costs,) = results.hosted, results.costs
    kernel = kernel_numbers(hosted.graph)
    chosen = np.flatnonzero(task_mask(hosted.graph, BUSY_KINDS) & (kernel >= 0))
    durations_s = results.class_tasks(results.schedule.durations_s, 0)
    seconds = np.zeros(len(costs))
    np.add.at(seconds, kernel[chosen], durations_s[chosen])
    return _sigma(seconds, costs)


def _sigma(seconds: Floats, costs: Estimate) -> float:
    """Return the relative uncertainty of a sum of kernels.

    As the pass `time-interval` has it for a whole step: what the kernels of one cost
    model share adds up, as does what all launches of one signature do; models and
    signatures err independently.

    Args:
        seconds: What all launches of each signature take, shape (signatures,).
        costs: Of each signature.

    """
    shared: defaultdict[str, float] = defaultdict(float)
    moved: list[float] = (seconds * costs.sigma_common).tolist()
    for name, each in zip(costs.model, moved, strict=True):
        shared[name] += each
    own = float(np.linalg.norm(seconds * costs.sigma_independent))
    return math.hypot(own, *shared.values()) / float(seconds.sum())


def _interval(sigma: float) -> tuple[float, float]:
    """Return the ends of a 90 % interval over the estimate, which is log-normal."""
    return math.exp(-Z90 * sigma), math.exp(Z90 * sigma)


def predicted_call(
    report: Report, key: KernelKey, kernels: Sequence[Kernel]
) -> KernelPrediction:
    """Predict a call alone, of the kernels that it launches.

    Timed in the replay of a CUDA graph, a gap follows each of them.
    """
    (graph,), (costs,) = report.results.graphs, report.results.costs
    counts = Counter(map(graph.kernels.index, kernels))
    seconds = np.zeros(len(costs))
    for number, count in counts.items():
        seconds[number] = count * costs.seconds[number]
    kernel_us = float(seconds.sum()) * US
    gaps_us = len(kernels) * report.target.device.graph_gap_s * US
    low, high = _interval(_sigma(seconds, costs))
    op, dtype, params = key
    return KernelPrediction(
        target=report.target.name,
        op=op,
        dtype=dtype,
        params=params,
        kernel_us=rounded(kernel_us),
        kernel_us_p05=rounded(kernel_us * low),
        kernel_us_p95=rounded(kernel_us * high),
        graph_us=rounded(kernel_us + gaps_us),
        graph_us_p05=rounded(kernel_us * low + gaps_us),
        graph_us_p95=rounded(kernel_us * high + gaps_us),
    )
