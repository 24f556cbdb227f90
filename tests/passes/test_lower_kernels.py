"""What eager PyTorch launches for each op."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.ir import (
    BUILTIN_OPS,
    AttrValue,
    Kernel,
    LaunchGraph,
    Program,
    Record,
    TaskKind,
    UnboundSymbolError,
    UsageError,
    parse_program,
    verify_launches,
)
from perfc.passes import LAUNCHES, LowerKernels, PassManager, ShapeInference


def lower(
    program: Program | str, options: LowerKernels | None = None, target: str = ""
) -> LaunchGraph:
    """Lower a program of one rank class; inputs on the device unless asked."""
    if isinstance(program, str):
        program = parse_program(program)
    manager = PassManager((ShapeInference(), options or LowerKernels(inputs="device")))
    system = load_target(target) if target else None
    analysis = manager.run(program, system)
    (graph,) = analysis.annotations.get(LAUNCHES, program, None)
    verify_launches(graph)
    return graph


def one_op(arguments: str, node: str) -> str:
    """Write a graph of one node."""
    return f"graph @g({arguments}) {{ %y = {node} : ?\n return %y }}"


def kernels(graph: LaunchGraph) -> list[Kernel]:
    """List the kernels in the order of their tasks."""
    return [graph.kernels[k] for k in graph.kernel if k != -1]


def record(**items: AttrValue) -> Record:
    """Write a record."""
    return Record(items)


def names(graph: LaunchGraph) -> list[str]:
    """List the ops but for the final synchronisation."""
    return [op.name for op in graph.ops[:-1]]


def launched(graph: LaunchGraph) -> dict[str, list[str]]:
    """Map each op name to the canonical names of its kernels."""
    found: dict[str, list[str]] = {name: [] for name in names(graph)}
    for op, kernel in zip(graph.op, graph.kernel, strict=True):
        if kernel != -1:
            found[graph.ops[op].name].append(graph.kernels[kernel].op)
    return found


LINEAR = one_op(
    "%x: f32[8,13], param %w: f32[64,13], param %b: f32[64]", "linear(%x, %w, %b)"
)


def test_linear_is_one_product() -> None:
    """`linear` is a GEMM whose B is stored as [n,k]; its kernel adds the bias."""
    (kernel,) = kernels(lower(LINEAR))

    sizes = record(b=1, m=8, n=64, k=13, layout="nt", bias=True)
    assert ("gemm", "fp32", "fp32") == (kernel.op, kernel.dtype, kernel.math)
    assert sizes == kernel.params
    assert 2 * 8 * 64 * 13 + 8 * 64 == kernel.work.flops


def test_weight_stored_by_columns_is_nn() -> None:
    """A weight [k,n] is read as it is stored."""
    text = one_op(
        "%x: f32[8,13], param %w: f32[13,64]", "linear(%x, %w) {weight_is_kn = true}"
    )
    (kernel,) = kernels(lower(text))

    assert "nn" == kernel.params["layout"]


def test_bias_may_be_copied_first() -> None:
    """Before cublasLt a kernel copied the bias into the output."""
    options = LowerKernels(inputs="device", fused_bias=False)

    copy, product = kernels(lower(LINEAR, options))
    assert ("elementwise", "copy") == (copy.op, copy.params["kind"])
    assert "gemm" == product.op


def test_bias_of_one_column_is_copied_first() -> None:
    """CublasLt does not take a product with one column."""
    text = LINEAR.replace("64", "1")

    assert {"aten::linear": ["elementwise", "gemm"]} == launched(lower(text))


def test_leading_axes_of_linear_are_rows() -> None:
    """A batch of matrices times a weight is one product."""
    text = one_op("%x: f32[4,8,13], param %w: f32[64,13]", "linear(%x, %w)")
    (kernel,) = kernels(lower(text))

    assert (1, 32) == (kernel.params["b"], kernel.params["m"])


def test_transposed_operand_is_a_layout() -> None:
    """`bmm` reads a transposed batch through its layout, without a copy."""
    graph = lower("""graph @g(%x: f32[8,9,64]) {
      %t = transpose(%x) {perm = [0, 2, 1]} : ?
      %z = matmul(%x, %t) : ?
      return %z }""")

    assert {"aten::transpose": [], "aten::bmm": ["gemm"]} == launched(graph)
    sizes = record(b=8, m=9, n=9, k=64, layout="nt")
    assert sizes == kernels(graph)[0].params


@pytest.mark.parametrize(
    ("left", "right", "sizes"),
    [
        ("4,8", "8,5", (1, 4, 5, 8)),
        ("3,4,8", "8,5", (1, 12, 5, 8)),
        ("3,4,8", "3,8,5", (3, 4, 5, 8)),
        ("2,3,4,8", "2,3,8,5", (6, 4, 5, 8)),
        ("2,1,4,8", "3,8,5", (6, 4, 5, 8)),
        ("8", "8,5", (1, 1, 5, 8)),
        ("4,8", "8", (1, 4, 1, 8)),
        ("8", "8", (1, 1, 1, 8)),
    ],
)
def test_matmul_sizes(left: str, right: str, sizes: tuple[int, ...]) -> None:
    """Batch axes are flattened; a vector is a matrix of one row or column."""
    text = one_op(f"%a: f32[{left}], %b: f32[{right}]", "matmul(%a, %b)")
    (kernel,) = kernels(lower(text))

    assert sizes == tuple(kernel.params[name] for name in "bmnk")
    b, m, n, k = sizes
    assert 2 * b * m * n * k == kernel.work.flops


def test_heads_have_to_be_copied_for_a_product() -> None:
    """Two batch axes that lie apart cannot flatten without a copy."""
    graph = lower("""graph @g(%x: f32[2,128,12,64]) {
      %q = transpose(%x) {perm = [0, 2, 1, 3]} : ?
      %k = transpose(%x) {perm = [0, 2, 3, 1]} : ?
      %z = matmul(%q, %k) : ?
      return %z }""")

    assert ["elementwise", "elementwise", "gemm"] == launched(graph)["aten::matmul"]


@pytest.mark.parametrize(
    ("target", "tf32", "math"),
    [
        ("a100", False, "fp32"),
        ("a100", True, "tf32"),
        ("v100", True, "fp32"),
    ],
)
def test_tf32_is_asked_for(target: str, tf32: bool, math: str) -> None:  # noqa: FBT001
    """PyTorch uses TF32 on request, where the device has it."""
    options = LowerKernels(inputs="device", tf32=tf32)

    assert math == kernels(lower(LINEAR, options, target))[0].math


@pytest.mark.parametrize(
    ("dtype", "name", "math"),
    [("f16", "fp16", "fp16"), ("bf16", "bf16", "bf16"), ("f64", "fp64", "fp64_tensor")],
)
def test_storage_decides_the_math(dtype: str, name: str, math: str) -> None:
    """Narrow products run on tensor cores; other kernels compute in fp32."""
    product = lower(LINEAR.replace("f32", dtype), target="a100")
    relu = lower(one_op(f"%x: {dtype}[4,8]", "relu(%x)"), target="a100")

    assert (name, math) == (kernels(product)[0].dtype, kernels(product)[0].math)
    vector = "fp64" if dtype == "f64" else "fp32"
    assert (name, vector) == (kernels(relu)[0].dtype, kernels(relu)[0].math)


@pytest.mark.parametrize(
    ("arguments", "node", "name", "params"),
    [
        ("%x: f32[4,8]", "relu(%x)", "aten::relu", (4, 8, 1, None)),
        ("%x: f32[4,8], %z: f32[4,8]", "mul(%x, %z)", "aten::mul", (4, 8, 2, None)),
        ("%x: f32[4,8], %z: f32[8]", "add(%x, %z)", "aten::add", (4, 8, 1, 288)),
        ("%x: i64[4,8], %z: i64[4,8]", "equal(%x, %z)", "aten::eq", (4, 8, 2, 544)),
        ("%x: f32[]", "neg(%x)", "aten::neg", (1, 1, 1, None)),
    ],
)
def test_elementwise(
    arguments: str, node: str, name: str, params: tuple[int | None, ...]
) -> None:
    """Inputs as large as the output are counted; other traffic stands in bytes."""
    graph = lower(one_op(arguments, node))
    (kernel,) = kernels(graph)

    assert [name] == names(graph)
    fields = ("rows", "cols", "tensor_inputs", "bytes")
    assert params == tuple(kernel.params.get(field) for field in fields)


@pytest.mark.parametrize(
    ("node", "name", "op", "rows", "columns"),
    [
        ("softmax(%x) {axis = -1}", "aten::softmax", "softmax", 15, 7),
        ("softmax(%x) {axis = 0}", "aten::softmax", "softmax", 35, 3),
        ("layer_norm(%x) {axis = 1}", "aten::layer_norm", "layer_norm", 3, 35),
        (
            'reduce(%x) {kind = "mean", axes = [0, 2]}',
            "aten::mean",
            "reduction",
            5,
            21,
        ),
        ('reduce(%x) {kind = "max"}', "aten::amax", "reduction", 1, 105),
    ],
)
def test_rows_and_columns(
    node: str, name: str, op: str, rows: int, columns: int
) -> None:
    """Kernels that walk rows say how many and how long."""
    graph = lower(one_op("%x: f32[3,5,7]", node))
    (kernel,) = kernels(graph)

    assert ([name], op) == (names(graph), kernel.op)
    assert (rows, columns) == (kernel.params["rows"], kernel.params["cols"])


def test_convolution() -> None:
    """A convolution is a product; PyTorch adds its bias afterwards."""
    text = one_op(
        "%x: f32[2,8,16,16], param %w: f32[32,4,3,3], param %b: f32[32]",
        "conv(%x, %w, %b) {stride = [2, 2], padding = [1, 1, 1, 1], groups = 2}",
    )
    graph = lower(text)
    kernel = kernels(graph)[0]

    assert {"aten::conv2d": ["conv2d", "elementwise"]} == launched(graph)
    sizes = {"n": 2, "c_in": 8, "c_out": 32, "kernel": 3, "size": 16}
    rest = {"stride": 2, "padding": 1, "groups": 2}
    assert Record({**sizes, **rest}) == kernel.params
    assert 2 * (2 * 32 * 8 * 8) * (4 * 3 * 3) == kernel.work.flops


def test_pool() -> None:
    """A pool is one kernel over windows."""
    text = one_op(
        "%x: f32[2,8,16,16]",
        'pool(%x) {kind = "max", window = [2, 2], stride = [2, 2]}',
    )

    assert {"aten::max_pool2d": ["pool"]} == launched(lower(text))


def test_convolution_of_volumes_is_not_modelled() -> None:
    """A 3-d convolution is costed by its bytes and marked."""
    text = one_op("%x: f32[2,8,4,4,4], param %w: f32[8,8,1,1,1]", "conv(%x, %w)")
    (kernel,) = kernels(lower(text))

    assert not kernel.known


def test_view_of_a_contiguous_tensor_is_free() -> None:
    """A reshape launches nothing and is an op all the same."""
    graph = lower(one_op("%x: f32[4,8,2]", "flatten(%x) {axis = 1}"))

    assert {"aten::view": []} == launched(graph)


def test_reshape_of_a_transposed_tensor_copies() -> None:
    """The elements have to move before they can be seen in another shape."""
    graph = lower("""graph @g(%x: f32[4,8,2]) {
      %t = transpose(%x) {perm = [2, 0, 1]} : ?
      %f = flatten(%t) {axis = 1} : ?
      %g = flatten(%f) {axis = 0} : ?
      return %g }""")

    assert ["aten::permute", "aten::reshape", "aten::view"] == names(graph)
    (kernel,) = kernels(graph)
    assert ("copy", 256) == (kernel.params["kind"], kernel.work.bytes_read)


def test_axes_of_size_one_move_freely() -> None:
    """A permutation of axes of size 1 leaves the memory as it is."""
    graph = lower("""graph @g(%x: f32[4,1,8]) {
      %t = transpose(%x) {perm = [1, 0, 2]} : ?
      %f = flatten(%t) {axis = 1} : ?
      return %f }""")

    assert [] == kernels(graph)


def test_transposing_twice_is_contiguous() -> None:
    """Two transpositions undo each other."""
    graph = lower("""graph @g(%x: f32[4,8,2]) {
      %t = transpose(%x) {perm = [0, 2, 1]} : ?
      %u = transpose(%t) {perm = [0, 2, 1]} : ?
      %f = flatten(%u) {axis = 1} : ?
      return %f }""")

    assert [] == kernels(graph)


@pytest.mark.parametrize(("axis", "copies"), [(0, []), (1, ["elementwise"])])
def test_a_cut_of_the_outermost_axis_stays_contiguous(
    axis: int, copies: list[str]
) -> None:
    """The pieces of an inner axis lie apart."""
    sizes = [2, 2] if axis == 0 else [4, 4]
    graph = lower(f"""graph @g(%x: f32[4,8]) {{
      %a, %b = split(%x) {{axis = {axis}, sizes = {sizes}}} : ?, ?
      %f = flatten(%a) {{axis = 0}} : ?
      return %f }}""")

    assert copies == [kernel.op for kernel in kernels(graph)]


def test_kernels_over_rows_need_contiguous_tensors() -> None:
    """A softmax of a permuted tensor copies it first."""
    graph = lower("""graph @g(%x: f32[4,8,2]) {
      %t = transpose(%x) {perm = [2, 0, 1]} : ?
      %s = softmax(%t) {axis = 2} : ?
      return %s }""")

    assert ["elementwise", "softmax"] == launched(graph)["aten::softmax"]


def test_expanded_tensor_is_copied_to_reshape() -> None:
    """Repeated elements have no place in memory."""
    graph = lower("""graph @g(%x: f32[1,8]) {
      %n = constant() {dtype = !i64, shape = [2], elements = [4, 8]} : ?
      %e = expand(%x, %n) : ?
      %f = flatten(%e) {axis = 0} : ?
      return %f }""")

    assert ["aten::expand", "aten::reshape"] == names(graph)


def test_identity_is_nothing() -> None:
    """An identity is no op of PyTorch, and keeps the layout."""
    graph = lower("""graph @g(%x: f32[4,8]) {
      %t = transpose(%x) {perm = [1, 0]} : ?
      %i = identity(%t) : ?
      %f = flatten(%i) {axis = 0} : ?
      return %f }""")

    assert ["aten::transpose", "aten::reshape"] == names(graph)


def test_shape_arithmetic_is_nothing() -> None:
    """What is known without running does not exist in eager PyTorch."""
    graph = lower("""graph @g(%x: f32[4,8]) {
      %s = shape(%x) : ?
      %n = size(%x) : ?
      %o = constant() {dtype = !i64, shape = [1], elements = [-1]} : ?
      %c = concat(%o, %s) {axis = 0} : ?
      %r = reduce(%s) {kind = "prod"} : ?
      %v = reshape(%x, %o) : ?
      return %v }""")

    assert ["aten::view"] == names(graph)


def test_cast() -> None:
    """Another element type is a copy; the same one is nothing."""
    graph = lower("""graph @g(%x: f32[4,8]) {
      %h = cast(%x) {dtype = !f16} : ?
      %i = cast(%h) {dtype = !f16} : ?
      return %i }""")

    assert ["aten::to"] == names(graph)
    assert [32 * 6] == [kernel.params["bytes"] for kernel in kernels(graph)]


def test_concat_of_many_tensors_takes_several_kernels() -> None:
    """`cat` joins 128 tensors a kernel and leaves empty ones out."""
    arguments = ", ".join(f"%x{i}: f32[{int(i != 3)},2]" for i in range(131))
    values = ", ".join(f"%x{i}" for i in range(131))
    graph = lower(one_op(arguments, f"concat({values}) {{axis = 0}}"))

    counts = [len(kernel.params["shapes"]) for kernel in kernels(graph)]  # type: ignore[arg-type]
    assert [128, 2] == counts


def test_empty_tensors_launch_nothing() -> None:
    """An op on no elements costs the host only."""
    graph = lower(one_op("%x: f32[0,8]", "relu(%x)"))

    assert {"aten::relu": []} == launched(graph)


@pytest.mark.parametrize(
    ("arguments", "node", "name"),
    [
        ("param %t: f32[9,4], %i: i64[2,3]", "gather(%t, %i) {axis = 0}", "embedding"),
        ("%t: f32[9,4], %i: i64[3]", "gather(%t, %i) {axis = 1}", "index_select"),
        ("%t: f32[9,4], %i: i64[2,3]", "gather(%t, %i) {axis = 0}", "index"),
        ("%t: f32[9,4], %i: i64[3,2]", "gather_nd(%t, %i)", "index"),
        ("%t: f32[9,4], %i: i64[9,1]", "gather_elements(%t, %i) {axis = 1}", "gather"),
    ],
)
def test_gathers(arguments: str, node: str, name: str) -> None:
    """A gather is one kernel under the name of its kind."""
    assert {f"aten::{name}": ["gather"]} == launched(lower(one_op(arguments, node)))


def test_known_index_is_a_view() -> None:
    """One known index selects without a kernel."""
    graph = lower("""graph @g(%x: f32[4,8]) {
      %i = constant() {dtype = !i64, shape = [], elements = [2]} : ?
      %g = gather(%x, %i) {axis = 0} : ?
      return %g }""")

    assert {"aten::select": []} == launched(graph)


def test_embedding_bag() -> None:
    """One table is one kernel; its pooling follows from the shapes."""
    text = one_op(
        "param %t: f32[100,16], %i: i64[B*7], %o: i64[B]",
        "embedding_bag(%t, %i, %o) {tables = [{rows = 100, dim = 16}], "
        'mode = "sum", has_offsets = true}',
    )
    graph = lower(parse_program(text).bind({"B": 4}))

    assert {"aten::embedding_bag": ["embedding_bag"]} == launched(graph)
    (kernel,) = kernels(graph)
    table = Record({"rows": 100, "dim": 16, "pooling": 7})
    assert (4, (table,)) == (kernel.params["batch"], kernel.params["tables"])


def test_embedding_bag_of_a_matrix_makes_offsets() -> None:
    """Two-dimensional indices need an `arange` for their offsets."""
    text = one_op(
        "param %t: f32[100,16], %i: i64[4,7]",
        'embedding_bag(%t, %i) {tables = [{rows = 100, dim = 16}], mode = "sum"}',
    )

    assert ["elementwise", "embedding_bag"] == launched(lower(text))[
        "aten::embedding_bag"
    ]


def test_several_tables_are_one_kernel() -> None:
    """A batch of tables is looked up at once, as FBGEMM does."""
    text = one_op(
        "param %t: f32[100,16], param %u: f32[50,8], %i: i64[28], %o: i64[8]",
        "embedding_bag(%t, %u, %i, %o) {tables = [{rows = 100, dim = 16}, "
        '{rows = 50, dim = 8, pooling = 2}], mode = "sum", has_offsets = true}',
    )
    graph = lower(text)

    name = "fbgemm::split_embedding_codegen_lookup"
    assert {name: ["embedding_bag"]} == launched(graph)
    tables = kernels(graph)[0].params.records("tables")
    assert [3.5, 2] == [table["pooling"] for table in tables]


def test_unknown_op_is_marked() -> None:
    """An op without a rule is one kernel of its bytes, under its own name."""
    text = 'graph @g(%x: f32[8]) { %y = unknown(%x) {op = "Fft"} : f32[4]\n return %y }'
    graph = lower(text)
    (kernel,) = kernels(graph)

    assert (["Fft"], "Fft", False) == (names(graph), kernel.op, kernel.known)
    assert (32, 16) == (kernel.work.bytes_read, kernel.work.bytes_written)


def test_test_op_states_its_time() -> None:
    """An op for tests takes the microseconds it states."""
    text = "graph @g() { %y = test.op() {us = 12.5} : f32[1]\n return %y }"
    graph = lower(text)

    task = graph.kind.index(TaskKind.KERNEL)
    assert pytest.approx(12.5e-6) == graph.stated_s[task]


def test_pinned_inputs_are_copied_ahead() -> None:
    """The host does not wait for inputs in pinned memory."""
    graph = lower(LINEAR, LowerKernels())

    assert [
        TaskKind.CALL,
        TaskKind.COPY,
        TaskKind.CALL,
        TaskKind.KERNEL,
        TaskKind.SYNC,
    ] == graph.kind
    assert ["aten::to", "aten::linear"] == names(graph)
    copy = record(bytes=8 * 13 * 4, kind="h2d", pinned=True)
    assert copy == kernels(graph)[0].params


def test_pageable_inputs_are_waited_for() -> None:
    """Each copy from pageable memory is followed by a synchronisation."""
    graph = lower(LINEAR, LowerKernels(inputs="host-pageable"))

    assert TaskKind.SYNC is graph.kind[2]
    assert ("cudaStreamSynchronize", (1,)) == (graph.detail[2], graph.after[2])
    assert kernels(graph)[0].params["pinned"] is False


def test_iteration_ends_with_the_device() -> None:
    """The host waits for the last task of the device."""
    graph = lower(LINEAR)

    assert TaskKind.SYNC is graph.kind[-1]
    assert ("cudaDeviceSynchronize", (1,)) == (graph.detail[-1], graph.after[-1])


def test_copy_between_memories() -> None:
    """A copy op is a memcpy in its direction; the host waits for pageable memory."""
    text = "graph @g(%x: f32[8]) { %y = copy(%x) : f32[8]@host\n return %y }"
    graph = lower(text)

    (kernel,) = kernels(graph)
    assert ("d2h", False) == (kernel.params["kind"], kernel.params["pinned"])
    assert 2 == graph.kind.count(TaskKind.SYNC)


def test_unbound_symbols_are_named_together() -> None:
    """One error lists every dimension without a number, and how to set it."""
    text = one_op("%x: f32[batch,s77], %z: f32[nnz_0]", "relu(%x)")
    with pytest.raises(UnboundSymbolError) as caught:
        lower(text)

    advice = "--batch N (or --dim batch=N), --dim nnz_0=N, --dim s77=N"
    assert f"g: 3 dimensions have no number; give {advice}" == str(caught.value)


def test_unknown_place_of_inputs() -> None:
    """The option says what it may be."""
    with pytest.raises(UsageError, match="expected host-pinned, host-pageable, device"):
        LowerKernels(inputs="disk")


def test_launch_graph_stays_as_it_is() -> None:
    """What is given as launches is not lowered again."""
    program = parse_program('launches @t { thread "main" host {on = 0, seconds = 1} }')
    manager = PassManager((ShapeInference(), LowerKernels()))
    analysis = manager.run(program)

    assert (program.classes[0].launches,) == analysis.annotations.get(
        LAUNCHES, program, None
    )


def test_ops_name_their_nodes() -> None:
    """A launch leads back to the node it comes from."""
    assert ["y"] == [op.node for op in lower(LINEAR).ops[:-1]]


def test_equal_sites_share_a_signature() -> None:
    """Layers of one shape are one kernel signature."""
    lines = [f"%v{i + 1} = relu(%v{i}) : ?" for i in range(50)]
    graph = lower(f"graph @g(%v0: f32[4,8]) {{ {' '.join(lines)} return %v50 }}")

    assert (1, 50) == (len(graph.kernels), len(kernels(graph)))


@st.composite
def _chains(draw: st.DrawFn) -> str:
    """Draw a chain of ops on one matrix."""
    nodes = st.sampled_from(
        [
            "relu(%{0})",
            "transpose(%{0}) {{perm = [0, 2, 1]}}",
            "transpose(%{0}) {{perm = [1, 0, 2]}}",
            "flatten(%{0}) {{axis = 1}}",
            "softmax(%{0}) {{axis = -1}}",
            "cast(%{0}) {{dtype = !f16}}",
        ]
    )
    count = draw(st.integers(1, 8))
    rank = 3
    lines: list[str] = []
    for i in range(count):
        node = draw(nodes)
        if "perm" in node and rank == 2:
            node = "transpose(%{0}) {{perm = [1, 0]}}"
        rank = 2 if "flatten" in node else rank
        lines.append(f"%v{i + 1} = {node.format(f'v{i}')} : ?")
    shape = ",".join(map(str, draw(st.tuples(*[st.integers(0, 4)] * 3))))
    return f"graph @g(%v0: f32[{shape}]) {{ {' '.join(lines)} return %v{count} }}"


@given(_chains())
@settings(max_examples=60)
def test_launches_are_valid_and_in_order(text: str) -> None:
    """Every chain lowers to a valid launch graph whose op index never decreases."""
    graph = lower(text, LowerKernels())

    assert sorted(graph.op) == graph.op
    for kernel in graph.kernels:
        assert kernel.work.bytes > 0
        assert min(attrs.astuple(kernel.work)) >= 0


def test_every_op_has_a_rule_or_is_marked() -> None:
    """Only control flow, sequences and unknown ops are without a rule."""
    from perfc.passes.eager_launches import FREE, RULES  # noqa: PLC0415 - not public

    missing = {op.name for op in BUILTIN_OPS} - set(RULES) - FREE - {"identity"}
    sequences = {"sequence_empty", "sequence_insert", "concat_from_sequence"}
    assert {"unknown", "loop", "if", *sequences} == missing
