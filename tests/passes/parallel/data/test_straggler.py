"""A rank whose host stands still, and what the others make of it."""

from __future__ import annotations

from typing import Any

import pytest

import perfc
from perfc.ir import Program, UsageError
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_program
from perfc.passes import (
    Fsdp,
    Pass,
    PassManager,
    PipelineParallel,
    ShapeInference,
    TensorParallel,
)
from perfc.passes.parallel import DataParallel, Straggler
from perfc.tools import Report, load

MODEL = "dlrm-ddp:tables=2,rows=1000,embedding=bag"
LATE_US = 20e3
LATE = Straggler(2, LATE_US)


def report(*transforms: Pass, mode: str = "training", runtime: str = "eager") -> Report:
    """Analyze the model on four GPUs."""
    loaded = load(MODEL, batch=64, mode=mode, ranks=4, transforms=transforms)
    return perfc.analyze(loaded, "dgx-v100", runtime=runtime)


def host_us(found: Report, detail: str = Straggler.name) -> float:
    """Return what the breakdown says of the host."""
    rows = [r for r in found.breakdown if (r["kind"], r["detail"]) == ("host", detail)]
    total_us: float = sum(row["time_us"] for row in rows)
    return total_us


def by_rank(found: Report) -> dict[int, Any]:
    """Return the entry of each rank."""
    return {rank: entry for entry in found.ranks for rank in entry["ranks"]}


def ran(text: str, *passes: Pass) -> Program:
    """Run passes over a program."""
    return PassManager([ShapeInference(), *passes]).run(parse_program(text)).program


@pytest.mark.parametrize("runtime", ["eager", "compiled", "cudagraph"])
def test_the_others_wait(runtime: str) -> None:
    """They wait for as long as one is late, and all end late."""
    even, late = report(runtime=runtime), report(LATE, runtime=runtime)
    ranks = by_rank(late)

    assert [[0, 1, 3], [2]] == [entry["ranks"] for entry in late.ranks]
    assert LATE_US == pytest.approx(host_us(late))
    assert LATE_US == pytest.approx(late.time_us - even.time_us, rel=0.1)
    assert ranks[2]["late_us"] == pytest.approx(LATE_US, rel=0.1)
    assert ranks[0]["waiting_us"] == pytest.approx(ranks[2]["late_us"])
    assert 0 == ranks[2]["waiting_us"] == ranks[0]["late_us"]


def test_a_faster_host_stands_still_for_as_long() -> None:
    """What it waits for is no work of the host: it saves nothing to do it faster."""
    loaded = load(MODEL, batch=64, mode="training", ranks=4, transforms=(LATE,))
    late = perfc.analyze(loaded, "dgx-v100")
    fast = perfc.analyze(loaded, "dgx-v100", passes=("faster-host{times=1e9}",))

    assert LATE_US == pytest.approx(host_us(late)) == pytest.approx(host_us(fast))
    assert LATE_US < fast.time_us < late.time_us
    saved = late.what_if["host"]
    assert "all" in saved
    assert Straggler.name not in saved
    gained_us = late.time_us - fast.time_us
    assert gained_us == pytest.approx(saved["all"]["saved_if_free_us"], rel=0.01)


def test_only_the_late_rank_ends_late_in_an_inference() -> None:
    """Replicas never wait for each other."""
    even, late = report(mode="inference"), report(LATE, mode="inference")
    ranks = by_rank(late)

    assert ranks[0]["time_us"] == pytest.approx(even.time_us)
    assert ranks[2]["time_us"] == pytest.approx(even.time_us + LATE_US, rel=0.01)
    assert 0 == ranks[0]["waiting_us"]
    assert LATE_US == pytest.approx(host_us(late))


def test_no_time_changes_nothing() -> None:
    """A straggler of 0 us costs nothing: no T1, no T0."""
    assert report(Straggler(1, 0.0)).time_us == pytest.approx(report().time_us)


def test_the_same_again_is_the_same() -> None:
    """The last one says how long; others elsewhere add up."""
    again, other = Straggler(2, LATE_US), Straggler(2, 1e3, before="all_reduce")

    assert report(LATE).time_us == report(LATE, again).time_us
    assert report(LATE).time_us == report(Straggler(2, 7.0), LATE).time_us
    assert LATE_US + 1e3 == pytest.approx(host_us(report(LATE, other)))


