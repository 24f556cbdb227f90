"""All strategies, and why some cannot be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfc
from perfc.ir import PerfcError
from perfc.passes.training import Training
from perfc.planning.strategies import Refused, Strategy, StrategySpace

SPACE = StrategySpace(ranks=8, gpus_per_node=8, tables=False, training=True, batch=64)


def _made(space: StrategySpace) -> list[Strategy]:
    return [one for one in space if isinstance(one, Strategy)]


def _refused(space: StrategySpace) -> list[Refused]:
    return [one for one in space if isinstance(one, Refused)]


@given(st.integers(1, 200), st.integers(1, 16), st.booleans(), st.booleans())
def test_every_factorisation_is_there_once(
    ranks: int,
    per_node: int,
    tables: bool,
    training: bool,
) -> None:
    """All products of replicas, ranks of a layer and stages, each a strategy once."""
    space = StrategySpace(
        ranks=ranks,
        gpus_per_node=per_node,
        tables=tables,
        training=training,
        batch=ranks * 12,
    )

    listed = _made(space)
    named = [str(one) for one in listed] + [
        str(one.strategy) for one in _refused(space)
    ]

    triples = {(one.replicas, one.tensor, one.stages) for one in listed}
    assert triples == {
        (ranks // (tensor * stages), tensor, stages)
        for tensor in range(1, ranks + 1)
        for stages in range(1, ranks + 1)
        if ranks % (tensor * stages) == 0
    }
    assert {1} == set(Counter(named).values())
    assert {ranks} == {one.ranks for one in listed}


def test_one_gpu_has_one_way() -> None:
    """Nothing is shared with nobody."""
    assert ["dp:1"] == [str(one) for one in attrs.evolve(SPACE, ranks=1)]


def test_an_inference_has_no_gradients_to_share() -> None:
    """`grad-op` and schedules of backward are of training."""
    found = _made(attrs.evolve(SPACE, training=False))

    assert {"dp", "fsdp"} == {one.data for one in found}
    assert {"1f1b"} == {one.schedule for one in found}


def test_hybrids_go_between_nodes() -> None:
    """There have to be two nodes, and two ranks of each that share."""
    assert not [one for one in _made(SPACE) if one.data == "fsdp-hybrid"]
    found = _made(attrs.evolve(SPACE, ranks=16))
    hybrid = {one.tensor for one in found if one.data == "fsdp-hybrid"}
    assert {1, 2, 4} == hybrid


def test_nodes_of_tables() -> None:
    """What shares rows inside nodes needs several."""
    one = {s.tables for s in _made(attrs.evolve(SPACE, tables=True))}
    two = {s.tables for s in _made(attrs.evolve(SPACE, tables=True, ranks=16))}

    assert {"dp", "table-wise", "row-wise", "column-wise"} == one
    assert {"table-row-wise", "grid"} == two - one


def test_batches_that_do_not_divide() -> None:
    """They are named, not left out."""
    space = attrs.evolve(SPACE, batch=12)

    reasons = {str(one.strategy): one.reason for one in _refused(space)}

    assert "a batch of 12 does not divide into 8 replicas" == reasons["dp:8"]
    assert "dp:4 tp:2" in {str(one) for one in _made(space)}
    parts = attrs.evolve(SPACE, microbatches=(3,))
    (reason,) = {one.reason for one in _refused(parts) if one.strategy.data == "dp"} - {
        "a batch of 32 does not divide into 3 microbatches",
        "a batch of 16 does not divide into 3 microbatches",
    }
    assert "a batch of 64 does not divide into 3 microbatches" == reason


def test_gradients_of_microbatches_are_added_up() -> None:
    """In every strategy that has no other number of microbatches."""
    space = attrs.evolve(SPACE, accumulate=4)

    assert {4} == {one.microbatches for one in _made(space)}
    chosen = attrs.evolve(space, microbatches=(2,))
    assert {(True, 2), (False, 4)} == {
        (one.stages > 1, one.microbatches) for one in _made(chosen)
    }
    assert "dp:8 mb:4" in {str(one) for one in _made(space)}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"training": False}, "an inference has no gradients to add up"),
        ({"batch": None, "fixed": 8}, "fixes the 8 samples of a microbatch"),
        ({"batch": 16}, "a batch of 2 does not divide into 4 microbatches"),
    ],
)
def test_microbatches_that_cannot_be(changed: dict[str, Any], reason: str) -> None:
    """The reason is said of each strategy."""
    space = attrs.evolve(SPACE, accumulate=4, **changed)

    reasons = {str(one.strategy): one.reason for one in _refused(space)}

    assert reason in reasons["dp:8 mb:4"]


def test_interleaved_stages_take_rounds_of_microbatches() -> None:
    """The search tries no others; who asks for them is told."""
    found = {
        (one.stages, one.microbatches, one.chunks)
        for one in _made(attrs.evolve(SPACE, microbatches=(2, 6, 8), batch=192))
        if one.schedule == "interleaved"
    }
    assert {(2, 2, 2), (2, 6, 2), (2, 8, 2), (4, 8, 2), (8, 8, 2)} == found
    asked = Strategy(replicas=2, stages=4, microbatches=6)
    (told,) = attrs.evolve(SPACE, batch=192).completed(
        asked, given=True, orders=(("interleaved", 3),)
    )
    assert isinstance(told, Refused)
    assert "interleaved takes a multiple of 4 microbatches" == told.reason
    assert "dp:2 pp:4 mb:6 interleaved:3" == str(told.strategy)


def test_a_batch_that_the_model_fixes() -> None:
    """It decides how many replicas share a batch."""
    space = attrs.evolve(SPACE, batch=16, fixed=8)

    assert {2} == {one.replicas for one in _made(space)}
    (reason,) = {one.reason for one in _refused(space) if one.strategy.data == "dp"}
    assert "the model fixes 8 samples of a replica" in reason


DLRM = "dlrm-ddp:tables=2,rows=1000"
GPT = "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101"


@pytest.mark.parametrize(
    ("model", "space", "error"),
    [
        (
            GPT,
            SPACE,
            "before other rewrites|fsdp comes before|takes one model on one GPU",
        ),
        (
            DLRM,
            attrs.evolve(SPACE, tables=True),
            "before other rewrites|fsdp comes before|takes one model on one GPU",
        ),
    ],
)
def test_what_is_ruled_out_cannot_be(
    model: str, space: StrategySpace, error: str
) -> None:
    """The passes themselves refuse what the space refuses."""
    refused = _refused(space)
    assert refused
    for one in refused:
        strategy = attrs.evolve(
            one.strategy, microbatches=one.strategy.microbatches or 1
        )
        staged = strategy.stages > 1
        passes = strategy.passes(8)
        early, late = (passes[:-1], passes[-1:]) if staged else (passes, [])
        with pytest.raises(PerfcError, match=error):
            perfc.load(
                model,
                batch=16,
                mode="training",
                ranks=8,
                transforms=[*early, Training(), *late],
            )
