"""Whole workloads of a collection: all are timed, then all are profiled."""

from __future__ import annotations

import importlib
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.collection.made_up import predicted
from tests.measure.fake_gpu import BUSY_US, FakeGpu, silent
from tests.measure.test_design import CPU, GPU

from perfc.measure.device import Device
from perfc.measurements import WORKLOADS, WorkloadMeasurement, read_rows

output: Any = importlib.import_module("collection.output")
parts: Any = importlib.import_module("collection.parts")
plan: Any = importlib.import_module("collection.plan")

MODELS = ("dlrm-ddp:tables=2,rows=50,dim=8", "deepfm")
PLAN = tuple(
    plan.Planned(model=model, batch=batch, mode="inference", runtime=runtime)
    for batch, model in enumerate(MODELS, 1)
    for runtime in ("eager", "cudagraph")
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Return a GPU that notes what is done on it."""
    return FakeGpu.installed(monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> Generator[Any]:
    """Return the folder of a collection."""
    opened = output.Output(tmp_path, "cuda")
    opened.open()
    yield opened
    opened.close()


def _run(made: Any, device: Device = GPU, planned: Sequence[Any] = PLAN) -> Any:
    return parts.Run(device, made, planned, silent, silent)


def _soon() -> float:
    return time.monotonic() + 600.0


def _rows(made: Any) -> list[WorkloadMeasurement]:
    return read_rows(made.table("workloads"), WORKLOADS)


def test_all_models_are_timed_before_any_is_profiled(
    gpu: FakeGpu,
    made: Any,
) -> None:
    """Eager ones first, which wait for the host, all in one table."""
    run = _run(made)
    parts.unprofiled(run, _soon())
    timed = _rows(made)
    parts.workloads(run, _soon())
    rows = _rows(made)

    assert [
        *(("time", batch, "eager") for batch in (1, 2)),
        *(("time", batch, "cudagraph") for batch in (1, 2)),
        *(("profile", b, r) for b in (1, 2) for r in ("eager", "cudagraph")),
    ] == gpu.done
    assert [None] * 4 == [row.gpu_active_us for row in timed]
    assert [BUSY_US] * 4 == [row.gpu_active_us for row in rows]
    assert [] == run.beside_profiler


def test_what_was_timed_beside_the_profiler_is_told(
    gpu: FakeGpu,
    made: Any,
) -> None:
    """Settings that the first part had no time for are timed later, and named."""
    first = _run(made, planned=PLAN[:3])
    parts.unprofiled(first, _soon())
    run = _run(made)
    parts.workloads(run, _soon())
    last = predicted.setting_text(_rows(made)[-1])

    assert [last] == run.beside_profiler == [str(PLAN[3])]
    assert 4 == len(_rows(made))
    assert ["time"] * 4 + ["profile"] * 4 == [what for what, _, _ in gpu.done]


def test_what_does_not_run_is_tried_once(
    gpu: FakeGpu,
    made: Any,
) -> None:
    """A later part of the same run knows, and the others are measured."""
    gpu.fails["time", 2] = RuntimeError("no luck")
    run = _run(made)
    parts.unprofiled(run, _soon())
    failures = [*run.failures]
    parts.workloads(run, _soon())

    assert 2 == len(failures)
    assert failures == run.failures
    assert [1, 1] == [row.batch for row in _rows(made)]


def test_a_cpu_profiles_at_once(
    gpu: FakeGpu,
    made: Any,
) -> None:
    """Nothing stays attached there: a model is made once, and its trace is kept."""
    run = _run(made, CPU, PLAN[::2])
    for part in (parts.unprofiled, parts.workloads):
        part(run, _soon())

    assert [("time", 1), ("profile", 1), ("time", 2), ("profile", 2)] == [
        (what, batch) for what, batch, _ in gpu.done
    ]
    assert [None, None] == [row.gpu_active_us for row in _rows(made)]
    assert [] == run.beside_profiler
