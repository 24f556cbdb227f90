"""Optimizers in eager PyTorch: many tensors in few kernels.

`torch._foreach_*` and the fused optimizers hand their lists to `multi_tensor_apply`
(`aten/src/ATen/native/cuda/MultiTensorApply.cuh`), which cuts each tensor into chunks
of 65536 elements and launches a kernel as soon as the tensors or the chunks fill the
block of arguments that a kernel may have. How many fit goes with the *depth*: the
lists whose elements the kernel reads or writes. The rules count as that file does; in
traces of ResNet-50 (161 tensors, HolisticTraceAnalysis) `_foreach_add_` and
`_foreach_mul_` are three kernels each of just these blocks.

Tensors of a list are taken to share type and layout, as parameters do; PyTorch works
on others one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Work, spend
from perfc.ir.ops.optimizer import FOREACH_FLOPS, OPTIMIZER_FLOPS
from perfc.passes.lowering.eager.site import (
    MAX_LAUNCHES,
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    vector_launch,
)

CHUNK_ELEMENTS = 65536
"""`kChunkSize`."""

NORM_TENSORS = 400
"""Tensors whose norms one kernel finishes (`MAX_TENSORS_PER_KERNEL`)."""


@attrs.frozen
class Capacity:
    """What one launch takes.

    Attributes:
        tensors: How many tensors, an entry for each depth from 1 to 5.
        chunks: How many chunks, that is thread blocks.

    """

    tensors: tuple[int, ...]
    chunks: int


SMALL_ARGUMENTS = Capacity((110, 64, 48, 36, 30), 320)
"""4 KB of arguments: PyTorch built with CUDA 12 and older."""

LARGE_ARGUMENTS = Capacity((770, 448, 336, 252, 210), 2240)
"""32 KB of arguments: PyTorch built with CUDA 13."""


@attrs.frozen
class Pack:
    """What one launch works on.

    Attributes:
        parts: For each tensor, or piece of one: its index, first element and end.

    """

    parts: tuple[tuple[int, int, int], ...]

    @property
    def elements(self) -> int:
        """Elements of one list."""
        return sum(end - start for _, start, end in self.parts)

    @property
    def chunks(self) -> int:
        """Thread blocks."""
        return sum(_chunks(end - start) for _, start, end in self.parts)


def packed(sizes: Sequence[int], depth: int, capacity: Capacity) -> Iterator[Pack]:
    """Yield the launches for tensors of these sizes, in order; empty ones are in none.

    Args:
        sizes: Elements of each tensor.
        depth: Lists that the kernel reads or writes; more than five count as five.
        capacity: What one launch takes.

    """
    most = capacity.tensors[min(depth, len(capacity.tensors)) - 1]
    packs = sum(map(_chunks, sizes)) // capacity.chunks
    # Twice: a launch is a host call and a kernel.
    spend("launches", 2 * packs, "the optimizer")
    parts: list[tuple[int, int, int]] = []
    room = capacity.chunks
    for index, size in enumerate(sizes):
        start = 0
        while start < size:
            end = min(size, start + room * CHUNK_ELEMENTS)
            parts.append((index, start, end))
            room -= _chunks(end - start)
            full = room == 0 or (len(parts) == most and end == size)
            if full:
                yield Pack(tuple(parts))
                parts, room = [], capacity.chunks
            start = end
    if parts:
        yield Pack(tuple(parts))


def _chunks(elements: int) -> int:
    return -(-elements // CHUNK_ELEMENTS)


def _capacity(site: Site) -> Capacity:
    return LARGE_ARGUMENTS if site.settings.large_arguments else SMALL_ARGUMENTS


_NAMES: Mapping[str, str] = {
    "unscale": "aten::_amp_foreach_non_finite_check_and_unscale_",
    "update_scale": "aten::_amp_update_scale_",
}
"""Names of functions over lists that are not `_foreach_` and the kind."""


def _foreach(site: Site) -> Eager:
    """One pass over all lists; a result that is new is one list more."""
    kind = site.attributes.text("kind")
    in_place = site.attributes.flag("in_place")
    if site.settings.on_cpu:
        return _one_by_one(site, f"aten::{kind}{'_' if in_place else ''}")
    if kind == "norm":
        return Eager("aten::_foreach_norm", _norms(site))
    depth = site.attributes.integer("lists") + (not in_place)
    launches = _multi_tensor(site, "foreach", depth, FOREACH_FLOPS[kind])
    name = f"aten::_foreach_{kind}{'_' if in_place else ''}"
    return Eager(_NAMES.get(kind, name), launches)


def _one_by_one(site: Site, name: str) -> Eager:
    """On a CPU optimizers go from tensor to tensor, each an op (`torch/optim`)."""
    kind = site.attributes.text("kind")
    own, lists = _lists(site)
    launches: list[Launch] = []
    for tensors in zip(*lists, strict=True):
        flops = FOREACH_FLOPS[kind] * tensors[0].numel
        launch = elementwise_launch(kind, tensors, own[len(launches)], flops)
        launches.append(attrs.evolve(launch, op=name if launches else ""))
    return Eager(name, tuple(launches))


def _optimizer_step(site: Site) -> Eager:
    """The fused kernel: the lists of numbers, one a tensor, are no depth.

    `FusedAdamKernel.cu`, `FusedSgdKernel.cu` and `FusedAdagradKernel.cu` of ATen.
    Rows share a state in row-wise Adagrad, for which a kernel sums up the squares
    of every row first.
    """
    kind = site.attributes.text("kind")
    own, lists = _lists(site)
    depth = sum(_sizes(tensors) == _sizes(own) for tensors in lists)
    launches = _multi_tensor(site, "optimizer_step", depth, OPTIMIZER_FLOPS[kind])
    if kind == "rowwise_adagrad":
        squares = tuple(_row_squares(gradient) for gradient in lists[1])
        launches = (*squares, *launches)
    return Eager(f"aten::_fused_{kind}_", launches)


def _row_squares(gradient: Tensor) -> Launch:
    rows = gradient.shape[0] if gradient.shape else 1
    item = gradient.type.dtype.bits // 8
    params: dict[str, AttrValue] = {
        "rows": rows,
        "cols": gradient.numel // max(rows, 1),
        "kind": "mean_square",
    }
    work = Work(2 * gradient.numel, gradient.nbytes, rows * item)
    return vector_launch("reduction", gradient.type.dtype, params, work)


def _lists(site: Site) -> tuple[Sequence[Tensor], list[Sequence[Tensor]]]:
    count = site.attributes.integer("lists")
    tensors = len(site.operands) // count
    lists = [site.operands[i * tensors : (i + 1) * tensors] for i in range(count)]
    return lists[0], [*lists]


def _sizes(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.numel for tensor in tensors]


@attrs.frozen
class _Lists:
    """What a kernel over lists does in all: the packs share it by their elements."""

    site: Site
    op: str
    elements: int
    work: Work
    flops_each: int

    def launch(self, pack: Pack) -> Launch:
        """Launch one pack."""
        elements = pack.elements
        moved = Work(
            self.flops_each * elements,
            self.work.bytes_read * elements // max(self.elements, 1),
            self.work.bytes_written * elements // max(self.elements, 1),
        )
        params: dict[str, AttrValue] = {
            "kind": self.site.attributes.text("kind"),
            "tensors": len(pack.parts),
            "chunks": pack.chunks,
            "largest_chunk": max(min(e - s, CHUNK_ELEMENTS) for _, s, e in pack.parts),
            "elements": elements,
        }
        return vector_launch(self.op, self.site.operands[0].type.dtype, params, moved)


def _multi_tensor(
    site: Site, op: str, depth: int, flops_each: int
) -> tuple[Launch, ...]:
    own, _ = _lists(site)
    sizes = _sizes(own)
    if _are_too_many(site, sizes):
        return (_in_one(site, op),)
    lists = _Lists(site, op, sum(sizes), site.work, flops_each)
    return tuple(map(lists.launch, packed(sizes, depth, _capacity(site))))


def _in_one(site: Site, op: str) -> Launch:
    dtype = site.operands[0].type.dtype
    return vector_launch(op, dtype, {}, site.work, known=False)


def _are_too_many(site: Site, sizes: Sequence[int]) -> bool:
    return sum(map(_chunks, sizes)) > MAX_LAUNCHES * _capacity(site).chunks


def _norms(site: Site) -> tuple[Launch, ...]:
    """Zeros, a partial norm of each chunk, then a kernel that joins them.

    `foreach_tensor_norm_cuda` in `ForeachReduceOp.cu`.
    """
    own, _ = _lists(site)
    sizes = _sizes(own)
    if _are_too_many(site, sizes):
        return (_in_one(site, "foreach"),)
    most = max(map(_chunks, sizes), default=0)
    dtype = own[0].type.dtype
    partial = Tensor(attrs.evolve(own[0].type, shape=(len(own) * max(most, 1),)))
    read = Work(0, sum(tensor.nbytes for tensor in own), partial.nbytes)
    lists = _Lists(site, "foreach", sum(sizes), read, FOREACH_FLOPS["norm"])
    parts = map(lists.launch, packed(sizes, 1, _capacity(site)))
    item = dtype.bits // 8
    joins: list[Launch] = []
    for start in range(0, len(own), NORM_TENSORS):
        rows = min(NORM_TENSORS, len(own) - start)
        params: dict[str, AttrValue] = {"rows": rows, "cols": most, "kind": "norm"}
        work = Work(rows * most, rows * most * item, rows * item)
        joins.append(vector_launch("reduction", dtype, params, work))
    return (elementwise_launch("fill", (), partial), *parts, *joins)


RULES: Mapping[str, Rule] = {"foreach": _foreach, "optimizer_step": _optimizer_step}
"""Rules of optimizers, by op name."""
