"""The hook that ranks Inductor's templates: what it is asked, and what it keeps."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.examples.modules import example
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.template_heuristics.params import DictKernelTemplateParams
from torch._inductor.template_heuristics.triton import BaseConfigHeuristic
from torch._inductor.virtualized import V

import perfc

hook = example("autotune/inductor_hook")
SIZES = (512, 4096, 1024)


class Matrix:
    """An operand, as Inductor's nodes have it."""

    def __init__(self, *size: int, dtype: torch.dtype = torch.bfloat16) -> None:
        """Take its size."""
        self.size, self.dtype = size, dtype

    def get_size(self) -> tuple[int, ...]:
        """Return its size."""
        return self.size

    def get_dtype(self) -> torch.dtype:
        """Return its type."""
        return self.dtype


def choices_of(
    listed: list[dict[str, Any]], op: str = "mm", *, batch: int = 1, **named: Any
) -> list[dict[str, Any]]:
    """Return the options that are left of templates' options, by Inductor's own way."""
    m, n, k = SIZES
    lead = (batch,) if batch > 1 else ()
    inputs = MMKernelInputs(
        [Matrix(*lead, m, k, **named), Matrix(*lead, k, n, **named)]
    )
    template: Any = SimpleNamespace(uid="triton::mm")
    made: list[Any] = [
        KernelTemplateChoice(template, DictKernelTemplateParams(one), {}, None, inputs)  # type: ignore[arg-type]  # no layout is read
        for one in listed
    ]
    with V.set_graph_handler(SimpleNamespace(sizevars=SizeVarAllocator())):  # type: ignore[arg-type]  # all that sizes need
        left = hook.TileRankedChoices("h100", 4)._finalize_template_configs(
            {"triton::mm": iter(made)}, inputs, [template], op
        )
    return [choice.params.to_kwargs() for choice in left]


OPTIONS = [hook.options_of(one) for one in BaseConfigHeuristic().mm_configs]


def test_inductor_has_what_is_hooked() -> None:
    """The method takes what PyTorch 2.13 gives it, and the base class calls it."""
    name = "_finalize_template_configs"
    theirs, own = (
        list(inspect.signature(getattr(each, name)).parameters)
        for each in (InductorChoices, hook.TileRankedChoices)
    )
    source = inspect.getsource(InductorChoices.get_template_configs)

    assert theirs == own
    assert f"self.{name}(" in source


def test_inductor_asks_the_hook() -> None:
    """Within the block and nowhere else, and its caches know."""
    before = V.choices
    with hook.ranked_templates("h100", 3) as choices:
        assert choices is V.choices
        saved = config.save_config_portable()["inductor_choices_class"]
        assert f"perfc {perfc.__version__} h100 3" == saved

    assert before is V.choices
    assert config.inductor_choices_class is None


def test_the_best_templates_are_kept() -> None:
    """Four of Inductor's own, in the order of the tile model."""
    times_us = sorted(
        perfc.tile_time_us(
            "h100",
            *SIZES,
            tile=(one["BLOCK_M"], one["BLOCK_N"], one["BLOCK_K"]),
            warps=one["num_warps"],
            stages=one["num_stages"],
        )
        for one in OPTIONS
    )
    kept = choices_of(OPTIONS)

    assert 4 == len(kept) < len(OPTIONS)
    assert times_us[:4] == [hook.template_time_us("h100", SIZES, one) for one in kept]


def test_what_has_no_tile_is_kept() -> None:
    """ATen's kernel is measured whatever perfc says of the others."""
    aten: dict[str, Any] = {"out_dtype": None}

    assert aten == choices_of([aten, *OPTIONS])[-1]


@pytest.mark.parametrize(
    ("op", "named"), [("mm_plus_mm", {}), ("mm", {"dtype": torch.int8})]
)
def test_what_perfc_cannot_tell_is_left_alone(op: str, named: dict[str, Any]) -> None:
    """Ops of two GEMMs, and types that the tile model does not know."""
    assert OPTIONS == choices_of(OPTIONS, op, **named)


def test_a_batch_is_one_of_many_gemms() -> None:
    """A batch fills the GPU by larger tiles."""
    single, batched = choices_of(OPTIONS), choices_of(OPTIONS, "bmm", batch=64)
    areas = [
        max(one["BLOCK_M"] * one["BLOCK_N"] for one in kept)
        for kept in (single, batched)
    ]

    assert areas[0] < areas[1]


def test_fp32_is_computed_as_inductor_says() -> None:
    """On tensor cores where TF32 is allowed."""
    options = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    options |= {"num_warps": 4, "num_stages": 3}
    exact, rounded = (
        hook.template_time_us(
            "a100", SIZES, {**options, "ALLOW_TF32": allowed}, dtype=torch.float32
        )
        for allowed in (False, True)
    )

    assert rounded < exact


def test_a_gemm_for_which_no_template_fits_keeps_some() -> None:
    """Inductor finds out itself."""
    options = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
    options |= {"num_warps": 8, "num_stages": 5}

    assert [options] * 4 == choices_of([options] * 6)


def test_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs neither Triton nor a GPU."""
    monkeypatch.setattr("sys.argv", ["inductor_hook.py"])
    hook.main()

    assert "4 of 1875 exhaustive_configs" in capsys.readouterr().out
