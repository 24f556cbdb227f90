"""How far predictions are off what a folder of collected rows says.

Whole steps, the time that the GPU is busy, and kernels alone are compared with their
own predictions. Composition is what is left if kernels are known: the predicted
GPU-active time, with every kernel of the suite that was measured alone put in place of
its price, against the GPU-active time that was measured.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np

from collection.collected import Collected, Note
from collection.predicted import (
    KernelKey,
    KernelPrediction,
    Key,
    Prediction,
    Predictions,
    setting_text,
)
from perfc.fitting.errors import Errors, errors_of
from perfc.ir import PerfcError

ALL = "all"
STEPS, ACTIVE, KERNELS = "whole steps", "GPU-active time", "kernels alone"
COMPOSED, SUMMED, LAUNCHES = "composition", "kernels summed", "launches"

_FAMILIES = {
    "bert": "BERT",
    "dcnv2": "DCNv2",
    "deepfm": "DeepFM",
    "deeprecsys": "DeepRecSys",
    "dlrm": "DLRM",
    "gpt2": "GPT-2",
    "inception": "Inception-v3",
    "resnet50": "ResNet-50",
    "wide": "Wide & Deep",
}
"""Families of models, by the first word of a model's name."""


@attrs.frozen
class Pair:
    """One number that was predicted and measured.

    Attributes:
        groups: What it is scored with.
        predicted: Above 0, in the unit of the other.
        measured: Above 0.
        interval: Of the prediction, 90 %, if it has one.

    """

    groups: tuple[str, ...]
    predicted: float
    measured: float
    interval: tuple[float, float] | None = None


@attrs.frozen
class Line:
    """The score of one group.

    Attributes:
        what: Which numbers.
        group: Which of them.
        errors: How far they are off.
        coverage90: Share inside the 90 % intervals; None without intervals.
        width90: Median of the interval's width over the prediction; likewise.

    """

    what: str
    group: str
    errors: Errors
    coverage90: float | None
    width90: float | None


@attrs.frozen
class Score:
    """What came of a folder.

    Attributes:
        target: What was measured.
        made: Manifest of the predictions.
        lines: The scores.
        notes: What was left out and why, and what there is to know.

    """

    target: str
    made: Mapping[str, Any]
    lines: Sequence[Line]
    notes: Sequence[Note]


def score(rows: Collected, predictions: Predictions) -> Score:
    """Score the rows of a folder.

    Args:
        rows: What was measured.
        predictions: For several targets.

    Raises:
        PerfcError: nothing was predicted for the target.

    """
    scorer = _Scorer.of(rows, predictions)
    found = scorer.pairs()
    lines = [line for what, pairs in found.items() for line in lines_of(what, pairs)]
    notes = [*rows.notes, *scorer.unmatched(), *scorer.notes]
    return Score(rows.target, predictions.manifest, lines, notes)


def pairs_of(rows: Collected, predictions: Predictions) -> Mapping[str, list[Pair]]:
    """Return the pairs that a folder is scored by, of each kind of number.

    Args:
        rows: What was measured.
        predictions: For several targets.

    Raises:
        PerfcError: nothing was predicted for the target.

    """
    return _Scorer.of(rows, predictions).pairs()


def lines_of(what: str, pairs: Sequence[Pair]) -> Iterator[Line]:
    """Yield the score of each group, then of all; of no pairs nothing."""
    names = sorted({*chain.from_iterable(pair.groups for pair in pairs)}, key=_rank)
    for group in (*names, ALL):
        chosen = [pair for pair in pairs if group in (ALL, *pair.groups)]
        predicted = np.array([pair.predicted for pair in chosen])
        measured = np.array([pair.measured for pair in chosen])
        errors = errors_of(predicted, measured)
        if errors is not None:
            yield Line(what, group, errors, *_coverage(chosen))


def _rank(group: str) -> tuple[bool, str]:
    """Put the runtimes, which all models share, behind the models."""
    return group in ("eager", "cudagraph"), group.lower()


