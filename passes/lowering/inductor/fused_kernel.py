"""The signature and the name of a generated kernel."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir import AttrValue, DType, Kernel, Record, Work
from perfc.passes.lowering.eager import dtype_name, vector_math
from perfc.passes.lowering.inductor.fusion import Buffer, Group

LAUNCH_TRITON = "cuLaunchKernel"
"""The call that launches a generated kernel."""

POINTWISE, PERSISTENT, LOOPED = "triton_poi", "triton_per", "triton_red"
"""Kinds of generated kernels: a loop; a reduction that holds its rows in registers;
one that goes over them in blocks."""

_MAX_NAMES = 10
"""Ops that a name mentions (`config.kernel_name_max_ops`)."""

_PERSISTENT_INNER = 1024
_PERSISTENT_OUTER = 64
"""Longest rows that a kernel holds, where their elements lie together and where not
(`InductorChoices.should_use_persistent_reduction`, PyTorch 2.13)."""


def kind_of(group: Group) -> str:
    """Return the kind of kernel that a group is."""
    if not group.reduces:
        return POINTWISE
    inner = all(step.inner for step in group.steps if step.reduces)
    longest = _PERSISTENT_INNER if inner else _PERSISTENT_OUTER
    return PERSISTENT if group.space[1] <= longest else LOOPED


_SEEDS = "seeds"
"""What a kernel of no op makes: random numbers' seeds."""


def fused_name(group: Group) -> str:
    """Return `triton_poi_fused_add_relu`: the kind, then the ops by name."""
    ops = sorted({node.op for node in group.nodes})[:_MAX_NAMES] or [_SEEDS]
    return "_".join([kind_of(group), "fused", *ops])


def fused_kernel(group: Group, kept: Sequence[Buffer], flops: int) -> Kernel:
    """Return the signature of a kernel that writes *kept* and does *flops*.

    `passes` says how often a looped reduction goes over its rows: twice, where it
    computes something for each element of them that needs the result of a reduction.
    What only goes into one is computed on the way.
    """
    rows, columns = group.space
    written = sum(buffer.nbytes for buffer in kept)
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns}
    kind = kind_of(group)
    if kind == LOOPED:
        params["passes"] = 2 if _goes_over_again(group) else 1
    # The type of most of what is moved.
    moved: dict[DType, int] = {}
    for buffer in (*kept, *(read.buffer for read in group.reads)):
        moved[buffer.dtype] = moved.get(buffer.dtype, 0) + buffer.nbytes
    dtype = max(moved, key=moved.__getitem__)
    work = Work(flops, group.bytes_read, written)
    return Kernel(kind, dtype_name(dtype), vector_math(dtype), Record(params), work)


def _goes_over_again(group: Group) -> bool:
    """Whether a loop over all elements begins where a reduction has ended.

    It does so for what reads the result of one, and not before
    (`requires_closing_previous_reduction` in `codegen/simd.py`).
    """
    rows, columns = group.space
    reduced: set[Buffer] = set()
    for step in sorted(group.steps, key=lambda step: step.order):
        behind = any(read.buffer in reduced for read in step.reads)
        if behind and (step.reduces or step.rows == rows * columns):
            return True
        if behind or step.reduces:
            reduced.update(step.writes)
    return False
