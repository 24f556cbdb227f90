"""tensor-parallel of modules as model hubs write them: every matmul is shared."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

import perfc
from perfc.ir import Graph
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.passes import Pass, ShapeInference, TensorParallel

RANKS, BATCH, SEQ, HIDDEN, HEADS, DIM = 4, 2, 16, 64, 8, 8
EXPERTS = 4
_MATMULS = ("attention", "einsum", "linear", "matmul")


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x[..., : DIM // 2], x[..., DIM // 2 :]
    return x * cos + torch.cat((-right, left), -1) * sin


def _repeated(x: Tensor, times: int) -> Tensor:
    b, heads, s, d = x.shape
    x = x[:, :, None].expand(b, heads, times, s, d)
    return x.reshape(b, heads * times, s, d)


class _Attention(nn.Module):
    """Rotated queries and keys, keys of several queries, a mask for all heads."""

    def __init__(self, keys: int = 4, *, flash: bool = True) -> None:
        super().__init__()
        self.keys, self.flash = keys, flash
        self.q: nn.Module = nn.Linear(HIDDEN, HEADS * DIM, bias=False)
        self.k = nn.Linear(HIDDEN, keys * DIM, bias=False)
        self.v = nn.Linear(HIDDEN, keys * DIM, bias=False)
        self.o = nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.norm = nn.LayerNorm(HIDDEN)
        self.sinks = nn.Parameter(torch.zeros(HEADS))

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        y = self.norm(x)
        q, k, v = (
            layer(y).view(b, s, -1, DIM).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        angles = torch.arange(s, device=x.device)[:, None] * torch.ones(DIM).to(x)
        q, k = (_turned(each, angles.cos(), angles.sin()) for each in (q, k))
        k, v = (_repeated(each, HEADS // self.keys) for each in (k, v))
        mask = torch.zeros(b, 1, s, s, dtype=x.dtype, device=x.device)
        mask = mask.expand(b, HEADS, s, s)
        if self.flash:
            mixed = scaled_dot_product_attention(q, k, v, mask)
        else:
            scores = q @ k.transpose(2, 3) / math.sqrt(DIM) + mask
            sinks = self.sinks.reshape(1, -1, 1, 1).expand(b, -1, s, -1)
            mixed = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1] @ v
        joined = mixed.transpose(1, 2).contiguous().reshape(b, s, -1)
        return torch.add(x, self.o(joined))


class _Packed(nn.Module):
    """One layer for queries, keys and values: `first` says which axis holds those."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.qkv, self.o = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        if self.first:
            parts = self.qkv(x).reshape(b, s, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
            q, k, v = parts.unbind(0)
        else:
            parts = self.qkv(x).reshape(b, s, HEADS, 3, DIM)
            q, k, v = (parts[..., n, :].transpose(1, 2) for n in range(3))
        mixed = scaled_dot_product_attention(q, k, v)
        return torch.add(x, self.o(mixed.transpose(1, 2).reshape(b, s, -1)))


class _Experts(nn.Module):
    """A matrix for each expert, and tokens in the order of these."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(EXPERTS, 4 * HIDDEN, HIDDEN))
        self.down = nn.Parameter(torch.zeros(EXPERTS, HIDDEN, 2 * HIDDEN))

    def forward(self, x: Tensor, order: Tensor, shares: Tensor) -> Tensor:
        tokens = x.view(-1, HIDDEN)
        rows = tokens[order].view(EXPERTS, -1, HIDDEN)
        gate, up = torch.bmm(rows, self.up.transpose(1, 2)).chunk(2, -1)
        made = torch.bmm(silu(gate) * up, self.down.transpose(1, 2)).view(-1, HIDDEN)
        made = (made * shares[:, None])[order.argsort()]
        return x + made.view(-1, 2, HIDDEN).sum(1).view(x.shape)


class _NormedHeads(_Attention):
    """Queries are normalized over all heads, so that no rank can do with its own."""

    def __init__(self, *, flash: bool) -> None:
        super().__init__(flash=flash)
        self.q = nn.Sequential(self.q, nn.LayerNorm(HIDDEN))


def _x() -> Tensor:
    return torch.zeros(BATCH, SEQ, HIDDEN)


def _routed() -> tuple[Tensor, ...]:
    tokens = 2 * BATCH * SEQ
    return _x(), torch.zeros(tokens, dtype=torch.int64), torch.zeros(tokens)


def _graphs(module: nn.Module, *args: Tensor) -> list[Graph]:
    """Return the graph of one rank for all, and of one of several."""
    passes: list[list[Pass]] = [
        [],
        [ShapeInference(), TensorParallel(ranks=RANKS), ShapeInference()],
    ]
    models = [perfc.from_torch(module, args, transforms=each) for each in passes]
    found = [rank.ops for model in models for rank in model.program.classes]
    return [graph for graph in found if graph is not None]


def _flops(graph: Graph) -> dict[str, int]:
    """Return the flops of matmuls by name, those of biases apart."""
    found = dict[str, int]()
    for node in graph:
        if node.op in _MATMULS:
            operands, results = (
                [value.type for value in values if value.type is not None]
                for values in (node.operands, node.results)
            )
            work = BUILTIN_OPS[node.op].work(node.attributes, operands, results)
            biases = results[0].numel if len(node.operands) == 3 else 0
            biases = biases if node.op == "linear" else 0
            found[node.name] = int(work.flops) - int(biases)
    return found


@pytest.mark.parametrize(
    "make",
    [
        _Attention,
        lambda: _Attention(flash=False),
        lambda: _Packed(first=True),
        lambda: _Packed(first=False),
        lambda: nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, batch_first=True),
    ],
    ids=("fused", "spelled out", "packed", "packed by head", "PyTorch's"),
)
def test_work_of_all_ranks_adds_up(make: Callable[[], nn.Module]) -> None:
    """However heads are spelled, all ranks together multiply as one would."""
    whole, part = map(_flops, _graphs(make(), _x()))

    assert whole == {name: RANKS * flops for name, flops in part.items()}


def test_work_of_experts_adds_up() -> None:
    """Ranks share the matrices of experts, and send one row a token in the end."""
    one, other = _graphs(_Experts(), *_routed())
    whole, part = _flops(one), _flops(other)
    (total,) = (node for node in other if node.op == "all_reduce")

    assert whole == {name: RANKS * flops for name, flops in part.items()}
    assert total.results[0].type is not None
    assert BATCH * SEQ * HIDDEN == total.results[0].type.numel


def test_one_key_for_all_heads_is_whole() -> None:
    """Ranks share queries, and each has the one head of keys that these read."""
    whole, part = map(_flops, _graphs(_Attention(keys=1), _x()))
    ratios = sorted(whole[name] // part[name] for name in whole)

    assert [1, 1, *[RANKS] * (len(whole) - 2)] == ratios


@pytest.mark.parametrize("flash", [True, False])
def test_a_norm_over_all_heads_is_refused_by_name(*, flash: bool) -> None:
    """Attention that every rank would run whole names its module, and the norm."""
    module = nn.Sequential(_NormedHeads(flash=flash))
    with pytest.raises(
        UnsupportedModelError, match=r"^0: .* layer_norm in 0\.q\.1 needs"
    ):
        _graphs(module, _x())
