"""Kernels of random loops can run one after another."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from perfc.ir.types import F32
from perfc.passes.lowering.inductor.fusion import Buffer, Group, Read, Step, fuse

_BYTES = 1 << 20
_UNFOLLOWED = (("gather",),)
"""An index that no loop follows: what it reads must have been written before."""

_SIZES = st.sampled_from([8, _BYTES, 2 * _BYTES])


def _step(order: int, reads: Sequence[Read], writes: Buffer) -> Step:
    of = {read: read.buffer.nbytes for read in reads}
    return Step(order=order, rows=1 << 18, reads=of, writes=(writes,), nodes=())


def _buffer(nbytes: int = _BYTES) -> Buffer:
    return Buffer("b", nbytes, F32)


def _runs_in_order(kernels: Sequence[Group], steps: Sequence[Step]) -> bool:
    """Whether every step runs once, and after what it reads of other kernels."""
    written = {b for step in steps for b in step.writes}
    for kernel in kernels:
        if any(read.buffer in written for read in kernel.reads):
            return False
        written -= kernel.writes.keys()
    ran = [step.order for kernel in kernels for step in kernel.steps]
    return sorted(ran) == [step.order for step in steps]


def test_a_fused_kernel_may_lead_back_in_the_program() -> None:
    """Steps 1 and 4 are fused first; 0 and 2 would run both before and after them."""
    x, a, h, g, last, out = (_buffer() for _ in range(6))
    y = _buffer(2 * _BYTES)
    steps = [
        _step(0, [Read(x)], a),
        _step(1, [Read(y)], h),
        _step(2, [Read(x), Read(h, _UNFOLLOWED)], out),
        _step(3, [Read(a, _UNFOLLOWED)], g),
        _step(4, [Read(y), Read(g, _UNFOLLOWED)], last),
    ]

    assert _runs_in_order(fuse(steps), steps)


@given(st.data())
def test_kernels_of_random_loops_can_run(data: st.DataObject) -> None:
    """No two are fused that a third lies between."""
    buffers = [_buffer(data.draw(_SIZES)) for _ in range(3)]
    steps: list[Step] = []
    for order in range(data.draw(st.integers(2, 14))):
        read = st.builds(
            Read, st.sampled_from(buffers), st.sampled_from([(), _UNFOLLOWED])
        )
        reads = data.draw(st.lists(read, min_size=1, max_size=3))
        buffers.append(_buffer(data.draw(_SIZES)))
        steps.append(_step(order, reads, buffers[-1]))

    assert _runs_in_order(fuse(steps), steps)
