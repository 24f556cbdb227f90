"""Pipelines as text, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PASSES, Program, UsageError, register_plugin
from perfc.ir.choices import INPUTS
from perfc.ir.support import PipelineError
from perfc.passes import KernelCost, LowerKernels, Pass, PassContext, ShapeInference
from perfc.passes.pipeline_spec import (
    format_pipeline,
    make_pass,
    parse_pipeline,
    pass_class,
    pass_names,
)
from perfc.passes.shapes import FoldShapes
from perfc.passes.timing import Overhead


@attrs.frozen
class AllKinds(Pass):
    """Has an option of every kind, and fields that are none."""

    name: ClassVar[str] = "test.all_kinds"

    count: int = 1
    share: float = 0.5
    is_on: bool = False
    text: str = ""
    table: tuple[int, ...] = (1, 2)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Do nothing."""


@attrs.frozen
class Needs(Pass):
    """Has an option without a default."""

    name: ClassVar[str] = "test-needs"

    count: int

    def run(self, program: Program, ctx: PassContext) -> None:
        """Do nothing."""


class NoRecord(Pass):
    """Is no attrs class, so it has no options."""

    name: ClassVar[str] = "test-no-record"

    def run(self, program: Program, ctx: PassContext) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Register the passes above, for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfc.ir.support.plugins._registered", {})
        for cls in (AllKinds, Needs, NoRecord):
            register_plugin(PASSES, cls.name, cls)
        register_plugin(PASSES, "test-no-pass", "text")
        yield


PASSES_OF_ALL_KINDS = st.one_of(
    st.sampled_from([FoldShapes(), KernelCost(), ShapeInference()]),
    st.builds(
        LowerKernels,
        inputs=st.sampled_from(INPUTS),
        tf32=st.booleans(),
    ),
    st.builds(Overhead, profile=st.text()),
    st.builds(
        AllKinds,
        count=st.integers(),
        share=st.floats(allow_nan=False),
        is_on=st.booleans(),
        text=st.text(),
    ),
)


@given(st.lists(PASSES_OF_ALL_KINDS))
def test_text_reads_back(passes: list[Pass]) -> None:
    """What is written is what is read, whatever the options hold."""
    assert passes == parse_pipeline(format_pipeline(passes))


def test_text_is_short() -> None:
    """Options at their defaults are left out, plain words are not quoted."""
    passes = [
        LowerKernels(inputs="device"),
        Overhead(profile="my file,v2.toml"),
        AllKinds(is_on=True, text='"'),
        FoldShapes(),
    ]

    assert (
        'lower-kernels{inputs=device},overhead{profile="my file,v2.toml"},'
        'test.all_kinds{is-on=true,text="\\""},fold-shapes'
    ) == format_pipeline(passes)


@pytest.mark.parametrize(
    "text",
    [
        "lower-kernels{inputs=device,tf32=true},overhead{profile=a}",
        ' lower-kernels { inputs = "device" , tf32=true } , overhead{profile= a }\n',
        "lower-kernels{tf32=true,inputs=device},overhead{profile=a}",
    ],
)
def test_spaces_and_order_are_free(text: str) -> None:
    """Spaces around words, quotes and the order of options do not matter."""
    assert [LowerKernels("device", tf32=True), Overhead("a")] == parse_pipeline(text)


def test_underscores_are_hyphens() -> None:
    """An option may be written as its field is."""
    assert make_pass("test.all_kinds", "is-on=true") == make_pass(
        "test.all_kinds", "is_on=true"
    )


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_empty(text: str) -> None:
    """No text, no passes."""
    assert [] == parse_pipeline(text)


@pytest.mark.parametrize(
    "text",
    [
        "fold-shapes,",
        ",fold-shapes",
        "fold-shapes,,fold-shapes",
        "fold-shapes fold-shapes",
        "lower-kernels{inputs=device",
        "lower-kernels}",
        "lower-kernels{{inputs=device}}",
        'overhead{profile="a}',
        "fold-shapes; fold-shapes",
    ],
)
def test_malformed(text: str) -> None:
    """Text that is no pipeline is refused, and shown with what was expected."""
    with pytest.raises(UsageError, match=r"not a pipeline: .*expected name or name\{"):
        parse_pipeline(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fold-shape", "unknown pass 'fold-shape'; did you mean 'fold-shapes'?"),
        ("zzzz", "unknown pass 'zzzz'; known: .*critical-path"),
        ("fold-shapes{a=1}", "pass 'fold-shapes' has no option 'a'; options: none"),
        (
            "lower-kernels{input=device}",
            "no option 'input'; options: attention, cudnn-tf32, deterministic, ",
        ),
        ("lower-kernels{device}", "has no option 'device'"),
        ("lower-kernels{tf32=true,}", "has no option"),
        ("lower-kernels{tf32=yes}", "option tf32=yes of .*: expected true or false"),
        ("lower-kernels{tf32=}", "option tf32= of .*: expected true or false"),
        (
            "lower-kernels{inputs=x}",
            "inputs='x': expected host-pinned",
        ),
        ("lower-kernels{tf32=true,tf32=true}", "option tf32 of .* is given twice"),
        ("test.all_kinds{count=1.5}", "count=1.5 of .*: expected a whole number"),
        ("test.all_kinds{share=x}", "option share=x of .*: expected a number"),
        ("test.all_kinds{table=3}", "has no option 'table'; options: count, is-on"),
        ("test-needs", "pass 'test-needs' needs more: test-needs.count=…."),
        ("test-no-record{a=1}", "has no option 'a'; options: none, as it"),
    ],
)
def test_what_cannot_be(text: str, message: str) -> None:
    """Unknown passes, unknown options and values that do not fit are refused."""
    with pytest.raises(UsageError, match=message):
        parse_pipeline(text)


def test_a_pass_with_a_mandatory_option() -> None:
    """It is made once the option is given, and written out with it."""
    (made,) = parse_pipeline("test-needs{count=3}")

    assert Needs(3) == made
    assert "test-needs{count=3}" == format_pipeline([made])


def test_a_pass_that_is_no_record() -> None:
    """A pass need not be an attrs class."""
    (made,) = parse_pipeline("test-no-record")

    assert isinstance(made, NoRecord)
    assert "test-no-record" == format_pipeline([made])


def test_a_plugin_that_is_no_pass() -> None:
    """An entry point of something else is an error that names it."""
    with pytest.raises(PipelineError, match=r"'test-no-pass' of perfc\.passes is not"):
        parse_pipeline("test-no-pass")


def test_every_pass_goes_by_its_own_name() -> None:
    """The name in a pipeline is the name of the class, and it can be made."""
    names = [name for name in pass_names() if not name.startswith("test")]

    assert {name: name for name in names} == {n: pass_class(n).name for n in names}
    needed = {
        "accumulate-gradients": "microbatches=2",
        "dedup": "session=2,stay=a:0.5",
        "fsdp": "ranks=2",
        "input-pipeline": "file=stages.toml",
        "lookahead-cache": "window=2,rows=9",
        "pipeline-parallel": "stages=2,microbatches=2",
        "shard-embeddings": "ranks=2",
        "straggler": "rank=0,us=1.0",
        "tensor-parallel": "ranks=2",
    }
    texts = [f"{n}{{{needed[n]}}}" if n in needed else n for n in names]
    assert names == [p.name for p in parse_pipeline(",".join(texts))]
