"""What rows of one CPU say of kernels beyond the terms of `cpu.py`, shipped with perfc.

Which way a library goes for a shape (MKL's blocks, oneDNN's tiles, PyTorch's grains of
threads) is much alike on CPUs of one instruction set, and finer than terms tell. A
profile of another CPU takes as much of it as that CPU's own rows agree to
(`fitting/shipped_rows.py`); a CPU without a profile, nothing.

Weights are in `fitted/cpu_rows.npz`, written by `benchmarks/fit_cpu.py` from perfc's
own rows: ten runs of `perfc calibrate --device cpu --seed N`, each of other shapes, on
two cores of a Xeon (Sapphire Rapids, AVX-512) with torch 2.13, 2026-11. Shapes that a
calibration holds out (`split=test`) are not among them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.fitted_files import FITTED_FOLDER
from perfc.costmodels.machine import Family, NearRows

SHIPPED_ROWS_FILE = FITTED_FOLDER / "cpu_rows.npz"
"""Rows by family: `op/dtype/phase/part`."""


@functools.cache
def shipped_rows(path: Path = SHIPPED_ROWS_FILE) -> Mapping[Family, NearRows]:
    """Return the rows of each family, in single precision."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    families = {Family(*name.split("/")[:3]) for name in arrays}
    return {family: _rows_of(family, arrays) for family in sorted(families)}


def _rows_of(family: Family, arrays: Mapping[str, NDArray[np.generic]]) -> NearRows:
    def part(name: str) -> Any:  # noqa: ANN401 - nested lists of numbers or texts
        return arrays[_key(family, name)].tolist()

    octaves, unlike = part("reach")
    sizes, words = map(tuple, part("sizes")), map(tuple, part("words"))
    return NearRows(octaves, unlike, tuple(part("weights")), tuple(sizes), tuple(words))


def write_shipped_rows(rows: Mapping[Family, NearRows], path: Path) -> None:
    """Write the rows of each family."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for family, near in sorted(rows.items()):
        reach = np.array([near.octaves, near.unlike])
        arrays[_key(family, "reach")] = reach
        arrays[_key(family, "weights")] = np.array(near.weights, dtype=np.float32)
        arrays[_key(family, "sizes")] = near.place.sizes.astype(np.float32)
        arrays[_key(family, "words")] = near.place.words
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _key(family: Family, part: str) -> str:
    return f"{family.op}/{family.dtype}/{family.phase}/{part}"
