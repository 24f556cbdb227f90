"""Families of calls that only the kernels of models have: no shape of them is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors
from perfc.measure.design import Space
from perfc.measure.device import Device

_TORCH: Any = torch
_ATEN: Any = torch.ops.aten
_BACKWARD = "backward"
_RATE = 0.01
_MEAN = 1
"""Reduction of a loss: the mean over all rows."""

_FEW = 3072
"""Indices whose rows are added up unsorted (`cuda/Embedding.cu`)."""

_CHUNK = 65536
"""Elements that one thread block of a list takes (`kChunkSize`)."""


class Given(Family):
    """Shapes come from models alone."""

    turns = 0

    def space(self, device: Device) -> Space:
        """Return nothing to draw from."""
        return {}


def list_sizes(params: Record) -> list[int]:
    """Return elements of tensors that make so many chunks of a list."""
    tensors, elements = params.integer("tensors"), params.integer("elements")
    chunks, largest = params.integer("chunks"), params.integer("largest_chunk")
    more = chunks - tensors
    first = max(more * _CHUNK + 1, min((more + 1) * _CHUNK, elements - tensors + 1))
    if not more:
        first = min(largest, elements - tensors + 1)
    rest, others = elements - first, tensors - 1
    each = [rest // others + (i < rest % others) for i in range(others)]
    return [first, *each]


class Foreach(Given):
    """One pass over the tensors of some lists, in place or not."""

    op = "foreach"

    def takes(self, case: Case) -> bool:
        """Whether PyTorch has the kind."""
        return hasattr(torch, f"_foreach_{case.params.text('kind')}")

    def memory_bytes(self, case: Case) -> int:
        """Return the lists, and what a pass that is not in place writes."""
        return int(case.work.bytes)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the function of the kind."""
        params = case.params
        sizes, kind = list_sizes(params), params.text("kind")
        lists = [
            [tensors.random(case.dtype, size) for size in sizes]
            for _ in range(params.integer("lists"))
        ]
        own, *others = lists
        name = f"_foreach_{kind}{'_' if params.flag('in_place') else ''}"
        function = getattr(torch, name)
        more: tuple[object, ...] = tuple(others)
        if kind in {"addcmul", "addcdiv"}:
            return lambda: function(own, *more, _RATE)
        if kind == "add" and others:
            return lambda: function(own, *more, alpha=-_RATE)
        if kind == "lerp" or (kind != "sqrt" and not others):
            return lambda: function(own, *more, 1.0 - _RATE)
        return lambda: function(own, *more)


class Pool(Given):
    """Windows over the planes of square images."""

    op = "pool"

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the pooling of the kind, or its gradient."""
        params = case.params
        planes, side, out = map(params.integer, ("planes", "size", "out"))
        geometry = [
            [params.integer(name)] * 2 for name in ("window", "stride", "padding")
        ]
        x = tensors.random(case.dtype, 1, planes, side, side)
        backward = params.get("phase") == _BACKWARD
        g = tensors.random(case.dtype, 1, planes, out, out) if backward else x
        if params.text("kind") == "avg":
            rest = (False, True, None)
            if backward:
                return lambda: _ATEN.avg_pool2d_backward(g, x, *geometry, *rest)
            return lambda: _ATEN.avg_pool2d(x, *geometry, *rest)
        if not backward:
            return lambda: _ATEN.max_pool2d_with_indices(x, *geometry)
        _, places = _ATEN.max_pool2d_with_indices(x, *geometry)
        dilation, ceil = [1, 1], False
        return lambda: _ATEN.max_pool2d_with_indices_backward(
            g, x, *geometry, dilation, ceil, places
        )


class NllLoss(Given):
    """The mean over rows of the negative logarithms at their targets."""

    op = "nll_loss"

    def memory_bytes(self, case: Case) -> int:
        """Return the logarithms and their gradient."""
        rows, cols = case.params.integer("rows"), case.params.integer("cols")
        return 8 * rows * (cols + 1)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `nll_loss_forward` or `nll_loss_backward`."""
        rows, cols = case.params.integer("rows"), case.params.integer("cols")
        x, targets = (
            tensors.random(case.dtype, rows, cols),
            tensors.integers(cols, rows),
        )
        rest = (targets, None, _MEAN, -100)
        if case.params.get("phase") != _BACKWARD:
            return lambda: _ATEN.nll_loss_forward(x, *rest)
        loss, weight = _ATEN.nll_loss_forward(x, *rest)
        return lambda: _ATEN.nll_loss_backward(loss, x, *rest, weight)


class EmbeddingBackward(Given):
    """The gradient of a whole table, of `nn.Embedding`."""

    op = "embedding_backward"

    def capturable(self, case: Case) -> bool:
        """Return whether indices are few: more of them are sorted."""
        return case.params.integer("lookups") <= _FEW

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `embedding_dense_backward`."""
        rows, dim, lookups = map(case.params.integer, ("rows", "dim", "lookups"))
        g, indices = (
            tensors.random(case.dtype, lookups, dim),
            tensors.integers(rows, lookups),
        )
        return lambda: _ATEN.embedding_dense_backward(g, indices, rows, -1, False)


class IndexPut(Given):
    """Values added at places of square matrices: DLRM's interaction, backward."""

    op = "index_put"

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `index_put_` behind the axis that is not indexed."""
        outer, count, side = map(case.params.integer, ("outer", "indices", "side"))
        x = tensors.random(case.dtype, outer, side, side)
        values = tensors.random(case.dtype, outer, count)
        row, column = pairs_below(side, count, tensors)
        return lambda: _ATEN.index_put_(x, [None, row, column], values, True)


def pairs_below(
    side: int, count: int, tensors: Tensors
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row and column numbers of the first places below a diagonal."""
    row, column = torch.tril_indices(side, side, -1, device=tensors.kind)[:, :count]
    return row.contiguous(), column.contiguous()


