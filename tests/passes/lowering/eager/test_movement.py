"""What eager PyTorch launches to move, view and look up."""

from __future__ import annotations

import pytest
from tests.passes.lowered import kernels, launched, lower, names, one_op

from perfc.ir import Record
from perfc.ir.text import parse_program


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


@pytest.mark.parametrize(
    ("slices", "size", "walks"),
    [(8192, 8, True), (1, 19_999, True), (1, 20_000, False), (5000, 400, False)],
)
def test_large_slices_are_selected_from_in_passes(
    slices: int,
    size: int,
    walks: bool,
) -> None:
    """One block walks through a small one; large ones take a kernel for 8 bits each."""
    graph = lower(f"""graph @g(%x: f32[{slices},{size}]) {{
      %k = constant() {{dtype = !i64, shape = [1], elements = [2]}} : ?
      %v, %p = topk(%x, %k) {{axis = 1}} : ?, ?
      return %v, %p }}""")

    found = [kernel for kernel in kernels(graph) if kernel.op == "topk"]

    assert len(found) == (1 if walks else 5)
    assert walks == all("steps" in kernel.params for kernel in found)


@pytest.mark.parametrize(
    ("head", "op"),
    [
        ("%x: f32[4,8], %i: f32[4,2]", "concat(%x, %i)"),
        ("%x: f32[4,8], %i: f32[4,8]", "stack(%x, %i)"),
        ("%x: f32[4,8], %i: i64[4,3]", "gather(%x, %i)"),
        ("%x: f32[4,8], %i: i64[4,3]", "gather_elements(%x, %i)"),
        ("%x: f32[4,8], %i: i64[4,3], %u: f32[4,3]", "scatter_elements(%x, %i, %u)"),
    ],
)
def test_kernels_count_the_axis_from_the_first(head: str, op: str) -> None:
    """The last axis is one axis, whether a model calls it 1 or -1."""
    last = 2 if op.startswith("stack") else 1
    first, second = (
        kernels(lower(one_op(head, f"{op} {{axis = {axis}}}"))) for axis in (-1, last)
    )

    assert first == second
    assert last in [kernel.params.get("axis") for kernel in first]
