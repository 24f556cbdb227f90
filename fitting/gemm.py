"""Parameters of matrix products, from measured rows of several GPUs.

Minimises a robust sum of ln(predicted / measured)^2 by least squares over the
logarithms of the parameters, each within bounds that are physical. Every GPU weighs
the same. Needs scipy.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import (
    GemmParameters,
    KernelTable,
    Products,
    Target,
    products_of,
    simt_seconds,
    tensor_seconds,
)

Floats: TypeAlias = NDArray[np.float64]

ROWS = 1200
"""Of one GPU in a fit: more change the parameters by less than their meaning."""

_BELIEF = 0.2
"""Weight of the start in the fit: parameters that rows do not say stay there."""

_ROBUST = 0.05
"""Errors beyond which a row counts by its size, not by its square."""

_ROUNDS = 16

BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "tile_efficiency": (0.5, 1.0),
        "tile_half": (1.0, 60.0),
        "full_outputs": (1024.0, 16384.0),
        "fill_s": (5e-8, 4e-6),
        "epilogue": (0.02, 1.5),
        "memory_efficiency": (0.5, 0.95),
        "rereads": (0.1, 2.0),
        "l2_efficiency": (0.2, 1.0),
        "streams_per_sm": (0.1, 2.0),
        "sharers": (1.5, 60.0),
        "start_s": (2e-8, 2e-6),
        "split_s": (5e-7, 8e-6),
        "power_exponent": (0.7, 1.3),
        "short_power": (0.05, 0.95),
        "sustained": (0.5, 1.0),
    }
)
"""What each parameter can be."""

SIMT_FITTED = (
    "tile_efficiency",
    "tile_half",
    "fill_s",
    "epilogue",
    "memory_efficiency",
    "rereads",
    "split_s",
    "power_exponent",
    "short_power",
)
"""What event pairs on several GPUs say."""

TENSOR_FITTED = (
    "tile_efficiency",
    "tile_half",
    "full_outputs",
    "fill_s",
    "epilogue",
    "memory_efficiency",
    "l2_efficiency",
    "streams_per_sm",
    "sharers",
    "start_s",
    "split_s",
    "sustained",
)
"""What CUDA graphs on one GPU say."""

SIMT_START = GemmParameters(
    tile_efficiency=0.95,
    tile_half=8.0,
    full_outputs=16384.0,
    fill_s=0.5e-6,
    epilogue=0.3,
    memory_efficiency=0.65,
    rereads=0.7,
    l2_efficiency=1.0,
    streams_per_sm=0.3,
    sharers=6.0,
    start_s=0.3e-6,
    split_s=5e-6,
    k_step=8,
    power_exponent=1.0,
    short_power=0.35,
    sustained=1.0,
    sigma_shared=0.15,
    sigma_independent=0.15,
)
"""Where the fit without tensor cores starts."""

TENSOR_START = GemmParameters(
    tile_efficiency=0.9,
    tile_half=20.0,
    full_outputs=4096.0,
    fill_s=0.6e-6,
    epilogue=0.1,
    memory_efficiency=0.8,
    rereads=0.0,
    l2_efficiency=0.9,
    streams_per_sm=0.6,
    sharers=6.0,
    start_s=0.2e-6,
    split_s=2.5e-6,
    k_step=32,
    power_exponent=0.0,
    short_power=1.0,
    sustained=0.9,
    sigma_shared=0.05,
    sigma_independent=0.1,
)
"""The same on tensor cores."""


@attrs.frozen(eq=False)
class ProductRows:
    """Products that were timed on one GPU.

    Attributes:
        target: The GPU.
        products: Their sizes.
        measured_s: What each took, shape (rows,); so are the others.
        before_s: What of that passes before the kernel starts.
        beside_s: What passes beside it: shorter kernels do not shorten the row.

    """

    target: Target
    products: Products
    measured_s: Floats
    before_s: Floats
    beside_s: Floats

    @classmethod
    def of(
        cls, kernels: KernelTable, target: Target, measured_s: Floats, before_s: Floats
    ) -> ProductRows:
        """Return kernels that were timed, as long as nothing beside them hides."""
        beside_s = np.zeros(len(kernels))
        sizes = products_of(kernels, target)
        return cls(target, sizes, measured_s, before_s, beside_s)

    def take(self, rows: NDArray[np.intp]) -> ProductRows:
        """Return some of the rows."""
        return ProductRows(
            self.target,
            self.products.part(rows),
            self.measured_s[rows],
            self.before_s[rows],
            self.beside_s[rows],
        )

    def predicted_s(self, parameters: GemmParameters, *, simt: bool) -> Floats:
        """Return what the rows would measure with some parameters."""
        price = simt_seconds if simt else tensor_seconds
        kernel_s = price(self.products, self.target, parameters)
        found: Floats = self.before_s + np.maximum(kernel_s, self.beside_s)
        return found


def fit_gemm(
    groups: Sequence[ProductRows],
    start: GemmParameters,
    names: Sequence[str],
    *,
    rows: int = ROWS,
    belief: float = _BELIEF,
) -> GemmParameters:
    """Return *start* with the parameters *names* fitted to all groups together.

    Args:
        groups: Rows to fit, one group for each GPU.
        start: Where to begin, and what the other parameters are.
        names: Fields to fit, each in `BOUNDS`.
        rows: How many rows of each GPU are fitted; drawn with a fixed seed.
        belief: How much the start counts: a weight on each parameter's logarithm.

    """
    # Not a dependency: nobody else needs it, and nothing that is shipped.
    solver: Any = importlib.import_module("scipy.optimize")
    simt = start.k_step == SIMT_START.k_step
    samples = [_sample(group, rows) for group in groups]
    first = np.log([getattr(start, name) for name in names])
    limits = np.log([BOUNDS[name] for name in names])
    first = np.clip(first, limits[:, 0] + 1e-6, limits[:, 1] - 1e-6)
    most = max(len(sample.measured_s) for sample in samples)

    def decoded(logs: Floats) -> GemmParameters:
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return attrs.evolve(start, **values)

    def residuals(logs: Floats) -> Floats:
        parameters = decoded(logs)
        errors = [
            np.log(sample.predicted_s(parameters, simt=simt) / sample.measured_s)
            * np.sqrt(most / len(sample.measured_s))
            for sample in samples
        ]
        return np.concatenate([*errors, (logs - first) * belief])

    found = solver.least_squares(
        residuals,
        first,
        bounds=(limits[:, 0], limits[:, 1]),
        loss="soft_l1",
        f_scale=_ROBUST,
        diff_step=0.02,
        max_nfev=_ROUNDS,
    )
    return decoded(cast("Floats", found.x))


def _sample(group: ProductRows, rows: int) -> ProductRows:
    order = np.random.default_rng(0).permutation(len(group.measured_s))
    return group.take(order[:rows])


def write_parameters(
    path: Path,
    source: str,
    date: str,
    simt: GemmParameters,
    tensor: Mapping[str, GemmParameters],
) -> None:
    """Write the file that `costmodels/products.py` reads.

    Args:
        path: The file, `fitted/gemm.toml`.
        source: Of the rows.
        date: Of the fit.
        simt: Parameters without tensor cores.
        tensor: On tensor cores, by architecture.

    """
    lines = [f"source = {json.dumps(source)}", f'date = "{date}"']
    for name, parameters in (
        ("simt", simt),
        *((f'tensor."{key}"', value) for key, value in sorted(tensor.items())),
    ):
        fields = attrs.asdict(parameters).items()
        lines += ["", f"[{name}]", *(f"{key} = {value:.4g}" for key, value in fields)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
