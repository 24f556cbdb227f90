"""Runs op graphs in PyTorch, gradients included: what the pass `training` must mean.

Forward ops are PyTorch functions, so autograd can differentiate them; ops of the
backward pass are ATen's `*_backward` functions, or their formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tests.passes.torch_functions import FUNCTIONS
from tests.passes.torch_layers import LAYERS, F, Results, Run, aten, axis_of
from torch import Tensor

from perfc.ir import Graph, Node, Value

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "i64": torch.int64,
    "bool": torch.bool,
}
_ATEN_SOFTMAX: Any = aten._softmax_backward_data
_ATEN_LOG_SOFTMAX: Any = aten._log_softmax_backward_data


def run_graph(
    graph: Graph, data: Mapping[str, Tensor], phases: Sequence[str]
) -> dict[str, Tensor]:
    """Return every value that nodes of *phases* make, and *data*, by name."""
    values = dict(data)
    for node in graph:
        if node.op != "constant" and node.location.phase not in phases:
            continue
        operands = [values[value.name] for value in node.operands]
        results = OPS[node.op](node, operands)
        for value, tensor in zip(node.results, results, strict=True):
            values[value.name] = _checked(value, tensor)
    return values


def _checked(value: Value, tensor: Tensor) -> Tensor:
    assert value.type is not None
    assert tuple(tensor.shape) == value.type.shape, f"{value}: {tensor.shape}"
    assert tensor.dtype == _DTYPES[value.type.dtype.name], f"{value}: {tensor.dtype}"
    return tensor


def _plain(function: Callable[..., Any]) -> Run:
    return lambda node, operands: [function(*operands)]


def _constant(node: Node, operands: list[Any]) -> Results:
    attributes = node.attributes
    dtype = _DTYPES[attributes.dtype("dtype").name]
    shape = attributes.integers("shape")
    elements = attributes.get("elements")
    if elements is None:
        return [torch.full(shape, float(str(attributes["value"])), dtype=dtype)]
    return [torch.tensor(attributes.integers("elements"), dtype=dtype).view(shape)]


def _fill(node: Node, operands: list[Any]) -> Results:
    dtype = _DTYPES[node.attributes.dtype("dtype").name]
    return [torch.full(_ints(operands[0]), _number(node, "value"), dtype=dtype)]


def _number(node: Node, name: str, default: float = 0.0) -> float:
    value = node.attributes.get(name)
    return float(value) if isinstance(value, int | float) else default


def _ints(tensor: Tensor) -> list[int]:
    return [int(item) for item in tensor.reshape(-1)]


def _reshape(node: Node, operands: list[Any]) -> Results:
    assert node.results[0].type is not None
    return [operands[0].reshape(node.results[0].type.shape)]


def _perm(node: Node, operands: list[Any]) -> Results:
    return [operands[0].permute(node.attributes.integers("perm"))]


def _slice(node: Node, operands: list[Any]) -> Results:
    x, *bounds = operands
    starts, ends, axes, *steps = map(_ints, bounds)
    for number, axis in enumerate(axes):
        step = steps[0][number] if steps else 1
        index = [slice(None)] * x.ndim
        index[axis] = slice(starts[number], ends[number], step)
        x = x[tuple(index)]
    return [x]


def _slice_backward(node: Node, operands: list[Any]) -> Results:
    """Only slices from the start, as the graphs of the tests have them."""
    grad, shape = operands[0], node.attributes.integers("shape")
    zeros = grad.new_zeros(shape)
    (axis,) = node.attributes.integers("axes")
    if grad.ndim < len(shape):
        grad = grad.unsqueeze(axis)
    zeros.narrow(axis, 0, grad.shape[axis]).copy_(grad)
    return [zeros]


def _linear(node: Node, operands: list[Any]) -> Results:
    x, weight, *bias = operands
    if node.attributes.flag("weight_is_kn"):
        weight = weight.T
    return [F.linear(x, weight, *bias)]


def _reduce(node: Node, operands: list[Any]) -> Results:
    x, attributes = operands[0], node.attributes
    axes = attributes.integers("axes") or tuple(range(x.ndim))
    keep = attributes.flag("keepdims")
    return [_REDUCTIONS[attributes.text("kind")](x, axes, keep)]


_REDUCTIONS: Mapping[str, Callable[[Any, tuple[int, ...], bool], Any]] = {
    "sum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "mean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "prod": lambda x, axes, keep: x.prod(axes[0], keepdim=keep),
    "any": lambda x, axes, keep: x.any(),
    "max": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "min": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "l1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "l2": lambda x, axes, keep: x.square().sum(axes, keepdim=keep).sqrt(),
    "sum_square": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
    "log_sum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "log_sum_exp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
}


def _gather(node: Node, operands: list[Any]) -> Results:
    x, indices = operands
    axis = axis_of(node) % x.ndim
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return [x.index_select(axis, indices.reshape(-1)).reshape(shape)]


def _tuples(x: Tensor, indices: Tensor, axis: int) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, *indices.unbind(-1))


def _index(node: Node, operands: list[Any]) -> Results:
    x, *indices = operands
    if node.attributes.get("axes") is not None:
        first = node.attributes.integers("axes")[0]
        return [x[(*[slice(None)] * first, *indices)]]
    return [x[_tuples(x, indices[0], node.attributes.integer("axis", 0))]]


def _index_put(node: Node, operands: list[Any]) -> Results:
    x, values, *indices = operands
    axis = node.attributes.integer("axis", 0)
    apart = len(indices) > 1 or values.ndim == indices[0].ndim + x.ndim - 1
    if apart:
        index: tuple[Any, ...] = (*[slice(None)] * axis, *indices)
    else:
        index = _tuples(x, indices[0], axis)
    made = x.clone()
    flat = torch.arange(x.numel()).view(x.shape)[index]
    if not node.attributes.flag("accumulate"):
        made.view(-1)[flat.reshape(-1)] = values.reshape(-1)
    else:
        made.view(-1).index_add_(0, flat.reshape(-1), values.reshape(-1))
    return [made]


def _scatter_elements(node: Node, operands: list[Any]) -> Results:
    x, indices, updates = operands
    if node.attributes.get("reduction") == "add":
        return [x.scatter_add(axis_of(node), indices, updates)]
    return [x.scatter(axis_of(node), indices, updates)]


def _gelu(node: Node, operands: list[Any]) -> Results:
    return [F.gelu(operands[0], approximate=_approximate(node))]


def _gelu_backward(node: Node, operands: list[Any]) -> Results:
    approximate = _approximate(node)
    return [aten.gelu_backward(*operands, approximate=approximate)]


def _approximate(node: Node) -> str:
    return node.attributes.text("approximate", "none")


def _clip(node: Node, operands: list[Any]) -> Results:
    return [operands[0].clamp(_number(node, "min"), _number(node, "max"))]


def _clip_backward(node: Node, operands: list[Any]) -> Results:
    limits = _number(node, "min"), _number(node, "max")
    return [aten.hardtanh_backward(*operands, *limits)]


def _topk(node: Node, operands: list[Any]) -> Results:
    x, count = operands
    return list(x.topk(_ints(count)[0], axis_of(node)))


def _split(node: Node, operands: list[Any]) -> Results:
    sizes = list(node.attributes.integers("sizes"))
    return list(operands[0].split(sizes, axis_of(node)))


def _pad(node: Node, operands: list[Any]) -> Results:
    x, pads, *axes = operands
    sizes = _ints(pads)
    if axes:
        mode = node.attributes.text("mode")
        return [F.pad(x, sizes, mode)]
    pairs = zip(sizes[: x.ndim], sizes[x.ndim :], strict=True)
    flat = [size for pair in reversed(list(pairs)) for size in pair]
    return [F.pad(x, flat)]


def _cumsum(node: Node, operands: list[Any]) -> Results:
    axis = axis_of(node)
    if node.attributes.flag("reverse"):
        return [operands[0].flip(axis).cumsum(axis).flip(axis)]
    return [operands[0].cumsum(axis)]


def _cast(node: Node, operands: list[Any]) -> Results:
    assert node.results[0].type is not None
    return [operands[0].to(_DTYPES[node.results[0].type.dtype.name])]


def _dropout(node: Node, operands: list[Any]) -> Results:
    mask = torch.arange(operands[0].numel()).view(operands[0].shape) % 3 > 0
    return [operands[0] * mask * 2, mask]


def _einsum(node: Node, operands: list[Any]) -> Results:
    return [torch.einsum(node.attributes.text("equation"), *operands)]


OPS: Mapping[str, Run] = {
    **LAYERS,
    "constant": _constant,
    "fill": _fill,
    **dict.fromkeys(("reshape", "flatten", "squeeze", "unsqueeze"), _reshape),
    "transpose": _perm,
    "expand": lambda node, o: [o[0].expand(_ints(o[1]))],
    "slice": _slice,
    "slice_backward": _slice_backward,
    "concat": lambda node, o: [torch.cat(o, axis_of(node))],
    "split": _split,
    "identity": lambda node, o: [o[0]],
    "copy": _plain(torch.clone),
    "linear": _linear,
    "matmul": _plain(torch.matmul),
    "einsum": _einsum,
    "reduce": _reduce,
    "gather": _gather,
    "index": _index,
    "gather_nd": _index,
    "index_put": _index_put,
    "gather_elements": lambda node, o: [o[0].gather(axis_of(node), o[1])],
    "scatter_elements": _scatter_elements,
    "scatter_nd": lambda node, o: [o[0].index_put(tuple(o[1].unbind(-1)), o[2])],
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "clip": _clip,
    "clip_backward": _clip_backward,
    "topk": _topk,
    "pad": _pad,
    "tile": lambda node, o: [o[0].tile(_ints(o[1]))],
    "trilu": lambda node, o: [
        (torch.triu if node.attributes.flag("upper") else torch.tril)(o[0])
    ],
    "cumsum": _cumsum,
    **dict.fromkeys(("cast", "cast_like"), _cast),
    "dropout": _dropout,
    "dropout_backward": lambda node, o: [o[0] * o[1] * 2],
    "pixel_shuffle": lambda node, o: [
        (F.pixel_shuffle if node.attributes.flag("to_space") else F.pixel_unshuffle)(
            o[0], node.attributes.integer("block")
        )
    ],
    "softmax": lambda node, o: [o[0].softmax(axis_of(node))],
    "log_softmax": lambda node, o: [o[0].log_softmax(axis_of(node))],
    "softmax_backward": lambda node, o: [
        _ATEN_SOFTMAX(o[0], o[1], axis_of(node), o[0].dtype)
    ],
    "log_softmax_backward": lambda node, o: [
        _ATEN_LOG_SOFTMAX(o[0], o[1], axis_of(node), o[0].dtype)
    ],
    "relu_backward": lambda node, o: [aten.threshold_backward(o[0], o[1], 0)],
    "leaky_relu": _plain(F.leaky_relu),
    "leaky_relu_backward": lambda node, o: [
        aten.leaky_relu_backward(o[0], o[1], 0.01, False)
    ],
    **FUNCTIONS,
    "softplus_backward": lambda node, o: [
        aten.softplus_backward(o[0], o[1], 1.0, 20.0)
    ],
    **{
        f"{name}_backward": _plain(getattr(aten, f"{name}_backward"))
        for name in ("sigmoid", "tanh", "hardsigmoid", "silu", "hardswish", "mish")
    },
    **{
        name: _plain(getattr(F, name))
        for name in (
            *("hardsigmoid", "softplus", "silu", "hardswish", "mish"),
            *("softsign", "relu"),
        )
    },
    **{
        name: _plain(getattr(torch, name))
        for name in (
            *("sigmoid", "tanh", "erf", "exp", "log", "sqrt", "reciprocal"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
            *("asinh", "acosh", "atanh", "square", "neg", "abs", "sign"),
            *("ceil", "floor", "round", "add", "sub", "mul", "div", "pow"),
            *("maximum", "minimum", "where", "less_equal", "greater", "less"),
            *("greater_equal",),
        )
    },
    "equal": _plain(torch.eq),
    "and": _plain(torch.logical_and),
    "mod": _plain(torch.remainder),
}
"""How each op is run, by name."""
