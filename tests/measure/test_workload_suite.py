"""The suite `workloads`: each kernel of the planned models, run for real."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from perfc.ir import AttrValue, Record, UsageError
from perfc.measure.case import (
    DTYPES_OF_TENSORS,  # not public
    Case,
    Family,
    Tensors,
)
from perfc.measure.device import Device, open_device
from perfc.measure.families import triangle_side
from perfc.measure.families.given import list_sizes
from perfc.measure.kernel_run import KernelRun
from perfc.measure.kernel_table import workload_table
from perfc.measure.suites import runs, suite
from perfc.measurements import (
    MEASUREMENTS,
    Measurement,
    kernel_of,
    read_rows,
    split_of,
)

CPU = open_device("cpu")
GPU = attrs.evolve(
    CPU,
    kind="cuda",
    dtypes=("fp32", "fp16", "tf32", "bf16", "fp8"),
    memory_bytes=80 << 30,
    cache_bytes=50 << 20,
)
ALL_DTYPES = attrs.evolve(CPU, dtypes=GPU.dtypes, memory_bytes=8 << 30)
CHUNK = 65536
IN_PLACE = ("fill", "copy")
FEW = 3e8
"""Operations, and bytes, that take no time to speak of."""


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    """Make operands."""
    return Tensors(CPU)


def _table() -> list[Case]:
    return [Case(*row) for row in workload_table()]


def _spelling(case: Case) -> tuple[object, ...]:
    """Return what a case says in words: those of one spelling differ in sizes alone."""
    named = {k: v for k, v in case.params.items() if isinstance(v, str | bool)}
    return (case.op, case.dtype, frozenset(case.params), *sorted(named.items()))


def _smallest(device: Device) -> list[tuple[Family, Case]]:
    """Return the smallest case of each spelling."""
    found: dict[tuple[object, ...], tuple[Family, Case]] = {}
    pairs = suite("workloads", device)
    for family, case in sorted(pairs, key=lambda pair: pair[0].memory_bytes(pair[1])):
        found.setdefault(_spelling(case), (family, case))
    return list(found.values())


def test_a_gpu_has_them_all_in_order() -> None:
    """The table is the suite, and no call is in it twice."""
    cases = [case for _, case in suite("workloads", GPU)]

    assert _table() == cases
    assert len(cases) == len(set(cases))


def test_what_a_device_cannot_hold_or_compute_is_left_out() -> None:
    """Operands take a quarter of the memory; older GPUs have no bf16; CPUs no bus."""
    small = attrs.evolve(GPU, memory_bytes=1 << 30)
    older = attrs.evolve(GPU, dtypes=("fp32", "fp16"))
    held = {f.memory_bytes(case) <= 1 << 28 for f, case in suite("workloads", small)}
    dtypes = {case.dtype for _, case in suite("workloads", older)}
    copies = suite("workloads", CPU, ops=["memcpy"])

    assert {True} == held
    assert {"fp32", "int64", "bool"} == dtypes
    assert {"d2d"} == {case.params["kind"] for _, case in copies}


def test_only_some_ops() -> None:
    """Those that are named, and no others."""
    assert {"pool", "foreach"} == {
        case.op for _, case in suite("workloads", GPU, ops=["pool", "foreach"])
    }


def test_ops_of_models_alone_have_no_other_suite() -> None:
    """Shapes of pooling are not drawn: another suite refuses it by name."""
    with pytest.raises(
        UsageError, match=r"^no op pool is measured; known: attention, "
    ):
        suite("full", GPU, ops=["pool"])


def test_all_are_held_out() -> None:
    """A shape of a model is tested with, in any dtype and whatever suite drew it."""
    cases = _table()
    drawn = [attrs.evolve(case, dtype="fp16") for case in cases]
    others = Case("gemm", "fp32", Record({"b": 1, "m": 7, "n": 11, "k": 1234567}))

    assert {"test"} == {case.split for case in (*cases, *drawn)}
    assert {"fit", "test"} == {split_of(case.op, case.params) for case in cases}
    assert others.split == split_of(others.op, others.params)


@pytest.mark.parametrize(
    ("family", "case"),
    [
        pytest.param(f, case, id=f"{number}-{case.op}")
        for number, (f, case) in enumerate(_smallest(ALL_DTYPES))
        if case.work.flops <= FEW and f.memory_bytes(case) <= FEW
    ],
)
def test_every_spelling_runs(family: Family, case: Case, tensors: Tensors) -> None:
    """Also a second time on the same operands."""
    with torch.no_grad():
        call = family.prepare(case, tensors)
        call()
        call()


class _Counted(Tensors):
    """Counts the bytes of operands, which have no memory."""

    def __init__(self) -> None:
        self.kind = "meta"
        self.nbytes = 0

    def random(self, dtype: str, *shape: int) -> torch.Tensor:
        """Return a tensor without elements."""
        made = torch.empty(shape, dtype=DTYPES_OF_TENSORS[dtype], device=self.kind)
        self.nbytes += made.nbytes
        return made


def test_elementwise_kernels_move_what_their_rows_say() -> None:
    """Operands and the result have the bytes of the row, but for holes and numbers."""
    for family, case in suite("workloads", GPU, ops=["elementwise"]):
        tensors = _Counted()
        with torch.no_grad():
            result = family.prepare(case, tensors)()
        assert isinstance(result, torch.Tensor)
        rows, cols = case.params.integer("rows"), case.params.integer("cols")
        made = tensors.nbytes + result.nbytes * (case.params["kind"] not in IN_PLACE)

        assert rows * cols == result.numel()
        if "scattered" not in case.params:
            assert pytest.approx(made, abs=8) == case.work.bytes
        elif "bytes" in case.params and case.params["kind"] != "div":
            assert made == case.work.bytes


def test_operands_with_holes_lie_unlike_the_others() -> None:
    """A gradient of a join has holes; that of a GEMM lies turned."""
    sizes: dict[str, AttrValue] = {"rows": 12, "cols": 8, "tensor_inputs": 2}
    sizes |= {"scattered": True, "batch": 4}
    strides: dict[str, list[tuple[int, ...]]] = {}
    for kind in ("threshold_backward", "add"):
        case = Case("elementwise", "fp32", Record({"kind": kind, **sizes}))
        family = next(f for f, c in suite("workloads", GPU) if c.op == "elementwise")
        call = family.prepare(case, Tensors(CPU))
        assert call.__closure__ is not None
        operands = [cell.cell_contents for cell in call.__closure__]
        strides[kind] = sorted(
            o.stride() for o in operands if isinstance(o, torch.Tensor)
        )

    assert [(24, 8, 1), (48, 8, 1)] == strides["threshold_backward"]
    assert [(24, 1, 3), (24, 8, 1)] == strides["add"]


def test_lists_have_the_chunks_of_their_kernel() -> None:
    """So many tensors, elements and thread blocks, whatever the list was cut from."""
    lists = [case.params for case in _table() if case.op == "foreach"]
    assert lists
    for params in lists:
        sizes = list_sizes(params)
        chunks = sum(-(-size // CHUNK) for size in sizes)

        assert params.integer("tensors") == len(sizes)
        assert params.integer("elements") == sum(sizes)
        assert params.integer("chunks") == chunks
        assert min(sizes) > 0


def test_sums_of_equal_rows(tensors: Tensors) -> None:
    """`coalesce` finds as many different rows as the case says."""
    sizes = Record({"lookups": 100, "dim": 4, "distinct": 37})
    (family,) = {f for f, _ in suite("workloads", GPU, ops=["coalesce"])}
    summed = family.prepare(Case("coalesce", "fp32", sizes), tensors)()

    assert isinstance(summed, torch.Tensor)
    assert 37 == summed.indices().shape[1]


def test_masked_attention_adds_its_mask() -> None:
    """What the kernel computes is attention with the mask."""
    sizes: dict[str, AttrValue] = {"batch": 2, "heads": 3, "q_len": 8, "kv_len": 8}
    sizes |= {"head_dim": 16, "causal": False, "algorithm": "efficient"}
    case = Case("attention", "fp32", Record({**sizes, "masked": True}))
    masked = [f for f, c in suite("workloads", GPU) if "masked" in c.params]
    q = torch.randn(2, 8, 3, 16, generator=torch.Generator().manual_seed(0))
    mask = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    class Same(Tensors):
        def random(self, dtype: str, *shape: int) -> torch.Tensor:
            return q if len(shape) == 4 and shape[1] == 8 else mask

    with torch.no_grad():
        found = masked[0].prepare(case, Same(CPU))()
    heads = q.transpose(1, 2)
    expected = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)

    assert isinstance(found, tuple)
    torch.testing.assert_close(found[0], expected)


def test_places_below_a_diagonal() -> None:
    """DLRM's interaction of 9 and of 27 vectors, and what lies between."""
    assert (9, 10, 27) == tuple(map(triangle_side, (36, 37, 351)))


