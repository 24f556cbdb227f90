"""Views, copies, joins and lookups in eager PyTorch.

A view launches nothing and costs the host an op all the same. What it does to
the layout decides whether a later `reshape` is a view, too, or a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfc.ir import AttrValue, Kernel, Record, TaskKind, TensorType, Work
from perfc.ir.types import MemorySpace
from perfc.passes.lowering.eager.site import (
    HEADS,
    MEMCPY,
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
    Tensor,
    copy_launch,
    dense,
    dtype_name,
    elementwise_launch,
    made_contiguous,
    vector_launch,
)

CAT_TENSORS = 128
"""Tensors that one kernel of `cat` joins (CAT_ARRAY_BATCH_SIZE in ATen)."""

_MATRIX = 2


def _reshape(site: Site) -> Eager:
    """A view where the layout allows it, else a copy."""
    x = site.operands[0]
    if x.contiguous:
        return Eager("aten::view")
    shape = site.out.shape
    if site.attributes.flag("view") or _only_splits(x.shape, shape):
        return Eager("aten::view", (), (_viewed(x, shape),))
    matrices_stay = shape[-2:] == x.shape[-2:] and x.layout is Layout.TRANSPOSED
    if shape == x.shape or matrices_stay:
        return Eager("aten::view", (), (x.layout,))
    joined = (*x.shape[:2], math.prod(x.shape[2:]))
    if x.layout is Layout.TURNED_HEADS and shape == joined:
        return Eager("aten::view", (), (Layout.STRIDED,))
    return Eager("aten::reshape", (copy_launch(x),))


def _only_splits(shape: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether each axis is one of the new ones or several: a view of any strides."""
    rest = iter(new)
    for wide in shape:
        found = next(rest, 0)
        while 0 < found < wide:
            found *= next(rest, 0)
        if found != wide:
            return False
    return all(n == 1 for n in rest)


def _viewed(x: Tensor, shape: tuple[int, ...]) -> Layout:
    matrices_stay = shape[-2:] == x.shape[-2:] and x.layout is Layout.TRANSPOSED
    return x.layout if shape == x.shape or matrices_stay else Layout.STRIDED


def _transpose(site: Site) -> Eager:
    x = site.operands[0]
    perm = site.attributes.integers("perm")
    return Eager(_transpose_name(perm), (), (_permuted(x, perm),))


def _transpose_name(perm: tuple[int, ...]) -> str:
    moved = sum(axis != place for place, axis in enumerate(perm))
    return "aten::transpose" if moved <= _MATRIX else "aten::permute"


def _permuted(x: Tensor, perm: tuple[int, ...]) -> Layout:
    """Return the layout after a permutation; axes of size 1 may go anywhere."""
    if x.layout is Layout.STRIDED:
        return Layout.STRIDED
    places = list(range(len(perm)))
    if x.layout is Layout.TRANSPOSED:
        places[-2:] = places[:-3:-1]
    if x.layout is Layout.HEADS:
        places[1:3] = places[2:0:-1]
    if x.layout is Layout.TURNED_HEADS:
        places[1:] = places[3], *places[1:3]
    order = [places[axis] for axis in perm if x.shape[axis] != 1]
    if order == sorted(order):
        return Layout.CONTIGUOUS
    swapped = [*order[:-2], *order[:-3:-1]]
    matrix = all(x.shape[axis] != 1 for axis in perm[-2:])
    if matrix and swapped == sorted(order):
        return Layout.TRANSPOSED
    if order == [0, 3, 1, 2]:
        return Layout.TURNED_HEADS
    if order == [0, 2, 1, 3]:
        return Layout.HEADS
    return Layout.STRIDED


def _axes_of_one(site: Site) -> Eager:
    """`squeeze` and `unsqueeze`."""
    x = site.operands[0]
    layout = x.layout
    if layout is Layout.TRANSPOSED and site.out.shape[-2:] != x.shape[-2:]:
        layout = Layout.STRIDED
    if layout in HEADS:
        layout = Layout.STRIDED
    return Eager(f"aten::{site.op}", (), (layout,))


def _expand(site: Site) -> Eager:
    x = site.operands[0]
    same = site.out.shape == x.shape
    return Eager("aten::expand", (), (x.layout if same else Layout.STRIDED,))


