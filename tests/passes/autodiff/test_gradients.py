"""Every gradient rule, against autograd."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from tests.passes.autodiff.gradient_cases import MORE_CASES
from tests.passes.torch_graph import run_graph

from perfc.ir import Graph, Value, single
from perfc.ir.text import parse_graph
from perfc.passes import CheckpointActivations, Pass, PassManager, ShapeInference
from perfc.passes.autodiff import GRADIENT_RULES as RULES
from perfc.passes.instruments import VerifyEach
from perfc.passes.shapes import FoldShapes
from perfc.passes.training import Training

_X = "param %x: f64[3,4]"
_XY = "param %x: f64[3,4], param %y: f64[4]"
_IMAGE = "param %x: f64[2,4,5,5]"


def _ints(*elements: int, name: str = "n") -> str:
    listed = ", ".join(map(str, elements))
    attributes = f"dtype = !i64, shape = [{len(elements)}], elements = [{listed}]"
    return f"%{name} = constant() {{{attributes}}} : ?\n"


def _unary(op: str, attributes: str = "") -> tuple[str, str]:
    return _X, f"%r = {op}(%x) {attributes} : ?"


def _binary(op: str) -> tuple[str, str]:
    return _XY, f"%r = {op}(%x, %y) : ?"


_UNARY = (
    *("identity", "copy", "sign", "ceil", "floor", "round", "relu", "sigmoid"),
    *("tanh", "leaky_relu", "gelu", "hardsigmoid", "softplus", "silu"),
    *("hardswish", "mish", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "tan"),
    *("sinh", "cosh", "asin", "acos", "atan", "asinh", "atanh", "erf", "square"),
    *("neg", "abs", "softsign"),
)
_REDUCTIONS = (
    *("sum", "mean", "max", "min", "l1", "l2", "sum_square", "log_sum"),
    "log_sum_exp",
)
_CONSTANT = "%c = constant() {dtype = !f64, shape = [], value = "

CASES: Mapping[str, tuple[str, str]] = {
    **MORE_CASES,
    **{op: _unary(op) for op in _UNARY},
    **{
        op: _binary(op)
        for op in ("add", "sub", "mul", "div", "pow", "maximum", "minimum")
    },
    "mod-number": (_X, f"{_CONSTANT}0.4}} : ?\n%r = mod(%x, %c) : ?"),
    "pow-number": (_X, f"{_CONSTANT}3.0}} : ?\n%r = pow(%x, %c) : ?"),
    "div-of-number": (_X, f"{_CONSTANT}3.0}} : ?\n%r = div(%c, %x) : ?"),
    "acosh": (_X, f"{_CONSTANT}1.5}} : ?\n%a = add(%x, %c) : ?\n%r = acosh(%a) : ?"),
    "gelu-tanh": _unary("gelu", '{approximate = "tanh"}'),
    "clip": _unary("clip", "{min = 0.3, max = 0.7}"),
    "clip-clamp": (
        _X,
        (
            "%r = clip(%x) {min = 0.3, max = 0.7} : ? "
            'loc{origin = "aten.clamp.default(args = (%x, 0.3, 0.7)"}'
        ),
    ),
    "where": (
        f"{_XY}, %m: f64[3,4]",
        f"{_CONSTANT}0.5}} : ?\n%b = less(%m, %c) : ?\n%r = where(%b, %x, %y) : ?",
    ),
    "cast": (_X, "%a = cast(%x) {dtype = !f32} : ?\n%r = cast(%a) {dtype = !f64} : ?"),
    "cast_like": (f"{_X}, %m: f32[1]", "%a = cast_like(%x, %m) : ?\n%r = exp(%a) : ?"),
    "dropout": (_X, "%r, %mask = dropout(%x) : ?, ?"),
    "linear": (
        "%i: f64[2,3,4], param %x: f64[5,4], param %y: f64[5]",
        "%r = linear(%i, %x, %y) : ?",
    ),
    "linear-without-bias": (
        "param %i: f64[2,4], param %x: f64[5,4]",
        "%r = linear(%i, %x) : ?",
    ),
    "linear-kn": (
        "param %i: f64[2,4], param %x: f64[4,5]",
        "%r = linear(%i, %x) {weight_is_kn = true} : ?",
    ),
    "matmul": (
        "param %x: f64[2,3,4], param %y: f64[2,4,5]",
        "%r = matmul(%x, %y) : ?",
    ),
    "matmul-rows": (
        "param %x: f64[2,3,4], param %y: f64[4,5]",
        "%r = matmul(%x, %y) : ?",
    ),
    "matmul-transposed": (
        "param %x: f64[3,4], param %y: f64[5,4]",
        "%t = transpose(%y) {perm = [1, 0]} : ?\n%r = matmul(%x, %t) : ?",
    ),
    "matmul-broadcast": (
        "param %x: f64[2,3,4,5], param %y: f64[3,5,2]",
        "%r = matmul(%x, %y) : ?",
    ),
    "matmul-vector": (_XY, "%r = matmul(%x, %y) : ?"),
    "matmul-of-vector": (
        "param %x: f64[4], param %y: f64[2,4,3]",
        "%r = matmul(%x, %y) : ?",
    ),
    "einsum": (
        "param %x: f64[2,3,4], param %y: f64[2,4,5]",
        '%r = einsum(%x, %y) {equation = "bij,bjk->bk"} : ?',
    ),
    "einsum-dots": (
        "param %x: f64[2,3,4], param %y: f64[4,5]",
        '%r = einsum(%x, %y) {equation = "...j,jk->...k"} : ?',
    ),
    "einsum-of-three": (
        "param %x: f64[2,3,4], param %y: f64[2,4,5], param %z: f64[3,2]",
        '%r = einsum(%x, %y, %z) {equation = "bij,bjk,ib->ki"} : ?',
    ),
    "einsum-of-four": (
        "param %x: f64[2,3], param %y: f64[3,4], param %z: f64[4,5]",
        '%r = einsum(%x, %y, %z, %x) {equation = "...j,jk,kl,...j->...l"} : ?',
    ),
    "reshape": (_X, f"{_ints(2, 6)}%r = reshape(%x, %n) : ?"),
    "flatten": (_IMAGE, "%r = flatten(%x) {axis = 1} : ?"),
    "squeeze": ("param %x: f64[3,1]", "%r = squeeze(%x) {axes = [1]} : ?"),
    "unsqueeze": _unary("unsqueeze", "{axes = [0]}"),
    "transpose": ("param %x: f64[2,3,4]", "%r = transpose(%x) {perm = [2, 0, 1]} : ?"),
    "expand": ("param %x: f64[3,1]", f"{_ints(2, 3, 4)}%r = expand(%x, %n) : ?"),
    "concat": (
        "param %x: f64[3,4], param %y: f64[3,2]",
        "%r = concat(%x, %y, %x) {axis = 1} : ?",
    ),
    "split": (
        _X,
        (
            "%a, %b, %c = split(%x) {axis = 1, sizes = [1, 2, 1]} : ?, ?, ?\n"
            "%e = exp(%a) : ?\n%r = add(%e, %b) : ?"
        ),
    ),
    "slice": (
        _X,
        (
            f"{_ints(0, 0)}{_ints(2, 3, name='m')}{_ints(0, 1, name='k')}"
            "%r = slice(%x, %n, %m, %k) : ?"
        ),
    ),
    "trilu": ("param %x: f64[4,4]", "%r = trilu(%x) {upper = true} : ?"),
    "pad": (_X, f"{_ints(1, 0, 0, 2)}%r = pad(%x, %n) : ?"),
    "tile": (_X, f"{_ints(2, 3)}%r = tile(%x, %n) : ?"),
    "gather": (
        "param %x: f64[7,4], %i: i64[2,3]",
        "%r = gather(%x, %i) {axis = 0} : ?",
    ),
    "gather-slices": (
        "param %x: f64[2,7,4], %i: i64[3]",
        "%r = gather(%x, %i) {axis = 1} : ?",
    ),
    "gather-one": (
        "param %x: f64[2,7,4]",
        (
            "%n = constant() {dtype = !i64, shape = [], elements = [0]} : ?\n"
            "%r = gather(%x, %n) {axis = 1} : ?"
        ),
    ),
    "index": (
        "param %x: f64[2,7,7], %i: i64[5,2]",
        "%r = index(%x, %i) {axis = 1} : ?",
    ),
    "gather_nd": ("param %x: f64[7,7,2], %i: i64[5,2]", "%r = gather_nd(%x, %i) : ?"),
    "gather_elements": (
        "param %x: f64[7,4], %i: i64[3,4]",
        "%r = gather_elements(%x, %i) {axis = 0} : ?",
    ),
    "scatter_nd": (
        "param %x: f64[7,4], %o: i64[3,1], param %y: f64[3,4]",
        "%r = scatter_nd(%x, %o, %y) : ?",
    ),
    "scatter_elements": (
        "param %x: f64[7,4], %o: i64[3,4], param %y: f64[3,4]",
        "%r = scatter_elements(%x, %o, %y) {axis = 0} : ?",
    ),
    "scatter_elements-add": (
        "param %x: f64[7,4], %i: i64[3,4], param %y: f64[3,4]",
        '%r = scatter_elements(%x, %i, %y) {axis = 0, reduction = "add"} : ?',
    ),
    "topk": (_X, f"{_ints(2)}%r, %p = topk(%x, %n) {{axis = 1}} : ?, ?"),
    "pixel_shuffle": (
        _IMAGE,
        "%r = pixel_shuffle(%x) {block = 2, to_space = true} : ?",
    ),
    "embedding_bag": (
        "param %x: f64[7,4], %i: i64[5], %o: i64[3]",
        (
            "%r = embedding_bag(%x, %i, %o) {tables = [{rows = 7, dim = 4}], "
            'mode = "mean", has_offsets = true} : ?'
        ),
    ),
    "embedding_bag-weighted": (
        "param %x: f64[7,4], %i: i64[5], %o: i64[3], param %y: f64[5]",
        (
            "%r = embedding_bag(%x, %i, %o, %y) {tables = [{rows = 7, dim = 4}], "
            'mode = "sum", has_offsets = true, weighted = true} : ?'
        ),
    ),
    **{
        f"reduce-{kind}": _unary("reduce", f'{{kind = "{kind}", axes = [1]}}')
        for kind in _REDUCTIONS
    },
    "reduce": _unary("reduce", '{kind = "mean"}'),
    "cumsum": _unary("cumsum", "{axis = 1}"),
    "softmax": _unary("softmax", "{axis = -1}"),
    "log_softmax": _unary("log_softmax", "{axis = -1}"),
    "layer_norm": (
        "param %x: f64[3,4], param %w: f64[4], param %b: f64[4]",
        "%r = layer_norm(%x, %w, %b) {axis = -1} : ?",
    ),
    "rms_norm": (
        "param %x: f64[3,4], param %w: f64[4]",
        "%r = rms_norm(%x, %w) {axis = -1, epsilon = 1e-05} : ?",
    ),
    "group_norm": (
        f"{_IMAGE}, param %w: f64[4], param %b: f64[4]",
        "%r = group_norm(%x, %w, %b) {groups = 2} : ?",
    ),
    "batch_norm": (
        (
            f"{_IMAGE}, param %w: f64[4], param %b: f64[4], param %m: f64[4], "
            "param %v: f64[4]"
        ),
        "%r = batch_norm(%x, %w, %b, %m, %v) {epsilon = 1e-05} : ?",
    ),
    "conv": (
        f"{_IMAGE}, param %w: f64[6,2,3,3], param %b: f64[6]",
        (
            "%r = conv(%x, %w, %b) "
            "{stride = [2, 2], padding = [1, 1, 1, 1], groups = 2} : ?"
        ),
    ),
    "conv_transpose": (
        f"{_IMAGE}, param %w: f64[4,3,2,2], param %b: f64[3]",
        "%r = conv_transpose(%x, %w, %b) {stride = [2, 2]} : ?",
    ),
    "pool": (
        _IMAGE,
        '%r = pool(%x) {kind = "max", window = [2, 2], stride = [2, 2]} : ?',
    ),
    "pool-average": (
        _IMAGE,
        '%r = pool(%x) {kind = "average", window = [2, 2], stride = [2, 2]} : ?',
    ),
    "attention": (
        (
            "param %x: f64[2,3,4,5], param %k: f64[2,3,6,5], param %v: f64[2,3,6,5], "
            "%m: f64[4,6]"
        ),
        "%r = attention(%x, %k, %v, %m) : ?",
    ),
    "rotary": (
        "param %x: f64[3,4], %c: f64[3,4], %s: f64[3,2]",
        "%d = concat(%s, %s) {axis = 1} : ?\n%r = rotary(%x, %c, %d) : ?",
    ),
    "gelu-by-hand": _unary("gelu", '{approximate = "tanh", spelled_out = ["tanh(x)"]}'),
    "rms_norm-by-hand": (
        "param %x: f64[3,4], param %w: f64[4]",
        '%r = rms_norm(%x, %w) {axis = -1, spelled_out = ["pow(x)"]} : ?',
    ),
    "attention-by-hand": (
        "param %x: f64[2,3,4,5], param %k: f64[2,3,6,5], param %v: f64[2,3,6,5]",
        '%r = attention(%x, %k, %v) {spelled_out = ["matmul(q, k)"]} : ?',
    ),
    "two-readers": (
        _XY,
        (
            "%a = exp(%x) : ?\n%b = mul(%a, %a) : ?\n%c = add(%b, %x) : ?\n"
            "%d = add(%c, %y) : ?\n%r = add(%d, %y) : ?"
        ),
    ),
    "same-gradient-twice": (
        "param %x: f64[3,4], param %y: f64[3,4]",
        "%a = add(%x, %y) : ?\n%b = add(%a, %x) : ?\n%r = add(%b, %y) : ?",
    ),
}
"""Arguments and body of one graph for each rule, and for what else may go wrong."""

_WITHOUT_VALUES = {
    *("loss", "nll_loss", "recurrent", "recurrent_cell", "ctc_loss"),
    *("all_gather", "all_reduce", "all_to_all", "reduce_scatter"),
    *("replicated", "split_cross_entropy", "encode_rows", "decode_rows"),
}
"""Rules proven elsewhere: the losses end every graph here, or are of sequences;
collectives need several ranks."""


def _graph(arguments: str, body: str) -> Graph:
    return parse_graph(f"graph @g({arguments}) {{\n{body}\nreturn %r\n}}")


def _trained(graph: Graph, loss: str, *after: Pass) -> Graph:
    """Run the pass with dense gradients of tables, and others *after* it."""
    training = Training(loss=loss, sparse_gradients="never")
    passes = [ShapeInference(), FoldShapes(), training, *after]
    analysis = PassManager(passes, [VerifyEach()]).run(single(graph))
    made = analysis.program.classes[0].ops
    assert made is not None
    return made


def _data(graph: Graph) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    data: dict[str, torch.Tensor] = {}
    for value in graph.arguments():
        assert value.type is not None
        shape = tuple(dim for dim in value.type.shape if isinstance(dim, int))
        if value.type.dtype.name == "i64":
            data[value.name] = torch.randint(0, 2, shape)
            if value.name == "o":  # offsets, or places that all differ
                places = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1))
                data[value.name] = places.expand(shape).contiguous()
            continue
        tensor = torch.rand(shape, dtype=torch.float64) * 0.7 + 0.2
        data[value.name] = tensor if value.type.dtype.bits > 32 else tensor.float()
    return data


def _gradients(graph: Graph) -> dict[Value, Value]:
    """Read parameters and their gradients off the step of SGD."""
    (step,) = (n for n in graph if n.op == "foreach")
    half = len(step.operands) // 2
    return dict(zip(step.operands[:half], step.operands[half:], strict=True))


def check_gradients(graph: Graph, loss: str = "mse", *after: Pass) -> Graph:
    """Compare the gradients that the pass derives with those of autograd."""
    made = _trained(graph, loss, *after)
    data = _data(made)
    gradients = _gradients(made)
    names = [parameter.name for parameter in gradients]
    for name in names:
        data[name].requires_grad_()
    forward = run_graph(made, data, ("forward", "loss"))
    total = forward[made.outputs[-1].name]
    leaves = [data[name] for name in names]
    expected = torch.autograd.grad(total, leaves, allow_unused=True)
    with torch.no_grad():
        values = run_graph(made, data, ("forward", "loss", "backward"))
    for parameter, gradient, wanted in zip(
        gradients, gradients.values(), expected, strict=True
    ):
        assert wanted is not None, f"{parameter} needs no gradient"
        torch.testing.assert_close(values[gradient.name], wanted)
    return made


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_autograd(case: str) -> None:
    """Each rule computes what autograd computes of the same forward op."""
    check_gradients(_graph(*CASES[case]))


@pytest.mark.parametrize("loss", ["bce", "bce_with_logits", "mse", "sum"])
def test_losses_have_gradients_of_autograd(loss: str) -> None:
    """So does each loss."""
    check_gradients(_graph(_X, "%r = sigmoid(%x) : ?"), loss)


def test_cross_entropy_has_the_gradient_of_autograd() -> None:
    """Cross entropy of several axes is that of their rows."""
    check_gradients(_graph("param %x: f64[2,3,4]", "%r = exp(%x) : ?"), "cross_entropy")


_BLOCKS = """graph @g(%x: f64[3,4], param %w: f64[4,4], param %v: f64[4,4]) {
  %a = linear(%x, %w) : ? loc{module = "layers.0"}
  %b = tanh(%a) : ? loc{module = "layers.0"}
  %c = exp(%b) : ? loc{module = "layers.0"}
  %d = linear(%c, %v) : ? loc{module = "layers.1.linear"}
  %e = sigmoid(%d) : ? loc{module = "layers.1.act"}
  %f = add(%e, %c) : ? loc{module = "layers.1"}
  %r = softmax(%f) {axis = -1} : ?
  return %r
}"""


@pytest.mark.parametrize(
    ("checkpoints", "again"),
    [
        (CheckpointActivations(modules="layers.*"), "deab"),
        (CheckpointActivations(every=2), "e"),
        (CheckpointActivations(every=3), "deab"),
    ],
)
def test_recomputing_keeps_the_gradients(
    checkpoints: CheckpointActivations, again: str
) -> None:
    """Segments that run again make what they made the first time."""
    made = check_gradients(parse_graph(_BLOCKS), "mse", checkpoints)

    copies = [n for n in made if n.results and n.results[0].name.endswith(".again")]
    assert {"backward"} == {node.location.phase for node in copies}
    assert again == "".join(node.results[0].name[0] for node in copies)


def test_every_rule_is_compared() -> None:
    """A rule without a case would be a rule that nobody has checked."""
    compared = {case.partition("-")[0] for case in CASES} | _WITHOUT_VALUES
    assert set(RULES) - compared == set()
