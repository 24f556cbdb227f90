"""A GEMM in Triton whose configurations are pruned by perfc; measures what that costs.

    python examples/autotune/triton_matmul.py [--target T]      # needs Triton and a GPU

Measures all configurations that fit for some GEMMs, and prints by how much the best of
perfc's first few is slower than the best of all.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import triton
import triton.language as tl
from triton.testing import do_bench
from triton_gemm import SAMPLES, configs, pruning, rank

TARGET, TOP_K = "h100", 10


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute C[M, N] = A[M, K] B[K, N], all of them row by row."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    at = tl.program_id(0)
    rows = at // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = at % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = (rows[:, None] < M) & (start + depth[None, :] < K)
        right = (start + depth[:, None] < K) & (columns[None, :] < N)
        x = tl.load(
            a + rows[:, None] * K + start + depth[None, :], mask=left, other=0.0
        )
        y = tl.load(
            b + (start + depth[:, None]) * N + columns[None, :], mask=right, other=0.0
        )
        sums = tl.dot(x, y, sums)
    kept = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(
        c + rows[:, None] * N + columns[None, :], sums.to(c.dtype.element_ty), mask=kept
    )


matmul = triton.autotune(
    configs(triton.Config), key=["M", "N", "K"], prune_configs_by=pruning(TARGET, TOP_K)
)(matmul_kernel)
"""The kernel, which measures `TOP_K` configurations when it meets new sizes."""


def operands(m: int, n: int, k: int, device: str = "cuda") -> tuple[Any, ...]:
    """Return the arguments of the kernel."""
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    return a, b, torch.empty(m, n, device=device, dtype=torch.bfloat16), m, n, k


def measure_ms(config: Any, arguments: tuple[Any, ...]) -> float:
    """Return the milliseconds of one configuration; infinity where it does not run."""
    _, _, _, m, n, _ = arguments
    sides = config.kwargs
    grid = (triton.cdiv(m, sides["BLOCK_M"]) * triton.cdiv(n, sides["BLOCK_N"]),)
    try:
        return do_bench(lambda: matmul_kernel[grid](*arguments, **config.all_kwargs()))
    except triton.runtime.errors.OutOfResources:
        return float("inf")


def main() -> None:
    """Compare the ranking with measured times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--every", type=int, default=16, help="measure one in so many")
    given = parser.parse_args()
    prune = {**pruning(given.target), "top_k": 10**9}
    for sizes in SAMPLES:
        arguments = operands(*sizes)
        named = dict(zip(matmul_kernel.arg_names, arguments, strict=False))
        ranked = [
            config for _, config in rank(configs(triton.Config), prune, named).best
        ]
        measured = ranked[:TOP_K] + ranked[TOP_K :: given.every]
        started = time.perf_counter()
        times_ms = [measure_ms(config, arguments) for config in measured]
        took_s = time.perf_counter() - started
        best_ms, first_ms = min(times_ms), min(times_ms[:TOP_K])
        print(f"{sizes}: {len(measured)} of {len(ranked)} measured in {took_s:.0f} s")
        print(
            f"  best {best_ms * 1e3:.1f} us, of perfc's first {TOP_K} "
            f"{first_ms * 1e3:.1f} us, {first_ms / best_ms - 1:.1%} more"
        )


if __name__ == "__main__":
    main()
