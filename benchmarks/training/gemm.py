"""Parameters of GEMMs, from measured rows of several GPUs.

Minimises a robust sum of ln(predicted / measured)^2 by least squares over the
logarithms of the parameters, each within bounds that are physical. Every GPU weighs
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.costmodels.gemm import (
    SIMT_MODES,
    GemmParameters,
    Gemms,
    gemms_of,
    simt_seconds,
    tensor_seconds,
)
from perfc.costmodels.kernels import Floats
from training.robust import robust_least
from training.samples import Sample

ROWS = 2000
"""Most rows of one GPU in a fit: more hardly change the parameters."""

_BELIEF = 0.6
"""Weight of the start in the fit: parameters that rows do not say stay there."""

_ROBUST = 0.05
"""Errors beyond which a row counts by its size, not by its square."""

BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "tile_efficiency": (0.5, 1.0),
        "tile_half": (1.0, 60.0),
        "full_outputs": (1024.0, 32768.0),
        "fill_cycles": (50.0, 6000.0),
        "epilogue": (0.02, 1.5),
        "memory_efficiency": (0.5, 0.95),
        "rereads": (0.1, 2.0),
        "l2_efficiency": (0.2, 1.2),
        "streams_per_sm": (0.1, 2.0),
        "start_cycles": (20.0, 4000.0),
        "split_cycles": (500.0, 7000.0),
        "power_exponent": (0.3, 1.3),
        "short_power": (0.05, 0.95),
    }
)
"""What each parameter can be."""

SIMT_FITTED = (
    "tile_efficiency",
    "tile_half",
    "fill_cycles",
    "epilogue",
    "memory_efficiency",
    "rereads",
    "split_cycles",
)
"""What event pairs on several GPUs say.

Of boards that lack power they have one, T4: it cannot say the exponent for itself when
it is left out. As many flops as there are watts for, then: an exponent of 1.
"""

WIDE_FITTED = (
    *("tile_efficiency", "tile_half", "full_outputs", "fill_cycles", "start_cycles"),
    "split_cycles",
)
"""What SMs of 128 lanes do otherwise, in cycles and shares of the peak.

