"""Which kernels of a trace leave those of other streams no room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.command import Command
from tests.traces.synthetic import Made

from perfc.costmodels import load_target
from perfc.tools.replay.occupancy import full_share, rooms_of, urgent_kernels
from perfc.tools.replay.replay import replay_alone
from perfc.traces import Recorded
from perfc.traces.events import Shape
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

V100 = "Tesla V100-SXM2-16GB"
BLOCKS = 80 * 8 * 5
"""Five waves of blocks of 256 threads, of which an SM of V100 holds eight."""


def _recorded(
    folder: Path,
    device: str = V100,
    *,
    label: str = "",
    stream: int = 20,
    small_us: float = 83,
) -> Recorded:
    made = Made()
    if label:
        made.label(label, 4, 6)
    for at_us, of, name in ((0, 7, "large"), (5, stream, "small")):
        made.launch(at_us, 2, at_us + 3, 100, stream=of, name=name)
        made.events[-1]["args"] |= {
            "grid": [BLOCKS if name == "large" else 1, 1, 1],
            "block": [256, 1, 1],
            "registers per thread": 32,
        }
    made.events[-1]["ts"] = small_us
    made.events[-1]["dur"] = 10
    made.op("aten::mm", 0, 10)
    properties = [{"id": 0, "name": device}]
    path = made.write(folder / "trace.json", deviceProperties=properties)
    return record(read_trace(path))


def _tasks(found: Recorded) -> tuple[int, int]:
    """Return the large and the small kernel."""
    large, small = (
        next(t for t, work in found.works.items() if work.name == name)
        for name in ("large", "small")
    )
    return large, small


def test_a_kernel_of_five_waves(tmp_path: Path) -> None:
    """It leaves room with its last wave; small ones always do."""
    found = _recorded(tmp_path, small_us=250)
    large, small = _tasks(found)

    rooms = rooms_of(found)

    assert rooms is not None
    assert 0.8 == pytest.approx(rooms.share(large, small), abs=0.001)
    assert 0.0 == rooms.share(small, large)


DEVICE = load_target("v100").device
SMALL = Shape(1, 32, 16, 0)
NCCL = Shape(8, 544, 96, 47056)
"""A block of it finds room on an SM only if there is no other one with registers."""


@pytest.mark.parametrize(
    ("kernel", "other", "least", "most"),
    [
        (Shape(BLOCKS, 256, 32, 0), SMALL, 0.8, 0.801),
        (Shape(BLOCKS, 256, 32, 0), NCCL, 0.85, 0.95),  # the SM that is free first
        (Shape(BLOCKS - 80 * 8 + 1, 256, 32, 0), NCCL, 0.8, 0.8),  # most SMs are free
        (Shape(80 * 8, 256, 32, 0), NCCL, 1.0, 1.0),  # one wave ends at once
        (Shape(80, 256, 32, 0), SMALL, 0.0, 0.0),
        (Shape(80, 256, 32, 0), NCCL, 0.0, 0.0),
        (Shape(79, 1024, 64, 0), NCCL, 0.0, 0.0),  # one SM is free
        (Shape(80, 1024, 64, 0), NCCL, 1.0, 1.0),
    ],
)
def test_when_a_block_finds_room(
    kernel: Shape, other: Shape, least: float, most: float
) -> None:
    """When enough blocks of the last wave have ended on some SM."""
    assert least <= full_share(DEVICE, kernel, other) <= most


@given(
    st.builds(Shape, *(st.integers(1, n) for n in (10**5, 1024, 64, 40000))),
    st.builds(Shape, *(st.integers(1, n) for n in (10**5, 1024, 64, 40000))),
)
def test_larger_blocks_wait_longer(kernel: Shape, other: Shape) -> None:
    """And none longer than the kernel takes."""
    larger = attrs.evolve(other, threads=1024, registers=64, shared_bytes=40000)

    share = full_share(DEVICE, kernel, other)

    assert 0 <= share <= full_share(DEVICE, kernel, larger) <= 1


def test_a_small_kernel_waits_for_room(tmp_path: Path) -> None:
    """As it did when it was measured; without contention it begins at once."""
    found = _recorded(tmp_path)
    _, small = _tasks(found)

    (waits,) = replay_alone([found])
    (alone,) = replay_alone([found], contention=False)

    assert waits.start_us[small] == pytest.approx(83.0, abs=0.5)
    assert alone.start_us[small] < 10


def test_on_another_gpu_its_own_room_counts(command: Command, tmp_path: Path) -> None:
    """On H100 the same blocks are four waves, so the small kernel begins earlier."""
    found = _recorded(tmp_path)
    large, small = _tasks(found)
    path = str(tmp_path / "trace.json")
    options = ("--to", "h100", "--method", "wave", "--format", "json")

    rooms = rooms_of(found, load_target("h100").device)
    assert rooms is not None
    assert 0.75 == pytest.approx(rooms.share(large, small), abs=0.001)
    (other,) = replay_alone([found], device=load_target("h100").device)
    assert other.start_us[small] == pytest.approx(78.0, abs=0.5)
    (waits,) = command("rescale", path, *options).report["targets"]
    (not_,) = command("rescale", path, *options, "--no-contention").report["targets"]
    assert not_["predicted_us"] < waits["predicted_us"]


@pytest.mark.parametrize(
    ("device", "stream"), [("GPU of nobody", 20), (V100, 7), ("", 20)]
)
def test_nothing_is_guessed(device: str, stream: int, tmp_path: Path) -> None:
    """Of a device without a target, and of a single stream, no kernel is full."""
    assert rooms_of(_recorded(tmp_path, device, stream=stream)) is None


PROPERTIES = {
    "numSms": 80,
    "warpSize": 32,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 98304,
    "computeMajor": 7,
    "computeMinor": 0,
}


def test_a_gpu_that_perfc_does_not_know(tmp_path: Path) -> None:
    """The trace tells what an SM holds, as its driver did."""
    _recorded(tmp_path, "GPU of nobody")
    path = tmp_path / "trace.json"
    document = json.loads(path.read_text())
    document["deviceProperties"] = [{"id": 0, "name": "GPU of nobody", **PROPERTIES}]
    path.write_text(json.dumps(document))
    found = record(read_trace(path))
    _, small = _tasks(found)

    (waits,) = replay_alone([found])

    assert waits.start_us[small] == pytest.approx(83.0, abs=0.5)


def test_a_stream_of_high_priority(tmp_path: Path) -> None:
    """TorchRec's distribution of sparse data does not wait for room."""
    label = "## start_sparse_data_dist ##"
    found = _recorded(tmp_path, label=label)

    names = {found.works[task].name for task in urgent_kernels(found)}
    (again,) = replay_alone([found])
    _, small = _tasks(found)

    assert {"small"} == names
    assert again.start_us[small] < 10


