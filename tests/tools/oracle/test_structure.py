"""Edits that change what is launched: fused, replaced, converted, placed, sharded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.oracle.test_oracle import CLOSE, MODELS, oracle_of

import perfc
from perfc import Oracle, PerfcError, edits
from perfc.passes.precision import ConvertDtype

BOTTOM = ["bot_l.0.linear", "bot_l.1.relu"]
SHARDED = "dlrm-ddp:tables=3,rows=1000"
RANKS: dict[str, Any] = {"batch": 64, "mode": "training", "ranks": 2}


def analyzed(name: str, **more: Any) -> float:
    """Return the time of the analysis of a model with more options."""
    model, target, options = MODELS[name]
    return perfc.analyze(model, target, **{**options, **more}).time_us


def pipeline(oracle: Oracle, *asked: Any) -> str:
    """Return the pipeline of the edited model."""
    return oracle.report(*asked).pipeline


@pytest.mark.parametrize("name", ["dlrm", "training", "cpu"])
def test_fused_and_replaced_ops_are_a_pass(name: str) -> None:
    """The pipeline that a report names gives the answer again."""
    oracle = oracle_of(name)
    for asked in (
        [edits.Fuse(BOTTOM)],
        [edits.Fuse(BOTTOM), edits.Replace("top_l*", us=40)]
        if name != "training"
        else [edits.Fuse(BOTTOM), edits.Replace(BOTTOM[1], us=40)],
        [edits.Bind(batch=24), edits.Fuse(BOTTOM)],
    ):
        report = oracle.report(*asked)
        model, target, options = MODELS[name]
        batch: dict[str, Any] = {"batch": report.model.batch}
        plain = perfc.load(model, **{**options, **batch})
        again = perfc.analyze(plain, target, pipeline=report.pipeline)

        assert "fuse-ops" in report.pipeline
        assert again.time_us == pytest.approx(oracle.ask(*asked), rel=CLOSE)


def test_a_fused_op_is_fused_further() -> None:
    """With all that it is made of, in any order of edits."""
    oracle = oracle_of("dlrm")
    at_once = oracle.ask(edits.Fuse(["bot_l.1.relu", "bot_l.2.linear", "bot_l.3.relu"]))
    stepwise = oracle.ask(
        edits.Fuse(["bot_l.1.relu", "bot_l.2.linear"]),
        edits.Fuse(["bot_l.2.linear", "bot_l.3.relu"]),
    )

    assert at_once == pytest.approx(stepwise, rel=CLOSE)


def test_one_kernel_is_replaced_by_a_duration() -> None:
    """The host does what it did; of several ops it has one call left."""
    oracle = oracle_of("dlrm")
    alone = oracle.ask(edits.Replace("bot_l.1.relu", us=9))

    expected = oracle.ask(edits.Duration("bot_l.1.relu", us=9))
    assert expected == pytest.approx(alone, rel=CLOSE)
    assert oracle.ask(edits.Replace("bot_l*", us=9)) < alone


@pytest.mark.parametrize("name", ["dlrm", "training"])
def test_the_dtype_of_a_layer(name: str) -> None:
    """As the model that is loaded with that part converted."""
    dtype = "fp16"
    model, target, options = MODELS[name]
    part = [ConvertDtype(dtype, where="bot_l.2")]
    expected = perfc.analyze(model, target, transforms=part, **options).time_us
    edit = edits.Dtype("bot_l.2", dtype)

    assert expected == pytest.approx(oracle_of(name).ask(edit), rel=CLOSE)
    both = oracle_of(name).ask(edit, edits.Dtype("bot_l.0", dtype))
    parts = [*part, ConvertDtype(dtype, where="bot_l.0")]
    expected = perfc.analyze(model, target, transforms=parts, **options).time_us
    assert expected == pytest.approx(both, rel=CLOSE)


def test_tables_are_sharded() -> None:
    """All of them, or one beside the others."""
    oracle = Oracle(SHARDED, "dgx-a100", **RANKS)
    for edit, plan in (
        (edits.Shard("*", "row-wise"), "row-wise"),
        (edits.Shard("emb_l.1", "table-wise"), "data-parallel;emb_l.1=table-wise"),
    ):
        text = f'shard-embeddings{{ranks=2,plan="{plan}"}}'
        expected = perfc.analyze(SHARDED, "dgx-a100", passes=[text], **RANKS).time_us

        assert expected == pytest.approx(oracle.ask(edit), rel=CLOSE)
    oracle.apply(edits.Shard("*", "table-wise"))
    text = 'shard-embeddings{ranks=2,plan="table-wise;emb_l.0=row-wise"}'
    expected = perfc.analyze(SHARDED, "dgx-a100", passes=[text], **RANKS).time_us
    assert expected == pytest.approx(
        oracle.ask(edits.Shard("emb_l.0", "row-wise")), rel=CLOSE
    )
    before = oracle.time_us
    oracle.apply(edits.Shard("*", "row-wise"))
    oracle.undo()
    assert before == oracle.time_us


def test_edits_of_every_kind_together() -> None:
    """Structure, sizes, target and durations, in one order or another."""
    oracle = oracle_of("dlrm")
    fuse, bind = edits.Fuse(BOTTOM), edits.Bind(batch=96)
    place, target = edits.Place("emb_l.0", "uvm"), edits.Target("h100")
    one = oracle.ask(fuse, bind, place, target)
    other = oracle.ask(target, place, bind, fuse)

    assert one == pytest.approx(other, rel=CLOSE)
    assert analyzed("dlrm") == oracle.time_us


def test_what_is_no_more_is_forgotten() -> None:
    """A duration of an op that is fused says nothing; others stay."""
    oracle = oracle_of("dlrm")
    gone = edits.Duration("bot_l.0.linear", us=1e4)
    stays = edits.Duration("top_l.0.linear", us=1e4)
    fuse = edits.Fuse(BOTTOM)

    assert oracle.ask(gone, fuse) == pytest.approx(oracle.ask(fuse), rel=CLOSE)
    assert oracle.ask(stays, fuse) == pytest.approx(oracle.ask(fuse, stays), rel=CLOSE)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (edits.Fuse(["bot_l.0.linear", "bot_l.3.relu"]), "runs between them"),
        (edits.Fuse(["no_such"]), "no_such"),
        (edits.Replace("no_such*", us=1), "no node, module or kernel"),
        (edits.Dtype("no_such", "fp16"), "no such module or node"),
        (edits.Dtype("bot_l.0", "amp-fp16"), "expected bf16 or fp16"),
        (edits.Dtype("bot_l.0", "fp32"), "expected bf16 or fp16"),
        (edits.Dtype("bot_l.0", "tf32"), "expected where='*'"),
        (edits.Shard("*", "row-wise"), "expected at least 2"),
    ],
)
def test_structure_that_cannot_be(asked: Any, said: str) -> None:
    """One line says what was found, and nothing is kept."""
    oracle = oracle_of("dlrm")
    before = oracle.time_us
    with pytest.raises(PerfcError, match=said) as caught:
        oracle.apply(asked)

    assert "\n" not in str(caught.value)
    assert before == oracle.time_us


def test_a_plan_of_no_table() -> None:
    """A table or a plan that is not there is named."""
    oracle = Oracle(SHARDED, "dgx-a100", **RANKS)
    for edit, said in (
        (edits.Shard("emb_l.9", "row-wise"), "no table 'emb_l.9'"),
        (edits.Shard("emb_l.0", "diagonal"), "no plan 'diagonal'"),
        (edits.Shard("*", "diagonal"), "neither a file nor one of"),
    ):
        with pytest.raises(PerfcError, match=said):
            oracle.ask(edit)
