"""What a joint graph of torch.export spells out becomes the calls of eager PyTorch."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.frontends.aten_recording import graph_of
from torch import nn
from torch.export.experimental import (
    _export_forward_backward,  # pyright: ignore[reportPrivateUsage]
)
from torch.nn import functional

from perfc.ir import Graph
from perfc.passes import PassManager, ShapeInference
from perfc.passes.graphs.term import parse_term
from perfc.passes.raising import RaiseGradient
from perfc.tools.models.model import load

_ROWS = (4, 8)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Module(nn.Module):
    """Applies a function to a parameter, and to an input."""

    def __init__(self, function: Loss, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight, x)


def _ops(
    function: Loss, folder: Path, shape: tuple[int, ...] = _ROWS, x: object = None
) -> Counter[str]:
    """Export forward and backward, read them again, count the ops."""
    given = x if isinstance(x, torch.Tensor) else torch.rand(shape)
    graph = _joint(_Module(function, shape), given, folder)
    return Counter(n.op for n in graph if n.op not in ("constant", "alias"))


def _joint(module: nn.Module, x: torch.Tensor, folder: Path) -> Graph:
    """Export forward and backward, and read them again."""
    path = folder / "joint.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        forward = torch.export.export(module, (x,))
        torch.export.save(_export_forward_backward(forward), path)
    return graph_of(load(path).program)


def _summed(function: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    return lambda w, x: (function(w) * x).sum()


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "leaky_relu": functional.leaky_relu,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "elu": functional.elu,
    "softplus": functional.softplus,
    "mish": functional.mish,
    "softmax": lambda w: functional.softmax(w, -1),
    "log_softmax": lambda w: functional.log_softmax(w, -1),
}


@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations(name: str, tmp_path: Path) -> None:
    """The gradient of an activation is one op, and so is the activation."""
    found = _ops(_summed(_ACTIVATIONS[name]), tmp_path)
    rest = {"mul", "reduce", "fill", "expand"}

    assert {name: 1, f"{name}_backward": 1} == {
        op: n for op, n in found.items() if op not in rest
    }


def test_gelu_by_tanh(tmp_path: Path) -> None:
    """So is that of the approximation."""
    found = _ops(_summed(lambda w: functional.gelu(w, approximate="tanh")), tmp_path)

    assert (1, 1, 0) == (found["gelu"], found["gelu_backward"], found["tanh"])


Activation = Callable[[torch.Tensor], torch.Tensor]
_OTHER_FORMS: list[tuple[Activation, tuple[str, str]]] = [
    (lambda w: functional.softplus(w, 2.0), ("softplus", "softplus_backward")),
    (lambda w: functional.elu(w * 1, inplace=True), ("elu", "elu_backward")),
    (functional.selu, ("elu", "elu_backward")),
    (functional.logsigmoid, ("log_sigmoid", "softplus_backward")),
]


@pytest.mark.parametrize(("function", "ops"), _OTHER_FORMS)
def test_other_forms_of_activations(
    function: Activation, ops: tuple[str, str], tmp_path: Path
) -> None:
    """So are those that are another's op with other numbers, or written in place."""
    found = _ops(_summed(function), tmp_path)

    assert dict.fromkeys(ops, 1) == {op: found[op] for op in ops}
    assert 0 == found["where"] + found["exp"]


_LOSSES: dict[str, Loss] = {
    "bce": functional.binary_cross_entropy,
    "bce_with_logits": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "huber": functional.huber_loss,
}


@pytest.mark.parametrize("name", _LOSSES)
def test_losses(name: str, tmp_path: Path) -> None:
    """A loss is one op, and its gradient another."""
    assert {"loss": 1, "fill": 1, "loss_backward": 1} == _ops(_LOSSES[name], tmp_path)


def test_loss_of_labels(tmp_path: Path) -> None:
    """Cross entropy is a softmax and a lookup, forward and backward."""
    labels = torch.randint(0, 8, (4,))
    found = _ops(functional.cross_entropy, tmp_path, x=labels)

    assert {
        "log_softmax": 1,
        "nll_loss": 1,
        "fill": 1,
        "nll_loss_backward": 1,
        "log_softmax_backward": 1,
    } == found


