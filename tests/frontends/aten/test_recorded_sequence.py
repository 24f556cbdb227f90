"""The recorded ops are those that eager PyTorch dispatches, in its order.

What eager PyTorch dispatches is what its profiler sees on the CPU: the outermost ops
that are not composed of others. Where a GPU, or a recording, has another op, the table
`ELSEWHERE` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import perfc
from perfc.frontends.aten import AtenBuilder, AtenCall
from perfc.frontends.torch.internals import C

ELSEWHERE: Mapping[str, str] = {
    # Attention has a kernel of its own on each device.
    "_scaled_dot_product_flash_attention_for_cpu": (
        "_scaled_dot_product_flash_attention"
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        "_scaled_dot_product_flash_attention_backward"
    ),
    # Whoever looks on keeps PyTorch from adding gradients up in place
    # (`can_accumulate_inplace` in `input_buffer.cpp`), which launches the same kernel.
    "add_": "add",
    # `reshape` makes a view through another op where nobody looks on.
    "_reshape_alias": "view",
    # Autograd calls what `index_put_` is made of.
    "_index_put_impl_": "index_put_",
}
"""What eager PyTorch runs on the CPU, and what is recorded instead."""

HOST_ONLY = ("detach", "detach_", "lift_fresh", "empty")
"""Bookkeeping without kernels: autograd's copies that share memory, and memory."""

LONG = torch.int64


class Transformer(nn.Module):
    """Embedding, layer norm, attention with a residual, GELU."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.table, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.head = nn.Linear(16, 20)

    def forward(self, ids: Tensor) -> Tensor:
        """Attend once."""
        x = self.table(ids)
        parts = self.qkv(self.norm(x)).split(16, dim=2)
        q, k, v = (part.view(2, 5, 2, 8).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        logits: Tensor = self.head(functional.gelu(x))
        return logits


class Dlrm(nn.Module):
    """Two tables, products of pairs, an MLP."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.bottom, self.top = nn.Linear(4, 8), nn.Linear(8 + 3, 1)
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(10, 8, mode="sum") for _ in range(2)
        )

    def forward(self, dense: Tensor, offsets: Tensor, *indices: Tensor) -> Tensor:
        """Return one probability a sample."""
        x = torch.relu(self.bottom(dense))
        pooled = [t(i, offsets) for t, i in zip(self.tables, indices, strict=True)]
        vectors = torch.cat([x, *pooled], dim=1).view(len(x), -1, 8)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, [0, 0, 1], [1, 2, 2]]
        return torch.sigmoid(self.top(torch.cat([x, pairs], dim=1)))


def mlp() -> nn.Module:
    """Make a multi-layer perceptron."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Tanh())


def conv_net() -> nn.Module:
    """Make a convolution with batch norm and two ways of pooling."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )


MODELS: Mapping[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "mlp": (mlp, (torch.zeros(4, 8),)),
    "conv_net": (conv_net, (torch.zeros(2, 3, 8, 8),)),
    "transformer": (Transformer, (torch.zeros(2, 5, dtype=LONG),)),
    "dlrm": (
        Dlrm,
        (torch.zeros(4, 4), torch.arange(4), *[torch.zeros(4, dtype=LONG)] * 2),
    ),
}
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1, foreach=True),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
    "adagrad": partial(torch.optim.Adagrad, foreach=True),
    "adamw": partial(torch.optim.AdamW, foreach=True),
    "fused_adamw": partial(torch.optim.AdamW, fused=True),
}


REGISTERED: Iterable[str] = C._dispatch_get_registrations_for_dispatch_key(
    "CompositeImplicitAutograd"
)
COMPOSED = {name.partition(".")[0] for name in REGISTERED} - {"aten::split"}
"""Ops that are made of others on every device. The profiler does not name overloads:
of `split` these models use the one that is not composed."""


def _start(event: Any) -> float:
    return float(event.time_range.start)


def dispatched(events: Iterable[Any]) -> Iterator[str]:
    """Yield the outermost ops that are not composed of others."""
    for event in sorted(events, key=_start):
        if event.name.startswith("aten::") and event.name not in COMPOSED:
            yield event.name.removeprefix("aten::")
        else:
            yield from dispatched(event.cpu_children)


def run_eagerly(
    model: nn.Module, args: tuple[Tensor, ...], optimizer: torch.optim.Optimizer
) -> list[str]:
    """Return the ops of the second step, as PyTorch's profiler has them."""

    def step() -> None:
        model(*args).sum().backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        step()
    events: Any = profile.events()
    names = dispatched([event for event in events if event.cpu_parent is None])
    return [ELSEWHERE.get(name, name) for name in names if name not in HOST_ONLY]


def record(
    model: nn.Module,
    args: tuple[Tensor, ...],
    optimizer: Callable[..., torch.optim.Optimizer],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """Return the ops of a recorded step, before any is made a node."""
    names: list[str] = []
    call = AtenBuilder.call

    def noted(self: AtenBuilder, found: AtenCall) -> None:
        names.append(found.target.split(".")[1])
        call(self, found)

    monkeypatch.setattr(AtenBuilder, "call", noted)
    perfc.from_torch(model, args, mode="training", optimizer=optimizer, loss="sum")
    return [name for name in names if name not in HOST_ONLY]


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [(name, "sgd") for name in MODELS]
    + [("mlp", name) for name in OPTIMIZERS if name != "sgd"],
)
def test_recorded_ops_are_those_that_run(
    model: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward, backward and optimizer: the same ops in the same order."""
    make, args = MODELS[model]
    module = make()
    ran = run_eagerly(module, args, OPTIMIZERS[optimizer](module.parameters()))
    recorded = record(make(), args, OPTIMIZERS[optimizer], monkeypatch)
    assert [ELSEWHERE.get(name, name) for name in recorded] == ran
