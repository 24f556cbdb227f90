"""The pass memory: what is live when, and what the report says of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.frontends.workloads import build_workload
from perfc.ir import LaunchGraph, Program, single
from perfc.ir.text import parse_graph, parse_program
from perfc.passes import LowerKernels, MemoryUse, PassManager, ShapeInference
from perfc.passes.lowering import CaptureGraph, FuseKernels
from perfc.passes.memory import MEMORY, BufferKind, Memory
from perfc.passes.memory.caching_allocator import (
    MIB,
    Block,
    CachingAllocator,
    reserved_bytes,
    rounded,
)
from perfc.passes.training import Training

K = 4 * 1024
"""Bytes of the tensors below."""


def memory_of(program: Program | str, target: str = "", **options: Any) -> MemoryUse:
    """Run the pass over a program of one rank class."""
    if isinstance(program, str):
        program = parse_program(program)
    passes = (ShapeInference(), LowerKernels(**options), Memory())
    system = load_target(target) if target else None
    analysis = PassManager(passes).run(program, system)
    (use,) = analysis.annotations.get(MEMORY, program, None)
    return use


VIEW = "%v = unsqueeze(%a) {axes = [0]} : f32[1,1024]"
SUM = "%c = add(%v, %b) : f32[1,1024]"


@pytest.mark.parametrize(
    ("nodes", "peak", "at_node"),
    [
        ([], 1, ""),
        (["%a = relu(%x)"], 2, "a"),
        # a goes once b is there: the input, a and b, then the input, b and c.
        (["%a = relu(%x)", "%b = relu(%a)", "%c = relu(%b)"], 3, "b"),
        # The input and all three, because c reads both.
        (["%a = relu(%x)", "%b = relu(%a)", "%c = add(%a, %b)"], 4, "c"),
        # A view takes nothing, and keeps a.
        (["%a = relu(%x)", VIEW, "%b = relu(%x)", SUM], 4, "c"),
        # Nobody reads a: it is gone at once.
        (["%a = relu(%x)", "%b = relu(%x)"], 2, "a"),
        # An identity, or a cast to the same type, is the tensor itself.
        (["%a = relu(%x)", "%b = identity(%a)", "%c = relu(%b)"], 3, "c"),
    ],
)
def test_activations(nodes: list[str], peak: int, at_node: str) -> None:
    """A value takes memory from the node that makes it to the last that reads it."""
    lines = [node if ":" in node else f"{node} : f32[1024]" for node in nodes]
    last = nodes[-1].partition(" ")[0] if nodes else "%x"
    body = "\n".join([*lines, f"return {last}"])

    use = memory_of(f"graph @g(%x: f32[1024]) {{\n{body}\n}}\n")

    assert (peak * K, at_node) == (use.activations_bytes, use.node)


def test_a_view_of_the_input_keeps_nothing_new() -> None:
    """Outputs that are views of inputs take no memory of their own."""
    use = memory_of("""graph @g(%x: f32[1024]) {
      %n = constant() {dtype = !i64, shape = [2], elements = [32, 32]} : i64[2]
      %v = reshape(%x, %n) : f32[32,32]
      %t = transpose(%v) {perm = [1, 0]} : f32[32,32]
      return %t
    }""")

    assert K == use.peak_bytes


def test_a_reshape_that_copies_is_no_view() -> None:
    """Flattening a transposed matrix makes a tensor."""
    use = memory_of("""graph @g(%x: f32[32,32]) {
      %t = transpose(%x) {perm = [1, 0]} : f32[32,32]
      %f = flatten(%t) {axis = 0} : f32[1,1024]
      return %f
    }""")

    assert (2 * K, "f") == (use.activations_bytes, use.node)


def test_copies_made_contiguous_are_scratch() -> None:
    """Softmax of a transposed matrix copies it; the copy goes with the op."""
    use = memory_of("""graph @g(%x: f32[32,32]) {
      %t = transpose(%x) {perm = [1, 0]} : f32[32,32]
      %s = softmax(%t) {axis = 1} : f32[32,32]
      %y = relu(%s) : f32[32,32]
      return %y
    }""")

    assert (3 * K, "s") == (use.activations_bytes, use.node)
    assert BufferKind.SCRATCH in {buffer.kind for buffer in use.live}
    assert [K, 3 * K, 3 * K] == list(use.during_bytes)
    assert [K, 2 * K, 2 * K] == list(use.after_bytes)


def test_scratch_of_several_calls() -> None:
    """Attention that is spelled out copies for its first call, not for its last."""
    calls = '["matmul(q, k)", "softmax(s)", "matmul(s, v)"]'
    use = memory_of(f"""graph @g(%q: f32[1,32,4,8], %k: f32[1,4,32,8]) {{
      %t = transpose(%q) {{perm = [0, 2, 1, 3]}} : f32[1,4,32,8]
      %y = attention(%t, %k, %k) {{spelled_out = {calls}}} : f32[1,4,32,8]
      return %y
    }}""")

    assert [K] == scratch_of(use)


def convolution(*, target: str, dtype: str = "f16", size: int = 3) -> MemoryUse:
    """Convolve images, 1 MiB in f16, with windows of *size*."""
    images, filters = f"{dtype}[4,128,32,32]", f"{dtype}[128,128,{size},{size}]"
    sides = [size // 2] * 4
    return memory_of(
        f"""graph @g(%x: {images}, param %w: {filters}) {{
      %y = conv(%x, %w) {{padding = {sides}}} : {images}
      %z = relu(%y) : {images}
      return %z
    }}""",
        target,
    )


IMAGES, FILTERS = MIB, 2 * 128 * 128 * 9
"""Bytes of the convolution's tensors, in f16."""