def _coverage(pairs: Sequence[Pair]) -> tuple[float | None, float | None]:
    """Return the share of pairs inside their intervals, and the median width."""
    inside: list[bool] = []
    widths: list[float] = []
    for pair in pairs:
        if pair.interval is not None:
            low, high = pair.interval
            inside.append(low <= pair.measured <= high)
            widths.append((high - low) / pair.predicted)
    if not inside:
        return None, None
    return statistics.fmean(inside), statistics.median(widths)


def family_of(model: str) -> str:
    """Return the family that a model is scored with."""
    return _FAMILIES.get(model.partition("-")[0], model)


def _groups(row: Prediction) -> tuple[str, ...]:
    return family_of(row.model), row.runtime


@attrs.define
class _Scorer:
    """Pairs what was predicted with what was measured.

    Attributes:
        rows: What was measured.
        planned: What was predicted for its target.
        kernels: Predictions of the suite, by kernel.
        calls: How often each kernel of the suite is in a setting.
        notes: What could not be paired.

    """

    rows: Collected
    planned: Sequence[Prediction]
    kernels: Mapping[KernelKey, KernelPrediction]
    calls: Mapping[Key, Mapping[KernelKey, int]]
    notes: list[Note] = attrs.field(factory=list[Note], init=False)

    @classmethod
    def of(cls, rows: Collected, predictions: Predictions) -> _Scorer:
        """Return the scorer of a folder; it must be of a target with predictions."""
        mine = [row for row in predictions.workloads if row.target == rows.target]
        if not mine:
            targets = ", ".join(dict.fromkeys(p.target for p in predictions.workloads))
            msg = (
                f"{rows.folder} is of {rows.target}; predicted were {targets or 'none'}"
            )
            raise PerfcError(msg)
        kernels = {k.key: k for k in predictions.kernels if k.target == rows.target}
        return cls(rows, mine, kernels, predictions.calls(rows.target))

    @property
    def settings(self) -> list[Prediction]:
        """Predictions that have a row."""
        return [row for row in self.planned if row.key in self.rows.steps]

    def pairs(self) -> dict[str, list[Pair]]:
        """Pair all kinds of numbers."""
        return {
            STEPS: self.steps(),
            ACTIVE: self.active(),
            KERNELS: self.kernels_alone(),
            **self.composition(),
            LAUNCHES: self.launches(),
        }

    def unmatched(self) -> Iterator[Note]:
        """Say what has no row, and what rows nobody predicted."""
        return _unmatched(self.rows, self.planned, self.kernels)

    def steps(self) -> list[Pair]:
        """Pair the wall times of whole iterations."""
        return [
            Pair(
                _groups(row),
                row.time_us,
                self.rows.steps[row.key].time_us,
                (row.time_us_p05, row.time_us_p95),
            )
            for row in self.settings
        ]

    def active(self) -> list[Pair]:
        """Pair the times that the GPU is busy."""
        pairs: list[Pair] = []
        unknown: list[str] = []
        above: list[str] = []
        for row in self.settings:
            measured = self.rows.steps[row.key]
            if not measured.gpu_active_us:
                unknown.append(str(row))
                continue
            if measured.gpu_active_us > measured.time_us:
                above.append(str(row))
            interval = (row.gpu_active_us_p05, row.gpu_active_us_p95)
            active_us = measured.gpu_active_us
            pairs.append(Pair(_groups(row), row.gpu_active_us, active_us, interval))
        self._note(f"{ACTIVE}, left out: not measured", unknown)
        self._note("the GPU was busy for longer than the iteration took", above)
        return pairs

    def kernels_alone(self) -> list[Pair]:
        """Pair the kernels of the suite, as each was timed."""
        pairs: list[Pair] = []
        for (timing, key), row in self.rows.kernels.items():
            kernel = self.kernels.get(key)
            if kernel is not None:
                predicted, low, high = _as_timed(kernel, timing)
                groups = (f"{row.op} {row.dtype}",)
                pairs.append(Pair(groups, predicted, row.latency_us, (low, high)))
        return pairs

    def composition(self) -> dict[str, list[Pair]]:
        """Pair GPU-active times as measured kernels make them, and sums of kernels."""
        composed: list[Pair] = []
        summed: list[Pair] = []
        shares: list[float] = []
        without: list[str] = []
        for row in self.settings:
            active_us = self.rows.steps[row.key].gpu_active_us
            predicted, measured = self._sums(self.calls.get(row.key, {}))
            if not active_us:
                continue  # noted with the time itself
            if not measured:
                without.append(str(row))
                continue
            summed.append(Pair(_groups(row), predicted, measured))
            shares.append(min(predicted / row.gpu_active_us, 1.0))
            rest = max(row.gpu_active_us - predicted, 0.0)
            composed.append(Pair(_groups(row), rest + measured, active_us))
        self._note(
            f"{COMPOSED}, left out: no kernel of the suite was measured", without
        )
        if shares:
            middle, least = statistics.median(shares), min(shares)
            reason = (
                f"{COMPOSED}: {middle:.0%} of the GPU-active time are measured kernels "
                f"in the median, {least:.0%} at least; the rest is as predicted"
            )
            self.notes.append(Note(reason, len(shares)))
        return {COMPOSED: composed, SUMMED: summed}

    def _sums(self, counts: Mapping[KernelKey, int]) -> tuple[float, float]:
        """Return times of some kernels in us, predicted and measured; 0 if none was."""
        predicted = measured = 0.0
        for key, count in counts.items():
            kernel, alone_us = self.kernels.get(key), self._alone_us(key)
            if kernel is not None and alone_us is not None:
                predicted += count * kernel.kernel_us
                measured += count * alone_us
        return predicted, measured

    def _alone_us(self, key: KernelKey) -> float | None:
        """Return a kernel's time in us: in a graph, less the gap that follows each."""
        row = self.rows.kernels.get(("kernel", key))
        if row is not None:
            return row.latency_us
        row, kernel = self.rows.kernels.get(("graph", key)), self.kernels.get(key)
        if row is None or kernel is None:
            return None
        return max(row.latency_us - (kernel.graph_us - kernel.kernel_us), 0.0)

    def launches(self) -> list[Pair]:
        """Pair how many kernels and copies an iteration launches."""
        counts = self.rows.launches
        if counts:  # else the table is missing, which is noted
            without = [str(row) for row in self.settings if not counts.get(row.key)]
            self._note(f"{LAUNCHES}, left out: none were traced", without)
        return [
            Pair(_groups(row), row.launches, counts[row.key])
            for row in self.settings
            if counts.get(row.key)
        ]

    def _note(self, reason: str, names: Sequence[str]) -> None:
        if names:
            self.notes.append(Note(reason, len(names), tuple(names)))


