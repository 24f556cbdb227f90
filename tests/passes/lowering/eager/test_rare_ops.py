"""What eager PyTorch launches for ops that few models have, from ATen's sources."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.lowered import kernels, lower, one_op
from torch.nn import functional

import perfc
from perfc.ir import Kernel, LaunchGraph, TaskKind

F: Any = functional
STEPS, BATCH, LABELS, LONGEST = 50, 4, 40, 12
_CTC = (
    f"%p: f32[{STEPS},{BATCH},{LABELS}], %t: i64[{BATCH},{LONGEST}], "
    f"%i: i64[{BATCH}], %l: i64[{BATCH}]"
)
_SAVED = f"%y: f32[{BATCH}], %s: f32[{BATCH},{STEPS},25], %g: f32[{BATCH}]"


def _kinds(found: list[Kernel]) -> list[object]:
    return [kernel.params.get("kind", kernel.op) for kernel in found]


def _syncs(graph: LaunchGraph) -> int:
    """Count the waits of the host, but for the last."""
    return list(graph.kind).count(TaskKind.SYNC) - 1


@pytest.mark.parametrize("on_device", [True, False])
def test_ctc_is_one_walk(*, on_device: bool) -> None:
    """Lengths are copied over, read back first if they are there; then one kernel."""
    lengths = ", %i, %l" if on_device else ""
    text = one_op(_CTC, f"ctc_loss(%p, %t{lengths}) {{longest = {LONGEST}}}")
    graph = lower(text.replace("%y =", "%y, %s =").replace(": ?", ": ?, ?"))
    *copies, walk = kernels(graph)

    read = 2 if on_device else 0
    assert ["d2h"] * read + ["h2d"] * 3 == _kinds(copies)
    assert read + 3 == _syncs(graph)
    assert ("ctc_walk", BATCH, 25, STEPS) == (
        walk.op,
        *(walk.params[name] for name in ("rows", "cols", "steps")),
    )
    sums = STEPS * BATCH * 25  # of 40 scores at each step 25 are read
    assert walk.known
    assert 4 * sums + 8 * BATCH * (LONGEST + read) == walk.work.bytes_read
    assert 4 * (sums + BATCH) == walk.work.bytes_written


def test_gradient_of_few_alignments_is_collected_in_one_kernel() -> None:
    """Two fills, the walk back, the labels' sums, and what lies behind the ends."""
    node = "ctc_loss_backward(%g, %p, %t, %y, %s)"
    graph = lower(f"graph @g({_CTC}, {_SAVED}) {{ %d = {node} : ?\n return %d }}")
    kinds = ["h2d"] * 3 + ["fill", "fill", "ctc_walk", "labels", "padding"]

    assert kinds == _kinds(kernels(graph))


@pytest.mark.parametrize("zero_infinity", ["true", "false"])
def test_gradient_of_many_alignments_is_made_step_by_step(zero_infinity: str) -> None:
    """Blanks are summed by PyTorch's own ops where steps or labels are many."""
    text = f"graph @g({_CTC}, {_SAVED}) {{ %d = NODE : ?\n return %d }}".replace(
        f"{LABELS}]", "4000]"
    )
    node = f"ctc_loss_backward(%g, %p, %t, %y, %s) {{zero_infinity = {zero_infinity}}}"
    kinds = _kinds(kernels(lower(text.replace("NODE", node))))
    blanks = ["max", "abs", "eq", "masked_fill", "sub", "exp", "sum", "log", "add"]
    infinite = ["equal", "fill", "where"] if zero_infinity == "true" else []

    assert ["fill", "fill", "ctc_walk"] == kinds[3:6]
    assert ["exp", "add", *blanks, "add", "sub", "exp", "sub", "mul"] == kinds[6:22]
    assert [*infinite, "labels", "padding"] == kinds[22:]


def test_distances_are_one_block_a_pair() -> None:
    """Three flops for each element of each pair; rows are read once from memory."""
    (kernel,) = kernels(lower(one_op("%x: f32[100,64]", "distances(%x)")))

    pairs = 100 * 99 // 2
    assert ("distances", pairs) == (kernel.op, kernel.params["rows"])
    assert (3 * 64 * pairs, 4 * 6400, 4 * pairs) == (
        kernel.work.flops,
        kernel.work.bytes_read,
        kernel.work.bytes_written,
    )


