"""Embedding bags: lookups, their gradients, and the rows that an optimizer changes.

Several tables are one table of all their rows, each with indices of its own: one kernel
looks them up, as a batched lookup does (`algorithm = merged` where there is more than
one table). Gradients are `dense` (of the whole table) or `sparse` (a row a lookup),
which an optimizer takes: `torch.optim.SGD` and `Adagrad`, and row-wise Adagrad, whose
state is one number a row (Naumov et al., arXiv 1906.00091, and its code).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import torch
from torch.optim.adagrad import adagrad

from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device
from perfc.measurements import bytes_of

_ATEN: Any = torch.ops.aten
_INDEX_BYTES = 8
_RATE, _EPSILON = 0.01, 1e-10
_ZIPF, _EXPONENT = "zipf", 1.05
"""Popularity of the k-th row: k ** -1.05, about that of public click logs."""

_SCATTER = 2654435761
"""Odd (Knuth's multiplicative hash): popular rows do not lie side by side."""


def _space(device: Device) -> Space:
    narrow = ("fp16",) if device.is_cuda else ()
    return {
        "batch": Size(1, 65536),
        "rows": Size(4, 100_000_000, (10, 100, *(10**p for p in range(3, 9)))),
        "dim": Size(4, 512, (4, 8, 16, 32, 64, 128, 256, 512)),
        "pooling": Size(1, 200, (1, 2, 5, 10, 20, 32, 50, 64, 80, 100, 128, 200)),
        "tables": Choice((1, 1, 2, 4, 8, 16, 26, 64)),
        "popularity": Choice(("uniform", _ZIPF)),
        "weighted": Choice((False, False, False, True)),
        "dtype": Choice(("fp32", "fp32", *narrow)),
    }


def _params(point: Point, *names: str) -> Point:
    """Return the point as rows have it: a list of tables, all alike."""
    sizes = Record(point)
    table = Record({name: point[name] for name in ("rows", "dim", "pooling")})
    count = sizes.integer("tables")
    named = ("batch", "popularity", "weighted", "dtype", *names)
    params: Point = {name: point[name] for name in named if name in point}
    params["tables"] = (table,) * count
    if sizes.text("popularity") == _ZIPF:
        params["exponent"] = _EXPONENT
    if count > 1:
        params["algorithm"] = "merged"
    return params


@attrs.frozen
class _Bags:
    """What a call looks up.

    Attributes:
        table: All rows of all tables.
        indices: Of all bags.
        offsets: Where each bag begins.
        weights: Of each lookup, or None.

    """

    table: torch.Tensor
    indices: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor | None

    def pooled(self, *, sparse: bool = False) -> tuple[torch.Tensor, ...]:
        """Return the sums of the bags, and what their gradient needs."""
        found: tuple[torch.Tensor, ...] = _ATEN._embedding_bag(
            self.table, self.indices, self.offsets, False, 0, sparse, self.weights
        )
        return found


def _bags(case: Case, tensors: Tensors) -> _Bags:
    batch, listed = case.params.integer("batch"), case.params.records("tables")
    rows, dim, pooling = map(listed[0].integer, ("rows", "dim", "pooling"))
    lookups = batch * pooling
    popularity = case.params.text("popularity", "uniform")
    found = [
        row_indices(popularity, tensors, rows, lookups) + number * rows
        for number in range(len(listed))
    ]
    bags = torch.arange(batch * len(listed), device=tensors.kind)
    weighted = case.params.flag("weighted")
    return _Bags(
        tensors.random(case.dtype, rows * len(listed), dim),
        torch.cat(found),
        bags * pooling,
        tensors.random(case.dtype, lookups * len(listed)) if weighted else None,
    )


def row_indices(
    popularity: str, tensors: Tensors, rows: int, count: int
) -> torch.Tensor:
    """Return the rows that *count* lookups name, `uniform` or `zipf`, int64."""
    if popularity != _ZIPF:
        return tensors.integers(rows, count)
    # The inverse of the continuous distribution between 1 and rows + 1.
    power = 1 - _EXPONENT
    shares = tensors.shares(count)
    rank: torch.Tensor = (1 + shares * ((rows + 1) ** power - 1)) ** (1 / power)
    return (rank.long() - 1).clamp_(0, rows - 1) * _SCATTER % rows


def _memory_bytes(case: Case) -> int:
    """Return tables, with as much again for a dense gradient, indices and sums."""
    size, nbytes = int(bytes_of(case.dtype)), 0
    batch = case.params.integer("batch")
    for table in case.params.records("tables"):
        rows, dim, pooling = map(table.integer, ("rows", "dim", "pooling"))
        nbytes += size * dim * (2 * rows + 2 * batch)
        if case.params.get("phase") == "backward":
            nbytes += 4 * size * dim * batch * pooling  # sparse, sorted, summed
        nbytes += 4 * _INDEX_BYTES * batch * pooling
    return nbytes


class EmbeddingBag(Family):
    """The sums of the rows that each bag names."""

    op = "embedding_bag"
    turns = 6

    def space(self, device: Device) -> Space:
        """Return tables from a few rows to a hundred million."""
        return _space(device)

    def case(self, point: Point) -> Case | None:
        """Return the case."""
        return super().case(_params(point))

    def takes(self, case: Case) -> bool:
        """Whether it looks rows up, and sums them."""
        forward = case.params.get("phase") != "backward"
        return forward and case.params.get("mode", "sum") == "sum"

    def memory_bytes(self, case: Case) -> int:
        """Return the table and everything beside it."""
        return _memory_bytes(case)

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `_embedding_bag`, as `F.embedding_bag` does."""
        bags = _bags(case, tensors)
        return bags.pooled


class EmbeddingBagBackward(Family):
    """The gradient, and with an optimizer the update of the rows."""

    op = "embedding_bag"
    turns = 6

    def space(self, device: Device) -> Space:
        """Return dense gradients, and sparse ones with each optimizer."""
        ways = ("", *_UPDATES)
        fp32 = {"weighted": Choice((False,)), "dtype": Choice(("fp32",))}
        return {**_space(device), **fp32, "optimizer": Choice(ways)}

    def case(self, point: Point) -> Case | None:
        """Return the case."""
        params = _params(point, "optimizer")
        if not params["optimizer"]:
            del params["optimizer"]
        how = "sparse" if "optimizer" in params else "dense"
        return super().case({**params, "phase": "backward", "algorithm": how})

    def takes(self, case: Case) -> bool:
        """Whether it makes the gradient too."""
        return case.params.get("algorithm") in {"dense", "sparse"}

    def memory_bytes(self, case: Case) -> int:
        """Return the table and everything beside it."""
        return _memory_bytes(case)

    def capturable(self, case: Case) -> bool:
        """Return no: coalescing reads back how many rows differ."""
        return False

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the gradient of `_embedding_bag`, then the optimizer's step."""
        bags, kind = _bags(case, tensors), case.params.text("optimizer", "")
        sparse = bool(kind)
        out, *saved = bags.pooled(sparse=sparse)
        rows = bags.table.shape[0]

        def gradient() -> torch.Tensor:
            found: torch.Tensor = _ATEN._embedding_bag_backward(
                out,
                bags.indices,
                bags.offsets,
                *saved,
                rows,
                False,
                0,
                sparse,
                bags.weights,
            )
            return found

        if not kind:
            return gradient
        update = _UPDATES[kind](bags.table)
        return lambda: update(gradient())


_Update = Callable[[torch.Tensor], object]


def _sgd(table: torch.Tensor) -> _Update:
    return lambda gradient: table.add_(gradient, alpha=-_RATE)


def _adagrad(table: torch.Tensor) -> _Update:
    checks: Any = torch.sparse.check_sparse_tensor_invariants
    checks.disable()  # undecided, PyTorch warns
    state, step = torch.zeros_like(table), torch.zeros(())

    def update(gradient: torch.Tensor) -> None:
        adagrad(
            [table],
            [gradient],
            [state],
            [step],
            has_sparse_grad=True,
            foreach=False,
            lr=_RATE,
            weight_decay=0.0,
            lr_decay=0.0,
            eps=_EPSILON,
            maximize=False,
        )

    return update


def _rowwise_adagrad(table: torch.Tensor) -> _Update:
    state = table.new_zeros(table.shape[0])

    def update(gradient: torch.Tensor) -> None:
        summed = gradient.coalesce()
        rows, values = summed.indices()[0], summed.values()
        state.index_add_(0, rows, values.pow(2).mean(1))
        scale = state.index_select(0, rows).sqrt_().add_(_EPSILON)
        table.index_add_(0, rows, values / scale.unsqueeze(1), alpha=-_RATE)

    return update


_UPDATES: Mapping[str, Callable[[torch.Tensor], _Update]] = MappingProxyType(
    {"sgd": _sgd, "adagrad": _adagrad, "rowwise_adagrad": _rowwise_adagrad}
)
"""Makers of functions that update a table with a sparse gradient, by optimizer."""
