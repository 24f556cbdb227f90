"""The built-in workloads have their published sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.evaluate import Array, outputs

import perfc
from perfc.frontends import WORKLOADS
from perfc.ir import Graph, TensorType, Work
from perfc.ir.ops import BUILTIN_OPS

ROOT = Path(__file__).parents[3]
SIZES = ROOT.parent / "shared" / "data" / "dlrm_tables" / "workloads.json"
BATCH = 2048
PUBLISHED = {
    "dlrm-default": "lin_dlrm_default",
    "dlrm-mlperf": "mlperf_dlrm_v1",
    "dlrm-ddp": "lin_dlrm_ddp",
    "criteo-terabyte-small": "criteo_terabyte_small",
    "deeprecsys-rm1": "deeprecsys_rm1",
    "deeprecsys-rm2": "deeprecsys_rm2",
    "deeprecsys-rm3": "deeprecsys_rm3",
}


@pytest.mark.parametrize(
    ("name", "mflop_per_sample"),
    [("dlrm-default", 5.00), ("dlrm-mlperf", 4.92), ("dlrm-ddp", 1.60)],
)
def test_flops_of_the_matmuls(name: str, mflop_per_sample: float) -> None:
    """Multiplications and additions of the matmuls per sample are as published."""
    graph = _graph(f"{name}")
    flops = sum(w.flops for op, w in _work(graph) if op in {"linear", "matmul"})

    assert pytest.approx(mflop_per_sample, abs=0.01) == flops / BATCH / 1e6


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name: str) -> None:
    """Tables, pooling and widths agree with the collected publications."""
    if not SIZES.exists():
        pytest.skip(f"{SIZES.name} is not there: it is no part of the repository")
    published = json.loads(SIZES.read_text(encoding="utf-8"))[PUBLISHED[name]]
    graph = _graph(name)
    tables = [
        [table[key] for key in ("rows", "dim", "pooling")]
        for node in graph
        if node.op == "embedding_bag"
        for table in node.attributes.records("tables")
    ]
    widths = [
        v.type.shape[0] for v in graph.parameters if v.name.endswith("bias") and v.type
    ]

    assert [
        [table["rows"], table["dim"], table["hotness"]]
        for table in published["tables"]
        for _ in range(table["count"])
    ] == tables
    assert [*published["bottom_mlp"], *published["top_mlp"]] == widths
    assert published["dense_features"] == _type(graph, "dense").shape[1]


def test_mlperf_rows() -> None:
    """The 26 Criteo tables have 187,767,399 rows in all."""
    bags = [n for n in _graph("dlrm-mlperf") if n.op == "embedding_bag"]
    rows = [n.attributes.records("tables")[0].integer("rows") for n in bags]

    assert (26, 187_767_399) == (len(rows), sum(rows))


def test_mlperf_is_the_exported_model() -> None:
    """The ONNX file of the same model has the same work, op class by op class."""
    path = ROOT / "examples" / "models" / "dlrm_mlperf.onnx"
    exported = _totals(_graph(str(path)))
    built = _totals(_graph("dlrm-mlperf"))
    compared = ("linear", "relu", "sigmoid", "matmul", "concat", "embedding_bag")

    assert {op: exported[op] for op in compared} == {op: built[op] for op in compared}


@pytest.mark.parametrize("name", PUBLISHED)
def test_batched_lookup(name: str) -> None:
    """One op looks up all tables, and reads as many rows as one op per table.

    Its indices and offsets have 32 bits, not 64, and one offset ends the last bag.
    """
    apart = [w for op, w in _work(_graph(name)) if op == "embedding_bag"]
    (together,) = [
        w
        for op, w in _work(_graph(f"{name}:embedding=batched"))
        if op == "embedding_bag"
    ]
    row_bytes = 4 * together.flops
    listed = sum(w.bytes_read for w in apart) - row_bytes
    assert listed // 2 + 4 == together.bytes_read - row_bytes
    assert sum(w.bytes_written for w in apart) == together.bytes_written
    assert sum(w.flops for w in apart) == together.flops


def test_batched_lookup_computes_the_same() -> None:
    """The batched form gives the numbers of one op per table, given the same data."""
    options = "tables=3,rows=50,dim=16,pooling=4"
    apart = _graph(f"dlrm-default:{options}")
    together = _graph(f"dlrm-default:embedding=batched,{options}")
    data = _random_data(apart, batch=5)
    pairs = np.tril_indices(4, -1)  # of three tables' vectors, and the dense one
    data |= dict(zip(("interact.li", "interact.lj"), pairs, strict=True))
    lookups = [data[f"indices_{table}"] for table in range(3)]
    starts = [data[f"offsets_{table}"] + 20 * table for table in range(3)]
    data["indices"] = np.concatenate(lookups).astype(np.int32)
    data["offsets"] = np.concatenate([*starts, [60]]).astype(np.int32)
    (expected,), (actual,) = outputs(apart, data), outputs(together, data)

    assert (5, 1) == actual.shape
    assert np.array_equal(expected, actual)


def test_pairs_on_the_host_are_copied_in_every_iteration() -> None:
    """As `DLRM_Net` makes them: two copies that the host waits for, and no inputs."""
    there, here = (
        perfc.analyze(
            perfc.load(f"dlrm-ddp:places={places}", batch=64), "v100", inputs="device"
        ).summary["launches"]
        for places in ("device", "host")
    )

    assert there + 2 == here


def _random_data(graph: Graph, batch: int) -> dict[str, Array]:
    """Make inputs and weights; bags of 4 lookups of the 50 rows."""
    rng = np.random.default_rng(0)
    data: dict[str, Array] = {}
    for value in (*graph.inputs, *graph.parameters):
        shape = _type(graph, value.name).bind({"batch": batch}).shape
        sizes = [size for size in shape if isinstance(size, int)]
        if value.name.startswith("indices"):
            data[value.name] = rng.integers(0, 50, sizes)
        elif value.name.startswith("offsets"):
            data[value.name] = np.arange(0, 4 * batch, 4)
        else:
            data[value.name] = rng.standard_normal(sizes).astype(np.float32) / 16
    return data


def test_parameters_change_the_model() -> None:
    """Tables, rows, columns and pooling are what the user asks for."""
    graph = _graph("dlrm-default:tables=3,rows=10,dim=16,pooling=7")
    bags = [node for node in graph if node.op == "embedding_bag"]

    assert 3 == len(bags)
    assert "{rows = 10, dim = 16, pooling = 7}" == str(
        bags[0].attributes.records("tables")[0]
    )
    assert BATCH * 7 == _type(graph, "indices_0").bind({"batch": BATCH}).numel


def test_more_tables_than_published_start_over() -> None:
    """The rows of Criteo are used again from the first table on."""
    graph = _graph("dlrm-mlperf:tables=27")
    first, last = _type(graph, "emb_l.0.weight"), _type(graph, "emb_l.26.weight")

    assert first == last


@pytest.mark.parametrize("text", ["dlrm-default:rows=1000000000000,dim=1000000000000"])
def test_refuses_what_overflows(text: str) -> None:
    """A table of more than 2**62 bytes is an error, not a number."""
    with pytest.raises(perfc.PerfcError, match="overflows"):
        perfc.load(text, batch=1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_known_in_full(name: str) -> None:
    """Its ops are all perfc's own, and every type is known."""
    graph = _graph(name)

    assert "unknown" not in {node.op for node in graph}
    assert [] == [v for v in graph.values() if v.type is None]


def _graph(text: str) -> Graph:
    graph = perfc.load(text, batch=BATCH).program.classes[0].ops
    assert graph is not None
    return graph


def _type(graph: Graph, name: str) -> TensorType:
    type_ = graph.value(name).type
    assert type_ is not None
    return type_


def _work(graph: Graph) -> list[tuple[str, Work]]:
    """Op and bound work of every node."""
    bindings = {
        name: BATCH for v in graph.inputs if v.type for name in v.type.symbols()
    }
    found: list[tuple[str, Work]] = []
    for node in graph:
        operands = [v.type.bind(bindings) for v in node.operands if v.type is not None]
        results = [v.type.bind(bindings) for v in node.results if v.type is not None]
        rule = BUILTIN_OPS[node.op].work
        found.append((node.op, rule(node.attributes, operands, results)))
    return found


def _totals(graph: Graph) -> dict[str, tuple[int, int, int]]:
    """Flops, bytes read and bytes written by op."""
    totals: dict[str, tuple[int, int, int]] = {}
    for op, work in _work(graph):
        flops, read, written = totals.get(op, (0, 0, 0))
        totals[op] = (
            flops + work.flops,
            read + work.bytes_read,
            written + work.bytes_written,
        )
    return totals
