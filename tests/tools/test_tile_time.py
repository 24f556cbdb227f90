"""`perfc.tile_time_us`: what it answers, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.costmodels.signatures import gemm

import perfc
from perfc.costmodels import cost_models, load_target, price

TILE = (128, 128, 32)


def test_a_large_gemm_is_near_its_price() -> None:
    """The best of usual tiles takes what a library's kernel takes, within a tenth."""
    kernel = gemm(4096, 4096, 4096, dtype="bf16", math="bf16")
    expected = price([kernel], load_target("a100"), cost_models()).seconds[0] * 1e6
    found = min(
        perfc.tile_time_us("a100", 4096, 4096, 4096, tile=(*sides, 32), warps=8)
        for sides in ((128, 128), (128, 256), (256, 128))
    )

    assert pytest.approx(expected, rel=0.1) == found


@pytest.mark.parametrize("dtype", ["bf16", torch.bfloat16])
def test_types_are_perfcs_or_pytorchs(dtype: Any) -> None:
    """Both name the same kernel."""
    asked = perfc.tile_time_us("h100", 512, 512, 512, tile=TILE, dtype=dtype)

    assert perfc.tile_time_us("h100", 512, 512, 512, tile=TILE) == asked


def test_types_differ() -> None:
    """The narrower and the less exact, the faster."""
    times = [
        perfc.tile_time_us("a100", 4096, 4096, 4096, tile=TILE, dtype=dtype, warps=8)
        for dtype in ("bf16", "tf32", "fp32")
    ]

    assert sorted(times) == times
    assert len({*times}) == len(times)


def test_targets_are_loaded_once_or_not_at_all() -> None:
    """A name and the target that it names are the same."""
    sizes: Any = np.int64(1024), 1024, 1024
    by_name = perfc.tile_time_us("v100", *sizes, tile=TILE, dtype="fp16", batch=3)
    loaded = load_target("v100")

    assert by_name == perfc.tile_time_us(
        loaded, *sizes, tile=list(TILE), dtype="fp16", batch=3
    )


def test_no_time_is_below_the_bound_of_its_work() -> None:
    """Flops over the peak of the sheet."""
    side = 16384
    least_us = 2 * side**3 / load_target("h100").peak("bf16") * 1e6

    assert least_us <= perfc.tile_time_us("h100", side, side, side, tile=TILE, warps=8)


def test_a_block_that_fits_nowhere_takes_forever() -> None:
    """As Triton's autotuner says of a kernel that is out of resources."""
    assert math.inf == perfc.tile_time_us(
        "a100", 512, 512, 512, tile=(256, 256, 128), warps=8, stages=5
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tile": (128, 128)}, r"tile=\(128, 128\): expected three numbers"),
        ({"tile": 128}, "tile=128: expected three numbers"),
        ({"tile": "128"}, "tile='128': expected three numbers"),
        ({"tile": (128, 0, 32)}, "a side of tile=0: expected at least 1"),
        ({"m": 0}, "m=0: expected at least 1"),
        ({"k": 12.5}, "k=12.5 is a float: expected a whole number"),
        ({"warps": 0}, "warps=0: expected at least 1"),
        ({"stages": "3"}, "stages='3' is a str: expected a whole number; write"),
        ({"batch": -1}, "batch=-1: expected at least 1"),
        ({"split_k": 2**20}, "split_k=1048576: expected at most 65536"),
        ({"dtype": "int7"}, "dtype 'int7' is none of fp32"),
        ({"dtype": "amp-bf16"}, "dtype 'amp-bf16' is none of fp32, tf32, bf16, fp16"),
        ({"target": "nothing"}, "nothing"),
        ({"target": "mi250"}, "knows GPUs of NVIDIA only"),
        ({"target": "v100"}, "no math mode 'bf16'; it has"),
        ({"target": 3}, "target=3 is an int: expected a name"),
    ],
)
def test_mistakes_are_one_line(changed: dict[str, Any], message: str) -> None:
    """Each names the argument and what was expected."""
    given: dict[str, Any] = {"target": "a100", "m": 64, "n": 64, "k": 64, "tile": TILE}
    with pytest.raises(perfc.PerfcError, match=message) as error:
        perfc.tile_time_us(**{**given, **changed})

    assert "\n" not in str(error.value)
