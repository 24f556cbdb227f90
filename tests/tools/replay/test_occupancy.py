"""Which kernels of a trace leave those of other streams no room."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command
from tests.traces.synthetic import Made

from perfc.costmodels import load_target
from perfc.tools.replay.occupancy import full_shares, urgent_kernels
from perfc.tools.replay.replay import replay_alone
from perfc.traces import Recorded
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

V100 = "Tesla V100-SXM2-16GB"
BLOCKS = 80 * 8 * 5
"""Five waves of blocks of 256 threads, of which an SM of V100 holds eight."""


def _recorded(
    folder: Path, device: str = V100, *, label: str = "", stream: int = 20
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
    made.events[-1]["ts"] = 83
    made.events[-1]["dur"] = 10
    made.op("aten::mm", 0, 10)
    properties = [{"id": 0, "name": device}]
    path = made.write(folder / "trace.json", deviceProperties=properties)
    return record(read_trace(path))


def test_a_kernel_of_five_waves(tmp_path: Path) -> None:
    """It leaves room with its last wave; small ones always do."""
    found = _recorded(tmp_path)

    shares = full_shares(found)

    assert ["large"] == [found.works[task].name for task in shares]
    assert [0.8] == pytest.approx(list(shares.values()))


def test_a_small_kernel_waits_for_room(tmp_path: Path) -> None:
    """As it did when it was measured; without contention it begins at once."""
    found = _recorded(tmp_path)
    (small,) = (t for t, work in found.works.items() if work.name == "small")

    (waits,) = replay_alone([found])
    (alone,) = replay_alone([found], contention=False)

    assert waits.start_us[small] == pytest.approx(83.0, abs=0.5)
    assert alone.start_us[small] < 10


def test_on_another_gpu_its_own_room_counts(command: Command, tmp_path: Path) -> None:
    """On H100 the same blocks are four waves, so the small kernel begins earlier."""
    found = _recorded(tmp_path)
    (small,) = (t for t, work in found.works.items() if work.name == "small")
    path = str(tmp_path / "trace.json")
    options = ("--to", "h100", "--method", "wave", "--format", "json")

    assert [0.75] == pytest.approx(
        [*full_shares(found, load_target("h100").device).values()]
    )
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
    assert {} == full_shares(_recorded(tmp_path, device, stream=stream))


def test_a_stream_of_high_priority(tmp_path: Path) -> None:
    """TorchRec's distribution of sparse data does not wait for room."""
    label = "## start_sparse_data_dist ##"
    found = _recorded(tmp_path, label=label)

    names = {found.works[task].name for task in urgent_kernels(found)}
    (again,) = replay_alone([found])
    (small,) = (t for t, work in found.works.items() if work.name == "small")

    assert {"small"} == names
    assert again.start_us[small] < 10