def triangle_side(count: int) -> int:
    """Return the side of the least matrix with so many places below its diagonal."""
    return math.ceil((1 + math.sqrt(1 + 8 * count)) / 2)


class Coalesce(Given):
    """Rows of a sparse gradient, those of one index summed up."""

    op = "coalesce"

    def capturable(self, case: Case) -> bool:
        """Return no: it reads back how many rows differ."""
        return False

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `coalesce` on a gradient whose rows name so many different ones."""
        lookups, dim, distinct = map(
            case.params.integer, ("lookups", "dim", "distinct")
        )
        named = torch.arange(lookups, device=tensors.kind) % distinct
        shuffled = named[tensors.shares(lookups).argsort()]
        values = tensors.random(case.dtype, lookups, dim)
        gradient = sparse_rows(shuffled, values, distinct)
        return gradient.coalesce


def sparse_rows(indices: torch.Tensor, values: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the gradient of a table of *rows* that has *values* at *indices*."""
    _TORCH.sparse.check_sparse_tensor_invariants.disable()  # undecided, PyTorch warns
    size = (rows, values.shape[1])
    made: torch.Tensor = _TORCH.sparse_coo_tensor(indices[None], values, size)
    return made


class SparseAdd(Given):
    """Rows of a sparse gradient added to those of a table: a step of SGD."""

    op = "embedding_bag"

    def takes(self, case: Case) -> bool:
        """Whether rows are added one by one, atomically, to one table."""
        params = case.params
        how = (params.get("algorithm"), params.get("optimizer"))
        return how == ("atomic", "sgd") and len(params.records("tables")) == 1

    def memory_bytes(self, case: Case) -> int:
        """Return the table and the gradient."""
        (table,) = case.params.records("tables")
        rows, dim = table.integer("rows"), table.integer("dim")
        return 4 * rows * dim + int(case.work.bytes)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `add_`."""
        (table,) = case.params.records("tables")
        rows, dim = table.integer("rows"), table.integer("dim")
        count = case.params.integer("batch") * table.integer("pooling")
        values = tensors.random(case.dtype, count, dim)
        gradient = sparse_rows(tensors.integers(rows, count), values, rows)
        weight = tensors.random(case.dtype, rows, dim)
        return lambda: weight.add_(gradient, alpha=-_RATE)


_Gathered = Callable[[Case, torch.Tensor, Tensors], Call]


def _of_bags(case: Case, x: torch.Tensor, tensors: Tensors) -> Call:
    """Repeat each bag's gradient for the lookups of the bag."""
    count = math.prod(case.params.integers("indices"))
    bags = torch.arange(count, device=tensors.kind) * x.shape[0] // count
    return lambda: torch.index_select(x, 0, bags)


def _at_places(case: Case, x: torch.Tensor, tensors: Tensors) -> Call:
    """Index one axis, or two at once behind the first."""
    indices = case.params.integers("indices")
    if case.params.integer("axis") == 0:
        places = tensors.integers(x.shape[0], indices[0])
        return lambda: x[places]
    row, column = pairs_below(x.shape[1], indices[0], tensors)
    return lambda: x[:, row, column]


def _at_pairs(case: Case, x: torch.Tensor, tensors: Tensors) -> Call:
    """Index two axes at once: each sample's own row, every position."""
    shape = case.params.integers("indices")[:-1]
    samples = torch.arange(x.shape[0], device=tensors.kind).view(-1, 1, 1, 1)
    places = torch.arange(shape[-1], device=tensors.kind)
    return lambda: x[samples, places]


def _elements(case: Case, x: torch.Tensor, tensors: Tensors) -> Call:
    axis, shape = case.params.integer("axis"), case.params.integers("indices")
    places = tensors.integers(x.shape[axis], math.prod(shape)).view(shape)
    return lambda: torch.gather(x, axis, places)


_GATHERED: Mapping[str, _Gathered] = MappingProxyType(
    {
        "index_select": _of_bags,
        "index": _at_places,
        "gather_nd": _at_pairs,
        "gather_elements": _elements,
    }
)


class Indexed(Given):
    """Elements and rows at indices, other than rows of a matrix by number."""

    op = "gather"

    def takes(self, case: Case) -> bool:
        """Whether it knows the kind."""
        return case.params.get("kind") in _GATHERED

    def memory_bytes(self, case: Case) -> int:
        """Return the bytes of the tensor that is read from, and of the work."""
        elements = math.prod(case.params.integers("shape"))
        return 8 * elements + int(case.work.bytes)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the function of the kind."""
        x = tensors.random(case.dtype, *case.params.integers("shape"))
        return _GATHERED[case.params.text("kind")](case, x, tensors)
