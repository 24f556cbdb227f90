"""Boosted trees: what features say of rows, at its best, and too slow to ship.

LightGBM (Ke et al., NeurIPS 2017) on the mean absolute error. Trees find the jumps that
a library's choice of kernels makes better than a network does: of GEMMs of (n, k)
that are left out they are a tenth nearer. Beyond the features that they have seen they
stay what they are at the last of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from perfc.costmodels.kernels import Floats

TREES = 800
_SETTINGS = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 63,
    "min_data_in_leaf": 10,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.5,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
"""Chosen on bf16 GEMMs of A100 and H100, by (n, k) that are not reported, each left
out in turn; other leaves, rates and rows of a leaf change the error by less than a
thirtieth.
"""


def boosted_trees(features: Floats, wanted: Floats) -> Callable[[Floats], Floats]:
    """Return a function that predicts *wanted* from *features*, and from others.

    Args:
        features: Shape (features, rows).
        wanted: Shape (rows,).

    Raises:
        ImportError: LightGBM is not installed, which only `make fit` needs.

    """
    trees: Any = importlib.import_module("lightgbm")
    rows = trees.Dataset(features.T, label=wanted)
    booster = trees.train(_SETTINGS, rows, num_boost_round=TREES)

    def predict(others: Floats) -> Floats:
        return np.asarray(booster.predict(others.T), dtype=np.float64)

    return predict
