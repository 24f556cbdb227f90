"""Long lists of Python's numbers, as arrays.

`array` copies a list three times as fast as `np.array`, which has to find out first
what is in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def integers(numbers: Sequence[int]) -> NDArray[np.int64]:
    """Return whole numbers as an array."""
    return np.array(array("q", numbers), dtype=np.int64)


def floats(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Return numbers as an array."""
    return np.array(array("d", numbers), dtype=np.float64)
