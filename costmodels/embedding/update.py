"""Gradients of embedding bags and the rows that they update, by their traffic.

Per table with E rows and N = batch * pooling lookups, U of the rows are touched
(`bag.py`), whatever their popularity; the gradient has one row a bag.

Sorted (fbgemm: `warp_per_row`, `cta_per_row`): equal rows lie together, so each of the
U rows and its state is read and written once; every lookup reads its bag's gradient,
from L2 as far as the gradient of the table fits there:

    bytes = gradient misses * row + 2 U (row + state) + 8 N

`algorithm = "atomic"` (`index_add_`, and the `batched_embedding_backward_sgd` kernel of
Lin et al., whose formula this is): every lookup adds to its row in memory, and each
bag's gradient is read once:

    bytes = batch * row + 2 * row misses * row + 8 N

A row whose `algorithm` is not said is the whole of a sorted update: linearising,
sorting and finding runs come on top. Rows that are read, changed and written reach a
smaller share of the memory rate than streams do: `UPDATE_SHARE`, `SORTED_SHARE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.embedding import bag
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    NOWHERE,
    PERFC_ROWS,
    Estimate,
    Flags,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Signatures,
    distinct,
    one_of,
    trust,
    uniform_estimate,
)
from perfc.costmodels.locality import (
    Each,
    Lookups,
    has_tables,
    listed_tables,
    lookups_of,
    lookups_of_one,
    touched_rows,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.streaming import BLOCK_S, L2_SHARE, stream_share, together
from perfc.ir import OPTIMIZER_STATES

_CONSTANTS = constants("embedding")

UPDATE_SHARE = _CONSTANTS.number("update_share")
"""Share of a stream's rate that rows read, changed and written back reach."""

SORTED_SHARE = _CONSTANTS.number("sorted_share")
"""Share of a stream's rate that updated rows in ascending order reach.

They lie near one another however large the tables are.
"""

SORTED = ("warp_per_row", "cta_per_row")
"""Algorithms of a kernel whose lookups another one has sorted."""

_INFO_BYTES = 8
"""Bytes that describe a lookup: the bag it is of, and where its run begins."""

_SORT_PASS_BYTES = 24
"""Key of 8 and value of 4, read and written in one pass over 8 bits of the keys."""

_OTHER_SORT_BYTES = 60
"""Indices linearised (20), keys counted (8), run lengths cleared, found and summed."""

_SORT_SHARE = _CONSTANTS.number("sort_share")
"""Share of a stream's rate in those kernels."""

_SORT_LAUNCHES = _CONSTANTS.integer("sort_launches")
"""Kernels and memsets besides the passes, and what updates the rows."""

_BAGS_OF_A_WARP = 32
"""Bags whose indices one warp linearises, one after another."""

_ROWS_OF_A_BLOCK = 32
"""Rows that the kernel for few indices adds between two barriers."""

_NUMBERS_OF_A_WARP = 128
"""Numbers of a row that one warp adds in `indexing_backward_kernel`: 4 a thread."""

_WAITS_OF_AN_INDEX = _CONSTANTS.integer("waits_of_an_index")
"""Its index and the one before, where it comes from, the numbers, the store, the next
index.
"""


ATOMIC_START_S = _CONSTANTS.number("atomic_start_s")
"""Start of a kernel that adds rows to a table, in seconds, beside `START_S`."""

ATOMIC_SHARE = _CONSTANTS.number("atomic_share")
"""Share of L2's rate that atomic additions reach: each reads, adds and writes."""

_ATOMIC_MOVES = 3

ATOMIC_ROW_S = _CONSTANTS.number("atomic_row_s")
"""A row, however short."""

_BAG = "embedding_bag"