def scratch_of(use: MemoryUse) -> list[int]:
    """Return the sizes of what ops allocate besides their results."""
    return [b.nbytes for b in use.buffers if b.kind is BufferKind.SCRATCH]


def test_tensors_turned_for_tensor_cores_are_workspace() -> None:
    """Images, filters and result of a convolution, channels last, while it runs."""
    use = convolution(target="a100")

    assert [IMAGES, FILTERS, IMAGES] == scratch_of(use)
    assert (2 * IMAGES + 2 * IMAGES + 2 * FILTERS, "y") == (use.peak_bytes, use.node)
    assert (FILTERS + 3 * IMAGES) == use.during_bytes[1]


def test_transformed_tiles_are_workspace() -> None:
    """In fp32 by Winograd's algorithm: 36 numbers for 16 pixels or 9 of a filter."""
    use = convolution(target="v100", dtype="f32")

    assert [2.25 * 2 * IMAGES, 4 * 2 * FILTERS, 2.25 * 2 * IMAGES] == scratch_of(use)


def test_a_gemm_over_pixels_has_no_workspace() -> None:
    """A window of 1 x 1 in fp32 needs neither other layouts nor tiles."""
    assert [] == scratch_of(convolution(target="v100", dtype="f32", size=1))


def test_a_cpu_has_no_workspace() -> None:
    """Neither for convolutions nor for GEMMs."""
    use = convolution(target="cpu", dtype="f32")
    gemm = memory_of(
        """graph @g(%x: f32[8,8], param %w: f32[8,8]) {
      %y = linear(%x, %w) : f32[8,8]
      return %y
    }""",
        "cpu",
    )

    assert [] == scratch_of(use)
    assert 2 * FILTERS + 3 * 2 * IMAGES == use.peak_bytes
    assert 0 == gemm.library_bytes


def backward(wants: str) -> list[int]:
    """Return the scratch of the gradients of a convolution in bf16 on H100."""
    shapes = {"x": "bf16[4,128,32,32]", "weight": "bf16[256,128,3,3]"}
    results = [want.strip('"') for want in wants.split(", ")]
    named = ", ".join(f"%g.{name}" for name in results)
    types = ", ".join(shapes[name] for name in results)
    return scratch_of(
        memory_of(
            f"""graph @g(%g: bf16[4,256,32,32], %x: bf16[4,128,32,32],
                param %w: bf16[256,128,3,3]) {{
          {named} = conv_backward(%g, %x, %w)
            {{padding = [1, 1, 1, 1], wants = [{wants}]}} : {types}
          return {named}
        }}""",
            "h100",
        )
    )


