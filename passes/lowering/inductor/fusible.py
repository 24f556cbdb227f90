"""What each op is to Inductor: a view, a loop, a reduction, or an outside kernel.

One line per op. What is not in a table is an outside ("extern") kernel: GEMMs,
convolutions, attention, sorts, scatters with atomics, recurrent layers, and whatever
perfc has no rule for. Sources: `torch/_inductor/lowering.py` and `decomposition.py`
of PyTorch 2.13; ops that Inductor decomposes are what they decompose into.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from perfc.ir import Node, Record, Value, node_kinds
from perfc.ir.ops.activation import ACTIVATIONS
from perfc.ir.ops.elementwise import ELEMENTWISE_OPS
from perfc.ir.ops.reduction import reduced_axes
from perfc.passes import graphs

Shape: TypeAlias = tuple[int, ...]

VIEWS = frozenset(
    {
        *("reshape", "flatten", "transpose", "squeeze", "unsqueeze", "expand"),
        *("slice", "split", "bit_cast", "identity"),
    }
)
"""Ops that only change how their operand is indexed."""

FLAT_VIEWS = frozenset(
    {"reshape", "flatten", "squeeze", "unsqueeze", "bit_cast", "identity"}
)
"""Views that keep the order of the elements."""

_MOVES = (
    *("cast", "cast_like", "fill", "range", "eye_like", "one_hot", "trilu", "tile"),
    *("pad", "gather", "gather_elements", "gather_nd", "index", "pixel_shuffle"),
    *("rotary", "dropout", "random", "quantize", "dequantize", "dynamic_quantize"),
)

_GRADIENTS = (
    *("relu", "leaky_relu", "elu", "sigmoid", "tanh", "hardsigmoid", "softplus"),
    *("gelu", "silu", "hardswish", "mish", "clip", "dropout", "slice"),
)
"""Ops whose gradients are pointwise."""

LOOPS: Mapping[str, int] = {
    **dict.fromkeys([f"{name}_backward" for name in _GRADIENTS], 4),
    **dict.fromkeys(ELEMENTWISE_OPS, 1),
    **dict.fromkeys(ACTIVATIONS, 8),
    **dict.fromkeys(_MOVES, 2),
    "batch_norm": 6,
    "rotary": 6,
    "pool": 9,
}
"""Pointwise ops, by the number of operations that each adds to a loop's body."""

ELSEWHERE = frozenset(
    {"pool", "pad", "tile", "trilu", "one_hot", "pixel_shuffle", "slice_backward"}
)
"""Loops that read elements of other places than they write."""

READ_TWICE = frozenset(
    {
        *("layer_norm", "rms_norm", "group_norm", "batch_norm", "softmax"),
        *("log_softmax", "gelu", "silu", "hardswish", "mish", "rotary"),
    }
)
"""Ops that decompose into several which read operand 0."""

REALIZES = frozenset({"linear", "matmul", "conv", "conv_transpose", "pool"})
"""Ops whose operands are better off in memory, where others read them as well
(`add_needs_realized_inputs`)."""

POOL_WINDOW = 25
"""Elements of the largest window that is a loop (`max_pool2d`, `avg_pool2d`)."""


@attrs.frozen
class Reduction:
    """One or more reductions over the same axes of operand 0, computed together.

    Attributes:
        axes: The axes.
        results: Numbers that are kept per row.
        operands: How many of the first operands are reduced.
        normalizes: Whether the op's result is as large as operand 0: a loop over
            operand 0 and those numbers. Else it is one of the numbers.

    """

    axes: tuple[int, ...]
    results: int = 1
    normalizes: bool = False
    operands: int = 1


ReductionRule: TypeAlias = Callable[[Record, Shape], Reduction]
"""(attributes, shape of operand 0) -> reduction."""


def _reduce(attributes: Record, shape: Shape) -> Reduction:
    return Reduction(reduced_axes(attributes, len(shape)))


def _along_axis(attributes: Record, shape: Shape) -> Reduction:
    return Reduction((attributes.integer("axis") % len(shape),))


def _softmax(attributes: Record, shape: Shape) -> Reduction:
    """Largest and sum in one sweep: `config.online_softmax`."""
    axis = attributes.integer("axis") % len(shape)
    last = len(shape) if attributes.flag("flat") else axis + 1
    return Reduction(tuple(range(axis, last)), 2, normalizes=True)


def _largest(attributes: Record, shape: Shape) -> Reduction:
    """Reduce all, or each row; blocks of a row are rows of their own."""
    if attributes.get("axis") is None:
        return Reduction(tuple(range(len(shape))))
    return Reduction((len(shape) - 1,))


def _scan(attributes: Record, shape: Shape) -> Reduction:
    return Reduction((attributes.integer("axis", -1) % len(shape),), 0, normalizes=True)


def _row_norm(results: int) -> ReductionRule:
    def rule(attributes: Record, shape: Shape) -> Reduction:
        axis = attributes.integer("axis") % len(shape)
        return Reduction(tuple(range(axis, len(shape))), results, normalizes=True)

    return rule


def _softmax_backward(attributes: Record, shape: Shape) -> Reduction:
    axis = attributes.integer("axis", -1) % len(shape)
    return Reduction((axis,), 1, normalizes=True, operands=2)


