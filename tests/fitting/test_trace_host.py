"""A host from traces: plain means, stalls set apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import AUTOGRAD, Made

from perfc.costmodels import load_profile
from perfc.costmodels.sheets import HostProfileError, parse_profile
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.trace_host import (
    Stall,
    fit_trace_host,
    host_times,
    op_name,
    session_sigma,
)
from perfc.traces import Recorded
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record


def _recorded(made: Made, tmp_path: Path) -> Recorded:
    return record(read_trace(made.write(tmp_path / "t.json")))


def _ops(*t2_us: float, name: str = "aten::mm") -> Made:
    """Make ops of one launch, one after another, each with its own T2."""
    made = Made()
    now = 0.0
    for us in t2_us:
        made.op(name, now, us + 8)
        made.launch(now + us, 4, now + us + 6, 2)
        now += us + 8 + 10
    return made


def test_a_heavy_tail_counts(tmp_path: Path) -> None:
    """The mean of all, not a median: an iteration takes their sum."""
    found = fit_trace_host(
        [_recorded(_ops(10, 10, 10, 90), tmp_path)], load_profile("shared")
    )

    assert found.profile.t2_s.of("aten::mm") == pytest.approx(30e-6)
    assert found.profile.t2_s.of("aten::other") == pytest.approx(30e-6)
    assert found.profile.t1_s == pytest.approx(10e-6)
    assert found.profile.calls_s.of("cudaLaunchKernel") == pytest.approx(4e-6)
    assert found.profile.sigma_scaled is None


def test_ops_share_one_time_if_asked(tmp_path: Path) -> None:
    """Without `per_op` a profile has the means of all ops."""
    trace = _recorded(_ops(10, 30), tmp_path)

    profile = fit_trace_host([trace], load_profile("shared"), per_op=False).profile

    assert profile.t2_s.named_s == {}
    assert profile.t2_s.default_s == pytest.approx(20e-6)


def test_backward_ops_are_known_by_their_nodes(tmp_path: Path) -> None:
    """Autograd's own name around a node is left out."""
    made = Made()
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    made.op(name, 0, 20, tid=AUTOGRAD)
    made.launch(5, 4, 12, 2, tid=AUTOGRAD)

    found = fit_trace_host([_recorded(made, tmp_path)], load_profile("shared"))

    assert found.profile.t2_s.named_s == {"AddmmBackward0": pytest.approx(5e-6)}


def _stalls(made: Made, tmp_path: Path) -> dict[Stall, int]:
    times = host_times(_recorded(made, tmp_path))
    return {time.stall: round(time.us) for time in times if time.stall is not None}


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
        ("ReluBackward", "ReluBackward0"),
        ("CudnnConvolutionBackward", "ConvolutionBackward0"),
        ("All2All_Pooled_WaitBackward", "All2All_Pooled_WaitBackward"),
        ("aten::linear", "aten::linear"),
    ],
)
def test_names_of_older_versions(recorded: str, name: str) -> None:
    """What PyTorch 1.9 calls a node is known by its name of today."""
    assert name == op_name(recorded)


def test_memory_from_the_driver_is_a_stall(tmp_path: Path) -> None:
    """`cudaMalloc` in an op is in none of its times."""
    made = Made()
    made.op("aten::empty", 0, 500)
    made.call("cudaMalloc", 10, 480)
    made.op("aten::mm", 510, 12)
    made.launch(514, 4, 520, 2)

    assert {Stall.ALLOCATOR: 480} == _stalls(made, tmp_path)


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_the_data_loader_is_a_stall(tmp_path: Path, category: str) -> None:
    """So is what runs in it, whether a trace has it as an op or as a label."""
    made = Made()
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    made.add(category, loader, 0, 9000)
    made.op("aten::mm", 9010, 12)
    made.launch(9014, 4, 9020, 2)

    assert {Stall.DATA_LOADER: 9000} == _stalls(made, tmp_path)


def test_the_first_use_of_a_library_is_a_stall(tmp_path: Path) -> None:
    """A first time that is out of all proportion; a later one is part of the tail."""
    assert {Stall.LAZY: 500_000} == _stalls(_ops(500_000, 10, 10), tmp_path)
    assert not _stalls(_ops(10, 500_000, 10), tmp_path)


def test_statistics_of_ddp_are_a_stall(tmp_path: Path) -> None:
    """Asking how long it was between two events waits for the second."""
    made = Made()
    made.op("aten::mm", 0, 12)
    made.launch(4, 4, 10, 2)
    made.call("cudaEventElapsedTime", 5000, 2)
    made.op("aten::mm", 9000, 12)
    made.launch(9004, 4, 9010, 2)

    assert {Stall.STATISTICS: 8988} == _stalls(made, tmp_path)


