"""Public traces, run again: how far the rules of time are right."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest

from perfc.costmodels import load_profile
from perfc.fitting.trace_host import fit_trace_host
from perfc.ir.launch import verify_launches
from perfc.tools.replay import occupancy, replay
from perfc.tools.replay.replay import replay_alone, replay_joint
from perfc.traces import Recorded
from perfc.traces.collectives import read_ranks
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACES = DATA / "traces"
PARAM = [f"dlrm_torchrec_8xV100_param/kineto_w{rank}" for rank in range(4)]
MEGATRON = [f"megatron_gpt_tp8_8xA100/kineto_r{rank}" for rank in range(4)]
TORCHREC = [
    [f"dlrm_torchrec_4xV100/torchrec_v100_a2a_{run}_r{rank}" for rank in range(4)]
    for run in (3, 5)
]
SINGLE = (
    *("linear_2080ti_param", "resnet50_v100_hta_ns"),
    *("resnet50_v100dgxs_tb_nw0_9861", "resnet50_v100dgxs_tb_nw4_6351"),
    *("tl_h100_Falconsai_nsfw_image_detection", "tl_h100_Qwen_Qwen1.5-0.5B-Chat"),
    *("tl_mi300_Falconsai_nsfw_image_detection", "ao_b200_syncless_ep_moe"),
)
SEVERAL = ("resnet50ddp_a100_hta_nccl", *MEGATRON)
CONTENDED = "dlrmprod_a100_hta_control"
"""Small kernels wait for large ones of another stream."""

pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the public traces are not here; set PERFC_DATA"
)


def _path(name: str) -> Path:
    return TRACES / f"{name}.json.gz"


def _recorded(name: str) -> Recorded:
    found = record(read_trace(_path(name)))
    verify_launches(found.graph)
    return found


@pytest.mark.parametrize("name", SINGLE)
def test_traces_of_one_stream(name: str) -> None:
    """With measured kernels the whole trace takes what it took, within 0.1 %."""
    (again,) = replay_alone([_recorded(name)])

    assert abs(again.error) < 0.001


@pytest.mark.parametrize(
    "name", [*SEVERAL, *PARAM, *TORCHREC[0], *TORCHREC[1], CONTENDED]
)
def test_traces_of_several_streams(name: str) -> None:
    """Which stream waits for which is guessed by rules; times only refute guesses."""
    (again,) = replay_alone([_recorded(name)])

    assert abs(again.error) < 0.005
    assert max(abs(step.error) for step in again.steps) < 0.01


def _nothing(*_: object) -> tuple[()]:
    return ()


@pytest.mark.parametrize("names", TORCHREC, ids=lambda n: n[0])
def test_the_room_that_collectives_find(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the blocks of kernels, without what the recording says of it, within 3 %."""
    monkeypatch.setattr(occupancy, "_measured", _nothing)
    monkeypatch.setattr(replay, "TIE_US", -1.0)
    ranks = read_ranks([_path(name) for name in names])

    for again in (replay_alone(ranks), replay_joint(ranks)):
        assert max(abs(one.error) for one in again) < 0.01
        assert max(abs(step.error) for one in again for step in one.steps) < 0.03


def test_streams_that_do_not_hinder_each_other() -> None:
    """Without contention the kernels that wait for room are too early."""
    found = [_recorded(CONTENDED)]
    (without,) = replay_alone(found, contention=False)

    assert -0.08 < without.error < -0.06


def test_steps_of_a_host_that_runs_ahead() -> None:
    """Cut by the device, which is never idle, all but the first take as long."""
    (again,) = replay_alone([_recorded("resnet50_v100_hta_ns")])

    lengths = [step.measured_us for step in again.steps[1:]]
    marked = [mark.end_us - mark.start_us for mark in again.recorded.steps[1:]]
    assert max(lengths) < 1.005 * min(lengths)
    assert max(marked) > 1.3 * min(marked)


@pytest.mark.parametrize("left_out", range(4))
def test_a_rank_with_the_host_of_the_others(left_out: int) -> None:
    """DLRM on eight V100: overheads of three ranks predict the fourth within 1.5 %."""
    ranks = [_recorded(name) for name in PARAM]
    own = ranks.pop(left_out)
    host = fit_trace_host(ranks, load_profile("shared")).profile

    (again,) = replay_alone([own], host)

    assert abs(again.error) < 0.015


@pytest.mark.parametrize("names", [PARAM, MEGATRON, *TORCHREC], ids=lambda n: n[0])
def test_ranks_together(names: list[str]) -> None:
    """Collectives begin when the last rank is there, and take what is left."""
    again = replay_joint(read_ranks([_path(name) for name in names]))

    assert max(abs(one.error) for one in again) < 0.005
    assert max(abs(step.error) for one in again for step in one.steps) < 0.01


@pytest.mark.parametrize(
    ("name", "count"),
    [(CONTENDED, 3), ("resnet50ddp_a100_hta_nccl", 1)],
)
def test_first_steps_predict_later_ones(name: str, count: int) -> None:
    """Of runs whose steps vary by less than 5 %, within 3 %."""
    found = _recorded(name)
    numbers = [step.number for step in found.steps]
    host = fit_trace_host([found], load_profile("shared"), numbers[:count]).profile

    (again,) = replay_alone([found], host, numbers[count:])

    lengths = [step.measured_us for step in again.steps]
    assert statistics.pstdev(lengths) / statistics.fmean(lengths) < 0.05
    assert abs(again.error) < 0.03