One board has rows of them, H100. What memory and L2 give is not of the lanes, and the
rows of one board cannot tell it from what the SMs take: fitted to them, a store that
HBM hides badly took five times the cycles on a board with a tenth of the memory rate.
"""

TENSOR_FITTED = (
    "tile_efficiency",
    "tile_half",
    "full_outputs",
    "fill_cycles",
    "epilogue",
    "memory_efficiency",
    "l2_efficiency",
    "streams_per_sm",
    "start_cycles",
    "split_cycles",
    "power_exponent",
    "short_power",
)
"""What CUDA graphs say."""

OWN_FITTED = tuple(
    name for name in TENSOR_FITTED if name not in {"power_exponent", "short_power"}
)
"""What few CUDA graphs say of kernels on tensor cores unlike the usual ones."""

OWN_BIASED_PARTS = 2.0
"""Parts that kernels with a bias cut their sums into, in tf32 on H100."""

SIMT_START = GemmParameters(
    tile_efficiency=0.95,
    tile_half=8.0,
    full_outputs=16384.0,
    fill_cycles=900.0,
    epilogue=0.3,
    memory_efficiency=0.65,
    rereads=0.7,
    l2_efficiency=1.0,
    streams_per_sm=0.3,
    start_cycles=450.0,
    split_cycles=7000.0,
    k_step=8,
    overlap=6.0,
    power_exponent=1.0,
    short_power=0.35,
    sigma_shared=0.15,
    sigma_independent=0.15,
)
"""Start of the fit without tensor cores."""

WIDE_BIASED_PARTS = 6.0
"""Parts that kernels with a bias cut their sums into on SMs of 128 lanes: 2 to 12 on
H100, where those of as deep sums without one take 32; 6 are least off."""

OWN_BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        **BOUNDS,
        "tile_efficiency": (0.05, 1.0),
        "start_cycles": (500.0, 5000.0),
        "split_cycles": (500.0, 20000.0),
    }
)
"""Bounds for kernels that are slower than those of 16 bits, with lines aligned."""

EIGHT_BITS_BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {**OWN_BOUNDS, "epilogue": (0.02, 2.0)}
)
"""Bounds for kernels of 8 bits, which multiply each result by its scales."""

TENSOR_START = GemmParameters(
    tile_efficiency=0.9,
    tile_half=20.0,
    full_outputs=4096.0,
    fill_cycles=1200.0,
    epilogue=0.1,
    memory_efficiency=0.8,
    rereads=0.0,
    l2_efficiency=0.9,
    streams_per_sm=0.6,
    start_cycles=500.0,
    split_cycles=4000.0,
    k_step=16,
    overlap=6.0,
    power_exponent=0.6,
    short_power=0.5,
    sigma_shared=0.12,
    sigma_independent=0.13,
)
"""Start of the fit on tensor cores."""


@attrs.frozen(eq=False)
class GemmRows:
    """GEMMs that were timed on one GPU.

    Attributes:
        target: The GPU.
        gemms: Their sizes.
        measured_s: What each took, shape (rows,); so are the others.
        before_s: What of that passes before the kernel starts.
        beside_s: What passes beside it: shorter kernels do not shorten the row.
        simt: Whether they are computed without tensor cores.

    """

    target: Target
    gemms: Gemms
    measured_s: Floats
    before_s: Floats
    beside_s: Floats
    simt: bool

    def __len__(self) -> int:
        return len(self.measured_s)

    @classmethod
    def of(cls, sample: Sample) -> GemmRows:
        """Return the GEMMs of a sample, all in one math mode."""
        # A timing says what is around kernels: of none, and of a very long one.
        long_s = np.ones(len(sample))
        before_s = sample.timed_s(long_s) - long_s
        beside_s = sample.timed_s(np.zeros(len(sample))) - before_s
        return cls(
            sample.target,
            gemms_of(sample.table, sample.target),
            sample.measured_s,
            before_s,
            beside_s,
            simt=str(sample.table.math[0]) in SIMT_MODES if len(sample) else True,
        )

    @classmethod
    def joined(cls, parts: Sequence[GemmRows]) -> GemmRows:
        """Return the rows of several parts, of one GPU and math mode."""
        gemms = [part.gemms for part in parts]
        return attrs.evolve(
            parts[0],
            gemms=Gemms(
                np.concatenate([each.sizes for each in gemms], axis=1),
                np.concatenate([each.bytes for each in gemms]),
                np.concatenate([each.peak for each in gemms]),
                np.concatenate([each.transposed for each in gemms]),
                np.concatenate([each.across for each in gemms]),
                np.concatenate([each.biased for each in gemms]),
                np.concatenate([each.own for each in gemms]),
            ),
            measured_s=np.concatenate([part.measured_s for part in parts]),
            before_s=np.concatenate([part.before_s for part in parts]),
            beside_s=np.concatenate([part.beside_s for part in parts]),
        )

    def take(self, rows: NDArray[np.intp]) -> GemmRows:
        """Return some of the rows."""
        return attrs.evolve(
            self,
            gemms=self.gemms.part(rows),
            measured_s=self.measured_s[rows],
            before_s=self.before_s[rows],
            beside_s=self.beside_s[rows],
        )

    def kernel_s(self, parameters: GemmParameters) -> Floats:
        """Return the seconds of the kernels with some parameters."""
        return self.seconds_of(self.gemms, parameters)

    def seconds_of(self, gemms: Gemms, parameters: GemmParameters) -> Floats:
        """Return the seconds of other GEMMs on this GPU, in this math mode."""
        price = simt_seconds if self.simt else tensor_seconds
        return price(gemms, self.target, parameters)

    def predicted_s(self, parameters: GemmParameters) -> Floats:
        """Return the seconds that the rows would measure with some parameters."""
        kernel_s = self.kernel_s(parameters)
        found: Floats = self.before_s + np.maximum(kernel_s, self.beside_s)
        return found


def fit_gemm(
    groups: Sequence[GemmRows],
    start: GemmParameters,
    names: Sequence[str],
    *,
    belief: float = _BELIEF,
    bounds: Mapping[str, tuple[float, float]] = BOUNDS,
) -> GemmParameters:
    """Return *start* with the parameters *names* fitted to all groups together.

    Args:
        groups: Rows to fit; those of one GPU weigh as much as those of another.
        start: Where to begin, and what the other parameters are.
        names: Fields to fit, each in *bounds*.
        belief: How much the start counts: a weight on each parameter's logarithm.
        bounds: Least and most that each parameter can be.

    """
    samples = [_sample(group, groups) for group in groups if len(group)]
    rows_of = {
        name: sum(len(s) for s in samples if s.target.name == name)
        for name in {sample.target.name for sample in samples}
    }
    most = max(rows_of.values())
    weights = [np.sqrt(most / rows_of[sample.target.name]) for sample in samples]
    first = np.log([getattr(start, name) for name in names])

    def decoded(logs: Floats) -> GemmParameters:
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return attrs.evolve(start, **values)

    def residuals(logs: Floats) -> Floats:
        parameters = decoded(logs)
        errors = [
            np.log(sample.predicted_s(parameters) / sample.measured_s) * weight
            for sample, weight in zip(samples, weights, strict=True)
        ]
        return np.concatenate([*errors, (logs - first) * belief])

    limits = np.log([bounds[name] for name in names])
    return decoded(robust_least(residuals, first, limits, _ROBUST))


def _sample(group: GemmRows, groups: Sequence[GemmRows]) -> GemmRows:
    """Return as many rows of a group as its GPU may have; drawn with a fixed seed."""
    same = sum(len(g) for g in groups if g.target.name == group.target.name)
    rows = -(-len(group) * min(ROWS, same) // same)
    order = np.random.default_rng(0).permutation(len(group))
    return group.take(order[:rows])
