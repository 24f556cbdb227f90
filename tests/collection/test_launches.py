"""`launches.parquet`: what the device did, by workload, iteration and op."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from perfc.ir import PerfcError, Record
from perfc.measurements import MeasurementError, WorkloadMeasurement

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
launches: Any = importlib.import_module("collection.launches")
tables: Any = importlib.import_module("collection.tables")

MAIN, BACKWARD, DEVICE = (1, 10), (1, 11), (0, 7)
ZERO = 4_000_000_000_000.0
"""Traces count from the start of the machine, or of the epoch."""


def event(
    category: str,
    name: str,
    start: float,
    length: float,
    where: tuple[int, int] = MAIN,
    **args: int,
) -> dict[str, object]:
    """Make an event of a Kineto trace."""
    span = {"ts": ZERO + start, "dur": length, "pid": where[0], "tid": where[1]}
    return {"ph": "X", "cat": category, "name": name, **span, "args": args}


def launched(
    start: float, correlation: int, begins: float, name: str = "gemm"
) -> list[dict[str, object]]:
    """Make a launch and its kernel of 5 us."""
    runtime = event(
        "cuda_runtime", "cudaLaunchKernel", start, 2, correlation=correlation
    )
    args = {"correlation": correlation, "stream": 7}
    return [runtime, event("kernel", name, begins, 5, DEVICE, **args)]


def workload(**changes: object) -> Any:
    """Describe a workload."""
    given: dict[str, object] = {
        "model": "dlrm-ddp",
        "params": Record({"rows": 1000, "places": "host"}),
        "batch": 2048,
        "mode": "training",
        "runtime": "eager",
        "dtype": "fp32",
        "optimizer": "sgd",
    }
    return launches.Workload(**{**given, **changes})


def brief(found: list[Any]) -> list[tuple[object, ...]]:
    """Return the cells that tell launches of these tests apart."""
    return [
        (x.iteration, x.start_us, x.launched_us, x.op, x.kernel, x.correlation)
        for x in found
    ]


MARKS = [
    event("user_annotation", "ProfilerStep#0", 0, 100),
    event("user_annotation", "ProfilerStep#1", 100, 100),
    event("gpu_user_annotation", "ProfilerStep#1", 50, 100, DEVICE),
]


def test_ops_of_eager_launches() -> None:
    """The outermost op counts, on the thread that launched; autograd's are none."""
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    copied = {"correlation": 5, "stream": 8}
    events = [
        *MARKS,
        event("cpu_op", "aten::linear", 10, 10),
        event("cpu_op", "aten::addmm", 11, 8),
        *launched(12, 3, 30),
        event("cpu_op", node, 110, 30, BACKWARD),
        event("cpu_op", "AddmmBackward0", 111, 20, BACKWARD),
        event("cpu_op", "aten::mm", 112, 6, BACKWARD),
        event("cuda_runtime", "cudaLaunchKernelExC", 113, 3, BACKWARD, correlation=4),
        event("cuda_driver", "cuLaunchKernelEx", 114, 1, BACKWARD, correlation=4),
        event("kernel", "dgrad", 120, 5, DEVICE, correlation=4, stream=7),
        event("cuda_runtime", "cudaMemcpyAsync", 125, 3, BACKWARD, correlation=5),
        event("gpu_memcpy", "Memcpy DtoD", 130, 2, DEVICE, **copied),
    ]

    found = launches.launches_of(events)

    assert [
        (0, 30.0, 12.0, "aten::linear", "gemm", 3),
        (1, 20.0, 13.0, "aten::mm", "dgrad", 4),
        (1, 30.0, 25.0, "", "Memcpy DtoD", 5),
    ] == brief(found)
    assert [(7, 5.0, "kernel"), (7, 5.0, "kernel"), (8, 2.0, "gpu_memcpy")] == [
        (x.stream, x.duration_us, x.category) for x in found
    ]


def test_replays_of_graphs() -> None:
    """Kernels of a graph share the call that launched it, and are of no op."""
    args = {"correlation": 9, "stream": 20}
    events = [
        *MARKS,
        event("cuda_runtime", "cudaGraphLaunch", 105, 4, correlation=9),
        event("kernel", "second", 130, 6, DEVICE, **args),
        event("kernel", "first", 120, 6, DEVICE, **args),
        event("gpu_memset", "Memset (Device)", 118, 1, DEVICE, **args),
    ]

    assert [
        (1, 18.0, 5.0, "", "Memset (Device)", 9),
        (1, 20.0, 5.0, "", "first", 9),
        (1, 30.0, 5.0, "", "second", 9),
    ] == brief(launches.launches_of(events))