GRID = {"block": [256, 1, 1], "registers per thread": 32}


def _launched(made: Made, at_us: float, work: tuple[float, float], **how: Any) -> None:
    """Add a kernel that begins and ends at *work*."""
    blocks = how.pop("blocks", BLOCKS)
    made.op("aten::mm", at_us, 8)
    made.launch(at_us + 1, 3, work[0], work[1] - work[0], **how)
    made.events[-1]["args"] |= GRID | {"grid": [blocks, 1, 1]}


def _written(made: Made, folder: Path) -> Recorded:
    properties = [{"id": 0, "name": V100}]
    path = made.write(folder / "trace.json", deviceProperties=properties)
    return record(read_trace(path))


def test_a_collective_waits_for_room(tmp_path: Path) -> None:
    """For the part of the kernel's time for which it did."""
    made = Made()
    _launched(made, 0, (10, 510), name="large")
    made.op("record_param_comms", 20, 10)
    _launched(made, 21, (450, 500), name="ncclAllReduce", stream=20, blocks=8)
    found = _written(made, tmp_path)
    large, sent = found.works

    (again,) = replay_alone([found])
    (shorter,) = replay_alone([found], kernels=[{large: 50e-6}])
    (alone,) = replay_alone([found], contention=False)

    assert again.start_us[sent] == pytest.approx(450, abs=0.5)
    assert alone.start_us[sent] < 40
    assert shorter.start_us[sent] == pytest.approx(10 + 0.88 * 50, abs=1)


def test_a_kernel_that_another_one_joined(tmp_path: Path) -> None:
    """It had handed out its blocks at the pace of equal ones that ran alone."""
    made = Made()
    for number in range(4):
        _launched(made, 20 * number, (110 * number + 50, 110 * number + 150), name="a")
    _launched(made, 90, (490, 640), name="a")
    _launched(made, 110, (800, 810), name="small", stream=20, blocks=1)
    made.op("aten::mm", 130, 8)
    made.launch(131, 3, 575, 60, stream=22, name="joins")
    found = _written(made, tmp_path)
    tasks = {t: work for t, work in found.works.items() if work.name == "a"}
    *equal, joined = tasks
    small = next(t for t, work in found.works.items() if work.name == "small")

    rooms = rooms_of(found)

    assert rooms is not None
    assert {joined: pytest.approx(100 / 150)} == rooms.alone
    assert rooms.share(joined, small) == pytest.approx(
        rooms.share(equal[1], small) * 100 / 150
    )


def test_of_two_that_come_at_once_the_recorded_one_is_first(tmp_path: Path) -> None:
    """Whoever comes a microsecond earlier has all the room for a long time."""
    made = Made()
    for number in range(5):  # kernels follow each other after 1 us
        at_us = 100 + 101 * number
        _launched(made, 10 * number, (at_us, at_us + 100), name="a", blocks=80)
    made.op("record_param_comms", 50, 20)
    how = {"name": "ncclAllReduce", "stream": 20, "blocks": 8}
    _launched(made, 51, (607, 657), **how)  # this time later than the collective
    _launched(made, 70, (609, 1109), name="large")
    found = _written(made, tmp_path)
    sent, large = [*found.works][-2:]

    (again,) = replay_alone([found])

    assert found.start_us[sent] < found.start_us[large]
    assert again.start_us[sent] <= again.start_us[large]