@attrs.frozen
class EmbeddingUpdateModel:
    """Traffic of gradients and updated rows; latency where few blocks run."""

    name: str = "embedding-update"
    priority: int = 61
    ops: frozenset[str] = frozenset(
        {_BAG, "embedding_backward", "linearize_indices", "index_add"}
    )
    sigma_shared: float = _CONSTANTS.number("sigma_update_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_update_independent")

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim what is not a forward lookup, if it says what it looks up."""
        listed = kernels.once(listed_tables)
        found: Flags = kernels.op != _BAG
        return found | (~listed.forward & listed.usable)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        busy_s = np.zeros(len(kernels))
        for op in distinct(kernels.op)[0]:
            rows = np.flatnonzero(kernels.op == op)
            part = kernels.take(rows)
            busy_s[rows] = (
                _update_seconds(part.signatures, lookups_of(part), target, ARRAYS)
                if op == _BAG
                else _SECONDS[op](part.signatures, target, ARRAYS)
            )
        return uniform_estimate(
            target.device.kernel_floor_s + bag.START_S + busy_s,
            model=self.name,
            provenance=provenance,
            sigma_shared=sigma_shared,
            sigma_independent=self.sigma_independent,
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        forward = one.text("phase") == "forward"
        return one.op != _BAG or (not forward and has_tables(one.kernel))

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        busy_s = (
            _update_seconds(one, one.once(lookups_of_one), target, FLOATS)
            if one.op == _BAG
            else _SECONDS[one.op](one, target, FLOATS)
        )
        seconds = target.device.kernel_floor_s + bag.START_S + busy_s
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        return Priced(seconds, sigma_shared, self.sigma_independent, provenance)


def _update_seconds(
    kernels: Signatures[Number],
    lookups: Lookups[Each, Number],
    target: Target,
    maths: Maths[Number],
) -> Number:
    device, each, spread = target.device, lookups.maths, lookups.spread
    row = each.ceil(lookups.row_bytes / bag.SECTOR_BYTES) * bag.SECTOR_BYTES
    held = bag.USABLE_L2 * device.l2.capacity_bytes / row
    batch = spread(lookups.batch)
    algorithm = kernels.text("algorithm")
    atomic = spread(maths.flag(algorithm == "atomic")) > 0
    row_misses = lookups.misses(held)
    changed = lookups.distinct() * (row + _state_bytes(kernels, lookups, row, maths))
    updated = each.where(atomic, row_misses * row, changed)
    gradients = _misses(batch, lookups.count, held, each)
    gradient = each.where(atomic, batch, gradients) * row
    listed = lookups.count * _INFO_BYTES
    memory_rate = device.memory.bytes_per_s * stream_share(target)
    share = each.where(atomic, UPDATE_SHARE, SORTED_SHARE)
    moved_s = (gradient + listed + 2 * updated / share) / memory_rate
    from_l2 = row * lookups.count * each.where(atomic, 2.0, 1.0) + listed
    l2_s = from_l2 / (device.l2.bytes_per_s * L2_SHARE)
    busy_s = maths.most(lookups.per_kernel(moved_s), lookups.per_kernel(l2_s))
    apart = one_of(algorithm, ("atomic", *SORTED))
    busy_s = busy_s + maths.where(apart, 0.0, _sort_seconds(lookups, target, maths))
    if device.compute_capability not in PERFC_ROWS:
        return busy_s
    added_s = _added_rows_seconds(lookups, row, target, maths)
    sparse_s = added_s + _listed_rows_seconds(lookups, row, target, maths)
    plain = (algorithm == "sparse") & (kernels.text("optimizer") == "sgd")
    busy_s = maths.where(algorithm == "atomic", added_s, busy_s)
    return maths.where(plain, sparse_s, busy_s)


def _added_rows_seconds(
    lookups: Lookups[Each, Number], row: Each, target: Target, maths: Maths[Number]
) -> Number:
    """Return the seconds of adding a row a lookup to a table, atomically in L2.

    Args:
        lookups: What is looked up.
        row: Bytes of a row, in whole sectors; shape (tables,).
        target: The GPU.
        maths: Of one kernel or of many.

    """
    device, count = target.device, lookups.count
    l2_s = lookups.per_kernel(count * row) * _ATOMIC_MOVES
    l2_s = l2_s / (device.l2.bytes_per_s * ATOMIC_SHARE)
    moved = count * (row + bag.INDEX_BYTES) + 2 * lookups.distinct() * row
    memory_s = lookups.per_kernel(moved) / device.memory.bytes_per_s
    rows_s = lookups.per_kernel(count) * ATOMIC_ROW_S
    return ATOMIC_START_S + together((l2_s, memory_s, rows_s), maths)


def _listed_rows_seconds(
    lookups: Lookups[Each, Number], row: Each, target: Target, maths: Maths[Number]
) -> Number:
    """Return the seconds of the kernel before, which lists each lookup's gradient."""
    device = target.device
    written = lookups.per_kernel(lookups.count * (row + bag.INDEX_BYTES))
    listed_s = written / device.memory.bytes_per_s
    blocks_s = lookups.per_kernel(lookups.count) * BLOCK_S / device.sm_count
    return (
        device.kernel_floor_s
        + bag.START_S
        + maths.sqrt(listed_s * listed_s + blocks_s * blocks_s)
    )


