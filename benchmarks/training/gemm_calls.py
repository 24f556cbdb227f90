"""Share of an eager GEMM's call that passes before its kernel starts.

Rows of event pairs rise where kernels outlast the rest of the call, and what they are
longer by than their kernels is what passed before. Told by kernels about as long as the
call, together with the formula, of which short kernels would else take the blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.gemm import SIMT_MODES, GemmParameters
from perfc.costmodels.kernels import Floats
from perfc.costmodels.pricing import call_names
from perfc.fitting.observations import LONG_EVENT_US
from training.gemm import SIMT_FITTED, SIMT_START, GemmRows, fit_gemm
from training.samples import FITTED, Sample
from training.search import least

_ROUNDS = 3
"""Shares and formula in turn: a fourth changes neither."""

_FIRST, _LIMITS, _STEP = 0.6, (0.3, 1.0), 0.1
_NEAR = (0.1, 5.0)
"""Times of kernels that tell, over those of their calls."""

_FEWEST = 100
"""Rows of a call on a GPU that tell."""


@attrs.frozen(eq=False)
class _Calls:
    """Rows of one call on one GPU.

    Attributes:
        name: Of the call.
        rows: Whatever share of the call is put before their kernels.
        call_s: What the call takes, shape (rows,).

    """

    name: str
    rows: GemmRows
    call_s: Floats

    @classmethod
    def of(cls, sample: Sample) -> _Calls:
        """Return the rows to fit of a sample, which are of one call."""
        rows = GemmRows.of(sample.of(FITTED))
        name = str(call_names(sample.table)[0])
        return cls(name, rows, rows.before_s + rows.beside_s)

    def long(self, share: float) -> GemmRows:
        """Return the rows that show their kernel, with a share of the call before."""
        before_s, beside_s = share * self.call_s, (1 - share) * self.call_s
        rows = attrs.evolve(self.rows, before_s=before_s, beside_s=beside_s)
        return rows.take(np.flatnonzero(rows.measured_s > LONG_EVENT_US * 1e-6))

    def error(self, share: float, kernel_s: Floats) -> float:
        """Return the mean |ln(predicted / measured)| of the kernels that tell."""
        low, high = _NEAR
        near = (kernel_s > low * self.call_s) & (kernel_s < high * self.call_s)
        call_s = self.call_s[near]
        seconds = share * call_s + np.maximum(kernel_s[near], (1 - share) * call_s)
        return float(np.abs(np.log(seconds / self.rows.measured_s[near])).mean())


def fit_gemm_shares(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the shares by the name of the call, each GPU weighing the same.

    The same on all hosts. Not by Pascal's linear layers, whose kernels are Maxwell's.
    """
    calls = [_Calls.of(sample) for sample in samples if _tells(sample)]
    if not calls:
        return {}
    shares = dict.fromkeys(sorted({call.name for call in calls}), _FIRST)
    for _ in range(_ROUNDS):
        long = [call.long(shares[call.name]) for call in calls]
        parameters = fit_gemm(long, SIMT_START, SIMT_FITTED)
        shares = {
            name: _share([call for call in calls if call.name == name], parameters)
            for name in shares
        }
    return shares


def _share(calls: Sequence[_Calls], parameters: GemmParameters) -> float:
    kernel_s = [call.rows.kernel_s(parameters) for call in calls]

    def loss(values: Mapping[str, float]) -> float:
        pairs = zip(calls, kernel_s, strict=True)
        return float(np.mean([call.error(values["share"], s) for call, s in pairs]))

    return least(loss, {"share": _FIRST}, {"share": _LIMITS}, _STEP)["share"]


def _tells(sample: Sample) -> bool:
    if sample.key.op != "gemm" or sample.key.timing != "event":
        return False
    if str(sample.table.math[0]) not in SIMT_MODES:
        return False
    if int((sample.part == FITTED).sum()) < _FEWEST:
        return False
    batched = bool((sample.table.param("b", 1.0) > 1).any())
    return batched or sample.target.device.architecture != "Pascal"
