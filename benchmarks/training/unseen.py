"""GPUs whose rows are left out of a fit: what a GPU without rows has to expect.

The host of such a GPU is known all the same, as its rows of events hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from perfc.costmodels import lower_bound
from perfc.costmodels.gemm import SIMT_MODES, GemmParameters
from perfc.costmodels.kernels import Floats
from perfc.fitting.observations import LONG_EVENT_US
from training.attention import fit_attention, formula_s
from training.conv import conv_seconds, fit_convolutions
from training.gemm import GemmRows
from training.priced_rows import Misses, PricedRows
from training.samples import CALIBRATION, FITTED, Sample
from training.shipped_gemms import fit_simt, fit_tensor
from training.streams import KINDS, StreamFit, fit_kind, fit_memory

MEMORY_OPS = frozenset({"elementwise"})
"""Ops whose rows say what memory gives."""

Gpus: TypeAlias = frozenset[str]
"""Names of targets."""

NO_MORE: Gpus = frozenset()

Fit: TypeAlias = Callable[[Sequence[Sample]], Any]
"""Function from the rows of other GPUs to parameters."""


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
    _known: dict[tuple[str, Gpus], Any] = attrs.field(
        factory=dict[tuple[str, Gpus], Any], init=False
    )

    def kernel_s(self, rows: Sample, without: Gpus = NO_MORE) -> Floats | None:
        """Return the seconds of the kernels of *rows*; None: their op has no such fit.

        Args:
            rows: Of one GPU, which is left out.
            without: GPUs that are left out besides.

        """
        price = self._prices.get(rows.key.op)
        if price is None:
            return None
        seconds: Floats = price(rows, without | {rows.key.target})
        return np.maximum(seconds, lower_bound(rows.table, rows.target))

    def priced(
        self, sample: Sample, parts: Collection[int], without: Gpus = NO_MORE
    ) -> PricedRows | None:
        """Return the rows that are for some things; None: none, or no such fit."""
        rows = sample.take(np.flatnonzero(np.isin(sample.part, list(parts))))
        seconds = self.kernel_s(rows, without) if len(rows) else None
        return None if seconds is None else PricedRows.of(rows, seconds)

    def calibrating(self, without: Gpus = NO_MORE) -> dict[str, dict[str, Misses]]:
        """Return how far off rows are, by the name of their interval, then GPU.

        All that show their kernel but those that are reported: of a GPU left out, none
        is fitted. Not of attention: two GPUs with two libraries do not say how far off
        a third is.

        Args:
            without: GPUs that neither parameters nor intervals shall have seen.

        """
        found: dict[str, dict[str, list[PricedRows]]] = {}
        for sample in self.samples:
            target, op = sample.key.target, sample.key.op
            if op == "attention" or target in without:
                continue
            rows = self.priced(sample, (FITTED, CALIBRATION), without)
            for name, mine in rows.named() if rows else ():
                found.setdefault(name, {}).setdefault(target, []).append(mine)
        return {
            name: {gpu: Misses.of(parts, hidden=False) for gpu, parts in gpus.items()}
            for name, gpus in found.items()
        }

    def gemms(self, gone: Gpus, dtype: str) -> GemmParameters:
        """Return the parameters of GEMMs of a type by the GPUs beside some."""
        simt = dtype in SIMT_MODES
        name, fit = ("simt", fit_simt) if simt else ("tensor", fit_tensor)
        found: GemmParameters = self._fit(f"gemm {name}", gone, {"gemm"}, fit)
        return found

    @property
    def _prices(self) -> Mapping[str, Callable[[Sample, Gpus], Floats]]:
        return {
            "attention": self._attention_s,
            "conv2d": self._conv_s,
            "gemm": self._gemm_s,
            "elementwise": lambda rows, gone: _stream_s(self._memory(gone), rows),
            **dict.fromkeys(KINDS, self._kind_s),
        }

    def _attention_s(self, rows: Sample, gone: Gpus) -> Floats:
        found = self._fit("attention", gone, {"attention"}, fit_attention)
        return formula_s(rows, found)

    def _conv_s(self, rows: Sample, gone: Gpus) -> Floats:
        found = self._fit("conv2d", gone, {"conv2d"}, fit_convolutions)
        return conv_seconds(rows, found.kernel)

    def _gemm_s(self, rows: Sample, gone: Gpus) -> Floats:
        return GemmRows.of(rows).kernel_s(self.gemms(gone, rows.key.dtype))

    def _memory(self, gone: Gpus) -> StreamFit:
        found: StreamFit = self._fit("memory", gone, MEMORY_OPS, fit_memory)
        return found

    def _kind_s(self, rows: Sample, gone: Gpus) -> Floats:
        op, memory = rows.key.op, self._memory(gone).model
        found: StreamFit = self._fit(
            op,
            gone,
            {op} | MEMORY_OPS,
            lambda others: fit_kind(op, of_ops(others, {op}), memory),
        )
        return _stream_s(found, rows)

    def _fit(self, name: str, gone: Gpus, ops: Collection[str], fit: Fit) -> Any:
        rows = of_ops(self.samples, ops)
        # GPUs without such rows change no fit.
        known = name, gone & {sample.key.target for sample in rows}
        if known not in self._known:
            others = [
                long_rows(sample).of(FITTED) if name in LONG_ONLY else sample
                for sample in rows
                if sample.key.target not in gone
            ]
            self._known[known] = fit(others)
        return self._known[known]


LONG_ONLY = frozenset({"attention", "conv2d"})
"""Ops whose fit takes the rows that it is given."""


def _stream_s(found: StreamFit, rows: Sample) -> Floats:
    return found.model.estimate(rows.table, rows.target).seconds
