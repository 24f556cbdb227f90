"""How far off networks of products are beyond the sizes that they were fitted to.

    python benchmarks/beyond.py DATA

DATA is a folder with `measurements/*.parquet` (`perfc.measurements/1`). Of each GPU the
products with the largest of one size are left out, the network of the others predicts
them, and so does the formula alone. MAPE on the rows left out, as a table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perfc.costmodels import (
    SIMT_MODES,
    GemmParameters,
    factors,
    simt_parameters,
    tensor_parameters,
)
from perfc.fitting import ProductRows, fit_residuals
from perfc.fitting.samples import Sample, samples_of
from perfc.measurements import read_columns

CUTS = (
    ("m over 2,048", False, 2048),
    ("n over 8,192", False, 8192),
    ("k over 8,192", False, 8192),
    ("batched: a side over 512", True, 512),
    ("batched: more than 128", True, 128),
)
"""What is left out, whether of batched products, and the largest that is not."""

TYPES = ("bf16", "fp32")
FEWEST = 500


class Part(NamedTuple):
    """Products of a GPU, some of which are left out."""

    name: str
    rows: ProductRows
    parameters: GemmParameters
    left: np.ndarray
    """Whether each is."""


def parts_of(samples: list[Sample]) -> Iterator[Part]:
    """Yield what is left out of one GPU's products of one type."""
    key, target = samples[0].key, samples[0].target
    whole = ProductRows.joined([ProductRows.of(sample) for sample in samples])
    parameters = simt_parameters()
    if key.dtype not in SIMT_MODES:
        parameters = tensor_parameters(target.device.architecture)
    for name, batched, most in CUTS:
        mine = np.flatnonzero((whole.products.sizes[0] > 1) == batched)
        rows = whole.take(mine)
        b, m, n, k = rows.products.sizes
        sizes = (m, n, k, np.maximum(np.maximum(m, n), k), b)
        size = sizes[[cut[0] for cut in CUTS].index(name)]
        left = size > most
        shown = rows.kernel_s(parameters) > 1.5 * rows.beside_s
        if (left & shown).sum() >= FEWEST <= (~left & shown).sum():
            yield Part(f"{key.dtype}, {target.name}, {name}", rows, parameters, left)


def line_of(part: Part, seconds: np.ndarray, corrected_s: np.ndarray) -> str:
    """Return the errors of both on the rows that show their kernel."""
    rows = part.rows
    at = part.left & (seconds > 1.5 * rows.beside_s)
    errors = [
        np.abs(
            (rows.before_s + np.maximum(s, rows.beside_s))[at] / rows.measured_s[at] - 1
        ).mean()
        for s in (seconds, corrected_s)
    ]
    formula, network = (f"{error:.1%}".replace("%", " %") for error in errors)
    return f"| {part.name} | {at.sum():,} | {formula} | {network} |"


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    files = sorted((parser.parse_args().data / "measurements").glob("*.parquet"))
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in (s for file in files for s in samples_of(read_columns(file))):
        key = sample.key
        if key.op == "gemm" and key.dtype in TYPES:
            groups.setdefault((key.target, key.dtype), []).append(sample)
    parts = [part for samples in groups.values() for part in parts_of(samples)]
    networks = fit_residuals(
        [(p.rows.take(np.flatnonzero(~p.left)), p.parameters) for p in parts]
    )
    print("| left out | n | formula: MAPE | network: MAPE |\n|---|--:|--:|--:|")
    for part, network in zip(parts, networks, strict=True):
        rows, seconds = part.rows, part.rows.kernel_s(part.parameters)
        corrected_s = seconds * factors(network, seconds, rows.products, rows.target)
        print(line_of(part, seconds, corrected_s))


if __name__ == "__main__":
    main()