def test_work_without_a_launch() -> None:
    """It is of the iteration that it began in; outside of all it is left out."""
    events = [
        *MARKS,
        event("kernel", "lost", 150, 5, DEVICE, correlation=77, stream=7),
        event("kernel", "bare", 160, 5, DEVICE),
        event("kernel", "early", -5, 5, DEVICE, correlation=78, stream=7),
        event("kernel", "late", 201, 5, DEVICE, correlation=79, stream=7),
        *launched(-20, 80, 10, "of the warm-up"),
        *launched(2, 81, -3, "by a clock that is behind"),
    ]

    assert [
        (0, -3.0, 2.0, "", "by a clock that is behind", 81),
        (1, 50.0, None, "", "lost", 77),
        (1, 60.0, None, "", "bare", None),
    ] == brief(launches.launches_of(events))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_table_that_is_opened_again(tmp_path: Path, suffix: str) -> None:
    """It has what it had, grows, and has a workload once, as last traced."""
    path = tmp_path / f"launches{suffix}"
    one, other = workload(), workload(mode="inference", optimizer="")
    first = launches.LaunchTable(path)
    assert 1 == first.add(one, [*MARKS, *launched(12.125, 3, 30.5, "k" * 300)])
    first.write()

    second = launches.LaunchTable(path)
    lost = event("kernel", "lost", 150, 0.1, DEVICE)
    assert 2 == second.add(other, [*MARKS, lost, *launched(1, 4, 10)])
    second.write()
    third = launches.read_launches(path)

    assert (one, other) == third.workloads
    assert 3 == len(third)
    assert [(0, 30.5, 12.125, "", "k" * 200, 3)] == brief(third.launches(one))
    assert [
        (0, 10.0, 1.0, "", "gemm", 4),
        (1, 50.0, None, "", "lost", None),
    ] == brief(third.launches(other))
    assert 0 == third.add(one, [])  # a trace without device work takes nothing away
    assert 1 == third.add(one, [*MARKS, *launched(1, 5, 20)])
    assert [(0, 20.0, 1.0, "", "gemm", 5)] == brief(third.launches(one))


def test_tables_of_another_format(tmp_path: Path) -> None:
    """Each is refused with its name and what was expected."""
    path = tmp_path / "launches.parquet"
    other = tables.Format("perfc.sustained/1", launches.LAUNCHES.fields)
    tables.write_table(path, other, other.pack([]))
    plain = tmp_path / "launches.csv"
    plain.write_text("model,params\n")
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(path.read_bytes()[:100])
    texts = tmp_path / "texts.csv"
    header = ",".join(field.name for field in launches.LAUNCHES.fields)
    texts.write_text(f"{header}\n{','.join('x' * 17)}\n")

    for wrong, said in (
        (path, "found one in perfc.sustained/1"),
        (plain, "no column batch"),
        (torn, "expected a table in perfc.launches/1"),
        (texts, "'x'"),
        (tmp_path / "none.parquet", "No such file"),
    ):
        with pytest.raises(MeasurementError, match=said) as raised:
            launches.read_launches(wrong)
        assert str(wrong) in str(raised.value)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are CSV; one that is there keeps its kind, and Parquet is an error."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(tables, "find_spec", dict[str, object]().get)
    table = launches.LaunchTable(tables.table_path(tmp_path, "launches"))
    table.add(workload(), [*MARKS, *launched(1, 3, 2)])
    table.write()
    assert tmp_path / "launches.csv" == table.path

    monkeypatch.setattr(tables, "find_spec", {"pyarrow": object()}.get)
    assert table.path == tables.table_path(tmp_path, "launches")
    assert tmp_path / "x.parquet" == tables.table_path(tmp_path, "x")
    table.path = tmp_path / "launches.parquet"
    with pytest.raises(PerfcError, match="Parquet needs pyarrow"):
        table.write()
    assert [tmp_path / "launches.csv"] == [*tmp_path.iterdir()]


def test_a_workload_of_a_row() -> None:
    """It has the fields that rows of `workloads.parquet` have."""
    row = WorkloadMeasurement(
        target="h100-sxm-80g",
        model="dlrm-ddp",
        params=Record({"rows": 1000, "places": "host"}),
        mode="training",
        runtime="eager",
        dtype="fp32",
        batch=2048,
        time_us=900.0,
        optimizer="sgd",
        attention="flash",
    )

    assert workload(attention="flash") == launches.Workload.of(row)