def _state_bytes(
    kernels: Signatures[Number],
    lookups: Lookups[Each, Number],
    row_bytes: Each,
    maths: Maths[Number],
) -> Each:
    """Return the bytes of the states of one row; a single number takes a sector."""
    optimizer, found = kernels.text("optimizer"), 0.0 * row_bytes
    for name, states in OPTIMIZER_STATES.items():
        elements, rows = states.count("element"), states.count("row")
        takes = lookups.spread(maths.flag(optimizer == name))
        found = found + takes * (elements * row_bytes + rows * bag.SECTOR_BYTES)
    return found


def _misses(rows: Each, count: Each, held: Each, maths: Maths[Each]) -> Each:
    """Return how many of *count* reads of *rows* find their row not in L2."""
    distinct = touched_rows(rows, count, maths)
    return distinct + (count - distinct) * (1 - maths.least(held / rows, 1.0))


def _sort_seconds(
    lookups: Lookups[Each, Number], target: Target, maths: Maths[Number]
) -> Number:
    """Sort all lookups of a kernel by table and row, and find the runs."""
    device = target.device
    items = lookups.per_kernel(lookups.count)
    rows = maths.most(lookups.per_kernel(lookups.rows), 2.0)
    passes = maths.ceil((maths.floor(maths.log2(rows)) + 1) / 8)
    moved = items * (_SORT_PASS_BYTES * passes + _OTHER_SORT_BYTES)
    rate = device.memory.bytes_per_s * stream_share(target) * _SORT_SHARE
    launches = _SORT_LAUNCHES + 2 * passes
    return moved / rate + launches * (device.kernel_floor_s + bag.START_S)


def _feature_seconds(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """`embedding_dense_backward` of few indices: a block for each 32 columns.

    A block goes over all indices, 32 at a time; each time a load of the gradient is
    followed by one of the row that it is added to.
    """
    rounds = maths.ceil(kernels.param("lookups") / _ROWS_OF_A_BLOCK)
    return 2 * bag.LOAD_LATENCY_S * rounds


def _linearize_seconds(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """A thread finds a bag; its warp writes the bags one after another."""
    device = target.device
    threads = device.sm_count * device.max_threads_per_sm
    rounds = maths.most(kernels.param("bags") / threads, 1.0)
    rate = device.memory.bytes_per_s * stream_share(target)
    return rounds * _BAGS_OF_A_WARP * bag.LOAD_LATENCY_S + kernels.bytes / rate


def _added_seconds(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """`index_put_` that accumulates: a warp for each sorted index, and row before it.

    A warp adds up to 128 numbers, however few there are; what it waits for comes one
    after another.
    """
    device = target.device
    pieces = maths.ceil(kernels.param("inner") / _NUMBERS_OF_A_WARP)
    warps = kernels.param("indices") * kernels.param("outer") * pieces
    live = device.sm_count * device.max_threads_per_sm / device.warp_size
    rate = device.memory.bytes_per_s * stream_share(target)
    waited_s = maths.ceil(warps / live) * (_WAITS_OF_AN_INDEX * bag.LOAD_LATENCY_S)
    return maths.most(waited_s, kernels.bytes / rate)


class _Seconds(Protocol):
    """A formula of one kernel or of many."""

    def __call__(
        self, kernels: Signatures[Number], target: Target, maths: Maths[Number]
    ) -> Number:
        """Return seconds, beside the start."""
        ...


_SECONDS: Mapping[str, _Seconds] = MappingProxyType(
    {
        "embedding_backward": _feature_seconds,
        "linearize_indices": _linearize_seconds,
        "index_add": _added_seconds,
    }
)
"""Functions for kernels' seconds by op, but for those that look tables up."""

EMBEDDING_UPDATE = EmbeddingUpdateModel()
"""The built-in instance."""
