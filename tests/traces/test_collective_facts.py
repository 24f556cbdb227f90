"""What traces tell of their collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.traces.synthetic import Made

from perfc.ir import DTYPES
from perfc.traces.collective_facts import kind_of, known_collectives, stated_collective
from perfc.traces.events import CollectiveFacts
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

LIST: list[int] = []
"""What older profilers say of a list of tensors."""

STATED: dict[str, Any] = {
    "Collective name": "allreduce",
    "In msg nelems": 100,
    "Out msg nelems": 100,
    "Group size": 4,
    "dtype": "Float",
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("alltoall_base", "all_to_all"),
        ("broadcast", "broadcast"),
        ("send 0->1", "send_recv"),
        ("wait", ""),
        ("init", ""),
        ("barrier", ""),
        ("", ""),
    ],
)
def test_names_of_calls(name: str, kind: str) -> None:
    """Spellings of years; calls that send nothing are none."""
    assert kind == kind_of(name)


def test_what_an_event_states() -> None:
    """Bytes are of the larger side; neighbours may be apart."""
    gathered = STATED | {
        "Collective name": "_allgather_base",
        "Out msg nelems": 400,
        "dtype": "BFloat16",
        "Global rank stride": 8,
    }

    assert CollectiveFacts("all_reduce", 400, DTYPES["f32"], 4) == stated_collective(
        STATED
    )
    assert CollectiveFacts(
        "all_gather", 800, DTYPES["bf16"], 4, 8
    ) == stated_collective(gathered)


@pytest.mark.parametrize(
    "changed",
    [
        {"Collective name": "barrier"},
        {"dtype": "Int128"},
        {"Group size": 0},
        {"Group size": True},
        {"In msg nelems": "many"},
        {"In msg nelems": 0},
        {"In msg nelems": -5},
    ],
)
def test_what_states_too_little(changed: dict[str, Any]) -> None:
    """Nothing is invented for what is missing or cannot be."""
    assert stated_collective(STATED | changed) is None


def _labelled(name: str, dims: object, types: object) -> Made:
    made = Made()
    made.add("user_annotation", name, 0, 50)
    made.events[-1]["args"] |= {"Input Dims": dims, "Input type": types}
    made.launch(10, 5, 20, 100, name="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t")
    return made


def _facts(made: Made, tmp_path: Path, **header: object) -> list[CollectiveFacts]:
    path = made.write(tmp_path / "t.json", **header)
    return [*known_collectives(record(read_trace(path))).facts.values()]


def test_a_label_tells_of_older_collectives(tmp_path: Path) -> None:
    """What is sent is the label's shape, the group all ranks."""
    world = {"distributedInfo": {"rank": 0, "world_size": 8}}
    made = _labelled("nccl:all_to_all", [[6144]], ["float"])
    gather = _labelled("nccl:_all_gather_base", [[10]], ["c10::Half"])

    assert [CollectiveFacts("all_to_all", 24576, DTYPES["f32"], 8)] == _facts(
        made, tmp_path, **world
    )
    assert [CollectiveFacts("all_gather", 160, DTYPES["f16"], 8)] == _facts(
        gather, tmp_path, **world
    )


@pytest.mark.parametrize(
    ("name", "dims", "types", "world"),
    [
        ("nccl:all_to_all", [[6144]], ["float"], None),
        ("nccl:all_to_all", [[6144]], ["float"], 1),
        ("nccl:all_to_all", [[0]], ["float"], 8),
        ("nccl:all_to_all", [LIST], ["TensorList"], 8),
        ("nccl:coalesced", [[6144]], ["float"], 8),
        ("others", [[6144]], ["float"], 8),
    ],
)
def test_a_label_that_tells_too_little(
    tmp_path: Path, name: str, dims: object, types: object, world: int | None
) -> None:
    """Without the size, the kind or the ranks nothing is known."""
    header = {} if world is None else {"distributedInfo": {"world_size": world}}
    made = _labelled(name, dims, types)
    path = made.write(tmp_path / "t.json", **header)

    known = known_collectives(record(read_trace(path)))

    assert {} == known.facts
    assert 1 == len(known.unknown)


def test_a_point_to_point_label_is_of_two(tmp_path: Path) -> None:
    """A send has one peer, whatever the world is."""
    made = _labelled("nccl:send 0->3", [[16]], ["float"])
    world = {"distributedInfo": {"rank": 0, "world_size": 8}}

    assert [CollectiveFacts("send_recv", 64, DTYPES["f32"], 2)] == _facts(
        made, tmp_path, **world
    )
