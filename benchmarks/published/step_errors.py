"""What scripts that score published training steps share: lines of errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.fitting.errors import errors_of


def print_errors(name: str, pairs: Sequence[tuple[float, float]]) -> None:
    """Print how far a group of (predicted, published) times is off."""
    errors = errors_of(*np.array(pairs).T)
    if errors is not None:
        print(
            f"{name:18} n {errors.rows:3}  MAPE {errors.mape:6.1%}  "
            f"GMAE {errors.gmae:6.1%}  p90 {errors.p90:6.1%}  "
            f"max {errors.max:6.1%}  bias {errors.bias:+6.1%}"
        )
