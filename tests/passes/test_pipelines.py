"""Pipelines: transforms stand where their phases and what they say put them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import Program
from perfc.ir.support import PassContractError, PipelineError
from perfc.passes import Pass, PassContext, Transform
from perfc.passes.base import Phase
from perfc.passes.pipeline_spec import format_pipeline, parse_pipeline
from perfc.passes.pipelines import (
    FRONT,
    arranged,
    check_order,
    completed,
    loading_pipeline,
    runtime_of,
    trains,
    with_backward,
)
from perfc.passes.training import Training

TRAINING = Training()


def _transform(
    title: str,
    *,
    where: Phase = Phase.AFTER_BACKWARD,
    after: Sequence[str] = (),
    before: Sequence[str] = (),
) -> Pass:
    """Make a transform that says where it belongs, and does nothing."""
    declared = {
        "name": title,
        "phase": where,
        "runs_after": frozenset(after),
        "runs_before": frozenset(before),
    }

    def run(self: Pass, program: Program, ctx: PassContext) -> None:
        """Change nothing."""

    made: type[Pass] = type("Made", (Transform,), {**declared, "run": run})
    return made()


def _names(passes: Sequence[Pass]) -> list[str]:
    return [p.name for p in passes]


def test_the_backward_pass_is_derived_between_phases() -> None:
    """What changes forward comes before it, all else after it, in the order given."""
    given_ = parse_pipeline(
        "checkpoint-activations,set-popularity,data-parallel{ranks=2},batch-embeddings"
    )

    assert [
        *("set-popularity", "batch-embeddings", "training"),
        *("checkpoint-activations", "data-parallel"),
    ] == _names(with_backward(given_, TRAINING))


def test_a_transform_stands_between_those_that_it_names() -> None:
    """Wherever a user puts it, and whatever its phase is."""
    mine = _transform("mine", after=["set-popularity"], before=["batch-embeddings"])
    others = parse_pipeline("batch-embeddings,set-popularity")

    for place in range(3):
        passes = [*others[:place], mine, *others[place:]]
        assert ["set-popularity", "mine", "batch-embeddings"] == _names(
            completed(passes)
        )


def test_a_source_transform_takes_its_place_in_the_front() -> None:
    """Between two built-in passes that it names; another of its phase comes first."""
    source = Phase.SOURCE
    mine = _transform("mine", where=source, after=["fold-shapes"])
    first = _transform("first", where=source)

    names = _names(loading_pipeline([mine, first]))

    front = FRONT.split(",")
    assert ["first", *front[:4], "mine", *front[4:]] == names


def test_a_built_in_source_pass_is_set_where_it_stands() -> None:
    """Its options are those given; it does not run twice."""
    given_ = parse_pipeline("raise-norm{spelled-out=false}")

    found = format_pipeline(loading_pipeline(given_))

    assert FRONT.replace("raise-norm", "raise-norm{spelled-out=false}") == found


def test_types_are_inferred_after_what_changes_them() -> None:
    """And not after transforms that preserve them."""
    given_ = parse_pipeline("batch-embeddings,set-popularity")

    names = _names(loading_pipeline(given_, recorded=True))

    assert [
        *("shape-inference", "batch-embeddings", "shape-inference"),
        "set-popularity",
    ] == names


def test_a_whole_pipeline_stays_as_it_is() -> None:
    """What infers types itself is not completed."""
    text = "shape-inference,raise-linear,set-popularity"

    assert text == format_pipeline(loading_pipeline(parse_pipeline(text)))


@pytest.mark.parametrize("dtype", ["", "bf16"])
def test_autocast_meets_what_fsdp_gathers(dtype: str) -> None:
    """Where gathered parameters have a type of their own; else it stays in front."""
    options = f",param-dtype={dtype}" * bool(dtype)
    given_ = parse_pipeline(f"convert-dtype{{autocast=true}},fsdp{{ranks=2{options}}}")
    expected = ["fsdp", "convert-dtype"] if dtype else ["convert-dtype", "fsdp"]

    assert expected == _names(completed(given_))


def test_fsdp_brings_what_gathers_again() -> None:
    """After what computes activations again; in a training step only; once."""
    forward = parse_pipeline("fsdp{ranks=2}")
    step = [*forward, TRAINING, *parse_pipeline("checkpoint-activations")]
    late = _transform("late")

    assert ["fsdp"] == _names(completed(forward))
    once = completed([*step, late])
    assert [
        *("fsdp", "training", "checkpoint-activations"),
        *("regather", "late"),
    ] == _names(once)
    assert once == completed(once)


def test_two_that_each_want_to_be_first() -> None:
    """Nobody can have them both: the message names both sides."""
    one = _transform("one", before=["other"])
    other = _transform("other", before=["one"])

    with pytest.raises(PipelineError) as error:
        arranged([one, other])

    assert (
        "passes 'other' and 'one' cannot be put in an order: 'one' has to run before "
        "'other'; 'other' has to run before 'one'"
    ) == str(error.value)


def test_an_order_that_a_pass_forbids() -> None:
    """A whole pipeline is refused where it contradicts a pass, by both names."""
    mine = _transform("mine", after=["training"])

    message = "pass 'mine' stands before 'training', but has to run after"
    with pytest.raises(PipelineError, match=re.escape(message)):
        check_order([mine, TRAINING])


def test_names_that_are_no_set() -> None:
    """A text in place of a set of names is refused when the class is made."""
    with pytest.raises(PassContractError, match="runs_after is 'training', expected"):
        type("Wrong", (Transform,), {"name": "wrong", "runs_after": "training"})


@given(
    st.permutations(range(5)),
    st.sets(
        st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda p: p[0] < p[1])
    ),
)
def test_any_order_that_can_be_is_found(
    order: list[int], pairs: set[tuple[int, int]]
) -> None:
    """Whatever passes say, if they do not say it in a circle."""
    passes = [
        _transform(str(i), before=[str(b) for a, b in pairs if a == i]) for i in order
    ]

    found = [int(p.name) for p in arranged(passes)]

    assert list(range(5)) == sorted(found)
    assert all(found.index(a) < found.index(b) for a, b in pairs)
    if not pairs:
        assert order == found


def test_a_pass_declares_what_later_steps_ask() -> None:
    """One that says nothing, as a plugin's, changes no answer about the others."""
    mine = _transform("mine")
    captured = parse_pipeline("capture-graph")
    asked = ("runtime", "microbatches", "param_dtype", "converts_to")

    assert ["", 0, "", ""] == [getattr(mine, name) for name in asked]
    assert ["eager", "cudagraph"] == [runtime_of([mine]), runtime_of([mine, *captured])]
    assert [False, True] == [trains([mine]), trains([mine, TRAINING])]
