"""Every op has a gradient rule, or a reason; rules launch what autograd launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import perfc
from perfc.frontends.torch.internals import op
from perfc.ir import Program
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import LAUNCHES, LowerKernels, Pass, PassManager, ShapeInference
from perfc.passes.autodiff import GRADIENT_RULES as RULES
from perfc.passes.shapes import FoldShapes
from perfc.passes.training import Training

F: Any = nn.functional

_NUMBERS = "its results are no real numbers, or do not depend on them smoothly"
_SIZES = "shapes, numbers of the host and text: nothing to differentiate"
_MADE = "makes a tensor of nothing"
_GONE = "is resolved before training: control flow, sequences"
_INFERENCE = "for inference: no gradient in the frameworks that have it"
_OPTIMIZER = "a step of an optimizer"
_REASONS: Mapping[str, str] = {
    _NUMBERS: """and or xor not equal not_equal less less_equal greater greater_equal
        bitwise_and bitwise_or bitwise_xor bitwise_not bit_shift isnan isinf isfinite
        signbit argmax argmin hardmax nonzero one_hot unique multinomial bit_cast
        floor_divide non_max_suppression quantize dynamic_quantize amax histogram
        bucketize_bags regroup_bags check_bags""",
    _SIZES: "shape size item host host_text constant",
    _MADE: "empty fill range random eye_like window mel_weight_matrix",
    _GONE: """if loop scan optional_empty optional_has_element concat_from_sequence
        split_to_sequence sequence_at sequence_construct sequence_empty sequence_erase
        sequence_insert sequence_length sequence_map""",
    _INFERENCE: """packed_linear dequantize tensor_scatter causal_conv linear_attention
        roi_pool center_crop_pad reverse_sequence""",
    "is written after training": "broadcast pack recv send",
    _OPTIMIZER: "foreach optimizer_step sparse_optimizer_step",
    "costed by its bytes, and reported: `affine_grid` is of small images, spectra and "
    "windows of sound have no kernel model, LRN is of networks that nobody trains": """
        affine_grid dft fft stft local_response_norm deform_conv col2im compress
        polygamma i0 i0e view unknown test.op""",
}
WITHOUT_RULE = {op: why for why, ops in _REASONS.items() for op in ops.split()}
"""Ops that no gradient goes through, and why."""


def test_every_op_has_a_rule() -> None:
    """An op that a forward graph may have has a rule, or the list says why not."""
    forward = {op.name for op in BUILTIN_OPS if not op.name.endswith("_backward")}

    assert forward - set(RULES) == set(WITHOUT_RULE)


class _Op(nn.Module):
    """One function of parameters."""

    def __init__(
        self, function: Callable[..., Tensor], *shapes: tuple[int, ...]
    ) -> None:
        """Make the parameters."""
        super().__init__()
        self.function = function
        made = [nn.Parameter(torch.ones(shape)) for shape in shapes]
        self.operands = nn.ParameterList(made)

    def forward(self, *indices: Tensor) -> Tensor:
        """Apply it; indices stand last."""
        return self.function(*self.operands, *indices)


class _Layers(nn.Module):
    """A recurrent layer whose input is a parameter."""

    def __init__(self, layers: nn.Module) -> None:
        """Keep the layer."""
        super().__init__()
        self.layers = layers
        self.x = nn.Parameter(torch.ones(2, 5, 8))

    def forward(self) -> Tensor:
        """Return the states of all steps."""
        states: Tensor = self.layers(self.x)[0]
        return states


_S, _ROW, _CUBE, _IMAGE = (3, 4), (4,), (2, 3, 4), (2, 4, 8, 8)
_PLACES = (torch.zeros(1, 4, dtype=torch.int64),)
_LABELS = torch.ones(2, 2, dtype=torch.int64)
_Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def _one(function: Callable[[Any], Any], shapes: tuple[tuple[int, ...], ...]) -> _Case:
    """Type a function of one tensor; the next two are of two and three."""
    return function, shapes


def _two(
    function: Callable[[Any, Any], Any], shapes: tuple[tuple[int, ...], ...]
) -> _Case:
    return function, shapes


def _three(
    function: Callable[[Any, Any, Any], Any], shapes: tuple[tuple[int, ...], ...]
) -> _Case:
    return function, shapes


def _along_rows(name: str, x: Tensor) -> Tensor:
    made: Tensor = getattr(x, name)(1)
    return made


_MATH = """
exp log sqrt reciprocal sin cos tan sinh cosh asin acos atan asinh erf square neg abs
sigmoid tanh relu trunc exp2 expm1 log2 log10 log1p rsqrt erfc erfinv lgamma digamma
sinc celu selu sign
"""
_NEURAL = """
elu leaky_relu gelu silu hardswish hardsigmoid softplus mish hardshrink softshrink
logsigmoid glu softsign hardtanh relu6
"""
_PAIRS = """
sub mul div pow maximum minimum atan2 hypot copysign logaddexp xlogy
"""
CASES: Mapping[str, _Case] = {
    **{name: (getattr(torch, name), (_S,)) for name in _MATH.split()},
    **{name: (getattr(F, name), (_S,)) for name in _NEURAL.split()},
    **{name: (getattr(torch, name), (_S, _ROW)) for name in _PAIRS.split()},
    **{
        name: (getattr(torch, name), (_S, _S, _S))
        for name in ("addcmul", "addcdiv", "lerp")
    },
    "prelu": (F.prelu, ((3, 4, 5), _ROW)),
    "masked_fill": _one(lambda x: x.masked_fill(x > 0, 0.0), (_S,)),
    "where": _two(lambda x, y: torch.where(x > 0, x, y), (_S, _S)),
    "cube": _one(lambda x: x**3, (_S,)),
    **{
        name: (partial(_along_rows, name), (_S,))
        for name in (
            *("sum", "mean", "amax", "amin", "logsumexp", "var", "std", "cumsum"),
            *("softmax", "log_softmax"),
        )
    },
    "max": _one(lambda x: x.max(1)[0], (_S,)),
    "norm": _one(lambda x: x.norm(dim=1), (_S,)),
    "conv": (F.conv2d, (_IMAGE, (6, 4, 3, 3), (6,))),
    "conv_tbc": _three(
        lambda x, w, b: F.conv_tbc(x, w, b, 1), ((6, 2, 5), (3, 5, 4), _ROW)
    ),
    "conv_transpose": (F.conv_transpose2d, (_IMAGE, (4, 3, 3, 3), (3,))),
    "max_pool": _one(lambda x: F.max_pool2d(x, 2), (_IMAGE,)),
    "avg_pool": _one(lambda x: F.avg_pool2d(x, 2), (_IMAGE,)),
    "adaptive": _one(lambda x: F.adaptive_avg_pool2d(x, 2), (_IMAGE,)),
    "nearest": _one(lambda x: F.interpolate(x, scale_factor=2), (_IMAGE,)),
    "bicubic": _one(
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        (_IMAGE,),
    ),
    "grid_sample": _two(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        (_IMAGE, (2, 3, 3, 2)),
    ),
    "pad": _one(lambda x: F.pad(x, (1, 2)), (_CUBE,)),
    "reflect": _one(lambda x: F.pad(x, (1, 2), "reflect"), (_CUBE,)),
    "layer_norm": _three(lambda x, w, b: F.layer_norm(x, (4,), w, b), (_S, _ROW, _ROW)),
    "rms_norm": _two(lambda x, w: F.rms_norm(x, (4,), w), (_S, _ROW)),
    "group_norm": _three(
        lambda x, w, b: F.group_norm(x, 2, w, b), (_IMAGE, _ROW, _ROW)
    ),
    "weight_norm": _two(
        lambda v, g: op("_weight_norm_interface")(v, g)[0],
        (_CUBE, (2, 1, 1)),
    ),
    "pdist": (F.pdist, (_S,)),
    "cdist": (torch.cdist, (_S, (5, 4))),
    "ctc": _one(
        lambda x: F.ctc_loss(x, _LABELS, (6, 5), (2, 1), reduction="none"), ((6, 2, 9),)
    ),
    "ctc-large": _one(
        lambda x: F.ctc_loss(
            x, _LABELS, (6, 5), (2, 1), reduction="none", zero_infinity=True
        ),
        ((6, 2, 9000),),
    ),
    "mm": (torch.mm, (_S, (4, 5))),
    "bmm": (torch.bmm, (_CUBE, (2, 4, 5))),
    "matmul": (torch.matmul, (_CUBE, (4, 5))),
    "cat": _two(lambda x, y: torch.cat([x, y], 1), (_S, _S)),
    "stack": _two(lambda x, y: torch.stack([x, y], 1), (_S, _S)),
    "slice": _one(lambda x: x[:, 1:3], (_S,)),
    "select": _one(lambda x: x[0], (_S,)),
    "tril": (torch.tril, (_S,)),
    "repeat": _one(lambda x: x.repeat(2, 3), (_S,)),
    "flip": _one(lambda x: x.flip(0), (_S,)),
    "unfold": _one(lambda x: F.unfold(x, 2), (_IMAGE,)),
    "pixel_shuffle": _one(lambda x: F.pixel_shuffle(x, 2), (_IMAGE,)),
    "topk": _one(lambda x: x.topk(2)[0], (_S,)),
    "sort": _one(lambda x: x.sort()[0], (_S,)),
    "gather": _two(lambda x, i: x.gather(0, i), (_S,)),
    "scatter_add": _three(lambda x, y, i: x.scatter_add(0, i, y), (_S, (1, 4))),
}
"""Functions, and the shapes of their parameters."""

_INDEXED = ("gather", "scatter_add")


def _backward(program: Program, *passes: Pass) -> Counter[tuple[str, object]]:
    """Count the kernels of the backward pass, by op and kind."""
    manager = PassManager([ShapeInference(), *passes, LowerKernels(inputs="device")])
    analysis = manager.run(program)
    (graph,) = analysis.annotations.get(LAUNCHES, program, None)
    ops = analysis.program.classes[0].ops
    assert ops is not None
    phases = {node.name: node.location.phase for node in ops}
    return Counter(
        (graph.kernels[kernel].op, graph.kernels[kernel].params.get("kind"))
        for op, kernel in zip(graph.op, graph.kernel, strict=True)
        if kernel >= 0 and phases.get(graph.ops[op].node) == "backward"
    )


def _both(
    module: nn.Module, args: tuple[Tensor, ...] = ()
) -> tuple[Counter[tuple[str, object]], Counter[tuple[str, object]]]:
    """Count what autograd launches, and what the rules do from forward alone."""
    recorded = perfc.from_torch(module, args, mode="training", loss="mse").program
    forward = perfc.from_torch(module, args).program
    training = Training(loss="mse", sparse_gradients="never")
    return _backward(recorded), _backward(forward, FoldShapes(), training)


@pytest.mark.parametrize("name", sorted(CASES))
def test_rule_launches_what_autograd_does(name: str) -> None:
    """The backward pass of one op has the kernels that autograd runs for it."""
    function, shapes = CASES[name]
    args = _PLACES if name in _INDEXED else ()
    captured, derived = _both(_Op(function, *shapes), args)

    assert captured == derived
    assert captured


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTM projected"])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers(kind: str, directions: int) -> None:
    """Recurrent layers have the GEMMs, gates and sums of cuDNN's backward.

    Here directions are ops of their own, so that what both send to the input is added
    up; cuDNN's second GEMM adds to the first.
    """
    name, projected, _ = kind.partition(" projected")
    options = {"proj_size": 3} if projected else {}
    make: Any = partial(getattr(nn, name), **options)
    layers = make(8, 4, 2, batch_first=True, bidirectional=directions > 1)
    captured, derived = _both(_Layers(layers))

    assert derived - captured == Counter(
        {("elementwise", "add"): 2} if directions > 1 else {}
    )
    assert Counter() == captured - derived
