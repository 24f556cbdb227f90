"""What is launched for a compiled graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering.inductor.inductor_cases import CASES, LINEAR, X

from perfc.costmodels import load_target
from perfc.ir import Graph, LaunchGraph, PerfcError, Program
from perfc.ir.launch import verify_launches
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.program import RankClass
from perfc.ir.support import PipelineError
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES, LowerKernels, Pass, PassManager, ShapeInference
from perfc.passes.lowering import CaptureGraph, FuseKernels, fused_nodes
from perfc.passes.lowering.inductor.fusible import LOOPS, REDUCTIONS, VIEWS, splits
from perfc.passes.memory import MEMORY, Memory


def compiled(text: str, *more: Pass) -> tuple[Program, PassManager]:
    """Return a program and what fuses it, inputs on the device."""
    passes = (ShapeInference(), LowerKernels(inputs="device"), FuseKernels(), *more)
    return parse_program(text), PassManager(passes)


def fused(text: str) -> LaunchGraph:
    """Lower and fuse a program of one rank class for an A100."""
    program, manager = compiled(text)
    analysis = manager.run(program, load_target("a100"))
    (graph,) = analysis.get(LAUNCHES)
    verify_launches(graph)
    return graph


def eager(text: str) -> LaunchGraph:
    """Lower the same for eager PyTorch."""
    passes = (ShapeInference(), LowerKernels(inputs="device", spelled_out=False))
    analysis = PassManager(passes).run(parse_program(text), load_target("a100"))
    (graph,) = analysis.get(LAUNCHES)
    return graph


def graph_of(arguments: str, nodes: str, returned: str = "%y") -> str:
    """Write a graph; the types of its values are inferred."""
    lines = [f"{line} : {_types(line)}" for line in nodes.split("\n")]
    body = "\n".join([*lines, f"return {returned}"])
    return f"graph @g({arguments}) {{\n{body}\n}}"


def _types(line: str) -> str:
    """Write a question mark for each result."""
    return ", ".join("?" for _ in line.partition(" = ")[0].split(","))


def launched(graph: LaunchGraph) -> list[str]:
    """List the ops that launch something; libraries may launch several kernels."""
    columns = zip(graph.op, graph.kernel, strict=True)
    ops = dict.fromkeys(op for op, kernel in columns if kernel >= 0)
    return [graph.ops[op].name for op in ops]


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_inductor(name: str) -> None:
    """As many kernels of each kind as Inductor's scheduler makes."""
    arguments, nodes, kernels = CASES[name]

    assert kernels == launched(fused(graph_of(arguments, nodes)))


_OPS = (
    "relu({a})",
    "add({a}, {b})",
    "mul({a}, {b})",
    "transpose({a}) {{perm = [1,0]}}",
    "softmax({a}) {{axis = 1}}",
    "linear({a}, %w, %c)",
    'reduce({a}) {{kind = "sum", axes = [0], keepdims = true}}',
    'reduce({a}) {{kind = "max", axes = [1], keepdims = true}}',
    "concat({a}, {b}) {{axis = 0}}",
)


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """Write a graph of ops on 64 x 64 tensors, each read at most twice."""
    free = ["%x"] * 2
    lines: list[str] = []
    result = "%x"
    for number in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(_OPS))
        names = [draw(st.sampled_from(free)) for _ in "ab"]
        for name in names if "{b}" in op else names[:1]:
            if name in free:
                free.remove(name)
        result = f"%n{number}"
        lines.append(f"{result} = {op.format(a=names[0], b=names[1])}")
        if op.startswith(("reduce", "concat")):  # back to 64 x 64
            back = _HALF if op.startswith("concat") else _FULL
            lines.append(back.format(result))
            result += "e"
        free += [result] * 2
    return graph_of(
        "%x: f32[64,64], param %w: f32[64,64], param %c: f32[64]",
        "\n".join(lines),
        result,
    )


_HALF = "{0}e, {0}f = split({0}) {{axis = 0, parts = 2}}"
_FULL = "{0}e = add({0}, %x)"


@settings(max_examples=25)
@given(text=graphs())
def test_work_of_fused_kernels(text: str) -> None:
    """Flops are those of the unfused kernels, and bytes are never more.

    Nor are kernels, but where each of the two tensors that are joined is a copy.
    """
    before, after = eager(text), fused(text)

    works = [
        [graph.kernels[k].work for k in graph.kernel if k >= 0]
        for graph in (before, after)
    ]
    flops = [sum(work.flops for work in graph) for graph in works]
    moved = [sum(work.bytes for work in graph) for graph in works]
    assert flops[0] == flops[1]
    assert moved[1] <= moved[0]
    assert len(works[1]) <= len(works[0]) + text.count("concat")


