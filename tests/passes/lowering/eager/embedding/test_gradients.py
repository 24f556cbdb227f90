"""What eager PyTorch and fbgemm launch for gradients of lookups."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowered import kernels, launched, lower, names

from perfc.ir import DTYPES, Kernel, LaunchGraph, TensorType
from perfc.ir.ops.optimizer import state_types
from perfc.passes.lowering.eager.embedding.rows import distinct
from perfc.passes.lowering.eager.reductions.sorting import merge_sort, radix_sort

F32 = DTYPES["f32"]
DENSE = "aten::_embedding_bag_dense_backward"
SPARSE = "aten::_embedding_bag_sparse_backward"
FUSED = "fbgemm::split_embedding_backward_codegen_{}_exact_cuda"


def bag(rows: int, dim: int, *flags: str, mode: str = "sum", tables: int = 1) -> str:
    """Write the attributes of a bag of equal tables."""
    records = ", ".join([f"{{rows = {rows}, dim = {dim}}}"] * tables)
    items = [f"tables = [{records}]", f'mode = "{mode}"', "has_offsets = true"]
    return "{" + ", ".join([*items, *flags]) + "}"


def bag_backward(
    *, bags: int, lookups: int, rows: int, dim: int, sparse: bool = False, mode: str
) -> LaunchGraph:
    """Lower the gradient of one table's bags."""
    results, types = ("%x, %y", "?, ?") if sparse else ("%y", "?")
    attributes = bag(rows, dim, *["sparse = true"] * sparse, mode=mode)
    return lower(f"""graph @g(
        %g: f32[{bags},{dim}], %i: i64[{lookups}], %o: i64[{bags}]) {{
      {results} = embedding_bag_backward(%g, %i, %o) {attributes} : {types}
      return %y }}""")


@attrs.frozen(kw_only=True)
class Fused:
    """The gradient of equal tables that are looked up in one kernel."""

    tables: int = 2
    bags: int = 64
    lookups: int = 4096
    rows: int = 100
    dim: int = 8
    optimizer: str = "sgd"
    mode: str = "sum"
    weighted: bool = False

    def lower(self) -> LaunchGraph:
        """Lower it."""
        names = [f"%d{table}" for table in range(self.tables)]
        arguments, operands = self._declared()
        result, types = ", ".join(names) + " = ", " : " + ", ".join("?" for _ in names)
        flags = ["include_last_offset = true", *["weighted = true"] * self.weighted]
        if self.optimizer:
            result = types = ""
            flags.append(f'optimizer = "{self.optimizer}"')
        attributes = bag(
            self.rows, self.dim, *flags, mode=self.mode, tables=self.tables
        )
        return lower(f"""graph @g({", ".join(arguments)}) {{
          {result}embedding_bag_backward({", ".join(operands)}) {attributes}{types}
          return %g }}""")

    def _declared(self) -> tuple[list[str], list[str]]:
        table = TensorType(F32, (self.rows, self.dim))
        types = {
            "%g": f"f32[{self.bags},{self.tables * self.dim}]",
            "%i": f"i64[{self.lookups}]",
            "%o": f"i64[{self.bags * self.tables + 1}]",
        }
        if self.weighted:
            types["%s"] = f"f32[{self.lookups}]"
        if self.optimizer:
            lists = (table, *state_types(self.optimizer, table))
            updated = [type_ for type_ in lists for _ in range(self.tables)]
            types |= {f"%w{index}": str(type_) for index, type_ in enumerate(updated)}
        return [f"{name}: {type_}" for name, type_ in types.items()], list(types)


def moved_bytes(graph: LaunchGraph) -> int:
    """Add up what the kernels move."""
    return sum(kernel.work.bytes for kernel in kernels(graph))


def rows_updated(graph: LaunchGraph) -> dict[str, Kernel]:
    """Map the algorithms that update rows to their kernels."""
    return {
        str(kernel.params["algorithm"]): kernel
        for kernel in kernels(graph)
        if "algorithm" in kernel.params
    }


