"""How far off networks of GEMMs are beyond the sizes that they were fitted to.

    python benchmarks/beyond.py DATA [--target NAME]

DATA is a folder with `measurements/*.parquet` (`perfc.measurements/1`). Of each GPU the
GEMMs with the largest of one size are left out, the network of the others predicts
them, and so does the formula alone; and any tenth of the rows, whose neighbours are all
known: what is then left is noise, and what no features of sizes tell. MAPE and GMAE on
the rows left out, as a table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from training.gemm import GemmRows
from training.gemm_residual import fit_residuals
from training.samples import Sample, samples_of

from perfc.costmodels.gemm import (
    SIMT_MODES,
    GemmParameters,
    Known,
    simt_parameters,
    tensor_parameters,
)
from perfc.fitting.errors import errors_of
from perfc.measurements import read_columns

SINGLE, BATCHED = False, True

CUTS: Sequence[tuple[str, bool, Callable[[np.ndarray], np.ndarray]]] = (
    ("any tenth", SINGLE, lambda sizes: np.arange(len(sizes[0])) % 10 == 0),
    ("m over 2,048", SINGLE, lambda sizes: sizes[1] > 2048),
    ("n over 8,192", SINGLE, lambda sizes: sizes[2] > 8192),
    ("k over 8,192", SINGLE, lambda sizes: sizes[3] > 8192),
    ("any tenth, batched", BATCHED, lambda sizes: np.arange(len(sizes[0])) % 10 == 0),
    ("a side over 512", BATCHED, lambda sizes: sizes[1:].max(axis=0) > 512),
    ("more than 128", BATCHED, lambda sizes: sizes[0] > 128),
)
"""What is left out, whether of batched GEMMs, and which of sizes (b, m, n, k)."""

TYPES = ("bf16", "fp32")
FEWEST, SHOWN = 500, 1.5
"""Rows; times of kernels over what the host takes beside them."""


class Part(NamedTuple):
    """GEMMs of a GPU, some of which are left out."""

    name: str
    rows: GemmRows
    parameters: GemmParameters
    left: np.ndarray
    """Whether each is."""


def parts_of(samples: list[Sample]) -> Iterator[Part]:
    """Yield parts: GEMMs of one GPU and type, and which of them are left out."""
    key, target = samples[0].key, samples[0].target
    whole = GemmRows.joined([GemmRows.of(sample) for sample in samples])
    parameters = simt_parameters()
    if key.dtype not in SIMT_MODES:
        parameters = tensor_parameters(target.device.architecture)
    for name, batched, is_left in CUTS:
        mine = np.flatnonzero((whole.gemms.sizes[0] > 1) == batched)
        if len(mine) < FEWEST:
            continue
        rows = whole.take(mine)
        left = is_left(rows.gemms.sizes)
        shown = rows.kernel_s(parameters) > SHOWN * rows.beside_s
        if (left & shown).sum() >= FEWEST <= (~left & shown).sum():
            yield Part(f"{key.dtype}, {target.name}: {name}", rows, parameters, left)


def line_of(part: Part, seconds: np.ndarray, corrected_s: np.ndarray) -> str:
    """Return the errors of both on the rows that show their kernel."""
    rows = part.rows
    at = part.left & (seconds > SHOWN * rows.beside_s)
    cells: list[str] = []
    for kernel_s in (seconds, corrected_s):
        timed_s = rows.before_s + np.maximum(kernel_s, rows.beside_s)
        found = errors_of(timed_s[at], rows.measured_s[at])
        assert found is not None  # parts have rows
        cells += [
            f"{error:.1%}".replace("%", " %") for error in (found.mape, found.gmae)
        ]
    return f"| {part.name} | {at.sum():,} | {' | '.join(cells)} |"


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--target", action="append", help="all if not given")
    options = parser.parse_args()
    files = sorted((options.data / "measurements").glob("*.parquet"))
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in (s for file in files for s in samples_of(read_columns(file))):
        key = sample.key
        wanted = options.target is None or key.target in options.target
        if wanted and key.op == "gemm" and key.dtype in TYPES:
            groups.setdefault((key.target, key.dtype), []).append(sample)
    parts = [part for samples in groups.values() for part in parts_of(samples)]
    networks = fit_residuals(
        [(p.rows.take(np.flatnonzero(~p.left)), p.parameters) for p in parts]
    )
    print("| left out | n | formula: MAPE | GMAE | network: MAPE | GMAE |")
    print("|---|--:|--:|--:|--:|--:|")
    for part, network in zip(parts, networks, strict=True):
        rows, seconds = part.rows, part.rows.kernel_s(part.parameters)
        corrected_s, whole = seconds.copy(), np.arange(len(rows))
        known = Known(rows.target, network, own=True)
        known.correct(corrected_s, rows.gemms, whole, seconds)
        print(line_of(part, seconds, corrected_s))


if __name__ == "__main__":
    main()