def test_two_ranks_are_two_classes() -> None:
    """The later one decides, and the other waits for the rest of it."""
    found = by_rank(report(LATE, Straggler(0, LATE_US / 4)))

    assert 0 == found[2]["waiting_us"]
    less_us = found[1]["waiting_us"] - found[0]["waiting_us"]
    assert less_us == pytest.approx(LATE_US / 4, rel=0.1)
    assert found[1]["waiting_us"] == pytest.approx(LATE_US, rel=0.1)


@pytest.mark.parametrize(
    "sharing",
    [
        DataParallel(bucket_mb=1.0),
        Fsdp(4),
        TensorParallel(2),
        PipelineParallel(2, microbatches=2),
    ],
    ids=lambda sharing: sharing.name,
)
@pytest.mark.parametrize("first", [True, False])
def test_it_is_one_of_the_ranks_that_others_make(sharing: Pass, *, first: bool) -> None:
    """Wherever it is written it comes last, and holds up the step of all."""

    def analyzed(*transforms: Pass) -> Report:
        model = "gpt2:layers=2"
        loaded = load(model, batch=4, mode="training", ranks=4, transforms=transforms)
        return perfc.analyze(loaded, "dgx-v100")

    even = analyzed(sharing)
    late = analyzed(LATE, sharing) if first else analyzed(sharing, LATE)

    assert [2] in [entry["ranks"] for entry in late.ranks]
    assert [0, 1, 2, 3] == sorted(by_rank(late))
    assert late.time_us - even.time_us > LATE_US / 2


def test_before_a_collective_by_its_id() -> None:
    """It stands before the node that a report calls so, in its phase."""
    reduced = [n["id"] for n in report().nodes if n["op"] == "c10d::allreduce_"]
    loaded = load(
        MODEL,
        batch=64,
        mode="training",
        ranks=4,
        transforms=[Straggler(2, LATE_US, before=reduced[-1])],
    )
    found = perfc.analyze(loaded, "dgx-v100")
    nodes = [node["id"] for node in found.nodes if node["rank"] == 2]

    assert nodes.index(reduced[-1]) == nodes.index(f"{reduced[-1]}.straggler") + 1
    assert by_rank(found)[0]["waiting_us"] == pytest.approx(LATE_US, rel=0.1)


def test_a_replay_has_no_host_in_its_middle() -> None:
    """One line says so, and what to do."""
    late = Straggler(2, LATE_US, before="all_reduce")

    with pytest.raises(UnsupportedModelError, match="no host between them; put it at"):
        report(late, runtime="cudagraph")


def test_compiled_in_the_middle() -> None:
    """It stays where it is, and breaks no graph."""
    even = report(runtime="compiled")
    late = report(Straggler(2, LATE_US, before="all_reduce"), runtime="compiled")

    assert LATE_US == pytest.approx(host_us(late))
    assert LATE_US == pytest.approx(late.time_us - even.time_us, rel=0.1)


def test_a_launch_graph_is_refused() -> None:
    """There are no ops to stand between."""
    text = 'launches @g {\n  thread "main"\n}\n'

    with pytest.raises(UnsupportedModelError, match="g: a launch graph has no ops"):
        ran(text, Straggler(0, 1.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": -1, "us": 1.0}, "rank=-1 of straggler: expected 0 or more"),
        ({"rank": 0, "us": -1.0}, "us=-1 of straggler: expected 0 or more, and finite"),
        ({"rank": 0, "us": float("nan")}, "us=nan of straggler: expected 0 or more"),
        ({"rank": 0, "us": float("inf")}, "us=inf of straggler: expected 0 or more"),
        ({"rank": 4, "us": 1.0}, "rank=4 of straggler: dlrm-ddp runs on ranks 0 to 3"),
        (
            {"rank": 3, "us": 1.0, "before": "all_reduc"},
            "rank 3 has no op 'all_reduc' to stand before; did you mean 'all_reduce'?",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    """One clear line."""
    with pytest.raises(UsageError) as caught:
        report(Straggler(**options))

    assert str(caught.value).startswith(message)