def test_what_no_family_runs_is_known() -> None:
    """A kind that nothing calls is refused before anything is measured."""
    sizes: dict[str, AttrValue] = {"rows": 2, "cols": 2, "tensor_inputs": 1}
    known, unknown = (
        Case("elementwise", "fp32", Record({"kind": kind, **sizes}))
        for kind in ("gelu", "digamma")
    )
    scan = Case("scan", "int64", Record({"kind": "init", "rows": 1, "cols": 8}))

    assert (True, False, False) == (runs(known), runs(unknown), runs(scan))


def test_rows_of_indices_move_what_lowering_says() -> None:
    """Pairs of places are one row of indices each, around them are whole axes."""
    params: dict[str, AttrValue] = {"kind": "index", "axis": 1}
    params |= {"shape": (2048, 9, 9), "indices": (36, 2)}
    row = Measurement(
        target="h100-sxm-80g",
        op="gather",
        dtype="fp32",
        params=Record(params),
        latency_us=1.0,
        timing="graph",
        source="test",
    )
    elements = 2048 * 36

    work = kernel_of(row).work
    assert (4 * elements + 8 * 72, 4 * elements) == (
        work.bytes_read,
        work.bytes_written,
    )


def test_a_run_writes_rows_that_are_held_out(tmp_path: Path) -> None:
    """Losses alone, as they are few: rows of the table, none of them for a fit."""
    path = tmp_path / "rows.csv"
    run = KernelRun(CPU, "workloads", path, ops=["index_put"])
    run.measure(60, lambda line: None)
    rows = read_rows(path, MEASUREMENTS)
    expected = {case for _, case in suite("workloads", CPU, ops=["index_put"])}

    assert expected == {Case(row.op, row.dtype, row.params) for row in rows}
    assert {"test"} == {row.split for row in rows}
    assert [] == run.skipped
