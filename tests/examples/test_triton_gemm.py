"""What Triton's autotuner is given: which configurations it measures."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.examples.modules import example

import perfc

pruned = example("autotune/triton_gemm")
NAMED = {"M": 1024, "N": 2048, "K": 512}


def kernel_arguments(dtype: torch.dtype = torch.bfloat16) -> dict[str, Any]:
    """Return what a kernel is called with: tensors, sizes, strides."""
    m, n, k = NAMED.values()
    tensors = {
        "a": torch.empty(m, k, dtype=dtype, device="meta"),
        "b": torch.empty(k, n, dtype=dtype, device="meta"),
        "c": torch.empty(m, n, dtype=dtype, device="meta"),
    }
    return {**tensors, **NAMED, "stride_am": k, "stride_bk": n}


def test_names_are_those_of_triton() -> None:
    """The three entries that `triton.autotune` reads."""
    assert {"early_config_prune", "perf_model", "top_k"} == pruned.pruning(
        "a100"
    ).keys()


@pytest.mark.parametrize(
    ("dtype", "mode"), [(torch.bfloat16, "bf16"), (torch.float32, "tf32")]
)
def test_a_configuration_takes_what_the_tile_model_says(
    dtype: torch.dtype, mode: str
) -> None:
    """In milliseconds, of the type of the operands, whatever else a kernel takes."""
    config = pruned.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, 8, 4)
    model = pruned.pruning("a100")["perf_model"]
    expected = perfc.tile_time_us(
        "a100", 1024, 2048, 512, tile=(64, 128, 32), dtype=mode, warps=8, stages=4
    )

    assert expected == 1e3 * model(**kernel_arguments(dtype), **config.all_kwargs())


def test_the_best_are_measured() -> None:
    """The first ten, of those that an SM can hold; nobody left out is faster."""
    prune, arguments = pruned.pruning("a100", 10), kernel_arguments()
    given = pruned.configs()
    found = pruned.rank(given, prune, arguments)
    times_ms = [prune["perf_model"](**arguments, **c.all_kwargs()) for c in given]
    able = sorted(filter(math.isfinite, times_ms))

    assert len(able) == found.able < len(given)
    assert able[:10] == [time_ms for time_ms, _ in found.best]


def test_what_no_sm_holds_is_left_out() -> None:
    """Four buffers of a tile of 128 x 256 x 64 are more than A100's shared memory."""
    sides = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}
    given = [pruned.Config(sides, 8, stages) for stages in (3, 4)]
    left = [
        pruned.pruning(target)["early_config_prune"](given, kernel_arguments())
        for target in ("a100", "h100")
    ]

    assert [given[:1], given] == left


def test_one_is_left_whatever_happens() -> None:
    """Triton's autotuner needs a configuration, and finds out itself."""
    given = [pruned.Config({"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}, 8, 5)]

    assert given == pruned.pruning("a100")["early_config_prune"](given, NAMED)


def test_a_kernel_may_name_its_arguments_otherwise() -> None:
    """And may cut its sum."""
    prune = pruned.pruning(
        "a100", dtype="fp16", sizes=("m", "n", "k"), blocks=("BM", "BN", "BK")
    )
    sizes, sides = {"m": 64, "n": 64, "k": 65536}, {"BM": 64, "BN": 64, "BK": 64}
    given = [pruned.Config({**sides, "SPLIT_K": parts}) for parts in (1, 32)]
    whole, cut = (
        prune["perf_model"](**sizes, **config.all_kwargs()) for config in given
    )

    assert cut < whole


def test_equals_keep_their_order() -> None:
    """Of depths, stages and warps those stand first that are more often the best."""
    prune = pruned.pruning("a100", 1, dtype="bf16")
    sizes = {"M": 4096, "N": 4096, "K": 4096}
    ((_, first),) = pruned.rank(pruned.configs(), prune, sizes).best
    sides = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}

    assert {**sides, "num_warps": 8, "num_stages": 3} == first.all_kwargs()


def test_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs neither Triton nor a GPU."""
    monkeypatch.setattr("sys.argv", ["triton_gemm.py", "--target", "h100"])
    monkeypatch.setattr(pruned, "SAMPLES", pruned.SAMPLES[:1])
    pruned.main()

    assert "1421 of 1431 measurements saved" in capsys.readouterr().out