def _as_timed(kernel: KernelPrediction, timing: str) -> tuple[float, float, float]:
    """Return the prediction of a row that was timed so, and its interval."""
    if timing == "graph":
        return kernel.graph_us, kernel.graph_us_p05, kernel.graph_us_p95
    return kernel.kernel_us, kernel.kernel_us_p05, kernel.kernel_us_p95


def _unmatched(
    rows: Collected, settings: Sequence[Prediction], kernels: Mapping[KernelKey, object]
) -> Iterator[Note]:
    """Say what has no row, and what rows nobody predicted."""
    planned = {row.key for row in settings}
    missing = [str(row) for row in settings if row.key not in rows.steps]
    if missing:
        yield Note("planned, without a row", len(missing), tuple(missing))
    others = [
        setting_text(row) for key, row in rows.steps.items() if key not in planned
    ]
    if others:
        yield Note("left out: no planned setting", len(others), tuple(others))
    measured = {key for _, key in rows.kernels}
    absent = [f"{op} {dtype}" for op, dtype, _ in kernels.keys() - measured]
    if absent:
        yield Note("kernels of the suite without a row", len(absent), _counted(absent))
    beside = [f"{op} {dtype}" for op, dtype, _ in measured - kernels.keys()]
    if beside:
        yield Note("left out: kernels of other suites", len(beside), _counted(beside))


def _counted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{count} {name}" for name, count in sorted(Counter(names).items()))
