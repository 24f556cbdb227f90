"""What torch.export makes of the gradients of norms.

A norm has up to three gradients, of its input, its scale and its bias, which are one
call. The formulas are those of `torch/_decomp/decompositions.py`, and for RMS norm of
autograd through the steps of the norm, as PyTorch 2.13 exports them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.ir import AttrValue, TensorType, Value
from perfc.passes import graphs


@attrs.frozen(eq=False)
class NormGradient:
    """The formulas of one norm's gradients.

    Attributes:
        op: The op that they are.
        term: The gradient of the input `x`, by that of the result `g`; `w` is the
            scale, where it has one.
        others: The gradients of scale and bias, by name.
        attributes: Of the op, of what was found.
        applies: Whether what was found is the call, not steps that a model takes.

    """

    op: str
    term: graphs.Call
    others: Mapping[str, graphs.Call]
    attributes: Callable[[graphs.Found], dict[str, AttrValue]]
    applies: Callable[[graphs.Found], bool] = lambda _: True


def _typed(value: Value) -> TensorType:
    if value.type is None:  # found in a graph with types
        msg = f"{value} has no type"
        raise ValueError(msg)
    return value.type


def _axis(found: graphs.Found) -> dict[str, AttrValue]:
    """The first axis that is normalised: those of the scale are."""
    x, w = (_typed(found.values[name]) for name in "xw")
    return {"axis": x.rank - w.rank}


def _first_reduced(found: graphs.Found) -> dict[str, AttrValue]:
    return {"axis": found.first("reduce").attributes.integers("axes")[0]}


def _of_batch(found: graphs.Found) -> dict[str, AttrValue]:
    return {"training": True}


def _groups(found: graphs.Found) -> dict[str, AttrValue]:
    """The input is taken as [batch, groups, channels of a group, elements]."""
    return {"groups": _typed(found.nodes[0].operands[0]).shape[1]}


def _is_one_call(found: graphs.Found) -> bool:
    """Whether PyTorch took the norm apart: users add epsilon as `add.Tensor`."""
    root = next(node for node in found.nodes if node.op == "rsqrt")
    added = root.operands[0].producer
    return added is not None and added.location.origin == "aten.add.Scalar"


def _norm(
    op: str,
    term: str,
    others: Mapping[str, str],
    attributes: Callable[[graphs.Found], dict[str, AttrValue]],
    applies: Callable[[graphs.Found], bool] = lambda _: True,
) -> NormGradient:
    parsed = {name: graphs.parse_term(text) for name, text in others.items()}
    return NormGradient(op, graphs.parse_term(term), parsed, attributes, applies)


_NORMED = "mul(sub(x, mean), deviation)"
_BIAS = {"bias": "reduce(g)"}


def _of_layer(scaled: str) -> str:
    centred = (
        f"sub(sub(mul({scaled}, ?), reduce({scaled})), "
        f"mul({_NORMED}, reduce(mul({scaled}, {_NORMED}))))"
    )
    return f"mul(div(deviation, ?), {centred})"


_DOT = "reduce(mul(g, sub(x, mean)))"
_CORRECTED = (
    f"sub(sub(g, mul(sub(x, mean), mul(mul({_DOT}, ?), mul(r, r)))), mul(reduce(g), ?))"
)

_ROOT = "rsqrt(add(reduce(pow(x, 2)), ?))"


def _of_root(scaled: str) -> str:
    inner = f"mul(mul(reduce(mul({scaled}, x)), -0.5), pow({_ROOT}, 3))"
    return (
        f"add(mul({scaled}, {_ROOT}), mul(div(expand({inner}), ?), mul(pow(x, 1), 2)))"
    )


_PRODUCTS, _SUMS = "reduce(reshape(mul(g, x)))", "reduce(reshape(g))"


def _of_groups(products: str, sums: str, factor: str) -> str:
    """Sums of each channel, added up over its group, with the scale or without."""
    slope = f"mul(mul(mul(mul(sub(mul({sums}, m), {products}), r), r), r), ?)"
    offset = f"sub(mul(neg({slope}), m), mul(mul({sums}, r), ?))"
    varying = f"add(mul(reshape(g), {factor}), mul(reshape(x), {slope}))"
    return f"reshape(add({varying}, {offset}))"


NORMS: tuple[NormGradient, ...] = (
    _norm(
        "layer_norm_backward",
        _of_layer("mul(g, w)"),
        {"weight": f"reduce(mul(g, {_NORMED}))", **_BIAS},
        _axis,
    ),
    _norm(
        "batch_norm_backward",
        f"mul({_CORRECTED}, mul(r, w))",
        {"weight": f"mul({_DOT}, r)", **_BIAS},
        _of_batch,
    ),
    _norm("batch_norm_backward", f"mul({_CORRECTED}, mul(_, 1))", {}, _of_batch),
    _norm(
        "rms_norm_backward",
        _of_root("mul(g, w)"),
        {"weight": f"reshape(reduce(mul(g, mul(x, {_ROOT}))))"},
        _axis,
        _is_one_call,
    ),
    _norm("rms_norm_backward", _of_root("g"), {}, _first_reduced, _is_one_call),
    _norm(
        "group_norm_backward",
        _of_groups(
            f"reduce(reshape(mul({_PRODUCTS}, unsqueeze(w))))",
            f"reduce(reshape(mul({_SUMS}, unsqueeze(w))))",
            "mul(unsqueeze(r), reshape(w))",
        ),
        {
            "weight": f"reshape(reduce(mul(sub(reshape({_PRODUCTS}), "
            f"mul(reshape({_SUMS}), unsqueeze(m))), unsqueeze(r))))",
            "bias": f"reduce({_SUMS})",
        },
        _groups,
    ),
)
"""Gradients of norms; where two are found at one node the first counts."""
