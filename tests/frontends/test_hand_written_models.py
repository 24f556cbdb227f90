"""What models call that are written by hand, recorded and read from archives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.frontends.pt2_models import small_model
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing

import perfc
from perfc.frontends.pt2 import read_description
from perfc.frontends.torch import values
from perfc.ir import Graph, Program

F: Any = nn.functional
_CHECKPOINT: Any = vars(checkpointing)["checkpoint"]
_LINALG: Any = vars(torch.linalg)
_FFT: Any = vars(torch.fft)
_BROADCAST: Any = vars(torch)["broadcast_tensors"]
_EXPORT: Any = vars(torch.export)["export"]


class Function(nn.Module):
    """A function with one weight."""

    def __init__(self, call: Callable[..., Any], *shape: int) -> None:
        """Make the weight."""
        super().__init__()
        self.call, self.weight = call, nn.Parameter(torch.ones(shape))

    def forward(self, *args: Tensor) -> Any:
        """Call it."""
        return self.call(self.weight, *args)


def _graph(program: Program) -> Graph:
    graph = program.classes[0].ops
    assert graph is not None
    return graph


def _recorded(module: nn.Module, *args: Tensor, mode: str = "inference") -> Program:
    return perfc.from_torch(module, args, mode=mode).program


def _exported(module: nn.Module, *args: Tensor) -> Any:
    return _EXPORT(module, args, strict=False)


def _report(model: Any) -> perfc.Report:
    return perfc.analyze(model, "a100", inputs="device")


def _steps(module: nn.Module, *args: Tensor) -> tuple[perfc.Report, perfc.Report]:
    """Return a step of training as recorded, and as derived from an archive."""
    recorded = perfc.from_torch(
        module, args, mode="training", optimizer="sgd", loss="mse"
    )
    archive = perfc.load(_exported(module, *args), mode="training", optimizer="sgd")
    return _report(recorded), _report(archive)


# What is known of masks, and what is computed twice


class Decoder(nn.Module):
    """A decoder whose causal mask is a buffer that is filled in place."""

    def __init__(self, length: int) -> None:
        """Make the layers and the mask."""
        super().__init__()
        layer = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True)
        self.layers = nn.TransformerDecoder(layer, 1)
        mask = torch.empty(length, length).fill_(float("-inf")).triu_(1)
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to what came before."""
        out: Tensor = self.layers(x, x, tgt_mask=self.mask)
        return out


@pytest.mark.parametrize("length", [16, 448])
def test_a_mask_that_is_a_buffer(length: int) -> None:
    """Whether the mask is causal is known, as in a real run."""
    x = torch.zeros(2, length, 32)

    program = perfc.from_torch(lambda: Decoder(length), (x,)).program

    attention = [node for node in _graph(program) if node.op == "attention"]
    assert [True, False] == [node.attributes.flag("causal") for node in attention]


def test_a_mask_that_is_written_later() -> None:
    """What is written into a filled tensor, or a view of it, is not known any more."""

    def call(weight: Tensor, x: Tensor) -> Tensor:
        made = torch.empty(4, device=x.device).fill_(1.0)
        made[:2] = x[:2]
        return weight if made.sum() > 0 else x

    with pytest.raises(perfc.PerfcError, match="reads elements of a tensor"):
        _recorded(Function(call, 4), torch.zeros(1 << 21))


def test_ones_like_what_is_not_known() -> None:
    """`F.gaussian_nll_loss` asks whether any variance is negative."""

    def call(weight: Tensor, x: Tensor) -> Tensor:
        y = weight * x
        loss: Tensor = F.gaussian_nll_loss(y, x, torch.ones_like(y))
        return loss

    program = _recorded(Function(call, 8), torch.zeros(4, 8), mode="training")

    assert "item" in {node.op for node in _graph(program)}


def test_checkpoints_in_autocast() -> None:
    """What is computed again is computed in the same precision."""

    def call(weight: Tensor, x: Tensor) -> Tensor:
        def multiplied(x: Tensor) -> Tensor:
            out: Tensor = F.linear(x, weight).sin()
            return out

        with torch.autocast("cuda", dtype=torch.bfloat16):
            out: Tensor = _CHECKPOINT(multiplied, x * 2, use_reentrant=False)
        return out

    module = Function(call, 64, 64)
    graph = _graph(_recorded(module, torch.zeros(8, 64), mode="training"))

    matmuls = [node for node in graph if node.op == "matmul"]
    types = [node.operands[0].type for node in matmuls]
    assert ["bf16"] * 3 == [str(type_.dtype) for type_ in types if type_ is not None]
    assert ["forward", "backward"] == [n.location.phase for n in matmuls[:2]]


