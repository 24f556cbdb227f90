"""On a GPU all settings are timed before the profiler runs, which slows the host."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from tests.measure.fake_gpu import BUSY_US, ITERATIONS, FakeGpu, silent
from tests.measure.test_design import GPU

from perfc.ir import PerfcError
from perfc.measure.fatal import DeviceFailedError
from perfc.measure.models import Setting, WorkloadRun, find_subject
from perfc.measure.profiled import Trace
from perfc.measurements import WORKLOADS, WorkloadMeasurement, read_rows

NET = """
import torch
from torch import nn

def net(batch=4):
    return nn.Linear(8, 8), (torch.rand(batch, 8),)
"""
TIMED = [("time", batch, "eager") for batch in (1, 2)]
PROFILED = [("profile", batch, "eager") for batch in (1, 2)]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Return a GPU that notes what is done on it."""
    return FakeGpu.installed(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where rows go, beside a model."""
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "rows.csv"


def _setting(batch: int, runtime: str = "eager") -> Setting:
    return Setting(
        batch=batch,
        mode="inference",
        optimizer="",
        dtype="fp32",
        runtime=runtime,
        inputs="device",
    )


def _run(path: Path, profiled: int = 2) -> WorkloadRun:
    subject = find_subject(f"{path.with_name('net.py')}:net")
    return WorkloadRun(GPU, subject, path, iterations=ITERATIONS, profiled=profiled)


BOTH = (_setting(1), _setting(2))


def _active(path: Path) -> list[float | None]:
    return [row.gpu_active_us for row in read_rows(path, WORKLOADS)]


def test_all_are_timed_before_any_is_profiled(gpu: FakeGpu, path: Path) -> None:
    """Rows are there at once, and say how long the GPU was busy later."""
    said: list[str] = []
    kept: list[tuple[WorkloadMeasurement, Trace]] = []
    run = _run(path)
    run.keep = lambda row, trace: kept.append((row, trace))
    run.measure(BOTH, said.append)

    assert TIMED + PROFILED == gpu.done
    assert [BUSY_US, BUSY_US] == _active(path)
    assert run.rows == read_rows(path, WORKLOADS) == [row for row, _ in kept]
    assert [2, 2] == [len(trace.walls_us) for _, trace in kept]
    assert [": 20 us (20 to 20, 7 iterations)", ": the GPU is busy for 5 us"] == [
        line.partition("eager")[2] for line in said[::2]
    ]


def test_what_is_complete_is_not_done_again(gpu: FakeGpu, path: Path) -> None:
    """The same command finds nothing to do; a new setting is timed and profiled."""
    _run(path).measure(BOTH, silent)
    rows = read_rows(path, WORKLOADS)
    gpu.done.clear()
    _run(path).measure(BOTH, silent)
    assert [] == gpu.done

    third = _setting(3, "cudagraph")
    _run(path).measure((*BOTH, third), silent)
    assert [("time", 3, "cudagraph"), ("profile", 3, "cudagraph")] == gpu.done
    assert rows == read_rows(path, WORKLOADS)[:2]


@pytest.mark.parametrize("step", [*TIMED, *PROFILED])
def test_a_run_that_was_interrupted_continues(
    gpu: FakeGpu, path: Path, step: tuple[str, int, str]
) -> None:
    """Wherever that was: no row is lost, none is doubled, nothing is done twice."""
    gpu.fails[step[:2]] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        _run(path).measure(BOTH, silent)
    gpu.fails.clear()
    _run(path).measure(BOTH, silent)

    assert sorted(TIMED + PROFILED) == sorted(gpu.done)
    assert [BUSY_US, BUSY_US] == _active(path)
    assert [1, 2] == [row.batch for row in read_rows(path, WORKLOADS)]
    assert [path] == list(path.parent.glob("rows*"))


def test_a_kill_before_a_trace_is_kept(gpu: FakeGpu, path: Path) -> None:
    """The row is not complete before: the setting is profiled again."""

    def killed(row: WorkloadMeasurement, trace: Trace) -> None:
        raise KeyboardInterrupt

    kept: list[int] = []
    run = _run(path)
    run.keep = killed
    with pytest.raises(KeyboardInterrupt):
        run.measure(BOTH[:1], silent)
    assert [None] == _active(path)

    run = _run(path)
    run.keep = lambda row, trace: kept.append(row.batch)
    run.measure(BOTH[:1], silent)
    assert [1] == kept
    assert [BUSY_US] == _active(path)


def test_without_profiled_iterations_nothing_is_profiled(
    gpu: FakeGpu, path: Path
) -> None:
    """A later run that asks for them completes the rows."""
    _run(path, profiled=0).measure(BOTH, silent)
    assert gpu.done == TIMED
    assert [None, None] == _active(path)

    _run(path).measure(BOTH, silent)
    assert TIMED + PROFILED == gpu.done


def test_times_alone(gpu: FakeGpu, path: Path) -> None:
    """Models of other runs can be timed before any of them is profiled."""
    run = _run(path)
    assert 2 == run.time(BOTH, silent)
    assert gpu.done == TIMED
    run.profile(BOTH, silent)
    assert TIMED + PROFILED == gpu.done


def test_no_setting_is_profiled_after_the_deadline(gpu: FakeGpu, path: Path) -> None:
    """Rows have their times then, and the same command profiles them."""
    run = _run(path)

    def late(line: str) -> None:
        if len(run.rows) == len(BOTH):
            run.deadline = 0.0

    run.measure(BOTH, late)
    assert gpu.done == TIMED
    assert [None, None] == _active(path)


def test_a_profiler_that_saw_nothing_says_nothing_of_the_gpu(
    gpu: FakeGpu, path: Path
) -> None:
    """A GPU that launched kernels was not busy for no time."""
    said: list[str] = []
    gpu.blind = True
    _run(path).measure(BOTH[:1], said.append)

    assert [None] == _active(path)
    assert said[-1].endswith("fp32, eager: the profiler saw no kernel")


def test_a_setting_that_cannot_be_profiled_keeps_its_times(
    gpu: FakeGpu, path: Path
) -> None:
    """That is said and noted, and the others are profiled."""
    said: list[str] = []
    gpu.fails["profile", 1] = RuntimeError("no luck")
    run = _run(path)
    run.measure(BOTH, said.append)

    assert [None, BUSY_US] == _active(path)
    ((setting, why),) = run.skipped
    assert (BOTH[0].batch, True) == (setting.batch, why.startswith("not profiled: "))
    assert "no luck" in said[2]


def test_rows_that_there_are_get_profiled_although_nothing_else_runs(
    gpu: FakeGpu, path: Path
) -> None:
    """What cannot be measured is an error only once all else is done."""
    _run(path, profiled=0).measure(BOTH[:1], silent)
    gpu.fails["time", 2] = RuntimeError("no luck")
    with pytest.raises(PerfcError, match=r"nothing could be measured; .*no luck"):
        _run(path).measure(BOTH, silent)

    assert [BUSY_US] == _active(path)


def test_what_made_the_gpu_fail_is_not_profiled_again(gpu: FakeGpu, path: Path) -> None:
    """Its row keeps its times; the run that continues profiles the others."""
    gpu.fails["profile", 1] = RuntimeError("illegal")

    def fails(line: str) -> None:
        gpu.lost = len(gpu.done) == len(BOTH)

    with pytest.raises(DeviceFailedError, match="same command continues"):
        _run(path).measure(BOTH, fails)
    gpu.lost = False
    said: list[str] = []
    _run(path).measure(BOTH, said.append)

    assert [None, BUSY_US] == _active(path)
    assert any("made the GPU fail: left out by" in line for line in said)


def test_rows_of_one_setting_that_were_put_together_are_kept(
    gpu: FakeGpu, path: Path
) -> None:
    """Two tables in one file: the first row of a setting is completed, none is lost."""
    _run(path, profiled=0).measure(BOTH, silent)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1], ""]))
    for _ in range(2):
        _run(path).measure(BOTH, silent)

    assert [BUSY_US, BUSY_US, None] == _active(path)
    assert TIMED + PROFILED == gpu.done


def test_a_row_keeps_its_times_when_it_is_completed(gpu: FakeGpu, path: Path) -> None:
    """Only how long the GPU was busy is added."""
    _run(path, profiled=0).measure(BOTH, silent)
    before = read_rows(path, WORKLOADS)
    _run(path).measure(BOTH, silent)

    assert read_rows(path, WORKLOADS) == [
        attrs.evolve(row, gpu_active_us=BUSY_US) for row in before
    ]