def _batch_norm(attributes: Record, shape: Shape) -> Reduction:
    return Reduction((0, *range(2, len(shape))), 2, normalizes=True)


def _group_norm(attributes: Record, shape: Shape) -> Reduction:
    """A group's channels lie together: a row is all but the batch, per group."""
    return Reduction(tuple(range(1, len(shape))), 2, normalizes=True)


REDUCTIONS: Mapping[str, ReductionRule] = {
    "reduce": _reduce,
    "argmax": _along_axis,
    "argmin": _along_axis,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _softmax_backward,
    "cumsum": _scan,
    "cumprod": _scan,
    "amax": _largest,
    "dynamic_quantize": _row_norm(1),
    "layer_norm": _row_norm(2),
    "rms_norm": _row_norm(1),
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
"""Reductions by op name."""


def is_reindexing(node: Node) -> bool:
    """Whether a node only changes how its operand is indexed."""
    return node.op in VIEWS


def is_loop(node: Node) -> bool:
    """Whether a node is a pointwise loop."""
    if node.op == "pool":
        window = math.prod(node.attributes.integers("window"))
        return window <= POOL_WINDOW and node.attributes.text("kind") != "lp"
    if node_kinds.is_batch_norm(node):
        return not node.attributes.flag("training")
    if node.op == "dynamic_quantize" and node.attributes.get("axis") is not None:
        return False
    return node.op in LOOPS and not graphs.has_own_stream(node)


def adds_bias_apart(node: Node) -> bool:
    """Whether the bias is added after the op's own kernel: by eager's last, or a loop.

    Of a convolution always (`kernel/conv.py`).
    """
    return node.op in ("conv", "conv_transpose")


def reduction_of(node: Node, shape: Shape) -> Reduction | None:
    """Return the reduction that a node is, if it is one."""
    rule = REDUCTIONS.get(node.op)
    if rule is None or not shape:
        return None
    if node.op in ("reduce", "cumsum", "cumprod") and len(node.operands) > 1:
        return None  # over axes that are data
    return rule(node.attributes, shape)


def rows_of(node: Node, reduction: Reduction, shape: Shape) -> tuple[int, int]:
    """Return how many rows a reduction has, and how many elements each."""
    columns = math.prod(shape[axis] for axis in reduction.axes)
    if node.op == "group_norm":
        columns = columns // max(node.attributes.integer("groups", shape[1]), 1)
    block = node.attributes.get("block_size")
    if isinstance(block, int) and 0 < block < columns:  # a row of its own
        columns = block
    return math.prod(shape) // max(columns, 1), columns


_MIN_PER_THREAD = 32
_MAX_PER_THREAD = 512
_THREADS_PER_SM = 2048
_BLOCK = 256
_NO_SPLIT = 8192
_OUTER_PER_THREAD = 4
_OUTER_BLOCK = 128


def splits(rows: int, columns: int, *, inner: bool, sm_count: int) -> int:
    """Return in how many parts each row is reduced first, 1 if at once.

    Few rows would leave the device idle: `Reduction.num_splits` (`ir.py`) and
    `InductorChoices.reduction_split_factor` (`choices.py`), PyTorch 2.13.
    """
    if rows > 1 and (columns <= _MIN_PER_THREAD or rows >= sm_count * 64):
        return 1
    if (rows == 1 or inner) and (rows >= 2 * sm_count or columns <= _NO_SPLIT):
        return 1
    total = rows * columns
    threads = _BLOCK if rows == 1 or inner else _OUTER_PER_THREAD
    per_thread = _per_thread(columns, total, sm_count, rows, threads)
    return -(-columns // (per_thread * threads))


def _per_thread(
    columns: int, total: int, sm_count: int, rows: int, threads: int
) -> int:
    """Return how many elements a thread reduces."""
    device = sm_count * _THREADS_PER_SM
    if total <= _MIN_PER_THREAD * device:
        return _MIN_PER_THREAD
    if total >= _MAX_PER_THREAD * device:
        return _nearest_divisor(columns, _MAX_PER_THREAD, 50)
    if threads == _BLOCK:
        blocks = -(-(device // (2 * _BLOCK)) // rows)
        wanted = -(-columns // (_BLOCK * blocks))
        return max(_nearest_divisor(columns, wanted, 30), _MIN_PER_THREAD)
    blocks = -(-(device // _BLOCK) // -(-rows // _OUTER_BLOCK))
    wanted = -(-columns // (_OUTER_PER_THREAD * blocks))
    return max(_nearest_divisor(columns, wanted, 20), _MIN_PER_THREAD)


def _nearest_divisor(number: int, wanted: int, within: int) -> int:
    for distance in range(within):
        for candidate in (wanted - distance, wanted + distance):
            if candidate > 0 and number % candidate == 0:
                return candidate
    return wanted


def are_trailing(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether axes are the last ones: rows lie one behind the other."""
    rest = [axis for axis in range(len(shape)) if axis not in axes and shape[axis] != 1]
    return not rest or not axes or max(rest) < min(axes)


def is_number(value: Value) -> bool:
    """Whether a value is a constant of one element, which code contains."""
    node, type_ = value.producer, value.type
    return node_kinds.is_constant(node) and (type_ is None or not type_.rank)
