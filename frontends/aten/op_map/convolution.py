"""ATen ops that move a window over images, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.frontends.aten.op_map.normalization import emit_wanted
from perfc.ir import AttrValue
from perfc.ir.dims import Dim


def _per_axis(node: AtenNode, name: str, axes: int, default: int) -> tuple[int, ...]:
    """Return a number for each axis; one number, or none, stands for all."""
    values = node.integers(name, ()) or (default,)
    return values if len(values) == axes else values[:1] * axes


def _window(node: AtenNode, axes: int) -> dict[str, AttrValue]:
    """Return stride, padding and dilation; padding is in front, then behind."""
    attributes: dict[str, AttrValue] = {
        "stride": _per_axis(node, "stride", axes, 1),
        "dilation": _per_axis(node, "dilation", axes, 1),
    }
    padding = node.arguments.get("padding")
    if padding == "same":
        attributes["auto_pad"] = "same_upper"
    elif padding != "valid":
        attributes["padding"] = _per_axis(node, "padding", axes, 0) * 2
    return attributes


def _conv(node: AtenNode) -> None:
    x = node.tensor("input" if node.is_given("input") else "self")
    weight = node.tensor("weight")
    axes = x.rank - 2
    attributes = {**_window(node, axes), "groups": node.integer("groups", 1)}
    bias = node.optional("bias")
    operands = (x, weight, bias) if bias else (x, weight)
    if not (node.flag("transposed") or "transpose" in node.name):
        node.emit("conv", operands, attributes)
        return
    attributes["output_padding"] = _per_axis(node, "output_padding", axes, 0)
    node.emit("conv_transpose", operands, attributes)


def _conv_tbc(node: AtenNode) -> None:
    operands = [node.tensor(name) for name in ("self", "weight", "bias")]
    node.emit("conv_tbc", operands, {"padding": node.integer("pad", 0)})


def _conv_backward(node: AtenNode) -> None:
    x, weight = node.tensor("input"), node.tensor("weight")
    axes = x.rank - 2
    attributes = {**_window(node, axes), "groups": node.integer("groups", 1)}
    if node.flag("transposed"):
        attributes["transposed"] = True
        attributes["output_padding"] = _per_axis(node, "output_padding", axes, 0)
    operands = (node.tensor("grad_output"), x, weight)
    emit_wanted(node, "conv_backward", operands, attributes)


def _pool_attributes(node: AtenNode, kind: str, axes: int) -> dict[str, AttrValue]:
    """Return attributes of a pool; without a stride it moves by its own size."""
    window = _per_axis(node, "kernel_size", axes, 1)
    stride = node.integers("stride", ()) or window
    return {
        "kind": kind,
        "window": window,
        "stride": stride if len(stride) == axes else stride * axes,
        "padding": _per_axis(node, "padding", axes, 0) * 2,
        "dilation": _per_axis(node, "dilation", axes, 1),
        "ceil_mode": node.flag("ceil_mode"),
    }


def _axes(node: AtenNode) -> int:
    """Return for how many axes an op is: its name says so."""
    return next((n for n in (1, 2, 3) if f"{n}d" in node.name), 2)


def _pool(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        axes = _axes(node)
        _emit_pool(node, _pool_attributes(node, kind, axes), axes)

    return handler


def _emit_pool(node: AtenNode, attributes: dict[str, AttrValue], axes: int) -> None:
    """Pool images; one without a batch is a batch of one."""
    x, count = node.tensor("self"), len(node.results)
    if x.rank == axes + 2:
        node.emit("pool", (x,), attributes, results=range(count))
        return
    (batch,) = node.helper("unsqueeze", (x,), {"axes": (0,)})
    pooled = node.helper("pool", (batch,), attributes, count=count)
    for index, result in enumerate(pooled):
        (image,) = node.helper("squeeze", (result,), {"axes": (0,)})
        node.alias(index, image)


def _pool_backward(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        operands = [node.tensor("grad_output"), node.tensor("self")]
        if node.is_given("indices"):
            operands.append(node.tensor("indices"))
        attributes = _pool_attributes(node, kind, _axes(node))
        node.emit("pool_backward", operands, attributes)

    return handler


def _adaptive(kind: str) -> Handler:
    """A window and a stride that give the size that is asked for."""

    def handler(node: AtenNode) -> None:
        x, out, axes = node.tensor("self"), node.result(), _axes(node)
        sizes, wanted = _known(x.type.shape[-axes:]), _known(out.shape[-axes:])
        attributes = _adapted(kind, sizes, wanted)
        if attributes is None:
            _whole(node, kind)
        elif math.prod(sizes) < math.prod(wanted):
            # Windows that overlap as little as they can: each reads an element or two.
            operands = (node.tensor("self"), node.listed(node.result().shape))
            node.emit("resize", operands, {"mode": "nearest"})
        else:
            _emit_pool(node, attributes, axes)

    return handler


def _known(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Return sizes; nothing where one is not known yet, or zero."""
    known = tuple(dim for dim in dims if isinstance(dim, int) and dim)
    return known if len(known) == len(dims) else ()