def test_a_slow_first_step_is_a_stall(tmp_path: Path) -> None:
    """It is left out if the others are alike and shorter."""
    made = Made()
    for number, (begin, length) in enumerate(((0, 900), (1000, 200), (1300, 200))):
        made.op(f"ProfilerStep#{number}", begin, length)
        made.op("aten::mm", begin + 5, length - 10)
        made.launch(begin + length - 50, 4, begin + length - 44, 2)
    trace = _recorded(made, tmp_path)

    times = host_times(trace)
    later = host_times(trace, steps=(1, 2))

    first = [time for time in times if time.stall is Stall.FIRST_STEP]
    assert 845 in [round(time.us) for time in first]
    assert not [time for time in later if time.stall is not None]


def test_a_profile_says_what_it_learnt(tmp_path: Path) -> None:
    """What is written is read again, hand-overs included."""
    made = Made()
    made.op("aten::mm", 0, 12)
    made.launch(4, 4, 10, 2)
    made.op("autograd::engine::evaluate_function: X", 100, 20, tid=AUTOGRAD)
    made.launch(105, 4, 111, 2, tid=AUTOGRAD)
    made.op("aten::mm", 200, 12)
    made.launch(204, 4, 210, 2)
    found = fit_trace_host([_recorded(made, tmp_path)], load_profile("shared")).profile
    head = ProfileHead(
        name="mine", source="a trace", date="2026-01-01", software="none"
    )

    again = parse_profile(profile_text(head, host=found), "mine.toml")

    assert again.between_s == pytest.approx({"hand_over": 88e-6, "hand_back": 80e-6})
    assert again.t2_s.named_s == pytest.approx(found.t2_s.named_s)
    assert again.calls_s.named_s == pytest.approx(found.calls_s.named_s)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            "{ lunch = 3.0 }",
            "unknown field 'between_us.lunch'; it has phase, hand_over",
        ),
        ("{ phase = -1.0 }", "between_us.phase = -1.0; expected microseconds"),
        ("3", "between_us = 3; expected a table"),
    ],
)
def test_times_between_ops_are_checked(
    tmp_path: Path, table: str, problem: str
) -> None:
    """A profile with nonsense in `between_us` is refused."""
    found = fit_trace_host([_recorded(_ops(10), tmp_path)], load_profile("shared"))
    head = ProfileHead(
        name="mine", source="a trace", date="2026-01-01", software="none"
    )
    text = profile_text(head, host=found.profile)
    text = text.replace("[host]\n", f"[host]\nbetween_us = {table}\n")

    with pytest.raises(HostProfileError, match="between_us") as caught:
        parse_profile(text, "mine.toml")

    assert problem in str(caught.value)


def test_a_wait_for_work_of_before_the_trace_is_a_stall(tmp_path: Path) -> None:
    """With nothing to wait for it takes a few us; 15 ms are a wait for something."""
    made = _ops(10, 10)
    made.call("cudaDeviceSynchronize", -20_000, 15_000)
    made.call("cudaDeviceSynchronize", -200, 5)

    times = host_times(_recorded(made, tmp_path))

    waits = {t.us: t.stall for t in times if t.name == "cudaDeviceSynchronize"}
    assert {15_000: Stall.UNSEEN, 5: None} == waits


def _steps(*host_us: float, hold_up_us: float = 0.0) -> Made:
    """Make steps of one op, which take the host so long."""
    made = Made()
    now = 0.0
    for number, us in enumerate(host_us):
        made.label(f"ProfilerStep#{number}", now, us)
        made.op("aten::mm", now, us)
        made.launch(now + us - 10, 4, now + us, 2)
        if number == 1 and hold_up_us:
            made.call("cudaMalloc", now + us + 1, hold_up_us)
            now += hold_up_us + 2
        now += us
    return made


def test_steps_tell_how_far_a_host_may_be_off(tmp_path: Path) -> None:
    """That is how far the host times of steps differ, 0.1 at least."""
    wide = session_sigma([_recorded(_steps(500, 1000, 500, 1000), tmp_path)])
    narrow = session_sigma([_recorded(_steps(1000, 1001, 1000), tmp_path)])
    one = session_sigma([_recorded(_steps(1000), tmp_path)])

    assert wide == pytest.approx(1 / 3, rel=0.02)
    assert 0.1 == narrow == one


def test_only_the_steps_that_are_asked_for_tell(tmp_path: Path) -> None:
    """Others may have been disturbed."""
    found = _recorded(_steps(1000, 1000, 1000, 5000), tmp_path)

    assert session_sigma([found]) > 0.5
    assert 0.1 == session_sigma([found], [0, 1, 2])


def test_a_host_that_was_held_up_is_not_another_host(tmp_path: Path) -> None:
    """Memory from the driver, and other stalls, do not count."""
    found = _recorded(_steps(1000, 1000, 1000, hold_up_us=5000), tmp_path)

    assert 0.1 == session_sigma([found])


def test_traces_tell_by_their_means(tmp_path: Path) -> None:
    """Of several runs the steps of each count as one."""
    slow = _recorded(_steps(1000, 1000), tmp_path)
    fast = _recorded(_steps(250, 750), tmp_path)

    assert session_sigma([slow, fast]) == pytest.approx(1 / 3, rel=0.02)
