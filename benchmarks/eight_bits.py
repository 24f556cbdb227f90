"""Errors of the formula of GEMMs of 8 bits on rows that it was not fitted to.

    python benchmarks/eight_bits.py DATA

Without networks, which correct it on L40S: by the parameters of 16 bits there, with
what quantises its operand in front; by those of the GPU's own rows of 8 bits, of other
(n, k); and by those that the other GPU's rows of 8 bits say.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from fit import ROWS
from training.gemm import GemmRows
from training.samples import FITTED, Sample, samples_of

from perfc.costmodels.gemm import (
    EIGHT_BITS,
    QUANTISED,
    GemmParameters,
    tensor_parameters,
)
from perfc.fitting.errors import errors_of
from perfc.measurements import read_columns

OTHERS: Mapping[str, str] = {"Ada Lovelace": "Hopper", "Hopper": "Ada Lovelace"}
"""Whose rows of 8 bits stand in for those of an architecture."""


OWN_ROWS = "its own rows"


def eight_bit_samples(data: Path) -> Iterator[Sample]:
    """Yield the rows of GEMMs of 8 bits in CUDA graphs, those not fitted."""
    files = sorted((data / "measurements").glob("gemm_*.parquet"))
    for file in (*files, *sorted(ROWS.glob("*/kernels.parquet"))):
        for sample in samples_of(read_columns(file)):
            key = sample.key
            named = key.op == "gemm" and key.dtype in (EIGHT_BITS, *QUANTISED)
            apart = np.flatnonzero(sample.part != FITTED)
            if named and key.timing == "graph" and len(apart):
                yield sample.take(apart)


def ways_of(sample: Sample) -> dict[str, GemmParameters]:
    """Return the parameters that rows are predicted by, by what they are of."""
    architecture = sample.target.device.architecture
    other = OTHERS[architecture]
    return {
        "16 bits": tensor_parameters(architecture),
        OWN_ROWS: tensor_parameters(architecture, sample.key.dtype),
        f"8 bits of {other}": tensor_parameters(other, EIGHT_BITS),
    }


def line(rows: GemmRows, parameters: GemmParameters) -> str:
    """Return the errors of all rows by some parameters."""
    found = errors_of(rows.predicted_s(parameters), rows.measured_s)
    if found is None:
        return "no rows"
    cells = (found.mape, found.gmae, found.p90, found.max, found.bias)
    return "  ".join(f"{cell:7.1%}" for cell in cells)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    print(f"{'':58}{'n':>6}     MAPE     GMAE      p90      max     bias")
    for sample in eight_bit_samples(parser.parse_args().data):
        rows = GemmRows.of(sample)
        for way, parameters in ways_of(sample).items():
            what = f"{sample.key.dtype} on {sample.target.name}, by {way}"
            print(f"{what:58}{len(rows):6,}  {line(rows, parameters)}")


if __name__ == "__main__":
    main()
