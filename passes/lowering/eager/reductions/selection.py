"""Scatters, selections, rearrangements and resampling in eager PyTorch.

Where the size of a result depends on data PyTorch reads it back: the host waits
for the device. What PyTorch does not have itself is as torchvision does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from perfc.ir import AttrValue, TensorType, Work
from perfc.ir.dims import Dim
from perfc.passes.lowering.eager.movement import memcpy_launch
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    made_contiguous,
    rows_and_columns,
    vector_launch,
)

_RADIX_BITS = 2
_GATHERS = 2
"""Bits of a digit of `topk`, and walks after them: what is larger, what is equal."""

_WIDE_RADIX_BITS = 8
_SEVERAL_BLOCKS = (
    *((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000)),
    *((4_000, 800), (math.inf, 400)),
)
"""Up to so many slices, those of so many elements are distributed over several blocks
(`should_use_multiblock` in `TensorTopK.cu`)."""

_COUNT_BYTES = 8
"""Bytes of the number of results, an int64."""


def kernel_launch(
    site: Site, op: str, work: Work | None = None, **extra: AttrValue
) -> Launch:
    """Launch a kernel of its own kind, over the rows of the result."""
    rows, columns = rows_and_columns(site.out.shape)
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, **extra}
    dtype = site.operands[0].type.dtype if site.operands else site.out.type.dtype
    return vector_launch(op, dtype, params, site.work if work is None else work)


def _single(name: str, op: str) -> Rule:
    """One kernel that reads contiguous tensors."""

    def rule(site: Site) -> Eager:
        copies = made_contiguous(site.operands[:1])
        return Eager(name, (*copies, kernel_launch(site, op)))

    return rule


def _pointwise(name: str, kind: str) -> Rule:
    """One elementwise kernel."""

    def rule(site: Site) -> Eager:
        work = site.work
        inputs = site.operands[:1] if work.bytes_read else ()
        return Eager(name, (elementwise_launch(kind, inputs, site.out, work.flops),))

    return rule


def read_back() -> Launch:
    """The host waits for the number of results."""
    return memcpy_launch(_COUNT_BYTES, "d2h", pinned=False, dtype="int64")


def _scatter(site: Site) -> Eager:
    """A copy of the data, then the updates into it."""
    data, indices, updates = site.operands
    work = Work(site.work.flops, indices.nbytes + updates.nbytes, updates.nbytes)
    params: dict[str, AttrValue] = {
        "kind": site.op,
        "axis": site.attributes.integer("axis", 0) % max(data.type.rank, 1),
        "shape": data.shape,
        "indices": indices.shape,
    }
    moved = vector_launch("gather", data.type.dtype, params, work)
    copy = elementwise_launch("copy", (data,), site.out)
    name = "aten::index_put" if site.op == "scatter_nd" else "aten::scatter"
    return Eager(name, (copy, moved))


def _moved_rows(name: str) -> Rule:
    """One kernel that reads or writes at computed places."""

    def rule(site: Site) -> Eager:
        return Eager(name, (kernel_launch(site, "gather", kind=site.op),))

    return rule


def _topk(site: Site) -> Eager:
    """A radix select, then a sort of what is left."""
    kept = sum(result.nbytes for result in site.results)
    passes = (max(2, site.out.numel) - 1).bit_length()
    sort = Work(passes * site.out.numel, kept, kept)
    x = site.operands[0]
    size = x.shape[site.attributes.integer("axis", -1)] if x.shape else 1
    return Eager(
        "aten::topk", (*_selects(site, x, size), kernel_launch(site, "sort", sort))
    )


def _selects(site: Site, x: Tensor, size: int) -> Iterator[Launch]:
    """One block a slice walks through its digits; large slices go by many, in passes.

    Each pass reads all of them again, and one more gathers.
    """
    slices, bits = x.numel // max(size, 1), x.type.dtype.bits
    params: dict[str, AttrValue] = {"rows": slices, "cols": size}
    several = next(least for most, least in _SEVERAL_BLOCKS if slices <= most)
    if size < several or site.settings.on_cpu:
        params["steps"] = bits // _RADIX_BITS + _GATHERS
        yield vector_launch("topk", x.type.dtype, params, site.work)
        return
    read = Work(x.numel, x.nbytes, 0)
    for _ in range(math.ceil(bits / _WIDE_RADIX_BITS)):
        yield vector_launch("topk", x.type.dtype, params, read)
    yield vector_launch("topk", x.type.dtype, params, site.work)


def _nonzero(site: Site) -> Eager:
    """Count, read the count back, then write the places."""
    return Eager("aten::nonzero", places(site.operands[0], site.out))


def places(flags: Tensor, out: Tensor) -> tuple[Launch, ...]:
    """Count the flags that are set, read the count back, then write their places."""
    params: dict[str, AttrValue] = {"rows": 1, "cols": flags.numel, "kind": "count"}
    dtype = flags.type.dtype
    count = Work(flags.numel, flags.nbytes, _COUNT_BYTES)
    return (
        vector_launch("reduction", dtype, params, count),
        read_back(),
        vector_launch("select", dtype, params, Work(0, flags.nbytes, out.nbytes)),
    )


def _compress(site: Site) -> Eager:
    """A mask first becomes places, unless it is known before running."""
    condition = site.operands[1]
    moved = kernel_launch(site, "gather", kind="index_select")
    if condition.known:
        return Eager("aten::index_select", (moved,))
    kept = Tensor(TensorType(condition.type.dtype, (site.out.numel,)))
    return Eager("aten::index", (*places(condition, kept), moved))


def _unique(site: Site) -> Eager:
    """Sort, flag what differs from its neighbour, number it, write it."""
    x = site.operands[0]
    rounds = (max(2, x.numel) - 1).bit_length()
    sort = Work(rounds * x.numel, x.nbytes, x.nbytes)
    number = Work(x.numel, 8 * x.numel, 8 * x.numel)
    launches = (
        kernel_launch(site, "sort", sort),
        elementwise_launch("ne", (x, x), x, x.numel),
        kernel_launch(site, "scan", number),
        read_back(),
        kernel_launch(site, "gather", kind="scatter"),
    )
    return Eager("aten::_unique2", launches)


def _non_max_suppression(site: Site) -> Eager:
    """`torchvision.ops.nms`: sort by score, compare all pairs, read back."""
    boxes, scores = site.operands[:2]
    sort = Work(scores.numel, scores.nbytes, 2 * scores.nbytes)
    launches = (
        kernel_launch(site, "sort", sort),
        kernel_launch(site, "gather", Work(0, boxes.nbytes, boxes.nbytes)),
        kernel_launch(site, "nms"),
        read_back(),
    )
    return Eager("torchvision::nms", launches)


def _one_hot(site: Site) -> Eager:
    """Zeros, then a one for each index."""
    indices = site.operands[0]
    item = site.out.nbytes // site.out.numel if site.out.numel else 0
    work = Work(0, indices.nbytes, indices.numel * item)
    zeros = elementwise_launch("fill", (), site.out)
    return Eager("aten::one_hot", (zeros, kernel_launch(site, "gather", work)))


def _pad(site: Site) -> Eager:
    """A constant border is filled first; others are one kernel."""
    x = site.operands[0]
    if site.attributes.text("mode", "constant") != "constant":
        axes = sum(a != b for a, b in zip(x.shape, site.out.shape, strict=True))
        mode = site.attributes.text("mode")
        name = "aten::replication_pad" if mode == "edge" else "aten::reflection_pad"
        return Eager(f"{name}{max(1, axes)}d", (kernel_launch(site, "pad"),))
    inner = x if x.numel <= site.out.numel else site.out
    copy = elementwise_launch("copy", (inner,), inner)
    fill = elementwise_launch("fill", (), site.out)
    return Eager("aten::constant_pad_nd", (fill, copy))


def _eye_like(site: Site) -> Eager:
    rows, columns = rows_and_columns(site.out.shape)
    diagonal = Tensor(TensorType(site.out.type.dtype, (min(rows, columns),)))
    zeros = elementwise_launch("fill", (), site.out)
    return Eager("aten::eye", (zeros, elementwise_launch("fill", (), diagonal)))


_RANDOM = {
    "normal": "aten::normal_",
    "uniform": "aten::uniform_",
    "bernoulli": "aten::bernoulli",
}


def _random(site: Site) -> Eager:
    kind = site.attributes.text("kind")
    inputs = site.operands if kind == "bernoulli" else ()
    launch = elementwise_launch(kind, inputs, site.out, site.work.flops)
    return Eager(_RANDOM.get(kind, f"aten::{kind}"), (launch,))


def _multinomial(site: Site) -> Eager:
    """Sums, probabilities, running sums, then a search for each sample."""
    x = site.operands[0]
    rows, columns = x.shape
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, "kind": "sum"}
    total = Work(x.numel, x.nbytes, x.nbytes // columns if columns else 0)
    launches = (
        vector_launch("reduction", x.type.dtype, params, total),
        elementwise_launch("div", (x,), x, x.numel),
        kernel_launch(site, "scan", Work(x.numel, x.nbytes, x.nbytes)),
        kernel_launch(site, "sample"),
    )
    return Eager("aten::multinomial", launches)


_UPSAMPLES = {
    ("linear", 1): "linear1d",
    ("linear", 2): "bilinear2d",
    ("linear", 3): "trilinear3d",
    ("cubic", 2): "bicubic2d",
}


def _resize(site: Site) -> Eager:
    x, mode = site.operands[0], site.attributes.text("mode")
    axes = max(1, x.type.rank - 2)
    name = _UPSAMPLES.get((mode, axes), f"nearest{axes}d")
    launch = kernel_launch(site, "interpolate", kind=mode)
    return Eager(f"aten::upsample_{name}", (*made_contiguous((x,)), launch))


def _grid_sample(site: Site) -> Eager:
    axes = site.operands[0].type.rank - 2
    mode = site.attributes.text("mode")
    return Eager(
        f"aten::grid_sampler_{axes}d",
        (kernel_launch(site, "grid_sample", kind=mode),),
    )


def _affine_grid(site: Site) -> Eager:
    """A grid of ones and, per axis, of coordinates; then a small GEMM."""
    out = site.out
    axes = out.shape[-1]
    pixels = math.prod(out.shape[1:-1])
    plane: tuple[Dim, ...] = (out.shape[0], pixels)
    one = Tensor(TensorType(out.type.dtype, plane))
    coordinates = [
        launch
        for size in out.shape[1:-1]
        for launch in (
            elementwise_launch(
                "linspace", (), Tensor(TensorType(out.type.dtype, (size,)))
            ),
            elementwise_launch("copy", (one,), one),
        )
    ]
    grid = one.nbytes * (axes + 1)
    gemm = Work(site.work.flops, grid + site.operands[0].nbytes, out.nbytes)
    ones = elementwise_launch("fill", (), one)
    return Eager(
        "aten::affine_grid_generator",
        (*coordinates, ones, kernel_launch(site, "affine_grid", gemm)),
    )


RULES: Mapping[str, Rule] = {
    "scatter_elements": _scatter,
    "scatter_nd": _scatter,
    "tensor_scatter": _moved_rows("aten::index_copy_"),
    "reverse_sequence": _moved_rows("aten::gather"),
    "topk": _topk,
    "nonzero": _nonzero,
    "compress": _compress,
    "unique": _unique,
    "non_max_suppression": _non_max_suppression,
    "one_hot": _one_hot,
    "tile": _pointwise("aten::repeat", "copy"),
    "pad": _pad,
    "center_crop_pad": _pad,
    "pixel_shuffle": _pointwise("aten::pixel_shuffle", "copy"),
    "trilu": _pointwise("aten::triu", "triu"),
    "eye_like": _eye_like,
    "random": _random,
    "multinomial": _multinomial,
    "resize": _resize,
    "grid_sample": _grid_sample,
    "affine_grid": _affine_grid,
    "roi_pool": _single("torchvision::roi_align", "roi_pool"),
    "col2im": _single("aten::col2im", "col2im"),
}
"""Rules of the ops that choose or place elements, by op name."""
