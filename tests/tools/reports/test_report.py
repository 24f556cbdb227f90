"""The report, `perfc.report/1`: keys, types, and what has to be equal."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, cast

import pytest

import perfc
from perfc.ir import LaunchGraph, TaskKind, single
from perfc.ir.choices import INPUTS
from perfc.tools.models.model import Model
from perfc.tools.reports.memory import MEMORY_KINDS

Schema: TypeAlias = Any
"""A type, a tuple of words, a list of one schema, or a dict of schemas; under the
key `*`, what every value is."""

ROUNDING = 1e-6
PROVENANCES = ("measured", "fitted", "analytic", "assumed")
BUFFERS = ("parameter", "constant", "library", "input", "activation", "scratch")
FACTORS = (
    *("kernel", "formula", "session", "board", "architecture"),
    *("clock", "host", "collective"),
)
KINDS = ("kernel", "host", "launch", "copy", "sync", "comm", "idle")
SCHEMA: Schema = {
    "schema": ("perfc.report/1",),
    "tool": {"name": ("perfc",), "version": (perfc.__version__,)},
    "model": {
        "name": str,
        "sha256": str,
        "mode": ("inference",),
        "batch": (int, type(None)),
        "replicas": int,
        "inputs_from": (*INPUTS, ""),
        "dtype": ("fp32", "tf32"),
        "inputs": {"*": str},
    },
    "target": {
        "name": str,
        "spec_sha256": str,
        "profile": str,
        "calibration": (str, type(None)),
        "usd_per_hour": (float, type(None)),
        "price_source": (str, type(None)),
        "g_per_kwh": type(None),
    },
    "runtime": ("eager",),
    "summary": {
        "time_us": float,
        "time_us_p05": float,
        "time_us_p95": float,
        "gpu_active_us": float,
        "gpu_idle_us": float,
        "host_us": float,
        "comm_us": float,
        "exposed_comm_us": float,
        "peak_memory_bytes": int,
        "flops": int,
        "bytes": int,
        "launches": int,
        "device_only_us": (float, type(None)),
        "samples_per_s": (float, type(None)),
        "usd_per_million_samples": (float, type(None)),
        "gco2e_per_million_samples": type(None),
        "tokens_per_s": type(None),
        "mfu": type(None),
        "energy_j": (float, type(None)),
        "samples_per_j": (float, type(None)),
        "sm_clock_mhz": (float, type(None)),
        "bound": ("host", "compute", "memory", "network"),
    },
    "ranks": [
        {
            "ranks": [int],
            "critical": bool,
            "time_us": float,
            "compute_us": float,
            "comm_us": float,
            "exposed_comm_us": float,
            "waiting_us": float,
            "late_us": float,
            "imbalance": float,
            "peak_memory_bytes": int,
        }
    ],
    "breakdown": [{"kind": KINDS, "detail": str, "time_us": float}],
    "nodes": [
        {
            "id": str,
            "op": str,
            "phase": ("forward",),
            "module": str,
            "source": str,
            "rank": int,
            "stream": str,
            "start_us": float,
            "duration_us": float,
            "duration_us_p05": float,
            "duration_us_p95": float,
            "flops": int,
            "bytes": int,
            "message_bytes": int,
            "cost_model": str,
            "provenance": PROVENANCES,
            "on_critical_path": bool,
            "slack_us": float,
            "fuses": [str],
            "operands": [str],
            "kernels": [str],
        }
    ],
    "critical_path": [
        {
            "kind": KINDS,
            "detail": str,
            "rank": int,
            "node": str,
            "start_us": float,
            "duration_us": float,
        }
    ],
    "memory": {
        "peak_bytes": int,
        "parameters_bytes": int,
        "activations_bytes": int,
        "gradients_bytes": int,
        "optimizer_bytes": int,
        "library_bytes": int,
        "reserved_bytes": int,
        "at_node": str,
        "at_phase": ("forward", ""),
        "by_kind": dict.fromkeys(MEMORY_KINDS, int),
        "live_at_peak": [{"name": str, "kind": BUFFERS, "bytes": int}],
    },
    "uncertainty": [
        {"factor": FACTORS, "shared_with": str, "sigma": float, "sigma_low": float}
    ],
    "phases": [
        {
            "phase": ("forward", ""),
            "time_us": float,
            "device_us": float,
            "host_us": float,
            "launches": int,
            "peak_memory_bytes": int,
        }
    ],
    "what_if": {
        "changes": [{"pass": str, "what": str, "saved_us": float}],
        "cuda_graph": {"*": float},
        "host": {"*": {"saved_2x_us": float, "saved_if_free_us": float}},
        "nodes": [
            {
                "id": str,
                "rank": int,
                "saved_2x_us": float,
                "saved_at_bound_us": float,
                "saved_host_2x_us": float,
            }
        ],
        "ranked": [
            {
                "kind": ("runtime", "host", "op", "data"),
                "what": str,
                "where": str,
                "reason": str,
                "nodes": [str],
                "saved_us": float,
                "saved_2x_us": (float, type(None)),
                "saved_at_bound_us": (float, type(None)),
            }
        ],
        "chunks": {
            "chunks": int,
            "copy_in_us": float,
            "compute_us": float,
            "copy_out_us": float,
            "overhead_us": float,
            "time_us": float,
            "saved_us": float,
        },
    },
    "coverage": {
        "ops": int,
        "unknown_ops": {"*": int},
        "flops_by_provenance": {"*": int},
        "bytes_by_provenance": {"*": int},
        "time_by_provenance": {"*": float},
        "time_by_weakest_constant": {"*": float},
    },
    "diagnostics": [
        {"level": ("note", "warning"), "code": str, "message": str, "where": str}
    ],
}
UNKNOWN = """graph @g(%x: f32[1024,1024]) {
  %a = unknown(%x) {op = "my::op"} : f32[1024,1024]
  %b = unknown(%a) {op = "my::op"} : f32[1024,1024]
  %h = relu(%b) : f32[1024,1024]
  return %h
}
"""
ROOT = Path(__file__).parents[3]


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _problems(schema: Schema, value: Any, where: str = "") -> list[str]:
    """Say in what *value* is not as *schema* has it."""
    if _is_list(schema):
        return _list_problems(schema, value, where)
    if _is_dict(schema):
        return _dict_problems(schema, value, where)
    words = cast(
        "tuple[object, ...]", schema if isinstance(schema, tuple) else (schema,)
    )
    if isinstance(value, float) and not math.isfinite(value):
        return [f"{where} is {value}"]
    if value in words or type(value) in words:
        return []
    return [f"{where} is {value!r}, expected {words}"]


def _list_problems(schema: list[Schema], value: object, where: str) -> list[str]:
    if not _is_list(value):
        return [f"{where} is no list"]
    problems: list[str] = []
    for number, item in enumerate(value):
        problems += _problems(schema[0], item, f"{where}[{number}]")
    return problems


def _dict_problems(schema: dict[str, Schema], value: object, where: str) -> list[str]:
    if not _is_dict(value):
        return [f"{where} is no object"]
    if "*" in schema:
        schema = dict.fromkeys(value, schema["*"])
    problems = [f"{where} lacks {key}" for key in schema if key not in value]
    problems += [f"{where} has {key}" for key in value if key not in schema]
    for key in schema.keys() & value.keys():
        problems += _problems(schema[key], value[key], f"{where}.{key}")
    return problems


@cache
def _load(name: str) -> Model:
    return perfc.load(name, batch=256)


CASES = (
    ("dlrm-ddp", "v100", "host-pinned"),
    ("dlrm-default", "t4", "host-pageable"),
    ("dlrm-default:embedding=batched", "h100", "device"),
    ("dlrm-mlperf", "a100", "host-pinned"),
    (str(ROOT / "examples" / "models" / "dlrm_mlperf.onnx"), "a100", "host-pinned"),
)
"""Models that are bound by the host, by the GPU, and by copies."""


@pytest.fixture(params=CASES, ids=lambda case: f"{Path(case[0]).name}-{case[1]}")
def report(request: pytest.FixtureRequest) -> Any:
    """The report of a model, as read back from its JSON."""
    name, target, inputs = request.param
    made = perfc.analyze(_load(name), target, inputs=inputs)
    return json.loads(made.to_json(), parse_constant=pytest.fail)


def test_schema(report: Any) -> None:
    """Every key is there, none besides, each of its type."""
    assert [] == _problems(SCHEMA, report)
    assert report["model"]["inputs_from"]


def test_the_schema_test_sees_problems() -> None:
    """The comparison above finds what is missing, too much, or of another type."""
    schema = {"a": int, "b": [{"c": ("x", "y")}], "d": {"*": float}}
    value = {"b": [{"c": "z"}], "d": {"k": math.nan}, "e": 1}

    assert [
        ".b[0].c is 'z', expected ('x', 'y')",
        ".d.k is nan",
        " has e",
        " lacks a",
    ] == sorted(_problems(schema, value), key=str.split)


def test_breakdown_sums_to_the_time(report: Any) -> None:
    """Every microsecond of the critical path is in one row, largest first."""
    times = [row["time_us"] for row in report["breakdown"]]

    assert report["summary"]["time_us"] == pytest.approx(math.fsum(times), rel=ROUNDING)
    assert sorted(times, reverse=True) == times
    rows = [(row["kind"], row["detail"]) for row in report["breakdown"]]
    assert len(set(rows)) == len(rows)


def test_breakdown_details(report: Any) -> None:
    """Host rows are T1 to T5, copies name their direction."""
    details = {"host": {"T1", "T2", "T3", "T4", "T5"}, "copy": {"h2d"}}

    for kind, known in details.items():
        found = {row["detail"] for row in report["breakdown"] if row["kind"] == kind}
        assert set() == found - known


def test_critical_path_is_contiguous(report: Any) -> None:
    """Each segment starts where the one before ends, from 0 to the time."""
    path = report["critical_path"]
    ends = [0.0]
    for segment in path:
        assert segment["start_us"] == pytest.approx(ends[-1], abs=1e-6)
        ends.append(segment["start_us"] + segment["duration_us"])

    assert report["summary"]["time_us"] == pytest.approx(ends[-1], rel=ROUNDING)
    assert all(segment["duration_us"] > 0 for segment in path)


def test_critical_path_names_nodes(report: Any) -> None:
    """Whatever is on the path is one of the nodes, and is marked there."""
    on_path = {segment["node"] for segment in report["critical_path"]}

    assert on_path == {n["id"] for n in report["nodes"] if n["on_critical_path"]}


def test_nodes(report: Any) -> None:
    """Names are unique; times lie in the iteration and in their intervals."""
    nodes, time_us = report["nodes"], report["summary"]["time_us"]

    assert len({node["id"] for node in nodes}) == len(nodes)
    for node in nodes:
        low_us, high_us = node["duration_us_p05"], node["duration_us_p95"]
        assert 0 <= low_us <= node["duration_us"] <= high_us
        assert 0 <= node["start_us"] <= time_us
        assert 0 <= node["slack_us"] <= time_us
        assert not node["on_critical_path"] or node["slack_us"] == 0


def test_interval(report: Any) -> None:
    """The time lies in its interval."""
    summary = report["summary"]

    assert 0 < summary["time_us_p05"] < summary["time_us"] < summary["time_us_p95"]


def test_summary_agrees_with_nodes(report: Any) -> None:
    """Work and launches are those of the nodes; busy and idle make the time."""
    summary, nodes = report["summary"], report["nodes"]

    for what in ("flops", "bytes"):
        assert sum(node[what] for node in nodes) == summary[what]
    busy_us = sum(node["duration_us"] for node in nodes if node["stream"])
    assert summary["gpu_active_us"] == pytest.approx(busy_us, rel=ROUNDING)
    assert summary["time_us"] == pytest.approx(
        summary["gpu_active_us"] + summary["gpu_idle_us"], rel=ROUNDING
    )


def test_coverage_agrees_with_the_summary(report: Any) -> None:
    """Flops, bytes and device time are split by provenance without a rest."""
    coverage, summary = report["coverage"], report["summary"]

    assert len(report["nodes"]) == coverage["ops"]
    for what in ("flops", "bytes"):
        assert sum(coverage[f"{what}_by_provenance"].values()) == summary[what]
    assert summary["gpu_active_us"] == pytest.approx(
        sum(coverage["time_by_provenance"].values()), rel=ROUNDING
    )


def test_memory(report: Any) -> None:
    """The peak is the sum of its parts, at one of the nodes."""
    memory = report["memory"]
    parts = ("parameters", "activations", "optimizer", "library")

    assert sum(memory[f"{part}_bytes"] for part in parts) == memory["peak_bytes"]
    assert memory["reserved_bytes"] >= memory["peak_bytes"]
    sizes = [b["bytes"] for b in memory["live_at_peak"] if b["kind"] == "activation"]
    assert sizes == sorted(sizes, reverse=True)
    assert memory["peak_bytes"] == report["summary"]["peak_memory_bytes"]
    assert memory["at_node"] in {node["id"] for node in report["nodes"]}


@pytest.mark.parametrize("name", ["dlrm-ddp", "dlrm-default"])
def test_json_is_deterministic(name: str) -> None:
    """Two analyses write the same bytes; keys are sorted."""
    first, second = (perfc.analyze(_load(name), "v100").to_json() for _ in range(2))

    assert first == second
    assert json.dumps(json.loads(first), indent=1, sort_keys=True) + "\n" == first


def test_unknown_ops_are_counted(tmp_path: Path) -> None:
    """Nothing is free: an unknown op has time, bytes, a wide interval, a remark."""
    path = tmp_path / "g.perfc"
    path.write_text(UNKNOWN)

    report = perfc.analyze(str(path), "v100").to_dict()

    assert [] == _problems(SCHEMA, report)
    assert {"my::op": 2} == report["coverage"]["unknown_ops"]
    relative: dict[str, float] = {}
    for node in report["nodes"]:
        if node["stream"]:
            width_us = node["duration_us_p95"] - node["duration_us_p05"]
            relative[node["id"]] = width_us / node["duration_us"]
    assert {"a", "b"} == {
        id_ for id_, w in relative.items() if w == max(relative.values())
    }
    (node,) = (node for node in report["nodes"] if node["id"] == "a")
    assert ("my::op", "assumed", 2 * 4 * 1024**2) == (
        node["op"],
        node["provenance"],
        node["bytes"],
    )
    assert [("warning", "unknown-op", "my::op")] == [
        (d["level"], d["code"], d["where"]) for d in report["diagnostics"]
    ]


def test_a_launch_graph_of_lone_tasks() -> None:
    """Tasks that state their time and belong to no op are nodes of their own."""
    graph = LaunchGraph("t")
    thread, stream = graph.thread(), graph.stream()
    call = graph.task(TaskKind.CALL, thread, stated_s=5e-6)
    graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=20e-6)
    program = single(graph)
    model = Model(program, perfc.load("dlrm-ddp", batch=1).annotations, program)

    report = perfc.analyze(model, "v100").to_dict()

    keys = ("id", "op", "stream", "cost_model", "provenance")
    assert [] == _problems(SCHEMA, report)
    assert [
        ("call#0", "call", "", "stated", "measured", 5.0),
        ("kernel#1", "kernel", "s0", "stated", "measured", 20.0),
    ] == [
        (*(n[key] for key in keys), round(n["duration_us"], 9)) for n in report["nodes"]
    ]
    assert ["call#0", "kernel#1", "kernel#1"] == [
        segment["node"] for segment in report["critical_path"]
    ]
    summary = report["summary"]
    assert summary["time_us"] == summary["time_us_p05"] == summary["time_us_p95"]
    assert "compute" == summary["bound"]
    assert report["model"]["batch"] is None
    assert not report["model"]["inputs_from"]


@pytest.mark.parametrize(
    ("target", "asked", "said"),
    [
        ("a100", "host-pageable", "host-pageable"),
        ("cpu", "host-pinned", "device"),
        ("cpu", "device", "device"),
    ],
)
def test_where_inputs_are(target: str, asked: str, said: str) -> None:
    """A CPU copies nothing, whatever is asked for."""
    model = perfc.load("dlrm-default:tables=2,rows=100", batch=8)
    report = perfc.analyze(model, target, inputs=asked)

    assert said == report.to_dict()["model"]["inputs_from"]
