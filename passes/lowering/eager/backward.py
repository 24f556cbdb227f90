"""Gradients of activations, pools and lookups in eager PyTorch.

Names and kernels are those of ATen's `*_backward` functions (PyTorch 2.x). Traces
show one kernel of `threshold_backward`, `sigmoid_backward` and `tanh_backward`, two of
`max_pool2d_with_indices_backward`, `select_backward` and `slice_backward`, and eight
of `_index_put_impl_` that accumulates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.ir import AttrValue, TensorType, Work
from perfc.ir.ops.activation_backward import ACTIVATION_GRADIENTS
from perfc.ir.types import MemorySpace
from perfc.passes.lowering.eager.elementwise import kept_layout
from perfc.passes.lowering.eager.embedding import add_rows
from perfc.passes.lowering.eager.movement import memcpy_launch
from perfc.passes.lowering.eager.reductions import (
    INDEX_BYTES,
    kernel_launch,
    key_bits,
    radix_sort,
)
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    dtype_name,
    elementwise_launch,
    made_contiguous,
    rows_and_columns,
    vector_launch,
    wanted_gradients,
)

_NAMES: Mapping[str, str] = {
    "relu_backward": "threshold_backward",
    "clip_backward": "hardtanh_backward",
    "dropout_backward": "native_dropout_backward",
    "shrink_backward": "softshrink_backward",
}
"""ATen's names that are not the op's."""


def _elementwise(site: Site) -> Eager:
    """One kernel reads the gradient and what was saved."""
    name = _NAMES.get(site.op, site.op)
    if site.attributes.flag("hard"):
        name = "hardshrink_backward"
    launch = elementwise_launch(name, site.operands, site.out, site.work.flops)
    return Eager(f"aten::{name}", (launch,), (kept_layout(site),))


def _prelu_backward(site: Site) -> Eager:
    """One kernel writes both gradients (`_prelu_kernel_backward`)."""
    out = site.out
    params: dict[str, AttrValue] = {
        **dict(zip(("rows", "cols"), rows_and_columns(out.shape), strict=True)),
        "kind": "prelu_backward",
        "tensor_inputs": 2,
        "bytes": math.trunc(site.work.bytes_read + site.work.bytes_written),
    }
    launch = vector_launch("elementwise", out.type.dtype, params, site.work)
    return Eager("aten::_prelu_kernel_backward", (launch,))


def _glu_backward(site: Site) -> Eager:
    """One kernel writes both halves of the gradient."""
    launch = elementwise_launch(
        "glu_backward", site.operands, site.out, site.work.flops
    )
    return Eager("aten::glu_backward", (launch,))


def _pad_backward(site: Site) -> Eager:
    """Zeros, then each element added to its source (`ReflectionPad.cu`)."""
    mode = "replication" if site.attributes.text("mode") == "edge" else "reflection"
    grad, out = site.operands[0], site.out
    axes = sum(a != b for a, b in zip(grad.shape, out.shape, strict=True))
    zeros = elementwise_launch("fill", (), out)
    launches = (*made_contiguous((grad,)), zeros, kernel_launch(site, "pad"))
    return Eager(f"aten::{mode}_pad{max(1, axes)}d_backward", launches)


def _grid_sample_backward(site: Site) -> Eager:
    """Zeros for the image, then one kernel for both gradients (`GridSampler.cu`)."""
    x = site.operands[1]
    zeros = elementwise_launch("fill", (), Tensor(x.type))
    first = (zeros,) if "x" in wanted_gradients(site) else ()
    launch = kernel_launch(site, "grid_sample", kind=site.attributes.text("mode"))
    name = f"aten::grid_sampler_{x.type.rank - 2}d_backward"
    return Eager(name, (*first, launch))


def _pool_backward(site: Site) -> Eager:
    """Zeros and a scatter for maxima; an average reaches each element once.

    The average of the whole image is a mean, whose gradient is one division.
    """
    grad, x = site.operands[:2]
    window = site.attributes.integers("window")
    copies = made_contiguous((grad,))
    if site.attributes.text("kind") != "max" and not window:
        div = elementwise_launch("div", (grad,), x, x.numel)
        return Eager("aten::div", (div,))
    params: dict[str, AttrValue] = {
        "rows": math.prod(x.shape[:2]),
        "cols": math.prod(x.shape[2:]),
        "window": window,
        "kind": "max" if site.attributes.text("kind") == "max" else "avg",
        "phase": "backward",
    }
    launch = vector_launch("pool", x.type.dtype, params, site.work)
    axes = len(window) or x.type.rank - 2
    if params["kind"] == "avg":
        return Eager(f"aten::avg_pool{axes}d_backward", (*copies, launch))
    zeros = elementwise_launch("fill", (), site.out)
    name = f"aten::max_pool{axes}d_with_indices_backward"
    return Eager(name, (*copies, zeros, launch))


def _slice_backward(site: Site) -> Eager:
    """Zeros, then the gradient copied into its place."""
    grad = Tensor(site.operands[0].type)
    zeros = elementwise_launch("fill", (), site.out)
    return Eager(
        "aten::slice_backward", (zeros, elementwise_launch("copy", (grad,), grad))
    )


def _index_put(site: Site) -> Eager:
    """One kernel that writes; to add, indices are sorted so that equal ones meet.

    `index_put_with_sort_kernel` in `Indexing.cu`: linear indices, their rows, a
    range, a radix sort of pairs and the kernel that adds. Indices that are known lie
    on the host, as those do that a model makes there: it makes them linear and copies
    them.
    """
    x, values, *indices = site.operands
    if site.attributes.flag("atomic"):
        return Eager("aten::index_add_", (add_rows(x, values),))
    in_place = site.attributes.flag("in_place")
    first = () if in_place else (elementwise_launch("copy", (x,), site.out),)
    axis = site.attributes.integer("axis", 0)
    name = "aten::index_put_" if in_place else "aten::index_put"
    work = Work(
        values.numel,
        values.nbytes + sum(tensor.nbytes for tensor in indices),
        values.nbytes,
    )
    params: dict[str, AttrValue] = {"kind": "index_put", "shape": x.shape}
    put = vector_launch("gather", x.type.dtype, params, work)
    if not site.attributes.flag("accumulate"):
        return Eager(name, (*first, put))
    indices = _split(x, values, indices, axis)
    added = put if site.settings.on_cpu else _added(x, indices, axis, work)
    return Eager(name, (*first, *_sorted(site, indices, axis), added))


def _added(x: Tensor, indices: list[Tensor], axis: int, work: Work) -> Launch:
    """`indexing_backward_kernel`: a warp for each index, again for each row before it.

    `outer` is how many such rows there are, `inner` how many numbers one index names.
    """
    params: dict[str, AttrValue] = {
        "kind": "index_put",
        "indices": max((tensor.numel for tensor in indices), default=0),
        "outer": math.prod(x.shape[:axis]),
        "inner": math.prod(x.shape[axis + len(indices) :]),
    }
    return vector_launch("index_add", x.type.dtype, params, work)


def _split(x: Tensor, values: Tensor, indices: list[Tensor], axis: int) -> list[Tensor]:
    """Return an index tensor for each axis, where one holds whole tuples.

    Exporters pack them; PyTorch takes them apart.
    """
    packed = indices[0]
    apart = axis + packed.type.rank + x.type.rank - axis - 1
    if len(indices) > 1 or values.type.rank == apart or not packed.shape:
        return indices
    type_ = TensorType(packed.type.dtype, packed.shape[:-1])
    return [attrs.evolve(packed, type=type_)] * packed.shape[-1]


def _sorted(site: Site, indices: list[Tensor], axis: int) -> list[Launch]:
    """Sort the linear indices, with the places they come from."""
    count = max((tensor.numel for tensor in indices), default=0)
    linear = Tensor(TensorType(indices[0].type.dtype, (count,)))
    known = [t for t in indices if t.known or t.type.space is MemorySpace.HOST]
    launches = [
        memcpy_launch(t.nbytes, "h2d", pinned=False, dtype=dtype_name(t.type.dtype))
        for t in known
    ]
    steps = ["remainder", "mul"] * (len(indices) - len(known))
    steps += ["add"] * max(len(indices) - len(known) - 1, 0)
    steps += ["add", "copy"] * (axis > 0)  # the axes in front count, too
    steps.append("floor_divide")
    launches += [elementwise_launch(s, (linear,), linear, count) for s in steps]
    launches.append(elementwise_launch("arange", (), linear))
    x = site.operands[0]
    rows = math.prod(x.shape[: axis + len(indices)])
    return [*launches, *radix_sort(count, key_bits(rows), INDEX_BYTES)]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(ACTIVATION_GRADIENTS), _elementwise),
    "prelu_backward": _prelu_backward,
    "glu_backward": _glu_backward,
    "pad_backward": _pad_backward,
    "grid_sample_backward": _grid_sample_backward,
    "pool_backward": _pool_backward,
    "slice_backward": _slice_backward,
    "index_put": _index_put,
}
"""Rules of gradients, by op name."""