def _adapted(
    kind: str, sizes: Sequence[int], wanted: Sequence[int]
) -> dict[str, AttrValue] | None:
    """Return window and stride; None where a size is not known."""
    if not sizes or not wanted:
        return None
    stride = [max(size // n, 1) for size, n in zip(sizes, wanted, strict=True)]
    window = [
        max(size - (n - 1) * step, 1)
        for size, n, step in zip(sizes, wanted, stride, strict=True)
    ]
    return {"kind": kind, "window": tuple(window), "stride": tuple(stride)}


def _max_unpool(node: AtenNode) -> None:
    size = node.listed(node.result().shape)
    operands = (node.tensor("self"), node.tensor("indices"), size)
    window = (1,) * (operands[0].rank - 2)
    node.emit("max_unpool", operands, {"window": window})


def _whole(node: AtenNode, kind: str) -> None:
    """Reduce images of a size that is not known yet to one element."""
    x = node.tensor("self")
    name = "mean" if kind == "average" else kind
    axes = tuple(range(2, x.rank))
    attributes: dict[str, AttrValue] = {"kind": name, "axes": axes, "keepdims": True}
    node.emit("reduce", (x,), attributes, results=range(len(node.results)))


def _adaptive_backward(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        operands = [node.tensor("grad_output"), node.tensor("self")]
        if node.is_given("indices"):
            operands.append(node.tensor("indices"))
        axes = _axes(node)
        sizes = [_known(operand.type.shape[-axes:]) for operand in operands[:2]]
        attributes = _adapted(kind, sizes[1], sizes[0])
        node.emit("pool_backward", operands, attributes or {"kind": kind})

    return handler


_CONVOLUTIONS = (
    *("convolution", "_convolution", "cudnn_convolution", "miopen_convolution"),
    *("conv1d", "conv2d", "conv3d", "cudnn_convolution_transpose"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("convolution_overrideable", "_conv_depthwise2d", "conv_depthwise3d"),
    *("thnn_conv2d", "_slow_conv2d_forward", "mkldnn_convolution"),
)

CONVOLUTION_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys((f"aten.{name}" for name in _CONVOLUTIONS), _conv),
    "aten.conv_tbc": _conv_tbc,
    "aten.convolution_backward": _conv_backward,
    **{
        f"aten.{name}": _pool("max")
        for n in (1, 2, 3)
        for name in (f"max_pool{n}d", f"max_pool{n}d_with_indices")
    },
    **{f"aten.avg_pool{n}d": _pool("average") for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d_backward": _pool_backward("average") for n in (2, 3)},
    **{
        f"aten.max_pool{n}d_with_indices_backward": _pool_backward("max")
        for n in (2, 3)
    },
    **{f"aten.adaptive_avg_pool{n}d": _adaptive("average") for n in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{n}d": _adaptive("average") for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d": _adaptive("max") for n in (1, 2, 3)},
    **{f"aten.fractional_max_pool{n}d": _adaptive("max") for n in (2, 3)},
    **{
        f"aten.fractional_max_pool{n}d_backward": _adaptive_backward("max")
        for n in (2, 3)
    },
    **{f"aten.max_unpool{n}d": _max_unpool for n in (2, 3)},
    **{
        f"aten._adaptive_avg_pool{n}d_backward": _adaptive_backward("average")
        for n in (2, 3)
    },
    **{
        f"aten.adaptive_max_pool{n}d_backward": _adaptive_backward("max")
        for n in (2, 3)
    },
}
"""ATen ops to the functions that write them."""
