"""Which op a call of the runtime is in, where clocks agree and where not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import Made

from perfc.traces.kineto import read_trace
from perfc.traces.nesting import CLOCKS_US, innermost

WAIT = "cudaStreamWaitEvent"


def _around(made: Made, tmp_path: Path) -> list[tuple[str, str]]:
    """Return each call and the op that it is in, "" for none."""
    trace = read_trace(made.write(tmp_path / "t.json"))
    inside = innermost(trace)
    return [
        (call.name, inside[id(call)].name if id(call) in inside else "")
        for call in trace.calls
    ]


def test_the_innermost_op_that_is_no_label(tmp_path: Path) -> None:
    """Ops that only touch a call are not around it."""
    made = Made()
    made.op("outer", 0, 100)
    made.op("before", 10, 10)
    made.call("cudaA", 20, 5)
    made.op("after", 25, 10)
    made.label("label", 38, 20)
    made.op("inner", 40, 10)
    made.call("cudaB", 42, 3)
    made.call("cudaC", 200, 3)

    expected = [("cudaA", "outer"), ("cudaB", "inner"), ("cudaC", "")]
    assert expected == _around(made, tmp_path)


@pytest.mark.parametrize("start", [38, 48])
def test_a_call_across_the_border_of_an_op_is_in_it(
    start: float, tmp_path: Path
) -> None:
    """No call begins in one op and ends in another, so that the clocks disagree."""
    made = Made()
    made.op("outer", 0, 100)
    made.op("inner", 40, 10)
    made.call("cudaA", start, 4)

    assert [("cudaA", "inner")] == _around(made, tmp_path)


def test_a_call_in_a_call(tmp_path: Path) -> None:
    """What begins after the inner call is not around it."""
    made = Made()
    made.op("outer", 0, 100)
    made.call("cudaA", 10, 50)
    made.call("cudaB", 20, 5)
    made.op("inner", 40, 10)

    assert [("cudaA", "inner"), ("cudaB", "outer")] == _around(made, tmp_path)


def _beside(apart_us: float, *, misaligned: bool) -> Made:
    """Make a wait that lies beside the `wait()` of a collective that it belongs to."""
    made = Made()
    made.op("aten::mm", 0, 20)
    made.call("cudaLaunchKernel", 18 if misaligned else 10, 4)
    made.call(WAIT, 200 - apart_us, 0)
    made.op("record_param_comms", 200, 10)
    return made


def test_a_wait_beside_its_op_is_given_back(tmp_path: Path) -> None:
    """An op that waits for a collective has a wait."""
    made = _beside(14, misaligned=True)

    assert (WAIT, "record_param_comms") in _around(made, tmp_path)


@pytest.mark.parametrize(
    ("apart_us", "misaligned"), [(14, False), (CLOCKS_US + 1, True)]
)
def test_waits_stay_where_clocks_agree(
    apart_us: float, misaligned: bool, tmp_path: Path
) -> None:
    """Or where it is farther away than clocks are."""
    made = _beside(apart_us, misaligned=misaligned)

    assert (WAIT, "") in _around(made, tmp_path)


def test_a_wait_of_its_own_is_enough(tmp_path: Path) -> None:
    """An op that has one takes no other."""
    made = _beside(14, misaligned=True)
    made.call(WAIT, 203, 1)

    found = _around(made, tmp_path)

    assert [(WAIT, ""), (WAIT, "record_param_comms")] == found[1:]
