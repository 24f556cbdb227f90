"""How instruments are told what happens: nested, like a stack."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest

from perfc.ir import AnnotationKey, AnyKey, Program, single
from perfc.ir.support import PassContractError, PipelineError
from perfc.ir.text import parse_graph
from perfc.passes import Pass, PassContext, PassManager
from perfc.passes.instruments import Instrument

SIZE: AnnotationKey[int] = AnnotationKey("test.size", Program)


class Good(Pass):
    """Does nothing, and promises nothing."""

    name: ClassVar[str] = "p"

    def run(self, program: Program, ctx: PassContext) -> None:
        """Do nothing."""


class Next(Good):
    """The same by another name."""

    name: ClassVar[str] = "q"


class Writes(Good):
    """Writes a fact that it does not declare."""

    def run(self, program: Program, ctx: PassContext) -> None:
        """Write it."""
        ctx.set(SIZE, program, 1)


class Promises(Good):
    """Promises a fact, and does not write it."""

    provides: ClassVar[frozenset[AnyKey]] = frozenset({SIZE})


@pytest.fixture
def program() -> Program:
    """A program."""
    return single(parse_graph("graph @g(%x: f32[4]) {\n  return %x\n}\n"))


@attrs.frozen
class Recorder(Instrument):
    """Writes down what it is told; raises where it is asked to.

    Attributes:
        name: Its name in the log.
        log: The log that several share.
        breaks: `before` or `after`: raise there.

    """

    name: str
    log: list[str]
    breaks: str = ""

    SAYS: ClassVar[str] = "instrument broke"

    def _tell(self, what: str, p: Pass) -> None:
        self.log.append(f"{self.name} {what} {p.name}")
        if self.breaks == what:
            raise PipelineError(self.SAYS)

    def before(self, p: Pass, program: Program) -> None:
        """Write it down."""
        self._tell("before", p)

    def after(self, p: Pass, program: Program, ctx: PassContext) -> None:
        """Write it down."""
        self._tell("after", p)

    def failed(self, p: Pass, program: Program, error: Exception) -> None:
        """Write it down."""
        self._tell(f"failed ({error})", p)


def test_instruments_nest_like_a_stack(program: Program) -> None:
    """The first to begin is the last to end."""
    log: list[str] = []
    observers = [Recorder("x", log), Recorder("y", log)]

    PassManager([Good(), Next()], observers).run(program)

    assert [
        *("x before p", "y before p", "y after p", "x after p"),
        *("x before q", "y before q", "y after q", "x after q"),
    ] == log


def test_a_failing_pass_is_told_inside_out(program: Program) -> None:
    """Each hears of the failure instead of the end, and the error goes on."""
    log: list[str] = []
    observers = [Recorder("x", log), Recorder("y", log)]

    with pytest.raises(PassContractError):
        PassManager([Writes(), Next()], observers).run(program)

    why = "(pass 'p' writes test.size without providing it)"
    assert [
        *("x before p", "y before p", f"y failed {why} p", f"x failed {why} p"),
    ] == log


def test_a_broken_contract_is_a_failure(program: Program) -> None:
    """What the checks after a pass find counts as its failure."""
    log: list[str] = []

    with pytest.raises(PassContractError):
        PassManager([Promises()], [Recorder("x", log)]).run(program)

    assert "x failed (pass 'p' provides test.size but left out program g) p" == log[-1]


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        ("after", ["x before p", "y before p", "z before p", "z after p", "y after p"]),
        ("before", ["x before p", "y before p"]),
    ],
)
def test_an_instrument_that_raises_fails_the_pass_for_those_around_it(
    program: Program, breaks: str, expected: list[str]
) -> None:
    """Whoever began hears of one end, and the error propagates."""
    log: list[str] = []
    observers = [Recorder("x", log), Recorder("y", log, breaks), Recorder("z", log)]

    with pytest.raises(PipelineError, match=Recorder.SAYS):
        PassManager([Good()], observers).run(program)

    assert [*expected, f"x failed ({Recorder.SAYS}) p"] == log
