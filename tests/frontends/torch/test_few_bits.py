"""Models that call fbgemm's lookups of few bits: recorded, exported, and in a file.

fbgemm has kernels for GPUs and CPUs; what a call takes and returns is all that counts
here, so its ops are declared as it does (fbgemm_gpu 1.8) where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import export, save

import perfc
from perfc import Model
from perfc.passes.graphs import typed

_LOOKUP = (
    "int_nbit_split_embedding_codegen_lookup_function(Tensor dev_weights, "
    "Tensor uvm_weights, Tensor weights_placements, Tensor weights_offsets, "
    "Tensor weights_tys, Tensor D_offsets, SymInt total_D, int max_int2_D, "
    "int max_int4_D, int max_int8_D, int max_float16_D, int max_float32_D, "
    "Tensor indices, Tensor offsets, int pooling_mode, Tensor? indice_weights, "
    "int output_dtype=1, Tensor? lxu_cache_weights=None, "
    "Tensor? lxu_cache_locations=None, int? row_alignment=None, int? max_float8_D=0, "
    "int? fp8_exponent_bits=-1, int? fp8_exponent_bias=-1) -> Tensor"
)
_CHECK = (
    "bounds_check_indices(Tensor rows_per_table, Tensor(a!) indices, "
    "Tensor(b!) offsets, int bounds_check_mode, Tensor(c!) warning, "
    "Tensor(d!)? weights=None, Tensor? B_offsets=None, SymInt max_B=-1, "
    "Tensor? b_t_map=None, int info_B_num_bits=-1, int info_B_mask=-1, "
    "int bounds_check_version=1, bool prefetch_pipeline=False) -> ()"
)
BATCH, BAG = 16, 5
ROWS, DIMS, TYPES = (1000, 2000, 3000), (64, 8, 36), (3, 3, 2)
"""Rows and columns of tables; two of int4, one of int8."""

SIZES = (48, 16, 48)
"""Bytes of their rows, filled up to 16."""


@pytest.fixture(scope="module", autouse=True)
def fbgemm() -> Iterator[None]:
    """Declare fbgemm's ops, where nobody has."""
    if hasattr(torch.ops.fbgemm, "bounds_check_indices"):
        yield
        return
    make: Any = torch.library.Library  # untyped
    library = make("fbgemm", "FRAGMENT")

    def looked_up(*given: Any, **named: Any) -> torch.Tensor:
        total, offsets = given[6], given[13]
        batch = (offsets.numel() - 1) // given[4].numel()
        made: torch.Tensor = given[0].new_empty((batch, total), dtype=torch.float32)
        return made

    def checked(*given: Any, **named: Any) -> None:
        return None

    for schema, function in ((_LOOKUP, looked_up), (_CHECK, checked)):
        name = schema.partition("(")[0]
        library.define(schema)
        for key in ("CPU", "Meta"):
            library.impl(name, function, key)
    yield
    library._destroy()


class Lookup(torch.nn.Module):
    """What `IntNBitTableBatchedEmbeddingBagsCodegen` keeps and calls."""

    def __init__(self) -> None:
        """Make the lists of the tables, and their bytes."""
        super().__init__()
        sizes = [
            -(-rows * size // 128) * 128 for rows, size in zip(ROWS, SIZES, strict=True)
        ]
        starts = [sum(sizes[:n]) for n in range(3)]
        bounds = [sum(DIMS[:n]) for n in range(4)]
        for name, values, dtype in (
            ("weights_placements", [0, 0, 0], torch.int32),
            ("weights_offsets", starts, torch.int64),
            ("weights_tys", TYPES, torch.uint8),
            ("D_offsets", bounds, torch.int32),
            ("rows", ROWS, torch.int64),
            ("warning", [0], torch.int64),
        ):
            self.register_buffer(name, torch.tensor(values, dtype=dtype))
        self.register_buffer("dev", torch.zeros(sum(sizes), dtype=torch.uint8))
        self.register_buffer("uvm", torch.zeros(0, dtype=torch.uint8))
        self.over = torch.nn.Linear(sum(DIMS), 1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Check indices, look up, and add up."""
        ops: Any = torch.ops.fbgemm
        ops.bounds_check_indices(self.rows, indices, offsets, 1, self.warning)
        pooled = ops.int_nbit_split_embedding_codegen_lookup_function(
            self.dev,
            self.uvm,
            self.weights_placements,
            self.weights_offsets,
            self.weights_tys,
            self.D_offsets,
            sum(DIMS),
            *(0, 64, 36, 0, 0),
            indices,
            offsets,
            0,
            None,
            output_dtype=0,
            row_alignment=16,
        )
        made: torch.Tensor = self.over(pooled)
        return made


def _given() -> tuple[torch.Tensor, torch.Tensor]:
    count = 3 * BATCH
    offsets = torch.arange(0, BAG * count + 1, BAG, dtype=torch.int32)
    return torch.zeros(BAG * count, dtype=torch.int32), offsets


def _recorded(folder: Path) -> Model:
    return perfc.from_torch(Lookup(), _given())


def _exported(folder: Path) -> Model:
    return perfc.from_torch(export(Lookup(), _given()))


def _decomposed(folder: Path) -> Model:
    return perfc.from_torch(export(Lookup(), _given()).run_decompositions())


def _saved(folder: Path) -> Model:
    save(export(Lookup(), _given()), folder / "lookup.pt2")
    return perfc.load(folder / "lookup.pt2")


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch's own
@pytest.mark.parametrize("read", [_recorded, _exported, _decomposed, _saved])
def test_tables_of_a_module(read: Callable[[Path], Model], tmp_path: Path) -> None:
    """Each way tells which table has which type, width and rows: no op is unknown."""
    model = read(tmp_path)
    report = perfc.analyze(model, "a100")
    graph = model.program.classes[0].ops
    assert graph is not None
    (bag,) = [node for node in graph if node.op == "embedding_bag"]
    tables = bag.attributes.records("tables")
    types = [typed(value).dtype for value in bag.operands[:3]]
    sizes = [t.row_bytes(dim) for t, dim in zip(types, DIMS, strict=True)]
    called = {node["op"] for node in report.nodes}

    assert {} == report.coverage["unknown_ops"]
    assert [*DIMS] == [table.integer("dim") for table in tables]
    assert [*SIZES] == sizes
    assert all(
        rows <= table.integer("rows") <= rows + 8
        for rows, table in zip(ROWS, tables, strict=True)
    )
    assert "fbgemm::bounds_check_indices" in called
    assert [] == [one for one in report.diagnostics if one.level.value == "warning"]
    held = report.memory["parameters_bytes"]
    assert sum(map(int.__mul__, ROWS, SIZES)) <= held