@settings(max_examples=25)
@given(text=graphs())
def test_kernels_run_after_what_they_read(text: str) -> None:
    """What a kernel reads has been written by one before it, or is an argument."""
    (rank,) = parse_program(text).classes
    assert rank.ops is not None
    kept = {v.name for v in rank.ops.arguments()}
    views = {n.results[0].name for n in rank.ops if n.op in ("transpose", "split")}
    graph = fused(text)

    for op in graph.ops:
        nodes = fused_nodes(op) or (op.node,)
        reads = _sources(rank.ops, nodes)
        assert reads <= kept | views | set(nodes), op
        kept |= set(op.attributes.texts("keeps")) or {op.node}


def _sources(graph: Graph, nodes: tuple[str, ...]) -> set[str]:
    """Return the values that some nodes read; of a join, a kernel may read a part."""
    by_name = {n.results[0].name: n for n in graph if n.op != "concat"}
    return {v.name for n in nodes if n in by_name for v in by_name[n].operands}


def test_a_loop_reads_no_more_than_its_slice() -> None:
    """Of a buffer of 64 x 64 a loop over half of it reads that half."""
    text = graph_of(
        "%x: f32[64,64], param %w: f32[64,64]",
        "%z = matmul(%x, %w)\n%a, %b = split(%z) {axis = 0, parts = 2}\n%y = relu(%a)",
    )
    graph = fused(text)
    (loop,) = (k for k in graph.kernels if k.op == "triton_poi")

    half = 32 * 64 * 4
    assert (half, half) == (loop.work.bytes_read, loop.work.bytes_written)


@pytest.mark.parametrize(
    ("nodes", "returned", "passes"),
    [
        ('%a = relu(%x)\n%y = reduce(%a) {kind = "sum", axes = [1]}', "%a, %y", 1),
        ('%y = reduce(%x) {kind = "sum", axes = [1]}', "%y", 1),
        ("%y = layer_norm(%x, %c, %c) {axis = 1}", "%y", 2),
    ],
    ids=["before", "alone", "after"],
)
def test_rows_are_read_again_after_a_reduction_only(
    nodes: str, returned: str, passes: int
) -> None:
    """What only goes into a reduction is computed, and written, on the way."""
    arguments = "%x: f32[4096,4096], param %c: f32[4096]"
    graph = fused(graph_of(arguments, nodes, returned))
    (kernel,) = (k for k in graph.kernels if k.op == "triton_red")

    assert passes == kernel.params["passes"]


def test_one_node_in_two_kernels_counts_once() -> None:
    """What is cheap to compute is computed again; its flops stand once."""
    text = graph_of(
        f"{X}, {LINEAR}, %z: f32[256,1024]",
        "%a = add(%x, %x)\n%r = relu(%a)\n%p = linear(%r, %w)\n%q = mul(%a, %p)\n"
        "%y = sigmoid(%q)",
    )
    graph = fused(text)

    assert [("a", "r"), ("a", "q", "y")] == [
        fused_nodes(op) for op in graph.ops if fused_nodes(op)
    ]
    numel = 128 * 512
    generated = [k for k in graph.kernels if k.op == "triton_poi"]
    assert [2 * numel, 5 * numel] == [kernel.work.flops for kernel in generated]


PHASES = """graph @g(%x: f32[128,512]) {
  %a = relu(%x) : ? loc{phase = "forward"}
  %b = relu(%a) : ?  loc{phase = "loss"}
  %c = relu(%b) : ?  loc{phase = "backward"}
  %d = relu(%c) : ?  loc{phase = "backward"}
  %e = relu(%d) : ?  loc{phase = "optimizer"}
  %f = relu(%e) : ?  loc{phase = "optimizer"}
  return %f
}"""


def test_phases_are_compiled_apart() -> None:
    """Forward with the loss, and backward, are a graph each; the optimizer is eager."""
    expected = [
        "Torch-Compiled Region",
        "triton_poi_fused_relu",
        "Torch-Compiled Region",
        "triton_poi_fused_relu",
        "aten::relu",
        "aten::relu",
        "cudaDeviceSynchronize",
    ]

    graph = fused(PHASES)

    assert expected == [op.name for op in graph.ops]
    assert [("a", "b"), ("c", "d")] == [
        fused_nodes(op) for op in graph.ops if fused_nodes(op)
    ]