def test_padding_of_an_encoder() -> None:
    """`nn.TransformerEncoder` asks where the padding is; no token is left out."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    module = nn.TransformerEncoder(layer, 1)
    x = torch.zeros(2, 8, 32)

    model = perfc.from_torch(
        module, (x,), {"src_key_padding_mask": torch.zeros(2, 8, dtype=torch.bool)}
    )

    (remark,) = model.program.diagnostics
    assert "data-assumed" == remark.code
    assert "padding" in remark.message
    assert {"attention", "item"} <= {node.op for node in _graph(model.program)}


# Ops


def _scattered(weight: Tensor, at: Tensor) -> Tensor:
    counts = torch.bincount(at, minlength=4)
    out = torch.zeros(4, 8, device=at.device).index_reduce(0, at, weight, "mean")
    return out / counts.clamp(min=1)[:, None]


_AT = torch.zeros(16, dtype=torch.int64)
_X = torch.ones(4, 8)
_CALLS: list[tuple[Callable[[Any, Any], Any], tuple[int, ...], tuple[Tensor, ...]]] = [
    (lambda w, x: F.bilinear(x, x, w), (5, 8, 8), (_X,)),
    (lambda w, x: F.bilinear(x, x, w, w[:, 0, 0]), (5, 8, 8), (_X.expand(3, 4, 8),)),
    (lambda w, x: x @ w.mH, (8, 8), (_X,)),
    (lambda w, x: torch.mul(*_BROADCAST(w, x)), (8,), (_X,)),
    (lambda w, x: _LINALG["norm"](w * x, dim=-1), (8,), (_X,)),
    (lambda w, x: _FFT["irfft2"](_FFT["rfft2"](w * x), s=(4, 8)), (8,), (_X,)),
    (_scattered, (16, 8), (_AT,)),
]


@pytest.mark.parametrize(("call", "shape", "args"), _CALLS)
def test_ops_are_known(
    call: Callable[..., Any], shape: tuple[int, ...], args: tuple[Tensor, ...]
) -> None:
    """Of a recording and of an archive, which does as much."""
    module = Function(call, *shape)

    program = perfc.load(_exported(module, *args)).program
    recorded = _recorded(module, *args)

    for graph in (_graph(program), _graph(recorded)):
        assert "unknown" not in {node.op for node in graph}
    flops = [
        _report(perfc.load(_exported(module, *args))),
        _report(perfc.from_torch(module, args)),
    ]
    assert flops[0].summary["flops"] == pytest.approx(flops[1].summary["flops"], 0.05)


def test_counts_of_what_is_not_known() -> None:
    """There are as many counts as are asked for, which the program says."""

    def call(weight: Tensor, x: Tensor) -> Tensor:
        return torch.bincount((x @ weight).argmax(-1), minlength=6)

    program = _recorded(Function(call, 8, 6), _X)

    (remark,) = program.diagnostics
    assert "no element is larger than 5" in remark.message


def test_weight_norm() -> None:
    """An archive has one call a weight, whose gradient is known."""
    normed: Any = vars(nn.utils.parametrizations)["weight_norm"]
    module = normed(nn.Conv1d(8, 8, 3))

    recorded, derived = _steps(module, torch.zeros(2, 8, 32))

    assert {} == derived.to_dict()["coverage"]["unknown_ops"]
    assert derived.summary["flops"] == pytest.approx(recorded.summary["flops"], 0.05)


def test_groups_of_an_open_batch() -> None:
    """Experts' rows are distributed evenly where the batch is open."""
    experts = torch.zeros(4, 16, 32, dtype=torch.bfloat16)

    def call(weight: Tensor, x: Tensor, ends: Tensor) -> Tensor:
        out: Tensor = F.grouped_mm(x @ weight, experts, offs=ends)
        return out

    module = Function(call, 16, 16)
    module.bfloat16()
    x = torch.zeros(64, 16, dtype=torch.bfloat16)
    ends = torch.tensor([4, 8, 12, 64], dtype=torch.int32)
    rows = {0: 4 * torch.export.Dim("tokens")}
    exported = _EXPORT(module, (x, ends), dynamic_shapes=({"args": (rows, None)}))

    report = _report(perfc.load(exported, batch=256))

    assert {} == report.to_dict()["coverage"]["unknown_ops"]
    assert report.summary["flops"] >= 2 * 256 * 16 * (16 + 32)


