"""GPUs whose rows are left out of a fit: what a GPU without rows has to expect.

The host of such a GPU is known all the same, as its rows of events hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from perfc.costmodels import SIMT_MODES, GemmParameters, lower_bound
from perfc.fitting.attention import fit_attention, formula_s
from perfc.fitting.conv import conv_seconds, fit_convolutions
from perfc.fitting.gemm import ProductRows
from perfc.fitting.intervals import PricedRows, named
from perfc.fitting.observations import LONG_EVENT_US
from perfc.fitting.product_fit import fit_simt, fit_tensor, tells_of_others
from perfc.fitting.samples import CALIBRATION, FITTED, Floats, Sample
from perfc.fitting.streams import KINDS, StreamFit, fit_kind, fit_memory

MEMORY_OPS = frozenset({"elementwise"})
"""Ops whose rows say what memory gives."""

Fit: TypeAlias = Callable[[Sequence[Sample]], Any]
"""From the rows of other GPUs to parameters."""


def of_ops(samples: Sequence[Sample], ops: Collection[str]) -> list[Sample]:
    """Return the samples of some ops."""
    return [sample for sample in samples if sample.key.op in ops]


def long_rows(sample: Sample) -> Sample:
    """Return the rows that say more of the kernel than of the host."""
    least_s = LONG_EVENT_US * 1e-6 if sample.key.timing == "event" else 0.0
    return sample.take(np.flatnonzero(sample.measured_s > least_s))


@attrs.define(eq=False)
class Unseen:
    """What kernels take on each GPU by a fit to the rows of the others.

    Attributes:
        samples: Rows of all ops and GPUs.

    """

    samples: Sequence[Sample]
    _known: dict[tuple[str, str], Any] = attrs.field(
        factory=dict[tuple[str, str], Any], init=False
    )

    def kernel_s(self, rows: Sample) -> Floats | None:
        """Return what the kernels of *rows* take, or None: their op has no such fit."""
        op, target = rows.key.op, rows.key.target
        price = self._prices.get(op)
        if price is None:
            return None
        seconds: Floats = price(rows, target)
        return np.maximum(seconds, lower_bound(rows.table, rows.target))

    def priced(self, sample: Sample, part: int) -> PricedRows | None:
        """Return the rows that are for one thing; None: none, or no such fit."""
        rows = sample.of(part)
        seconds = self.kernel_s(rows) if len(rows) else None
        return None if seconds is None else PricedRows.of(rows, seconds)

    def calibrating(self) -> dict[str, dict[str, PricedRows]]:
        """Return the rows for intervals, by the name of the interval, then GPU.

        Not of attention: two GPUs with two libraries do not say how far off a third is.
        """
        found: dict[str, dict[str, PricedRows]] = {}
        for sample in self.samples:
            if sample.key.op == "attention":
                continue
            if (rows := self.priced(sample, CALIBRATION)) is None:
                continue
            for name, at in named(rows.sample):
                if sample.key.op == "gemm" and not tells_of_others(sample.target, name):
                    continue
                of_name = found.setdefault(name, {})
                before = of_name.get(sample.target.name)
                if before is None or len(before.sample) < len(at):
                    of_name[sample.target.name] = rows.take(at)
        return found

    def products(self, target: str, dtype: str) -> GemmParameters:
        """Return the parameters of products of a type by the GPUs beside one."""
        simt = dtype in SIMT_MODES
        name, fit = ("simt", fit_simt) if simt else ("tensor", fit_tensor)
        found: GemmParameters = self._fit(f"gemm {name}", target, {"gemm"}, fit)
        return found

    @property
    def _prices(self) -> Mapping[str, Callable[[Sample, str], Floats]]:
        return {
            "attention": self._attention_s,
            "conv2d": self._conv_s,
            "gemm": self._product_s,
            "elementwise": lambda rows, target: _stream_s(self._memory(target), rows),
            **dict.fromkeys(KINDS, self._kind_s),
        }

    def _attention_s(self, rows: Sample, target: str) -> Floats:
        found = self._fit("attention", target, {"attention"}, fit_attention)
        return formula_s(rows, found)

    def _conv_s(self, rows: Sample, target: str) -> Floats:
        found = self._fit("conv2d", target, {"conv2d"}, fit_convolutions)
        return conv_seconds(rows, found.kernel)

    def _product_s(self, rows: Sample, target: str) -> Floats:
        return ProductRows.of(rows).kernel_s(self.products(target, rows.key.dtype))

    def _memory(self, target: str) -> StreamFit:
        found: StreamFit = self._fit("memory", target, MEMORY_OPS, fit_memory)
        return found

    def _kind_s(self, rows: Sample, target: str) -> Floats:
        op, memory = rows.key.op, self._memory(target).model
        found: StreamFit = self._fit(
            op, target, {op}, lambda others: fit_kind(op, others, memory)
        )
        return _stream_s(found, rows)

    def _fit(self, name: str, target: str, ops: Collection[str], fit: Fit) -> Any:  # noqa: ANN401 - parameters of any op
        if (name, target) not in self._known:
            others = [
                long_rows(sample).of(FITTED) if name in LONG_ONLY else sample
                for sample in of_ops(self.samples, ops)
                if sample.key.target != target
            ]
            self._known[name, target] = fit(others)
        return self._known[name, target]


LONG_ONLY = frozenset({"attention", "conv2d"})
"""Ops whose fit takes the rows that it is given."""


def _stream_s(found: StreamFit, rows: Sample) -> Floats:
    return found.model.estimate(rows.table, rows.target).seconds