def test_a_number_that_the_host_reads_ends_a_graph() -> None:
    """Reading a scalar is a graph break: what is after it is another graph."""
    nodes = '%s = reduce(%x) {kind = "max"}\n%i = item(%s)\n%y = relu(%x)'
    graph = fused(graph_of("%x: f32[8,8]", nodes))
    names = [op.name for op in graph.ops]

    assert 2 == names.count("Torch-Compiled Region")
    assert names.index("aten::item") < names.index("triton_poi_fused_relu")


def test_memory_of_what_is_never_written() -> None:
    """A value inside a kernel has no memory; what it is made of stays until then."""
    nodes = "%a = relu(%x)\n%b = sigmoid(%a)\n%y = tanh(%b)"
    program, manager = compiled(graph_of(X, nodes), Memory())
    analysis = manager.run(program, load_target("a100"))
    (use,) = analysis.get(MEMORY)

    assert ["x", "y"] == [buffer.name for buffer in use.buffers]


def test_memory_of_what_is_computed_again() -> None:
    """What a later kernel computes from is kept until then."""
    nodes = (
        "%p = linear(%x, %w)\n%a = relu(%p)\n"
        '%t = reduce(%a) {kind = "sum", axes = [1]}\n'
        "%q = linear(%p, %w)\n%y = add(%a, %q)"
    )
    program, manager = compiled(graph_of(f"{X}, {LINEAR}", nodes), Memory())
    analysis = manager.run(program, load_target("a100"))
    (use,) = analysis.get(MEMORY)
    last = {buffer.name: buffer.last for buffer in use.buffers}

    assert 4 == last["p"]


def test_launch_graphs_are_refused() -> None:
    """Kernels that are given cannot be fused."""
    program = Program("given", (RankClass((0,), launches=LaunchGraph("given")),))
    manager = PassManager((LowerKernels(), FuseKernels()), given=LowerKernels.requires)

    with pytest.raises(PerfcError, match="compiles op graphs only"):
        manager.run(program)


def test_cuda_graphs_are_refused() -> None:
    """The kernels of a CUDA graph are fused before they are captured."""
    program = parse_program(graph_of(X, "%y = relu(%x)"))
    passes = (ShapeInference(), LowerKernels(), CaptureGraph(), FuseKernels())

    with pytest.raises(PipelineError, match="comes before capture-graph"):
        PassManager(passes).run(program)


def test_tables_are_ops() -> None:
    """What the tables name are ops that there are, and none is two things."""
    known = {op.name for op in BUILTIN_OPS}
    either = {"batch_norm", "dynamic_quantize"}  # their attributes say what they are
    tables = (VIEWS, LOOPS.keys(), REDUCTIONS.keys() - either)

    for number, table in enumerate(tables):
        assert known >= table
        assert all(table.isdisjoint(other) for other in tables[:number])


def test_gradients_are_fused() -> None:
    """Backward has loops and reductions, too."""
    nodes = (
        "%a = gelu_backward(%d, %x)\n%b = mul(%a, %x)\n"
        "%y = softmax_backward(%b, %s) {axis = 1}"
    )
    arguments = f"{X}, %d: f32[128,512], %s: f32[128,512]"

    kernels = launched(fused(graph_of(arguments, nodes)))
    assert ["triton_per_fused_gelu_backward_mul_softmax_backward"] == kernels


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "parts"),
    [
        (64, 100352, True, 13),
        (1, 4096 * 4096, True, 512),
        (1, 128 * 512, True, 8),
        (1, 32000, True, 4),
        (1, 8192, True, 1),
        (1024, 4096, False, 32),
        (512, 128, False, 1),
        (128, 16384, True, 2),
        (128, 512, True, 1),
        (8192, 128, True, 1),
    ],
)
def test_parts_of_a_reduction(
    rows: int,
    columns: int,
    inner: bool,
    parts: int,
) -> None:
    """Few rows are reduced in parts, in as many as Inductor makes on 108 SMs."""
    assert parts == splits(rows, columns, inner=inner, sm_count=108)


def test_ops_without_names_stay_in_place() -> None:
    """What an op without results launches is launched once, where it stood."""
    text = """graph @g(%x: f32[8,8], param %w: f32[8,8]) {
  %a = relu(%x) : ? loc{phase = "backward"}
  foreach(%w, %a) {kind = "add", lists = 2, in_place = true} loc{phase = "optimizer"}
  foreach(%w, %a) {kind = "mul", lists = 2, in_place = true} loc{phase = "optimizer"}
  return %w
}"""

    expected = ["triton_poi_fused_relu", "aten::_foreach_add_", "aten::_foreach_mul_"]
    assert expected == launched(fused(text))