def test_gradients_of_a_convolution_have_their_workspaces_in_turn() -> None:
    """The call for the filters begins when that for the images has freed its own.

    It needs both tensors turned, two parts of the gradient, and their sum.
    """
    images, maps, filters = MIB, 2 * MIB, 2 * 256 * 128 * 9
    data, weight = '"x"', '"weight"'

    assert [maps, filters, images] == backward(data)
    assert [images, maps, 2 * filters, filters] == backward(weight)
    assert backward(weight) == backward(f"{data}, {weight}")


def test_a_compiled_convolution_has_its_workspace_too() -> None:
    """A generated loop adds its bias; cuDNN still convolves."""
    program = parse_program("""graph @g(%x: f16[4,128,32,32],
        param %w: f16[128,128,3,3], param %b: f16[128]) {
      %y = conv(%x, %w, %b) {padding = [1, 1, 1, 1]} : f16[4,128,32,32]
      %z = relu(%y) : f16[4,128,32,32]
      return %z
    }""")
    passes = (ShapeInference(), LowerKernels(), FuseKernels(), Memory())
    analysis = PassManager(passes).run(program, load_target("a100"))
    (use,) = analysis.annotations.get(MEMORY, program, None)

    assert [IMAGES, FILTERS, IMAGES] == scratch_of(use)


def test_max_pooling_keeps_indices_while_it_runs() -> None:
    """An int64 for each result, which PyTorch drops at the end of the op."""
    use = memory_of("""graph @g(%x: f32[1,1,64,64]) {
      %y = pool(%x) {kind = "max", window = [2, 2], stride = [2, 2]} : f32[1,1,32,32]
      return %y
    }""")

    assert 4 * K + K + 2 * K == use.activations_bytes


def test_parameters() -> None:
    """They are there throughout, each once however often it is read."""
    use = memory_of("""graph @g(%x: f32[1024], param %w: f32[1024]) {
      %a = add(%x, %w) : f32[1024]
      %b = add(%a, %w) : f32[1024]
      return %b
    }""")

    assert (K, 3 * K, 4 * K) == (
        use.parameters_bytes,
        use.activations_bytes,
        use.peak_bytes,
    )


def test_constants_that_kernels_read_stay() -> None:
    """Single numbers and shapes are Python's own."""
    use = memory_of("""graph @g(%x: f32[4]) {
      %c = constant() {dtype = !f32, shape = [4], elements = [1, 2, 3, 4]} : f32[4]
      %two = constant() {dtype = !f32, shape = [], elements = [2]} : f32[]
      %a = add(%x, %c) : f32[4]
      %b = mul(%a, %two) : f32[4]
      return %b
    }""")

    assert 512 == use.parameters_bytes
    assert ["c"] == [b.name for b in use.live if b.kind is BufferKind.CONSTANT]


def test_blas_workspace_depends_on_the_target() -> None:
    """8.125 MiB up to Ada, 32 MiB on Hopper, 128 on MI300X; none without GEMMs."""
    text = """graph @g(%x: f32[8,8], param %w: f32[8,8]) {
      %y = linear(%x, %w) : f32[8,8]
      return %y
    }"""
    found = [memory_of(text, t).library_bytes for t in ("a100", "h100", "mi300x")]

    assert [8_519_680, 33_554_432, 128 * MIB] == found
    assert 0 == memory_of("graph @g(%x: f32[8]) { return %x }", "h100").library_bytes


def test_bound_dimensions() -> None:
    """Symbols have the numbers they are bound to."""
    graph = parse_graph("graph @g(%x: f32[n]) {\n  return %x\n}\n")

    assert K == memory_of(single(graph).bind({"n": 1024})).peak_bytes


def test_host_tensors_take_no_device_memory() -> None:
    """Only what lies on the device counts."""
    use = memory_of("""graph @g(%x: f32[1024]@pinned) {
      %d = copy(%x) : f32[1024]
      return %d
    }""")

    assert K == use.peak_bytes


def test_launch_graphs_have_no_tensors() -> None:
    """A launch graph says nothing of tensors."""
    program = single(LaunchGraph("t"))
    manager = PassManager((LowerKernels(), Memory()), given=ShapeInference.provides)
    (use,) = manager.run(program).annotations.get(MEMORY, program, None)

    assert (0, 0) == (use.peak_bytes, use.reserved_bytes)