def test_few_lookups_in_fbgemm() -> None:
    """The 14 kernels of 768 indices in the trace of TorchRec on V100 (PARAM)."""
    sizes = Fused(tables=3, bags=128, lookups=768, rows=13_000_000, dim=16)
    graph = attrs.evolve(sizes, optimizer="adagrad").lower()

    assert {
        FUSED.format("adagrad_unweighted"): [
            "linearize_indices",
            "radix_sort",
            *("elementwise", "elementwise"),
            *("scan", "run_length"),
            "elementwise",
            *("scan", "scan"),
            *("elementwise", "elementwise", "scan"),
            *("scan", "embedding_bag"),
        ]
    } == launched(graph)


def test_many_lookups_in_fbgemm() -> None:
    """The 22 kernels and memsets of 262,144 indices in the trace of TorchRec."""
    sizes = Fused(tables=16, bags=16384, lookups=262_144, rows=1024, dim=1024)
    graph = attrs.evolve(sizes, optimizer="rowwise_adagrad").lower()

    calls = [detail for detail in graph.detail if detail.startswith("cuda")][:-1]
    assert (18, 4) == (
        calls.count("cudaLaunchKernel"),
        calls.count("cudaMemsetAsync"),
    )
    assert ["warp_per_row"] == list(rows_updated(graph))


def test_a_dense_gradient_of_several_tables_in_fbgemm() -> None:
    """The 15 kernels of the data-parallel tables in that trace: zeros first."""
    graph = Fused(bags=16, lookups=32, rows=7, dim=16, optimizer="").lower()

    assert [FUSED.format("dense_unweighted")] == names(graph)
    assert 15 == len(kernels(graph))
    assert 2 * 7 * 16 * 4 == kernels(graph)[0].work.bytes_written


def test_sample_weights_are_sorted_too() -> None:
    """Weights of lookups take a second sort."""
    plain, weighted = Fused().lower(), Fused(weighted=True).lower()

    sort = len(radix_sort(4096, 8, 4))
    assert sort == len(kernels(weighted)) - len(kernels(plain))
    assert [FUSED.format("sgd_weighted")] == names(weighted)


def test_means_divide_the_gradient_first() -> None:
    """`grad_mean` is one more kernel."""
    plain, mean = Fused().lower(), Fused(mode="mean").lower()

    assert 1 == len(kernels(mean)) - len(kernels(plain))


def test_long_runs_are_updated_by_blocks() -> None:
    """Where rows are looked up hundreds of times, the kernel of blocks has the work."""
    assert ["cta_per_row"] == list(rows_updated(Fused(lookups=204_800).lower()))


def test_no_lookups_update_nothing() -> None:
    """Empty bags: fbgemm returns at once."""
    assert [] == kernels(Fused(lookups=0).lower())


def test_a_dense_gradient_zeroes_the_table() -> None:
    """ATen zeroes the whole table, sorts, and adds up runs: 17 kernels, 5 memsets."""
    graph = bag_backward(bags=2048, lookups=204_800, rows=10**6, dim=64, mode="sum")

    assert [DENSE] == names(graph)
    filled = [k for k in kernels(graph) if k.work.bytes_written == 256 * 10**6]
    assert ["fill"] == [k.params["kind"] for k in filled]
    calls = [detail for detail in graph.detail if detail.startswith("cuda")]
    assert (16, 5) == (calls.count("cudaLaunchKernel"), calls.count("cudaMemsetAsync"))


def test_a_maximum_scatters() -> None:
    """The gradient of a maximum is added where the maximum was: nothing is sorted."""
    graph = bag_backward(bags=8, lookups=32, rows=9, dim=4, mode="max")

    assert {DENSE: ["elementwise", "gather"]} == launched(graph)