@pytest.mark.parametrize(
    ("arguments", "operands", "partners"),
    [
        ("%g: f32[4950], %x: f32[100,64], %d: f32[4950]", "%g, %x, %d", 99),
        (
            "%g: f32[100,20], %x: f32[100,64], %z: f32[20,64], %d: f32[100,20]",
            "%g, %x, %z, %d",
            20,
        ),
    ],
)
def test_gradients_of_distances_meet_in_a_buffer(
    arguments: str, operands: str, partners: int
) -> None:
    """One gradient for each row and partner, which a second kernel adds up."""
    text = one_op(arguments, f"distances_backward({operands})")
    pairs, added = kernels(lower(text))

    buffer_bytes = 4 * partners * 6400
    assert ("distances", "reduction") == (pairs.op, added.op)
    assert buffer_bytes == pairs.work.bytes_written == added.work.bytes_read
    assert 4 * 6400 == added.work.bytes_written


@pytest.mark.parametrize("limits", ["true", "false"])
def test_histogram_reads_the_extremes_unless_given(limits: str) -> None:
    """Zeros and one kernel that counts; without limits two reductions read back."""
    text = one_op("%x: f32[8,64]", f"histogram(%x) {{bins = 4, limits = {limits}}}")
    graph = lower(text)
    extremes = [] if limits == "true" else ["min", "d2h", "max", "d2h"]

    assert [*extremes, "fill", "histogram"] == _kinds(kernels(graph))
    assert len(extremes) // 2 == _syncs(graph)


def test_weight_norm_is_one_kernel() -> None:
    """A block a slice, forward and backward, priced as a layer norm."""
    text = """graph @g(%v: f32[8,4,3], %g: f32[8,1,1], %d: f32[8,4,3]) {
      %w, %n = weight_norm(%v, %g) {axis = 0} : ?, ?
      %x, %y = weight_norm_backward(%d, %v, %g, %n)
        {axis = 0, wants = ["x", "weight"]} : ?, ?
      return %w, %x, %y }"""
    found = kernels(lower(text))

    assert ["layer_norm"] * 2 == [kernel.op for kernel in found]
    assert [(8, 12)] * 2 == [(k.params["rows"], k.params["cols"]) for k in found]


def test_projected_state_is_one_more_gemm_a_step() -> None:
    """The recurrence reads the projected state, which a GEMM makes of the units."""
    text = """graph @g(%x: f32[5,8,32], param %w: f32[256,32],
        param %r: f32[256,16], param %b: f32[256], param %p: f32[16,64]) {
      %y, %h, %c = recurrent(%x, %w, %r, %b, %p)
        {kind = "lstm", projected = true} : ?, ?, ?
      return %y }"""
    inputs, *steps = kernels(lower(text))
    sizes = [tuple(k.params[n] for n in "mnk") for k in steps if k.op == "gemm"]

    assert (40, 256, 32) == tuple(inputs.params[n] for n in "mnk")
    assert ["gemm", "elementwise", "gemm"] * 5 == [kernel.op for kernel in steps]
    assert [(8, 256, 16), (8, 16, 64)] * 5 == sizes


@pytest.mark.parametrize(
    ("padding", "rows"), [(0, [12, 12, 12]), (1, [14, 16, 14]), (7, [16, 16, 16])]
)
def test_conv_tbc_is_a_gemm_a_tap(padding: int, rows: list[int]) -> None:
    """The bias is copied, then each tap multiplies the steps that it sees."""
    program = perfc.from_torch(_Taps(padding), torch.zeros(8, 2, 6)).program
    found = kernels(lower(program))
    gemms = [kernel for kernel in found if kernel.op == "gemm"]

    assert ["copy", *[None] * 3] == [kernel.params.get("kind") for kernel in found]
    assert rows == [kernel.params["m"] for kernel in gemms]
    assert [(4, 6)] * 3 == [(k.params["n"], k.params["k"]) for k in gemms]


@pytest.mark.parametrize(
    "node", ["conv_tbc(%x, %w, %b)", 'conv_tbc_backward(%x, %x, %w) {wants = ["x"]}']
)
def test_a_window_without_end(node: str) -> None:
    """A window of absurd length is one kernel, and marked."""
    arguments = "%x: f32[100000,1,4], %w: f32[20000,4,4], %b: f32[4]"
    (kernel,) = kernels(lower(one_op(arguments, node)))

    assert not kernel.known


class _Taps(torch.nn.Module):
    """A convolution over steps of three taps."""

    def __init__(self, padding: int) -> None:
        """Make weight and bias."""
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3, 6, 4))
        self.bias = torch.nn.Parameter(torch.zeros(4))
        self.padding = padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply it."""
        out: torch.Tensor = F.conv_tbc(x, self.weight, self.bias, self.padding)
        return out
