"""Where steps of a trace are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import Made

import perfc
from perfc.costmodels import load_target, target_names
from perfc.tools.replay.replay import Replayed, replay_alone
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

DEVICE_US = 500.0


def _ahead(count: int = 4) -> Made:
    """Make steps of which the host takes 100 us and the device 500."""
    made = Made()
    for number in range(count):
        begin = 100.0 * number
        made.label(f"ProfilerStep#{number}", begin, 100)
        made.op("aten::mm", begin + 10, 30)
        made.launch(begin + 20, 5, 30 + DEVICE_US * number, DEVICE_US)
    return made


def _replayed(made: Made, tmp_path: Path, *steps: int) -> Replayed:
    found = record(read_trace(made.write(tmp_path / "t.json")))
    (again,) = replay_alone([found], steps=steps or None)
    return again


def test_the_host_runs_ahead(tmp_path: Path) -> None:
    """A step takes what the device takes, not what the host took to launch it."""
    steps = _replayed(_ahead(), tmp_path).steps

    expected = [30 + DEVICE_US, *(3 * [DEVICE_US])]
    assert expected == pytest.approx([step.measured_us for step in steps])
    assert expected == pytest.approx([step.simulated_us for step in steps], rel=0.01)


def test_steps_add_up_to_all_that_ran(tmp_path: Path) -> None:
    """Cuts leave no time out, and count none twice."""
    again = _replayed(_ahead(), tmp_path)

    assert again.measured_us == pytest.approx(sum(s.measured_us for s in again.steps))


def test_the_device_works_all_through_a_step_cut_by_it(tmp_path: Path) -> None:
    """How long it works is counted between the same cuts."""
    again = _replayed(_ahead(), tmp_path, 2)

    assert again.measured_us == pytest.approx(DEVICE_US)
    assert again.gpu_active_us == pytest.approx(DEVICE_US, rel=0.01)


def test_a_host_that_is_slower_cuts_steps(tmp_path: Path) -> None:
    """Where the device waits for the host, steps are as the host marks them."""
    made = Made()
    for number in range(3):
        begin = 1000.0 * number
        made.label(f"ProfilerStep#{number}", begin, 1000)
        made.op("aten::mm", begin + 10, 30)
        made.launch(begin + 20, 5, begin + 30, 100)

    steps = _replayed(made, tmp_path).steps

    assert [1000, 1000, 1000] == [step.measured_us for step in steps]


def test_work_of_another_process_cuts_no_step(tmp_path: Path) -> None:
    """A rank that shares the file may be behind."""
    made = Made()
    for number in range(2):
        begin = 100.0 * number
        made.label(f"ProfilerStep#{number}", begin, 100)
        made.op("aten::mm", begin + 10, 30)
        made.launch(begin + 20, 5, begin + 30, 20)
    made.add("cuda_runtime", "cudaLaunchKernel", 5, 5, pid=200, correlation=99)
    made.work(99, 20, 900, stream=9)

    steps = _replayed(made, tmp_path).steps

    assert [100, 100] == [step.measured_us for step in steps]


def test_steps_that_do_not_follow_each_other(tmp_path: Path) -> None:
    """What the device and its host do is counted within each, and not between."""
    made = Made()
    for number, busy_us in enumerate((100, 300, 200)):
        begin = 1000.0 * number
        made.label(f"ProfilerStep#{number}", begin, 1000)
        made.op("aten::mm", begin + 10, 30)
        made.launch(begin + 20, 5, begin + 30, busy_us)

    again = _replayed(made, tmp_path, 0, 2)

    assert again.measured_us == pytest.approx(2000)
    assert again.gpu_active_us == pytest.approx(300, rel=0.01)
    assert sum(again.idle_us.values()) == pytest.approx(1700, rel=0.01)
    assert [(0, 1000), (2000, 3000)] == [pytest.approx(w) for w in again.windows_us]


@pytest.mark.parametrize(
    "target", [n for n in target_names() if not load_target(n).device.synchronous]
)
def test_a_prediction_is_replayed_exactly(target: str, tmp_path: Path) -> None:
    """A trace of a prediction has its launch latencies and gaps, however long."""
    for mode in ("inference", "training"):
        report = perfc.analyze("dlrm-ddp:tables=3", target, batch=256, mode=mode)
        report.to_trace(tmp_path / "t.json")
        (again,) = replay_alone([record(read_trace(tmp_path / "t.json"))])

        (step,) = again.steps
        assert report.time_us == pytest.approx(step.measured_us, abs=1e-2)
        assert report.time_us == pytest.approx(step.simulated_us, abs=1e-2)