class _Normed(nn.Module):
    """A norm after a layer."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(8, 8), norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(self.inner(x)) * x
        return made.sum()


@pytest.mark.parametrize(
    ("op", "norm", "gradients"),
    [
        ("layer_norm", nn.LayerNorm(8), ("x", "weight", "bias")),
        ("batch_norm", nn.BatchNorm1d(8), ("x", "weight", "bias")),
        ("batch_norm", nn.BatchNorm1d(8, affine=False), ("x",)),
        ("group_norm", nn.GroupNorm(2, 8), ("x", "weight", "bias")),
        ("rms_norm", nn.RMSNorm(8), ("x", "weight")),
        ("rms_norm", nn.RMSNorm(8, elementwise_affine=False), ("x",)),
    ],
)
def test_norms(
    op: str, norm: nn.Module, gradients: tuple[str, ...], tmp_path: Path
) -> None:
    """A norm is one op, and its gradients are the results of another."""
    graph = _joint(_Normed(norm), torch.rand(_ROWS), tmp_path)
    found = Counter(node.op for node in graph)
    (backward,) = (node for node in graph if node.op == f"{op}_backward")

    assert (1, gradients) == (found[op], backward.attributes["wants"])
    kept = {node.operands[0] for node in graph if node.op == "alias"}
    assert set(backward.results[1:]) <= kept
    assert 0 == found["sub"] + found["div"] + found["rsqrt"]


def test_norms_of_one_sum(tmp_path: Path) -> None:
    """Two norms that are added have one gradient, and each a call of its own."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = (
                nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = (self.left(x) + self.right(x)) * x
            return made.sum()

    graph = _joint(Net(), torch.rand(_ROWS), tmp_path)
    backward = [node for node in graph if node.op == "batch_norm_backward"]

    assert [("x", "weight", "bias")] * 2 == [n.attributes["wants"] for n in backward]


def test_a_norm_by_hand(tmp_path: Path) -> None:
    """An RMS norm that the model takes step by step stays steps."""
    found = _ops(
        _summed(lambda w: w * torch.rsqrt(w.pow(2).mean(-1, keepdim=True) + 1e-6)),
        tmp_path,
    )

    assert (0, 1) == (found["rms_norm_backward"], found["rsqrt"])


def test_embedding(tmp_path: Path) -> None:
    """The gradient of a table is one op, without the masks around it."""
    words = torch.randint(0, 4, (3, 5))
    found = _ops(lambda w, x: functional.embedding(x, w).sum(), tmp_path, x=words)

    assert 1 == found["embedding_backward"]
    assert 0 == found["index_put"] + found["where"] + found["bitwise_and"]


def test_attention(tmp_path: Path) -> None:
    """Attention that the exporter spelled out is one call, forward and backward."""
    shape = (2, 4, 6, 8)
    found = _ops(
        lambda w, x: functional.scaled_dot_product_attention(w, w, x).sum(),
        tmp_path,
        shape,
    )

    assert (1, 1) == (found["attention"], found["attention_backward"])
    assert 0 == found["matmul"] + found["softmax"]


_SHOWN = torch.ones(6, 6, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    ("options", "operands", "causal"),
    [
        ({"attn_mask": _SHOWN}, 4, False),
        ({"attn_mask": _SHOWN.float()}, 4, False),
        ({"is_causal": True}, 3, True),
    ],
)
def test_masked_attention(
    options: dict[str, object],
    operands: int,
    causal: bool,
    tmp_path: Path,
) -> None:
    """So is attention that hides keys, by a mask of either kind or by their order."""
    call: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention
    module = _Module(lambda w, x: call(w, w, x, **options).sum(), (2, 4, 6, 8))
    graph = _joint(module, torch.rand(2, 4, 6, 8), tmp_path)
    forward, backward = (
        next(node for node in graph if node.op == op)
        for op in ("attention", "attention_backward")
    )

    assert operands == len(forward.operands)
    assert forward.operands[3:] == backward.operands[5:]
    assert [causal] * 2 == [n.attributes.flag("causal") for n in (forward, backward)]
    assert {"where", "softmax", "range"}.isdisjoint(node.op for node in graph)


def test_forward_graphs_are_left_alone() -> None:
    """A model that spells a formula out, and has no backward, launches it as it is."""
    from perfc.ir.text import parse_program  # only here

    text = """graph @g(%x: f32[8], %g: f32[8]) {
      %one = constant() {dtype = !f32, shape = [], value = 1.0} : f32[]
      %square = mul(%x, %x) : f32[8]
      %rest = sub(%one, %square) : f32[8]
      %y = mul(%g, %rest) : f32[8] loc{phase = "PHASE"}
      return %y
    }"""
    found: list[list[str]] = []
    for phase in ("forward", "backward"):
        program = parse_program(text.replace("PHASE", phase))
        PassManager((ShapeInference(), RaiseGradient())).run(program)
        found.append([node.op for node in graph_of(program)])

    assert ["constant", "mul", "sub", "mul"] == found[0]
    assert ["tanh_backward"] == [op for op in found[1] if op != "constant"]


@pytest.mark.parametrize("text", ["x", "add(x) y", "1"])
def test_text_that_is_no_formula(text: str) -> None:
    """It is refused."""
    with pytest.raises(ValueError, match="not a formula"):
        parse_term(text)