# Gradients of archives


def test_gradient_of_many_factors() -> None:
    """Products of several tensors go pair by pair, forward and back (Mamba-2)."""

    def call(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bln,bsn,hls,bshp->blhp", x @ weight, x, y, _chunks(x))

    x = torch.ones(4, 64, 16)
    recorded, derived = _steps(Function(call, 16, 16), x, torch.ones(8, 64, 64))

    flops = recorded.summary["flops"]
    assert derived.summary["flops"] == pytest.approx(flops, 0.1)
    peak = recorded.summary["peak_memory_bytes"]
    assert derived.summary["peak_memory_bytes"] < 2 * peak


def _chunks(x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    return x.view(batch, length, 8, 2)


def test_what_is_detached() -> None:
    """No gradient goes where a recording has none."""

    def call(weight: Tensor, x: Tensor) -> Tensor:
        target = (x @ weight).detach()
        return (x @ weight) * target

    recorded, derived = _steps(Function(call, 64, 64), torch.zeros(32, 64))

    assert derived.summary["flops"] == pytest.approx(recorded.summary["flops"], 0.02)


# Refusals


def _flex(weight: Tensor, x: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    attend: Any = flex_attention
    found: Tensor = attend(x * weight, x, x)
    return found


def _branch(weight: Tensor, x: Tensor) -> Tensor:
    branch: Any = vars(torch)["cond"]
    out: Tensor = branch(x.sum() > 0, torch.sin, torch.cos, (x * weight,))
    return out


def _ragged(weight: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    nest: Any = vars(torch.nested)["nested_tensor_from_jagged"]
    out: Tensor = nest(x * weight, ends).sin()
    return out


_REFUSED: list[tuple[Callable[..., Any], tuple[Tensor, ...], str]] = [
    (_branch, (_X,), r"data decide what torch\.cond runs; call"),
    (_ragged, (_X, torch.tensor([0, 1, 4])), "data decide the sizes of nested tensors"),
    (_flex, (torch.zeros(1, 2, 16, 8),), "flex_attention.*scaled_dot_product_att"),
]


@pytest.mark.parametrize(("call", "args", "reason"), _REFUSED)
def test_refusals(
    call: Callable[..., Any], args: tuple[Tensor, ...], reason: str
) -> None:
    """What a capture cannot follow is refused in a line that says what to do."""
    with pytest.raises(perfc.PerfcError, match=reason):
        _recorded(Function(call, 8), *args)


def test_a_refusal_leaves_the_compiler_as_it_was() -> None:
    """Dynamo has begun to compile the functions when they are refused."""
    with pytest.raises(perfc.PerfcError, match="data decide"):
        _recorded(Function(_branch, 8), _X)

    def chosen(_: Tensor, x: Tensor) -> Any:
        return vars(torch)["cond"](x.sum() > 0, torch.sin, torch.cos, (x,))

    program = _exported(Function(chosen, 8), _X)
    assert "cond" in str(program.graph)


def test_states_of_optimizers_have_no_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made like parameters, and would fill the host's memory."""
    sizes: list[int] = []
    on_host = values.on_host

    def counted(func: Any, args: Any, kwargs: Any) -> Any:
        made = on_host(func, args, kwargs)
        sizes.extend(tensor.numel() for tensor in values.tensors_in(made))
        return made

    monkeypatch.setattr(values, "on_host", counted)
    module, x = nn.Linear(512, 512), torch.zeros(4, 512)
    perfc.from_torch(module, (x,), mode="training", optimizer="adam", loss="mse")

    assert max(sizes, default=0) < 512 * 512


def test_an_archive_with_vmap() -> None:
    """Sizes inside of it are not those of the file."""
    model = small_model()
    (first, *_) = model["graph_module"]["graph"]["nodes"]
    first["target"] = "torch._functorch.predispatch._add_batch_dim"

    with pytest.raises(perfc.PerfcError, match="run_decompositions"):
        read_description(json.dumps(model).encode(), "vmap")