def test_a_sparse_gradient_is_gathered() -> None:
    """Each lookup gets the gradient of its bag; the table is not touched."""
    graph = bag_backward(
        bags=64, lookups=640, rows=10**8, dim=8, sparse=True, mode="sum"
    )

    (kernel,) = kernels(graph)
    assert (SPARSE, "index_select") == (names(graph)[0], kernel.params["kind"])
    assert 640 * 8 * 4 == kernel.work.bytes_written


def test_a_sparse_gradient_of_means() -> None:
    """`1 / bag_size` takes five kernels more."""
    graph = bag_backward(bags=8, lookups=32, rows=9, dim=4, sparse=True, mode="mean")

    assert 6 == len(kernels(graph))


@pytest.mark.parametrize(("lookups", "sorts"), [(3072, False), (3073, True)])
def test_few_indices_are_not_sorted(lookups: int, sorts: bool) -> None:
    """`embedding_dense_backward` has a kernel for up to 3072 indices."""
    graph = lower(f"""graph @g(%r: f32[{lookups},8], %i: i64[{lookups}]) {{
      %y = embedding_backward(%r, %i) {{shape = [100, 8]}} : ?
      return %y }}""")

    (found,) = launched(graph).values()
    assert sorts == ("radix_sort" in found)
    assert sorts or found == ["elementwise", "embedding_backward"]


def test_a_sparse_gradient_of_rows_is_what_came_in() -> None:
    """`nn.Embedding(sparse=True)` launches nothing: its gradient is a view."""
    graph = lower("""graph @g(%r: f32[32,8], %i: i64[32]) {
      %x, %y = embedding_backward(%r, %i) {shape = [100, 8], sparse = true} : ?, ?
      return %y }""")

    assert {"aten::embedding_sparse_backward": []} == launched(graph)


def test_the_padding_row_is_left_out() -> None:
    """Indices and rows are masked, which reads their number back twice."""
    attributes = "{shape = [100, 8], sparse = true, padding_index = 0}"
    graph = lower(f"""graph @g(%r: f32[32,8], %i: i64[32]) {{
      %x, %y = embedding_backward(%r, %i) {attributes} : ?, ?
      return %y }}""")

    assert 2 == graph.detail.count("cudaStreamSynchronize")


def test_sorts_of_few_keys_are_one_kernel() -> None:
    """One block sorts 2304 keys radix by radix, and 2048 by comparisons."""
    assert [1, 6, 1, 3] == [
        len(radix_sort(2304, 32, 8)),
        len(radix_sort(2305, 8, 8)),
        len(merge_sort(2048)),
        len(merge_sort(4096)),
    ]


@given(rows=st.integers(1, 10**9), lookups=st.integers(0, 10**9))
def test_distinct_rows(rows: int, lookups: int) -> None:
    """At most every row, and every lookup, is another one; at least one is."""
    assert min(1, lookups) <= distinct(rows, lookups) <= min(rows, lookups)


@given(
    bags=st.integers(1, 500),
    pooling=st.integers(1, 20),
    rows=st.integers(2, 10**6),
    sparse=st.booleans(),
)
@settings(deadline=None, max_examples=20)
def test_bytes_grow(bags: int, pooling: int, rows: int, *, sparse: bool) -> None:
    """More lookups, or more different rows, move no fewer bytes, in either form."""

    def moved(lookups: int, rows: int) -> int:
        return moved_bytes(
            bag_backward(
                bags=bags, lookups=lookups, rows=rows, dim=8, sparse=sparse, mode="sum"
            )
        )

    count = bags * pooling
    assert moved(count, rows) <= min(moved(2 * count, rows), moved(count, 2 * rows))


@given(lookups=st.integers(1, 2000), rows=st.integers(2, 10**6))
@settings(deadline=None, max_examples=15)
def test_bytes_of_updates_grow(lookups: int, rows: int) -> None:
    """So do those of a fused update."""

    def moved(lookups: int, rows: int) -> int:
        return moved_bytes(Fused(lookups=2 * lookups, rows=rows).lower())

    small, deeper = moved(lookups, rows), moved(2 * lookups, rows)
    assert small <= min(deeper, moved(lookups, 2 * rows))
