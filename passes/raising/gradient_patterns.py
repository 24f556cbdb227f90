"""What torch.export makes of the calls of a training step, formula by formula.

A joint graph of forward and backward is written in ATen's core ops: where eager
PyTorch runs one kernel for the gradient of GELU, the graph has fourteen nodes. The
formulas are those of `torch/_decomp/decompositions.py`, as PyTorch 2.13 exports them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from perfc.ir import AttrValue, Value
from perfc.passes import graphs

Attributes: TypeAlias = Callable[[graphs.Found, Value], "dict[str, AttrValue]"]
"""(what was found, the result) -> attributes of the op."""


def _none(found: graphs.Found, result: Value) -> dict[str, AttrValue]:
    return {}


@attrs.frozen(eq=False)
class Formula:
    """One formula and the op that it is.

    Attributes:
        op: The op.
        operands: The names that are its operands.
        term: The formula.
        attributes: Of the op.

    """

    op: str
    operands: tuple[str, ...]
    term: graphs.Call
    attributes: Attributes = _none


def _fixed(**attributes: AttrValue) -> Attributes:
    return lambda found, result: dict(attributes)


def _axis(found: graphs.Found, result: Value) -> dict[str, AttrValue]:
    """The one axis that is summed over."""
    axes = found.first("reduce").attributes.integers("axes")
    return {"axis": axes[0]}


def _shape(found: graphs.Found, result: Value) -> dict[str, AttrValue]:
    return {"shape": () if result.type is None else result.type.shape}


def _loss(kind: str) -> Attributes:
    return _fixed(kind=kind, reduction="mean")


def _formula(
    op: str, operands: str, text: str, attributes: Attributes = _none
) -> Formula:
    return Formula(op, tuple(operands.split()), graphs.parse_term(text), attributes)


_CUBIC = "tanh(mul(add(x, mul(mul(mul(x, x), x), ?)), ?))"
_SCORES = (
    "reshape(matmul(reshape(expand(mul(q, ?))), reshape(expand(mul(transpose(k), ?)))))"
)
_CAUSAL = "less_equal(sub(unsqueeze(range(_)), unsqueeze(range(_))), ?)"
SHOWN = "where(m, 0, ?)"
"""A mask of what is shown, as numbers that are added to the scores."""
_LOG_SOFTMAX = "sub(g, mul(exp(y), reduce(g)))"
_DECAY = "exp(neg(abs(x)))"
_SOFTPLUS = "softplus(x)"
_DISTANCE = "abs(sub(x, t))"
_BCE = (
    "reduce(sub(mul(sub(t, 1), maximum(log1p(neg(p)), -100)), "
    "mul(t, maximum(log(p), -100))))"
)
_LABELS = "not_equal(t, ?)"
_COLUMN = "unsqueeze(t)"


def _attention(scores: str) -> str:
    """Attention as the exporter spells it out; rows that see nothing become zeros."""
    shares = f"where(not(reduce(not(equal({scores}, ?)))), 0, softmax({scores}))"
    matmuls = f"matmul(reshape(expand({shares})), reshape(expand(v)))"
    return f"transpose(transpose(reshape({matmuls})))"


FORMULAS: tuple[Formula, ...] = (
    _formula("relu_backward", "g y", "where(less_equal(y, 0), 0, g)"),
    _formula("sigmoid_backward", "g y", "mul(g, mul(y, sub(1, y)))"),
    _formula("tanh_backward", "g y", "mul(g, sub(1, mul(y, y)))"),
    _formula(
        "silu_backward",
        "g x",
        "mul(g, mul(sigmoid(x), add(mul(x, sub(1, sigmoid(x))), 1)))",
    ),
    _formula(
        "gelu_backward",
        "g x",
        "mul(g, add(mul(add(erf(mul(x, ?)), 1), 0.5), "
        "mul(x, mul(exp(mul(mul(x, x), -0.5)), ?))))",
    ),
    _formula(
        "gelu_backward",
        "g x",
        f"mul(g, add(mul(add({_CUBIC}, 1), 0.5), "
        f"mul(tanh_backward(mul(x, 0.5), {_CUBIC}), "
        "mul(add(mul(mul(x, x), ?), 1), ?))))",
        _fixed(approximate="tanh"),
    ),
    _formula("leaky_relu_backward", "g x", "where(greater(x, 0), g, mul(g, ?))"),
    _formula(
        "hardswish_backward",
        "g x",
        "where(less_equal(x, -3), 0, "
        "where(less(x, 3), mul(g, add(div(x, 3), 0.5)), g))",
    ),
    _formula("hardswish", "x", "div(mul(x, clip(clip(add(x, 3)))), 6)"),
    _formula(
        "clip_backward",
        "g x",
        "where(bitwise_or(less_equal(x, ?), greater_equal(x, ?)), 0, g)",
    ),
    _formula(
        "elu_backward",
        "g x",
        "where(less_equal(x, 0), mul(mul(mul(g, ?), ?), exp(mul(x, ?))), mul(g, ?))",
    ),
    _formula(
        "elu_backward",
        "g y",
        "where(less_equal(y, 0), mul(mul(g, ?), add(y, ?)), mul(g, ?))",
    ),
    _formula("softplus", "x", "where(greater(x, ?), x, log1p(exp(x)))"),
    _formula(
        "softplus",
        "x",
        "where(greater(mul(x, ?), ?), x, div(log1p(exp(mul(x, ?))), ?))",
    ),
    _formula(
        "softplus_backward",
        "g x",
        "where(greater(mul(x, ?), ?), g, "
        "div(mul(g, exp(mul(x, ?))), add(exp(mul(x, ?)), 1)))",
    ),
    _formula("mish", "x", f"mul(x, tanh({_SOFTPLUS}))"),
    _formula(
        "mish_backward",
        "g x",
        f"mul(g, add(tanh({_SOFTPLUS}), "
        f"tanh_backward(mul(x, sigmoid(x)), tanh({_SOFTPLUS}))))",
    ),
    _formula("log_sigmoid", "x", f"sub(minimum(0, x), log1p({_DECAY}))"),
    _formula(
        "softplus_backward",
        "g x",
        "mul(g, sub(where(less(x, 0), 1, 0), mul(where(less(x, 0), 1, -1), "
        f"div({_DECAY}, add({_DECAY}, 1)))))",
    ),
    _formula("hardsigmoid", "x", "div(clip(clip(add(x, 3))), 6)"),
    _formula(
        "hardsigmoid_backward",
        "g x",
        "where(bitwise_and(greater(x, ?), less(x, ?)), mul(g, ?), 0)",
    ),
    _formula("dropout_backward", "g m", "mul(g, mul(cast(m), ?))"),
    _formula(
        "softmax_backward", "g y", "sub(mul(g, y), mul(y, reduce(mul(g, y))))", _axis
    ),
    _formula("log_softmax_backward", "g y", _LOG_SOFTMAX, _axis),
    _formula("loss", "p t", _BCE, _loss("bce")),
    _formula(
        "loss_backward",
        "g p t",
        "div(div(mul(g, sub(p, t)), clip(mul(p, sub(1, p)))), ?)",
        _loss("bce"),
    ),
    _formula(
        "loss",
        "x t",
        "reduce(sub(mul(sub(1, t), x), log_sigmoid(x)))",
        _loss("bce_with_logits"),
    ),
    _formula(
        "loss_backward",
        "g x t",
        "div(mul(sub(sigmoid(x), t), g), ?)",
        _loss("bce_with_logits"),
    ),
    _formula("loss", "x t", "reduce(pow(sub(x, t), 2))", _loss("mse")),
    _formula("loss_backward", "g x t", "mul(mul(sub(x, t), ?), g)", _loss("mse")),
    _formula(
        "loss",
        "x t",
        f"reduce(where(less({_DISTANCE}, ?), div(mul(pow({_DISTANCE}, 2), 0.5), ?), "
        f"sub({_DISTANCE}, ?)))",
        _loss("smooth_l1"),
    ),
    _formula(
        "loss_backward",
        "g x t",
        f"where(less({_DISTANCE}, ?), div(mul(mul(g, ?), sub(x, t)), ?), "
        "mul(mul(g, ?), sign(sub(x, t))))",
        _loss("smooth_l1"),
    ),
    _formula(
        "loss",
        "x t",
        f"reduce(where(less({_DISTANCE}, ?), mul(mul({_DISTANCE}, 0.5), {_DISTANCE}), "
        f"mul(sub({_DISTANCE}, ?), ?)))",
        _loss("huber"),
    ),
    _formula(
        "loss_backward",
        "g x t",
        "where(less(sub(x, t), ?), mul(mul(g, ?), ?), "
        "where(greater(sub(x, t), ?), mul(mul(g, ?), ?), loss_backward(g, x, t)))",
        _loss("huber"),
    ),
    _formula(
        "nll_loss",
        "y t",
        f"div(reduce(where({_LABELS}, neg(squeeze(gather_elements(y, "
        f"unsqueeze(where({_LABELS}, t, 0))))), 0)), cast(reduce({_LABELS})))",
        _fixed(reduction="mean"),
    ),
    _formula(
        "slice_backward",
        "g",
        "where(equal(reshape(range(_)), ?), expand(unsqueeze(g)), 0)",
        _shape,
    ),
    _formula("slice_backward", "g", "index_put(alias(0), g, ?)", _shape),
    _formula(
        "embedding_backward", "g i", "index_put(0, where(_, 0, g), clip(i))", _shape
    ),
    _formula("attention", "q k v", _attention(_SCORES)),
    _formula(
        "attention",
        "q k v",
        _attention(f"add({_SCORES}, where(and({_CAUSAL}, ?), 0, ?))"),
        _fixed(causal=True),
    ),
    _formula("attention", "q k v m", _attention(f"add({_SCORES}, {SHOWN})")),
    _formula("attention", "q k v m", _attention(f"add({_SCORES}, m)")),
)
"""Formulas; where two are found at one node the first counts. What ends first is
raised first: a longer formula has the op in it, not what that was."""

NLL_BACKWARD = graphs.parse_term(
    f"mul(scatter_elements(0, where(not_equal({_COLUMN}, ?), {_COLUMN}, 0), ?), "
    f"where(not_equal({_COLUMN}, ?), div(g, cast(reduce({_LABELS}))), 0))"
)
"""The gradient of `nll_loss`: the scores do not occur in it."""

LINEAR = graphs.parse_term("add(reshape(matmul(x, w)), b)")
"""A layer whose input is no matrix."""

LOG_SOFTMAX_BACKWARD = graphs.parse_term(_LOG_SOFTMAX)
"""What follows it, and has them."""
