"""Cells of recurrent layers, step by step: what CUDA fuses, and what a CPU runs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frontends.aten_recording import Recorder
from tests.passes.lowered import kernels, lower
from torch import nn

import perfc
from perfc.ir import Kernel, Program
from perfc.tools.models.model import load

STEPS, BATCH, INPUTS, HIDDEN = 3, 4, 8, 16
KINDS: dict[str, type[nn.Module]] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}
GATES, KEPT = {"gru": 3, "lstm": 4}, {"gru": 5, "lstm": 4}
X = torch.zeros(BATCH, STEPS, INPUTS)
WAYS = ("recorded", "exported")

Made = Callable[..., Program]


class _Cells(nn.Module):
    """Steps of one cell."""

    def __init__(self, kind: str, *, bias: bool = True) -> None:
        super().__init__()
        self.cell = KINDS[kind](INPUTS, HIDDEN, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state: Any = None  # one tensor, or two
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        hidden: torch.Tensor = state if isinstance(state, torch.Tensor) else state[0]
        return hidden


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Record a model, or read it from an archive."""

    def program(way: str, kind: str, mode: str, *, bias: bool = True) -> Program:
        model = _Cells(kind, bias=bias)
        if way == "recorded":
            return perfc.from_torch(model, (X,), mode=mode).program
        path = tmp_path / "model.pt2"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own deprecations
            torch.export.save(torch.export.export(model.eval(), (X,)), path)
        return load(path, mode=mode).program

    return program


def _fused(found: list[Kernel]) -> list[Kernel]:
    return [k for k in found if "fused" in str(k.params.get("kind", ""))]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_two_matmuls_and_a_kernel(
    made: Made,
    way: str,
    kind: str,
    bias: bool,
) -> None:
    """The kernel moves both matmuls, the biases, the states, and what it keeps."""
    found = kernels(lower(made(way, kind, "inference", bias=bias)))
    fused = _fused(found)
    wide = GATES[kind] * HIDDEN
    read = BATCH * (2 * wide + HIDDEN) + (2 * wide if bias else 0)
    states = 2 if kind == "lstm" else 1
    written = BATCH * HIDDEN * (states + KEPT[kind])

    assert 2 * STEPS == sum(k.op == "gemm" for k in found)
    assert STEPS == len(fused)
    assert {4 * (read + written)} == {k.work.bytes for k in fused}
    assert all(k.known for k in found)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_a_step_are_one_kernel(made: Made, way: str, kind: str) -> None:
    """Sums of the biases follow: the two of an LSTM are one."""
    program = made(way, kind, "training")
    found = kernels(lower(program))
    backward = [k for k in _fused(found) if "backward" in str(k.params["kind"])]
    sums = [k for k in found if k.op == "reduction" and k.params.get("kind") == "sum"]
    gates = GATES[kind] * HIDDEN
    # Of the last step of an LSTM only the hidden state has readers, not the cell.
    read = [(2 + 2 + KEPT[kind]) if kind == "lstm" else 1 + KEPT[kind]] * STEPS
    if kind == "lstm":
        read[0] -= 1
    wrote = HIDDEN + gates * (1 if kind == "lstm" else 2)

    expected = [4 * BATCH * (vectors * HIDDEN + wrote) for vectors in read]
    assert expected == [k.work.bytes for k in backward]
    assert STEPS * (1 if kind == "lstm" else 2) == len(sums)
    assert all(k.known for k in found)
    assert "no-gradient-rule" not in {d.code for d in program.diagnostics}


def _on_cpu(program: Program) -> list[str]:
    return [op.name for op in lower(program, target="cpu").ops]


def _dispatched(kind: str, *, training: bool) -> list[str]:
    """Return what PyTorch runs on a CPU, by name."""
    model = _Cells(kind)
    with torch.set_grad_enabled(training), Recorder() as recorder:
        out = model(X)
        if training:
            out.sum().backward()
    called = [target.split(".")[1] for target in recorder.targets]
    return [f"aten::{name}" for name in called]


_GATES = {f"aten::{op}" for op in ("sigmoid_", "tanh_", "tanh", "add_", "mul_", "sub")}
_SLOPES = {f"aten::{op}" for op in ("sigmoid_backward", "tanh_backward", "cat", "neg")}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("way", WAYS)
def test_a_cpu_runs_the_gates_apart(made: Made, way: str, kind: str) -> None:
    """Op by op, in PyTorch's order."""
    found = _on_cpu(made(way, kind, "inference"))
    expected = [n for n in _dispatched(kind, training=False) if n in _GATES]

    assert expected == [name for name in found if name in _GATES]
    assert expected


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("way", WAYS)
def test_a_cpu_runs_the_slopes_apart(made: Made, way: str, kind: str) -> None:
    """As many of each as PyTorch, but for the gradient of the first cell state."""
    found = Counter(_on_cpu(made(way, kind, "training")))
    expected = Counter(_dispatched(kind, training=True))

    assert {n: expected[n] for n in _SLOPES} == {n: found[n] for n in _SLOPES}
    unread = 1 if kind == "lstm" else 0  # CUDA's kernel writes it, whoever reads it
    assert expected["aten::mul"] + unread == found["aten::mul"]


def test_autocast_computes_cells_in_halves() -> None:
    """Matmuls, states and biases are narrow, as `gru_cell` in autocast's list."""
    model = perfc.from_torch(_Cells("gru"), (X,), dtype="amp-bf16")
    fused = _fused(kernels(lower(model.program)))

    assert {"bf16"} == {k.dtype for k in fused}
    assert STEPS == len(fused)
