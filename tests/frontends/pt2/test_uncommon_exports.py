"""Archives of models that use what few do."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frontends.aten_recording import graph_of
from torch import nn
from torch.nn import functional

from perfc.ir import Program
from perfc.ir.text import parse_program
from perfc.passes import PassManager, ShapeInference
from perfc.passes.raising import RaiseRotary
from perfc.tools.models.model import load

Made = Callable[..., Program]


@pytest.fixture
def exported(tmp_path: Path) -> Made:
    """Export a module, read the archive again."""

    def made(
        module: nn.Module,
        *args: torch.Tensor,
        open_batch: bool = False,
        **options: Any,
    ) -> Program:
        path = tmp_path / "model.pt2"
        rows = {0: torch.export.Dim.AUTO} if open_batch else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own deprecations
            program = torch.export.export(
                module, args, dynamic_shapes=(rows,) * len(args)
            )
            torch.export.save(program, path)
        return load(path, **options).program

    return made


def _ops(program: Program) -> Counter[str]:
    return Counter(node.op for node in graph_of(program))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_gradients_of_tables_are_sparse_if_asked(
    exported: Made,
    kind: type[nn.Module],
    sparse: bool,
) -> None:
    """An archive says whether; a dense gradient is as large as the table."""
    table = kind(50, 8, sparse=sparse)
    program = exported(table, torch.zeros(4, 3, dtype=torch.int64), mode="training")
    results = [r.type for node in graph_of(program) for r in node.results]

    assert sparse == bool(_ops(program)["sparse_optimizer_step"])
    assert sparse != any(t is not None and t.shape == (50, 8) for t in results)


def test_a_pool_of_an_open_batch(exported: Made) -> None:
    """Images of a known size are pooled by a window, however many there are."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2))
    program = exported(net, torch.zeros(5, 3, 10, 10), open_batch=True, batch=7)
    (pool,) = (node for node in graph_of(program) if node.op == "pool")

    assert (4, 4) == pool.attributes.integers("window")


class _Added(nn.Module):
    """Adds rows of a linear layer up where indices say."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4, 8).index_add(0, index, self.fc(x))


def test_gradient_of_rows_added_at_places(exported: Made) -> None:
    """It looks them up: what was added is as long as the indices."""
    rows, index = torch.rand(6, 8), torch.zeros(6, dtype=torch.int64)
    program = exported(_Added(), rows, index, mode="training")
    (found,) = (node for node in graph_of(program) if node.op == "gather")

    assert (6, 8) == found.results[0].type.shape  # type: ignore[union-attr]


class _Repeated(nn.Module):
    """Repeats heads, as grouped attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.fc(x)
        return rows.repeat_interleave(3, 1)


def test_gradient_of_what_is_repeated(exported: Made) -> None:
    """It is added up over the repeats; nothing of it is unknown."""
    program = exported(_Repeated(), torch.rand(2, 4, 8), mode="training")
    ops = _ops(program)

    assert 0 == ops["rearrange"] + ops["rearrange_backward"]
    assert [] == [d for d in program.diagnostics if d.code == "no-gradient-rule"]


class _Cells(nn.Module):
    """Steps of a recurrent cell, one by one."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> object:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_are_matmuls(exported: Made, kind: type[nn.Module]) -> None:
    """Each step is two matmuls, and what CUDA fuses one kernel."""
    ops = _ops(exported(_Cells(kind(8, 16)), torch.zeros(4, 3, 8)))

    assert 6 == ops["linear"]
    assert (0 if kind is nn.RNNCell else 3) == ops["recurrent_cell"]
    assert 0 == ops["unknown"]


def _transformed(x: torch.Tensor) -> Sequence[torch.Tensor]:
    fft: Any = torch.fft  # its functions have no types
    spectrum = fft.rfft(x)
    return fft.irfft(spectrum), fft.fft2(spectrum)


def _activated(x: torch.Tensor) -> torch.Tensor:
    return functional.prelu(x, torch.full((5,), 0.1))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_activated, {"prelu": 1}),
        (_transformed, {"fft": 3}),
    ],
)
def test_what_exporters_keep_whole(
    exported: Made, function: Callable[[torch.Tensor], Any], expected: dict[str, int]
) -> None:
    """It is not unknown."""

    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return function(x)

    ops = _ops(exported(Module(), torch.rand(2, 5, 4, 6)))

    assert 0 == ops["unknown"]
    assert expected.items() <= ops.items()


def test_halves_of_a_slice_without_steps() -> None:
    """TorchScript's exporter writes no steps where all are 1."""
    ends = "dtype = !i64, shape = [1], elements"
    program = parse_program(
        f"""graph @m(%x: f32[2,8], %c: f32[2,8], %s: f32[2,8]) {{
          %zero = constant() {{{ends} = [0]}} : ?
          %half = constant() {{{ends} = [4]}} : ?
          %all = constant() {{{ends} = [8]}} : ?
          %one = constant() {{{ends} = [1]}} : ?
          %a = slice(%x, %zero, %half, %one) : ?
          %b = slice(%x, %half, %all, %one) : ?
          %n = neg(%b) : ?
          %t = concat(%n, %a) {{axis = -1}} : ?
          %y = mul(%x, %c) : ?
          %z = mul(%t, %s) : ?
          %r = add(%y, %z) : ?
          return %r
        }}"""
    )
    PassManager([ShapeInference(), RaiseRotary()]).run(program)

    assert 1 == _ops(program)["rotary"]
