"""Rank Triton's configurations of a GEMM by perfc's tile model, and measure a few.

    python examples/autotune/triton_gemm.py [--target T] [--top-k K]     # needs no GPU

    @triton.autotune(configs, ["M", "N", "K"], prune_configs_by=pruning("a100", 10))
    @triton.jit
    def matmul(a, b, c, M, N, K, ..., BLOCK_M, BLOCK_N, BLOCK_K): ...

`pruning` returns the three entries that `triton.autotune` takes: `early_config_prune`
leaves out what no SM can hold, `perf_model` tells the time of each that is left, and
`top_k` of them are compiled and measured. The names of a kernel's arguments are those
of Triton's tutorial; others are given. `triton_matmul.py` has such a kernel.

It saves compilations and measurements: of 1,875 configurations of the usual sides,
depths, stages and warps some 1,400 fit, and ten are left. What the model cannot tell
apart, as warps that change neither what a block holds nor what it reads, keeps the
order in which it was given. How near the ten come to the best of all was not measured
yet; `triton_matmul.py` does so on a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import perfc

COMPILE_S, MEASURE_S = 1.0, 0.125
"""What is assumed of one configuration: seconds to compile it, and those that
`triton.testing.do_bench` warms up and measures (25 and 100 ms)."""

SIZES = ("M", "N", "K")
BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K")

SAMPLES = ((4096, 4096, 4096), (512, 4096, 11008), (64, 8192, 1024), (2048, 64, 16384))
"""GEMMs that are ranked for a look."""


@dataclass
class Config:
    """A configuration where Triton is not installed; as `triton.Config`."""

    kwargs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 3

    def all_kwargs(self) -> dict[str, Any]:
        """Return all that the kernel is called with."""
        launch = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return {**self.kwargs, **launch}


def configs(make: Callable[..., Any] = Config) -> list[Any]:
    """Return all configurations of usual sides, depths, stages and warps.

    Of depths, stages and warps those stand first that are more often the best.

    Args:
        make: `triton.Config`, or what is called alike.

    """
    sides, depths = (16, 32, 64, 128, 256), (64, 32, 128, 256, 16)
    return [
        make(dict(zip(BLOCKS, tile, strict=True)), num_warps=warps, num_stages=stages)
        for tile in itertools.product(sides, sides, depths)
        for stages in (3, 4, 5, 2, 1)
        for warps in (4, 8, 2)
    ]


@dataclass(frozen=True)
class TileModel:
    """perfc's tile model, for the arguments of a kernel.

    Attributes:
        target: What the kernel is going to run on.
        dtype: Of the operands, as `perfc.tile_time_us` takes it; None for that of the
            first argument that has one, of which fp32 is computed as TF32 (`tl.dot`).
        sizes: Names of the arguments that say rows, columns and summed dimension.
        blocks: Names of what a block computes of each in a step.
        split: Name of the number of parts that the sum is cut into, if it has one.

    """

    target: str
    dtype: str | None = None
    sizes: Sequence[str] = SIZES
    blocks: Sequence[str] = BLOCKS
    split: str = "SPLIT_K"

    def perf_model(self, **arguments: Any) -> float:
        """Return the milliseconds of a kernel, by all that it is called with."""
        m, n, k = (int(arguments[name]) for name in self.sizes)
        return 1e-3 * perfc.tile_time_us(
            self.target,
            m,
            n,
            k,
            tile=[arguments[name] for name in self.blocks],
            dtype=self.dtype or _dtype_of(arguments),
            warps=arguments["num_warps"],
            stages=arguments["num_stages"],
            split_k=arguments.get(self.split, 1),
        )

    def early_config_prune(
        self, given: Sequence[Any], named_args: Mapping[str, Any], **others: Any
    ) -> list[Any]:
        """Return the configurations that an SM can hold; all, if it can hold none."""
        able = [
            config
            for config in given
            if math.isfinite(
                self.perf_model(**{**named_args, **others, **config.all_kwargs()})
            )
        ]
        return able or list(given)


def _dtype_of(arguments: Mapping[str, Any]) -> Any:
    """Return the type of the first argument that has one."""
    found = next((a.dtype for a in arguments.values() if hasattr(a, "dtype")), "bf16")
    return "tf32" if str(found) == "torch.float32" else found


def pruning(target: str, top_k: int = 10, **named: Any) -> dict[str, Any]:
    """Return the entries of `prune_configs_by` of `triton.autotune`.

    Args:
        target: What the kernel is going to run on.
        top_k: How many configurations are measured.
        named: Other attributes of `TileModel`.

    """
    model = TileModel(target, **named)
    return {
        "early_config_prune": model.early_config_prune,
        "perf_model": model.perf_model,
        "top_k": top_k,
    }


@dataclass
class Ranking:
    """What is left of configurations, as Triton's autotuner uses `pruning`.

    Attributes:
        able: How many of them an SM can hold.
        best: The best, with their milliseconds.

    """

    able: int
    best: list[tuple[float, Any]] = field(default_factory=list[tuple[float, Any]])


def rank(
    given: Sequence[Any], prune: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Ranking:
    """Return the best configurations for a call."""
    able = prune["early_config_prune"](given, arguments)
    times = [(prune["perf_model"](**arguments, **c.all_kwargs()), c) for c in able]
    times.sort(key=lambda each: each[0])
    return Ranking(len(able), times[: prune["top_k"]])


def main() -> None:
    """Rank all configurations for some GEMMs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="a100")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--top-k", type=int, default=10)
    options = parser.parse_args()
    prune = pruning(options.target, options.top_k, dtype=options.dtype)
    given = configs()
    started, saved = time.perf_counter(), 0
    for sizes in SAMPLES:
        found = rank(given, prune, dict(zip(SIZES, sizes, strict=True)))
        saved += found.able - len(found.best)
        time_ms, first = found.best[0]
        gemm = f"{' x '.join(map(str, sizes))}, {options.dtype} on {options.target}"
        counts = f"{len(given)} configurations, {found.able} fit"
        print(f"{gemm}: {counts}, {len(found.best)} to measure")
        print(f"  {time_ms * 1e3:.1f} us: {first.all_kwargs()}")
    took_s = time.perf_counter() - started
    saved_s = saved * (COMPILE_S + MEASURE_S)
    print(
        f"ranked in {took_s:.1f} s; {saved} of {saved + options.top_k * len(SAMPLES)} "
        f"measurements saved, {saved_s / 60:.0f} min "
        f"({COMPILE_S:g} s to compile, {MEASURE_S:g} s to measure)"
    )


if __name__ == "__main__":
    main()