def test_a_graph_replays_in_the_same_memory() -> None:
    """Capturing changes when kernels run, not what they need."""
    program = build_workload("dlrm-ddp:tables=3,rows=1000").bind({"batch": 64})
    uses: list[tuple[int, str]] = []
    for extra in ((), (CaptureGraph(),)):
        passes = (ShapeInference(), LowerKernels(), *extra, Memory())
        (use,) = PassManager(passes).run(program).annotations.get(MEMORY, program, None)
        uses.append((use.peak_bytes, use.node))

    assert uses[0] == uses[1]


def test_sizes_are_rounded_to_blocks() -> None:
    """Up, to 512 bytes; nothing takes nothing."""
    assert [0, 512, 512, 1024] == [rounded(n) for n in (0, 1, 512, 513)]


@pytest.mark.parametrize(
    ("sizes", "segments"),
    [
        ([1], 2 * MIB),
        ([MIB, MIB], 2 * MIB),
        ([MIB, MIB, 1], 4 * MIB),
        ([MIB + 1], 20 * MIB),
        ([9 * MIB, 9 * MIB], 20 * MIB),
        ([9 * MIB, 9 * MIB, 9 * MIB], 40 * MIB),
        ([10 * MIB], 10 * MIB),
        ([11 * MIB], 12 * MIB),
        ([0], 0),
    ],
)
def test_segments(sizes: list[int], segments: int) -> None:
    """Small requests share 2 MiB, middle ones 20 MiB, large ones have their own."""
    assert segments == reserved_bytes(sizes, [])


def test_freed_neighbours_join() -> None:
    """What three small blocks leave holds one of their size together."""
    allocator = CachingAllocator()
    blocks = [allocator.allocate(512 * 1024) for _ in range(4)]
    for index in (0, 2, 1):
        allocator.release(blocks[index])
    allocator.allocate(MIB)
    allocator.allocate(512 * 1024)

    assert 2 * MIB == allocator.reserved_bytes


_SIZES = st.sampled_from([0, 1, 512, 5000, MIB, MIB + 1, 3 * MIB, 12 * MIB])


@given(st.lists(st.tuples(_SIZES, st.integers(0, 5)), max_size=40))
def test_blocks_in_use_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Whatever the order of requests and releases."""
    allocator = CachingAllocator()
    held: list[Block] = []
    for size, release in steps:
        block = allocator.allocate(size)
        if block is not None:
            assert block.size >= size
            held.append(block)
        if held and release < len(held):
            allocator.release(held.pop(release))
        spans = sorted((b.address, b.address + b.size) for b in held)
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start
        assert sum(b.size for b in held) <= allocator.reserved_bytes


LAYERS = """graph @g(%x: f32[10,2,8], param %a: f32[1,16,8], param %b: f32[1,16,4],
  param %c: f32[1,32], param %d: f32[2,12,4], param %e: f32[2,12,4]) {
  %y = recurrent(%x, %a, %b, %c) {kind = "lstm"} : f32[10,1,2,4]
  %s = squeeze(%y) {axes = [1]} : f32[10,2,4]
  %z = recurrent(%s, %d, %e) {kind = "gru"} : f32[10,2,2,4]
  return %z
}"""


def test_recurrent_layers_keep_their_steps_for_backward() -> None:
    """Five vectors of an LSTM, six of a GRU and direction, till their gradients."""
    program = parse_program(LAYERS)
    passes = (ShapeInference(), Training(loss="sum"), LowerKernels(), Memory())
    analysis = PassManager(passes).run(program)
    (use,) = analysis.annotations.get(MEMORY, program, None)
    kept = {b.name: b for b in use.buffers if "reserve" in b.name}

    assert {"y.reserve": 5 * 320, "z.reserve": 2 * 6 * 320} == {
        name: buffer.nbytes for name, buffer in kept.items()
    }
    assert [use.nodes[b.last] for b in kept.values()] == [
        "y.recurrent_backward",
        "z.recurrent_backward",
    ]
