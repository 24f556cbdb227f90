"""Intervals of GPUs without rows, from GPUs whose rows were left out of the fit.

How far off predictions are differs from GPU to GPU more than from row to row, and there
are two to five GPUs of an op. What the next one's rows would need is drawn from a
log-normal distribution between GPUs, whose width few of them do not say: it is that of
all ops together, and of the op as far as its GPUs say (the prediction of a group that
has no observations, Lee, Barber, Willett, arXiv 2306.06342; shrunken variances, Smyth,
SAGMB 2004). Nine in ten rows of such a GPU are inside on average, not on each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Flags, Floats
from perfc.fitting.scores import Z90, coverage
from training.intervals import FEWEST, stated
from training.priced_rows import LEAST, LEVEL, MOST, Misses, PricedRows, power_of

_PRIOR = 4
"""GPUs that the spread of all ops counts as, beside those of an op."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)


@attrs.frozen(eq=False)
class _Group:
    """An op's GPUs left out.

    Attributes:
        misses: Of each GPU.
        power: How they change with the size of a kernel.
        needs: Logarithms of what nine in ten rows of each GPU are uncertain by.

    """

    misses: Sequence[Misses]
    power: float
    needs: Floats

    @classmethod
    def of(cls, misses: Sequence[Misses]) -> _Group:
        """Return the group of some GPUs, from their misses."""
        power = power_of(misses)
        needs = np.log([gpu.least(power) for gpu in misses])
        return cls(misses, power, needs)

    def stated(self, variance: float) -> list[float]:
        """Return the uncertainty to state, if GPUs differ by so much variance."""
        wider = widening(self.needs, variance)
        whole = wider * math.exp(self.needs.mean())
        biases = [gpu.bias(self.power) for gpu in self.misses]
        bias = wider * math.sqrt(float(np.mean(np.square(biases))))
        return stated(whole, bias, self.power)


def unseen_sigmas(
    left_out: Mapping[str, Mapping[str, Misses]],
) -> dict[str, list[float]]:
    """Return the uncertainties of a GPU without rows by name, each as of `stated`.

    Args:
        left_out: By the name of an interval, then by GPU, of a fit to the others.

    """
    groups: dict[str, _Group] = {}
    for name, gpus in left_out.items():
        if enough := [gpu for gpu in gpus.values() if len(gpu) >= FEWEST]:
            groups[name] = _Group.of(enough)
    variance = between([group.needs for group in groups.values()])
    return {name: group.stated(variance) for name, group in groups.items()}


def unseen_coverage(rows: PricedRows, known: Sequence[float]) -> tuple[Flags, float]:
    """Return which rows are inside what is stated of a GPU, and its median width."""
    shared, own, power = known
    misses = Misses.of([rows])
    sigma = misses.sigma(math.hypot(shared, own), power)
    predicted_s = rows.sample.timed_s(rows.kernel_s)
    return coverage(predicted_s, sigma, rows.sample.measured_s)


def between(needs: Collection[Floats]) -> float:
    """Return the variance between GPUs of what they need, of all ops together.

    Args:
        needs: Of each op logarithms, shape (GPUs,).

    """
    more = sum(len(each) - 1 for each in needs)
    squares = sum(float(np.square(each - each.mean()).sum()) for each in needs)
    return squares / more if more else 0.0


def spread_of(needs: Floats, variance: float) -> float:
    """Return the standard deviation of an op's GPUs, of which few do not say it.

    Args:
        needs: Logarithms, shape (GPUs,).
        variance: Of all ops together.

    """
    own = float(np.square(needs - needs.mean()).sum())
    return math.sqrt((_PRIOR * variance + own) / (_PRIOR + len(needs) - 1))


def widening(needs: Floats, variance: float) -> float:
    """Return how much wider than a typical GPU's the interval of the next one is.

    So that of a GPU whose errors are normal, and wider than typical by a factor with
    the spread that is known of it (of its logarithm; of the typical one, too), nine in
    ten rows are inside on average. The arguments are those of `spread_of`.
    """
    spread = spread_of(needs, variance) * math.sqrt(1 + 1 / len(needs))
    typical = Z90 / math.sqrt(2) * np.exp(-spread * _NODES)
    low, high = LEAST, MOST
    while high - low > LEAST:
        middle = (low + high) / 2
        inside = [math.erf(middle * value) for value in typical.tolist()]
        enough = np.average(inside, weights=_WEIGHTS) >= LEVEL
        low, high = (low, middle) if enough else (middle, high)
    return high
