"""What the signature of an exported program says: parameters, buffers, constants."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import perfc
from perfc.ir import Graph
from perfc.ir.core import BUFFER, CONST
from perfc.passes import PipelineParallel

_DIM = 32


class _Rotated(nn.Module):
    """A layer that turns what it reads by tables of the model."""

    def __init__(self) -> None:
        """Make one layer."""
        super().__init__()
        self.linear = nn.Linear(_DIM, _DIM)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Turn pairs, and project."""
        turned = torch.cat([-x[..., _DIM // 2 :], x[..., : _DIM // 2]], -1)
        return x + torch.relu(self.linear(x * cosine + turned * sine))


class _Model(nn.Module):
    """Four layers that share tables of angles: float buffers, as of RoPE."""

    cosine: Tensor
    sine: Tensor

    def __init__(self) -> None:
        """Make the layers and the tables."""
        super().__init__()
        angles = torch.outer(torch.arange(16.0), torch.arange(float(_DIM)))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin(), persistent=False)
        self.layers = nn.ModuleList([_Rotated() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        """Run the layers, and scale by a constant."""
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        return x.mean(1) * torch.tensor([0.5, 2.0], device=x.device).repeat(_DIM // 2)


def _exported() -> torch.export.ExportedProgram:
    sizes = ({0: torch.export.Dim("batch")},)
    x = torch.zeros(8, 16, _DIM)
    return torch.export.export(_Model(), (x,), dynamic_shapes=sizes)


def _graph(model: perfc.Model) -> Graph:
    graph = model.program.classes[0].ops
    assert graph is not None
    return graph


def test_kinds() -> None:
    """Each parameter is what the signature calls it."""
    graph = _graph(perfc.load(_exported(), batch=8))
    kinds = {value.name: kind for value, kind in graph.untrained.items()}

    assert {"cosine": BUFFER, "sine": BUFFER} == {
        name: kind for name, kind in kinds.items() if kind == BUFFER
    }
    assert [CONST] == [kind for kind in kinds.values() if kind != BUFFER]


def test_only_parameters_are_trained() -> None:
    """Buffers and constants have neither gradients nor state of an optimizer."""
    graph = _graph(perfc.load(_exported(), batch=8, mode="training", optimizer="adam"))
    trained = {value.name.rpartition(".")[0] for value in graph.states}

    assert {f"layers.{i}.linear.{n}" for i in range(4) for n in ("weight", "bias")} == (
        trained
    )
    weights = 4 * (_DIM * _DIM + _DIM)
    states = [v for v in graph.states if v.type is not None and v.type.rank]
    assert 2 * weights == sum(v.type.numel for v in states if v.type is not None)


def test_stages_share_buffers() -> None:
    """Each stage of a pipeline has a copy of the tables that its layers read."""
    model = perfc.load(
        _exported(),
        batch=8,
        mode="training",
        transforms=[PipelineParallel(stages=2, microbatches=2)],
    )
    tables = [
        {v.name for v, kind in rank.ops.untrained.items() if kind == BUFFER}
        for rank in model.program.classes
        if rank.ops is not None
    ]

    assert [{"cosine", "sine"}] * 2 == tables
    assert perfc.analyze(model, "dgx-a100").time_us > 0


def test_recorded_buffers() -> None:
    """A module says itself which are its buffers."""
    graph = _graph(perfc.from_torch(_Model(), torch.zeros(8, 16, _DIM)))

    assert {"cosine", "sine"} == {value.name for value in graph.untrained}