def _pieces(site: Site) -> Eager:
    """`slice` and `split`: contiguous where the outermost axis is cut."""
    x = site.operands[0]
    layouts = tuple(_cut(x, result) for result in site.results)
    return Eager(f"aten::{site.op}", (), layouts)


def _cut(x: Tensor, piece: TensorType) -> Layout:
    if x.layout in HEADS and x.shape != piece.shape:
        return Layout.STRIDED
    if not x.contiguous:
        return x.layout
    cut = [axis for axis, n in enumerate(x.shape) if n != piece.shape[axis]]
    outermost = not cut or all(n == 1 for n in x.shape[: cut[-1]])
    return Layout.CONTIGUOUS if outermost else Layout.STRIDED


def _cast(site: Site) -> Eager:
    x = site.operands[0]
    launch = elementwise_launch("cast", (x,), site.out)
    return Eager("aten::to", (launch,), (dense(x.layout),))


def _bit_cast(site: Site) -> Eager:
    x = site.operands[0]
    if x.shape == site.out.shape:
        return Eager("aten::view", (), (x.layout,))
    return Eager("aten::view", made_contiguous((x,)))


def _concat(site: Site) -> Eager:
    """`cat` skips empty tensors and joins 128 tensors a kernel."""
    tensors = [tensor for tensor in site.operands if tensor.numel]
    axis = site.attributes.integer("axis") % site.out.type.rank
    launches = tuple(
        _cat_launch(tensors[start : start + CAT_TENSORS], axis)
        for start in range(0, len(tensors), CAT_TENSORS)
    )
    return Eager("aten::stack" if site.op == "stack" else "aten::cat", launches)


def _cat_launch(tensors: Sequence[Tensor], axis: int) -> Launch:
    moved = sum(tensor.nbytes for tensor in tensors)
    shapes = tuple(tensor.shape for tensor in tensors)
    params: dict[str, AttrValue] = {"axis": axis, "shapes": shapes}
    if not all(tensor.contiguous for tensor in tensors):
        elements = sum(tensor.numel for tensor in tensors)
        params |= {"rows": elements, "cols": 1, "scattered": True}
    return vector_launch("concat", tensors[0].type.dtype, params, Work(0, moved, moved))


def memcpy_launch(
    nbytes: int, kind: str, *, pinned: bool, dtype: str, blocking: bool = False
) -> Launch:
    """Copy between host and device, or on the device.

    From or to pageable memory the host waits for the copy: PyTorch calls
    `cudaStreamSynchronize` after it. So it does from pinned memory without
    `non_blocking` (*blocking*).
    """
    params: dict[str, AttrValue] = {"bytes": nbytes, "kind": kind, "pinned": pinned}
    kernel = Kernel("memcpy", dtype, "fp32", Record(params), Work(0, nbytes, nbytes))
    waits = (blocking or not pinned) and kind != "d2d"
    return Launch(kernel, MEMCPY, TaskKind.COPY, kind, waits=waits)


def input_launch(nbytes: int, dtype: str, inputs: str) -> Launch:
    """Copy an input to the device, from where *inputs* says that it is."""
    pinned, blocking = inputs != "host-pageable", inputs == "host-pinned-blocking"
    return memcpy_launch(nbytes, "h2d", pinned=pinned, dtype=dtype, blocking=blocking)


def same_copy_launch(site: Site, tensor: Tensor) -> Launch:
    """Copy a tensor without holes to one that lies alike: the driver does it.

    See `memcpy_eligible` in `aten/src/ATen/native/cuda/Copy.cu`. A CPU has a kernel.
    """
    if site.settings.on_cpu:
        return elementwise_launch("copy", (tensor,), tensor)
    dtype = dtype_name(tensor.type.dtype)
    return memcpy_launch(tensor.nbytes, "d2d", pinned=True, dtype=dtype)


