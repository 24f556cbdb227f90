"""Steps of optimizers on sparse gradients, call by call.

`torch.optim.SGD` adds the rows to the table as they are. What is not linear in the
gradient needs equal indices summed first (`coalesce`), which sorts them with Thrust,
whose algorithms wait for the device, and reads back how many differ. Read from
`torch/optim` (`_single_tensor_adagrad`, `sparse_adam`), `RWSAdagrad` of
facebookresearch/dlrm, and ATen (`sparse/cuda/SparseCUDATensor.cu`, `sparse_mask` and
`mul` of dense and sparse in `sparse/SparseTensorMath.cpp`); PyTorch's profiler on a CPU
shows the same calls.

Calls that launch nothing (`_values`, `sparse_coo_tensor`, ...) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.ir import AttrValue, Work
from perfc.passes.lowering.eager import reductions
from perfc.passes.lowering.eager.embedding.rows import (
    add_rows,
    distinct,
    elementwise,
    gather,
    rows_of,
    share_of,
)
from perfc.passes.lowering.eager.movement import memcpy_launch
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    vector_launch,
)

ADD_ROWS, COALESCE, MASK = "aten::add_", "aten::coalesce", "aten::sparse_mask"


@attrs.frozen
class _Step:
    """One table's step.

    Attributes:
        table: The table.
        states: Its states.
        rows: The gradient as it is: a row for every lookup.
        summed: The gradient once equal indices are summed.
        popularity: Of the table's rows; nothing for uniform.
        kept: Share of the bags that differ from the one before.

    """

    table: Tensor
    states: tuple[Tensor, ...]
    rows: Tensor
    summed: Tensor
    popularity: str = ""
    kept: float = 1.0

    @property
    def row(self) -> Tensor:
        """One number for each summed row."""
        return rows_of(self.table.type.dtype, self.summed.shape[0], 1)


def _sparse_step(site: Site) -> Eager:
    table, _, rows, *states = site.operands
    popularity = site.attributes.text("popularity", "")
    given = site.attributes.get("kept")
    kept = given if isinstance(given, float) else 1.0
    touched = distinct(table.shape[0], share_of(rows.shape[0], kept), popularity)
    unique = min(site.attributes.integer("unique", touched), rows.shape[0])
    summed = rows_of(rows.type.dtype, unique, rows.shape[1])
    step = _Step(table, tuple(states), rows, summed, popularity, kept)
    return _joined(_CALLS[site.attributes.text("kind")](step) if rows.numel else ())


def _joined(calls: tuple[Eager, ...]) -> Eager:
    """Launch call after call; each begins an op of its own name."""
    launches: list[Launch] = []
    for call in calls:
        first, *rest = call.launches
        launches += [attrs.evolve(first, op=call.name if launches else ""), *rest]
    return Eager(calls[0].name if calls else ADD_ROWS, tuple(launches))


def _call(name: str, *launches: Launch) -> Eager:
    return Eager(name, launches)


def _on(kind: str, out: Tensor, *inputs: Tensor) -> Eager:
    """One elementwise call; what works in place reads what it writes."""
    return _call(f"aten::{kind}", elementwise(kind.removesuffix("_"), out, *inputs))


def _waited(launch: Launch) -> Launch:
    return attrs.evolve(launch, waits=True)


def _index_copy(count: int) -> Launch:
    return memcpy_launch(
        count * reductions.INDEX_BYTES, "d2d", pinned=True, dtype="int64"
    )


def _coalesced(rows: Tensor, summed: Tensor) -> Eager:
    """Sort indices with their places, find runs, and add the rows of each run up."""
    count = rows.shape[0]
    if count < _PAIR:  # nothing can be equal: a clone
        return _call(COALESCE, _index_copy(count), elementwise("copy", rows, rows))
    *sorts, last = reductions.merge_sort(count)
    work = Work(
        rows.numel, rows.nbytes + 2 * reductions.INDEX_BYTES * count, summed.nbytes
    )
    return _call(
        COALESCE,
        _index_copy(count),
        _waited(reductions.arange(count)),
        _waited(reductions.arange(count)),
        *sorts,
        _waited(last),
        *reductions.runs(count, summed.shape[0], reductions.INDEX_BYTES),
        reductions.read_back(),
        gather("coalesce", rows, summed, work),
    )


_PAIR = 2


def _masked(state: Tensor, picked: Tensor) -> Eager:
    """`sparse_mask`: rows of a state, times ones, at indices that are copied."""
    return _call(
        MASK,
        reductions.fill(state.type.dtype, 1),
        gather("index", state, picked),
        _index_copy(picked.shape[0]),
        elementwise("mul", picked, picked),
    )


def _sgd(step: _Step) -> tuple[Eager, ...]:
    return (
        _call(ADD_ROWS, add_rows(step.table, step.rows, step.popularity, step.kept)),
    )


def _adagrad(step: _Step) -> tuple[Eager, ...]:
    summed, (state,) = step.summed, step.states
    return (
        _coalesced(step.rows, summed),
        _on("pow", summed, summed),
        _call(ADD_ROWS, add_rows(state, summed)),
        *_divided(step, state, summed),
    )


def _rowwise_adagrad(step: _Step) -> tuple[Eager, ...]:
    """The mean square of each row is summed; it is coalesced once more."""
    summed, row, (state,) = step.summed, step.row, step.states
    return (
        _coalesced(step.rows, summed),
        _on("pow", summed, summed),
        _call("aten::mean", _row_means(summed, row)),
        _call(ADD_ROWS, add_rows(state, row)),
        _coalesced(row, row),
        *_divided(step, state, row),
    )


def _divided(step: _Step, state: Tensor, std: Tensor) -> tuple[Eager, ...]:
    """Divide by the root of the state, and add to the table."""
    summed = step.summed
    return (
        _masked(state, std),
        _on("sqrt_", std, std),
        _on("add_", std, std),
        _on("div", summed, summed, std),
        _call(ADD_ROWS, add_rows(step.table, summed)),
    )


def _row_means(summed: Tensor, row: Tensor) -> Launch:
    rows, columns = summed.shape
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, "kind": "mean"}
    work = Work(summed.numel, summed.nbytes, row.nbytes)
    return vector_launch("reduction", summed.type.dtype, params, work)


def _adam(step: _Step) -> tuple[Eager, ...]:
    """`torch.optim.SparseAdam`: moments of the rows that were looked up alone."""
    summed, (mean, square) = step.summed, step.states
    return (
        _coalesced(step.rows, summed),
        _masked(mean, summed),
        _on("sub", summed, summed, summed),
        _on("mul_", summed, summed),
        _call(ADD_ROWS, add_rows(mean, summed)),
        _masked(square, summed),
        _on("pow", summed, summed),
        _on("sub_", summed, summed, summed),
        _on("mul_", summed, summed),
        _call(ADD_ROWS, add_rows(square, summed)),
        _on("add_", summed, summed, summed),
        _on("add_", summed, summed, summed),
        _on("sqrt_", summed, summed),
        _on("add_", summed, summed),
        _on("div_", summed, summed, summed),
        _on("mul", summed, summed),
        _call(ADD_ROWS, add_rows(step.table, summed)),
    )


_CALLS: Mapping[str, Callable[[_Step], tuple[Eager, ...]]] = {
    "sgd": _sgd,
    "adagrad": _adagrad,
    "rowwise_adagrad": _rowwise_adagrad,
    "adam": _adam,
}
"""What a step calls, by kind; those of `perfc.ir.OPTIMIZER_STATES`."""

RULES: Mapping[str, Rule] = {"sparse_optimizer_step": _sparse_step}
"""Rules of steps on sparse gradients, by op name."""
