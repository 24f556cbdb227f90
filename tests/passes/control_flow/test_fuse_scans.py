"""Loops over a sequence: they are remarked on, and priced as one kernel each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import perfc
from perfc.ir import Graph, Node, PerfcError
from perfc.passes.control_flow import FuseScans

BATCH, STEPS, WIDTH, STATE = 4, 32, 64, 16


class Scan(nn.Module):
    """A state of [batch, width, state] that is carried over the sequence."""

    def __init__(self, *, in_place: bool = False) -> None:
        """Make the weights."""
        super().__init__()
        self.decay = nn.Parameter(torch.zeros(WIDTH, STATE))
        self.out = nn.Parameter(torch.zeros(STATE))
        self.in_place = in_place

    def forward(self, u: Tensor) -> Tensor:
        """Walk over the sequence."""
        decay = torch.exp(self.decay)
        state = torch.zeros(BATCH, WIDTH, STATE, device=u.device)
        made, found = list[Tensor](), torch.zeros_like(u)
        for step in range(u.shape[1]):
            state = decay * state + u[:, step, :, None]
            seen = (state * self.out).sum(-1)
            if self.in_place:
                found[:, step] = seen
            made.append(seen)
        return found if self.in_place else torch.stack(made, 1) * torch.sigmoid(u)


class Model(nn.Module):
    """A scan between two layers."""

    def __init__(self, scan: nn.Module) -> None:
        """Make the layers."""
        super().__init__()
        self.first, self.scan = nn.Linear(WIDTH, WIDTH), scan
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, u: Tensor) -> Tensor:
        """Run them."""
        out: Tensor = self.last(self.scan(self.first(u)))
        return out


class Residual(nn.Module):
    """Blocks that add to what they are given."""

    def __init__(self) -> None:
        """Make the blocks."""
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(20))

    def forward(self, u: Tensor) -> Tensor:
        """Run them."""
        for block in self.blocks:
            u = u + torch.relu(block(u)) * 2
        return u


class Heads(nn.Module):
    """Many alike that know nothing of each other."""

    def forward(self, u: Tensor) -> Tensor:
        """Run them."""
        return torch.cat([torch.relu(u * i) + 1 for i in range(20)])


class Cell(nn.Module):
    """A recurrent layer: each step multiplies by a weight."""

    def __init__(self) -> None:
        """Make the weight."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def forward(self, u: Tensor) -> Tensor:
        """Walk over the sequence."""
        state = u[:, 0]
        for step in range(u.shape[1]):
            state = torch.tanh(nn.functional.linear(state, self.weight) + u[:, step])
        return state


U = (torch.Size((BATCH, STEPS, WIDTH)),)


def _recorded(module: nn.Module, **options: Any) -> perfc.Model:
    return perfc.from_torch(module, U, **options)


def _nodes(model: perfc.Model) -> list[Node]:
    graph: Graph | None = model.program.classes[0].ops
    assert graph is not None
    return list(graph)


def _remarks(model: perfc.Model) -> list[str]:
    return [d.message for d in model.program.diagnostics if d.code == "step-loop"]


def test_loop_is_remarked_on() -> None:
    """Which module, how many steps, and how the kernel is priced that is missing."""
    (remark,) = _remarks(_recorded(Model(Scan())))

    assert f"scan runs {STEPS} steps one after another" in remark
    assert "--pass fuse-scans" in remark
    (remark,) = _remarks(_recorded(nn.Sequential(Scan(), Scan()), mode="training"))
    assert "0 (and 1 more of its kind) runs" in remark


@pytest.mark.parametrize("make", [Residual, Heads, Cell])
def test_what_is_no_loop_is_not_remarked_on(make: Callable[[], nn.Module]) -> None:
    """Layers, heads and steps that multiply by weights are repeated too."""
    assert [] == _remarks(_recorded(make()))


@pytest.mark.parametrize("in_place", [False, True])
def test_loop_becomes_one_kernel(*, in_place: bool) -> None:
    """It reads what it needs once, writes what others read once, with all flops."""
    slow = _recorded(Model(Scan(in_place=in_place)))
    fast = _recorded(Model(Scan(in_place=in_place)), transforms=[FuseScans()])
    (fused,) = [node for node in _nodes(fast) if node.op == "unknown"]
    names = {v.name.rpartition(".")[2] for v in fused.operands}
    element = BATCH * WIDTH * STATE

    assert not _remarks(fast)
    assert len(_nodes(fast)) < len(_nodes(slow)) / 10
    assert {"decay", "out"} <= names
    assert BATCH * STEPS * WIDTH == sum(
        v.type.numel for v in fused.results if v.type is not None
    )
    # A product, a sum, a product, a sum over states.
    least = STEPS * 4 * element
    assert least * 0.95 < fused.attributes.integer("flops") < least * 1.1
    slow_report = perfc.analyze(slow, target="a100")
    report = perfc.analyze(fast, target="a100")
    assert report.time_us < slow_report.time_us / 5
    assert {"fused scan": 1} == report.coverage["unknown_ops"]
    assert report.interval_us[1] > 1.5 * report.time_us


def test_training_is_refused() -> None:
    """Gradients of such a kernel are worked out otherwise than those of the loop."""
    with pytest.raises(PerfcError, match="not a training step"):
        _recorded(Model(Scan()), mode="training", transforms=[FuseScans()])