def _copy(site: Site) -> Eager:
    x, out = site.operands[0], site.out
    if site.attributes.flag("input"):
        # Copy what an input is in another microbatch, from where inputs are.
        nbytes, dtype = site.out.nbytes, dtype_name(site.out.type.dtype)
        copied = input_launch(nbytes, dtype, site.settings.inputs)
        return Eager("aten::to", (copied,) if nbytes else ())
    if site.attributes.flag("unless_contiguous") and x.contiguous:
        return Eager("aten::contiguous")
    spaces = (x.type.space, out.type.space)
    ends = "".join("d" if s is MemorySpace.DEVICE else "h" for s in spaces)
    if ends == "hh":
        return Eager("aten::to")  # on the host: no task of the device
    if ends == "dd" and not x.contiguous:
        return Eager("aten::clone", (copy_launch(x),))
    launch = memcpy_launch(
        out.nbytes,
        f"{ends[0]}2{ends[1]}",
        pinned=MemorySpace.HOST not in spaces,
        dtype=dtype_name(x.type.dtype),
    )
    return Eager("aten::to", (*made_contiguous((x,)), launch))


def _item(site: Site) -> Eager:
    """Read a scalar: a copy to pageable memory, which the host waits for."""
    x = site.operands[0]
    dtype = dtype_name(x.type.dtype)
    return Eager(
        "aten::item", (memcpy_launch(x.nbytes, "d2h", pinned=False, dtype=dtype),)
    )


def _fill(site: Site) -> Eager:
    return Eager("aten::full", (elementwise_launch("fill", (), site.out),))


def _range(site: Site) -> Eager:
    return Eager("aten::arange", (elementwise_launch("arange", (), site.out),))


def _gather(site: Site) -> Eager:
    """Rows of a weight are an `embedding`; a known scalar index is a view."""
    x, indices = site.operands
    axis = site.attributes.integer("axis") % x.type.rank
    if indices.known and not indices.type.rank:
        outermost = x.contiguous and all(n == 1 for n in x.shape[:axis])
        layout = Layout.CONTIGUOUS if outermost else Layout.STRIDED
        return Eager("aten::select", (), (layout,))
    if x.parameter and axis == 0 and x.type.rank == _MATRIX:
        return Eager("aten::embedding", (_lookup(site, axis),))
    name = "aten::index_select" if indices.type.rank <= 1 else "aten::index"
    return Eager(name, (_lookup(site, axis),))


def _gather_elements(site: Site) -> Eager:
    axis = site.attributes.integer("axis") % max(site.operands[0].type.rank, 1)
    return Eager("aten::gather", (_lookup(site, axis),))


def _gather_nd(site: Site) -> Eager:
    batch = site.attributes.integer("batch_dims", 0)
    return Eager("aten::index", (_lookup(site, batch),))


def _index(site: Site) -> Eager:
    """`x[:, i, j]`: one kernel, whatever axis the indices begin at.

    Indices that lie on the host are copied first, one after another.
    """
    axes = site.attributes.integers("axes") or (site.attributes.integer("axis"),)
    on_host = [t for t in site.operands[1:] if t.type.space is MemorySpace.HOST]
    copies = [
        memcpy_launch(t.nbytes, "h2d", pinned=False, dtype=dtype_name(t.type.dtype))
        for t in on_host
        if not site.settings.on_cpu
    ]
    return Eager("aten::index", (*copies, _lookup(site, axes[0])))


def _lookup(site: Site, axis: int) -> Launch:
    x, indices, *others = site.operands
    shape = indices.shape
    if others:  # one list for each axis: as tuples they are another axis
        shape = (math.prod(shape), 1 + len(others))
    params: dict[str, AttrValue] = {
        "kind": site.op,
        "axis": axis,
        "shape": x.shape,
        "indices": shape,
    }
    if x.type.dtype.scaling is not None:
        params["row_bytes"] = x.type.dtype.row_bytes(x.shape[-1])
    return vector_launch("gather", x.type.dtype, params, site.work)


RULES: Mapping[str, Rule] = {
    "reshape": _reshape,
    "flatten": _reshape,
    "transpose": _transpose,
    "squeeze": _axes_of_one,
    "unsqueeze": _axes_of_one,
    "expand": _expand,
    "slice": _pieces,
    "split": _pieces,
    "cast": _cast,
    "cast_like": _cast,
    "bit_cast": _bit_cast,
    "concat": _concat,
    "stack": _concat,
    "copy": _copy,
    "item": _item,
    "fill": _fill,
    "range": _range,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "index": _index,
}
"""Rules of the ops that move, view or look up, by op name."""
