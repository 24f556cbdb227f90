"""Let Inductor measure only the GEMM templates that perfc's tile model ranks first.

    with ranked_templates("h100", top_k=4):
        compiled = torch.compile(model, mode="max-autotune")
        compiled(x)

    python examples/autotune/inductor_hook.py [--target T]      # a look, without a GPU

Under `max-autotune` Inductor compiles and measures some twenty Triton templates for
each shape of a GEMM, or up to 1,875 where `max_autotune_gemm_search_space` is
`EXHAUSTIVE`. Its `InductorChoices` may be subclassed; `_finalize_template_configs` has
all choices of a GEMM while they are cheap descriptions. `TileRankedChoices` keeps the
best few of those that have a tile, and all that have none, as ATen's.

It saves the compilation and measurement of the others. Written for PyTorch 2.13; the
method is not public there, so that another version may need another hook.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.kernel_inputs import KernelInputs, MMKernelInputs
from torch._inductor.template_heuristics.triton import BaseConfigHeuristic
from torch._inductor.virtualized import V

import perfc

COMPILE_S, MEASURE_S = 1.0, 0.125
"""What is assumed of one template: seconds to compile it, and to measure it."""

_KNOWN = (torch.bfloat16, torch.float16, torch.float32)
_BLOCKS, _LAUNCH = ("BLOCK_M", "BLOCK_N", "BLOCK_K"), ("num_warps", "num_stages")
_OPS = ("mm", "addmm", "bmm", "baddbmm")
"""Ops of one GEMM, or a batch of them."""


def template_time_us(  # noqa: PLR0913 - a GEMM, and a kernel
    target: str,
    sizes: tuple[int, int, int],
    options: Mapping[str, Any],
    *,
    batch: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    persistent: bool = False,
) -> float | None:
    """Return the microseconds of a GEMM by a template; None: perfc cannot tell.

    Args:
        target: What the kernel is going to run on.
        sizes: M, N and K.
        options: Options of the template, as a `KernelTemplateChoice` has them.
        batch: GEMMs of a batch.
        dtype: Of the operands.
        persistent: Whether the template's blocks compute tile after tile.

    """
    if dtype not in _KNOWN or not options.keys() >= {*_BLOCKS, *_LAUNCH}:
        return None
    warps, stages = (options[name] for name in _LAUNCH)
    on_tensor_cores = dtype == torch.float32 and options.get("ALLOW_TF32", False)
    return perfc.tile_time_us(
        target,
        *sizes,
        tile=[options[name] for name in _BLOCKS],
        dtype="tf32" if on_tensor_cores else dtype,
        batch=batch,
        warps=warps,
        stages=stages,
        persistent=persistent,
    )


def best_of(times_us: Sequence[float | None], top_k: int) -> list[int]:
    """Return the places that are kept: the best, then those without a time."""
    told = [(us, at) for at, us in enumerate(times_us) if us is not None]
    able = sorted(each for each in told if math.isfinite(each[0])) or told
    kept = [at for _, at in able[:top_k]]
    return kept + [at for at, us in enumerate(times_us) if us is None]


class TileRankedChoices(InductorChoices):
    """Inductor's choices, of which the best by perfc's tile model are measured."""

    def __init__(self, target: str, top_k: int = 4) -> None:
        """Take the target, and how many templates with a tile are kept."""
        self.target, self.top_k = target, top_k

    def uuid(self) -> str:
        """Return the text by which Inductor's caches tell these choices."""
        return f"perfc {perfc.__version__} {self.target} {self.top_k}"

    def _finalize_template_configs(
        self,
        template_choices: dict[str, Any],
        kernel_inputs: KernelInputs,
        templates: list[Any],
        op_name: str,
        kwarg_overrides: dict[str, dict[str, Any]] | None = None,
    ) -> list[Any]:
        choices = super()._finalize_template_configs(
            template_choices, kernel_inputs, templates, op_name, kwarg_overrides
        )
        if not isinstance(kernel_inputs, MMKernelInputs) or op_name not in _OPS:
            return choices
        sizes, batch = kernel_inputs.mnk_hinted(), kernel_inputs.batch_hinted()
        times_us = [
            template_time_us(
                self.target,
                sizes,
                {**choice.extra_kwargs, **choice.params.to_kwargs()},
                batch=batch,
                dtype=kernel_inputs.mat1mat2()[0].get_dtype(),
                persistent="persistent" in choice.template.uid,
            )
            for choice in choices
        ]
        return [choices[at] for at in best_of(times_us, self.top_k)]


@contextmanager
def ranked_templates(target: str, top_k: int = 4) -> Iterator[TileRankedChoices]:
    """Have Inductor choose so, within a `with` block that compiles.

    The configuration has them, too, because Inductor's caches tell graphs by it.
    """
    choices = TileRankedChoices(target, top_k)
    with (
        config.patch(inductor_choices_class=lambda: choices),
        V.set_choices_handler(choices),
    ):
        yield choices


def main() -> None:
    """Rank Inductor's own configurations for some GEMMs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="h100")
    parser.add_argument("--top-k", type=int, default=4)
    given = parser.parse_args()
    heuristic = BaseConfigHeuristic()
    for name in ("mm_configs", "exhaustive_configs"):
        saved = 0
        for sizes in ((4096, 4096, 4096), (512, 4096, 11008), (64, 8192, 1024)):
            listed = [options_of(one) for one in getattr(heuristic, name)]
            times_us = [template_time_us(given.target, sizes, one) for one in listed]
            kept = best_of(times_us, given.top_k)
            saved += len(listed) - len(kept)
            first = listed[kept[0]]
            print(f"{sizes}: {len(kept)} of {len(listed)} {name}")
            print(f"  {times_us[kept[0]]:.1f} us: {first}")
        saved_s = saved * (COMPILE_S + MEASURE_S)
        print(
            f"{saved} measurements saved, {saved_s / 60:.0f} min "
            f"({COMPILE_S:g} s to compile, {MEASURE_S:g} s to measure)"
        )


def options_of(gemm: Any) -> dict[str, Any]:
    """Return the template's options of one of Inductor's `GemmConfig`."""
    return {
        "BLOCK_M": gemm.block_m,
        "BLOCK_N": gemm.block_n,
        "BLOCK_K": gemm.block_k,
        "num_warps": gemm.num_warps,
        "num_stages": gemm.num_stages,
    }


if __name__ == "__main__":
    main()
