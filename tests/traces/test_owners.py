"""Which op launched what."""

from __future__ import annotations

from pathlib import Path

from tests.traces.synthetic import AUTOGRAD, Made

from perfc.traces.kineto import read_trace
from perfc.traces.owners import call_owners


def test_the_innermost_op_of_the_thread_owns_a_call(tmp_path: Path) -> None:
    """Not the one around it, nor one of another thread; there may be none."""
    made = Made()
    made.op("aten::linear", 100, 50)
    made.op("aten::addmm", 105, 20)
    made.launch(110, 5, 120, 1)
    made.launch(130, 5, 140, 1)
    made.op("aten::mul", 131, 30, tid=AUTOGRAD)
    made.launch(160, 5, 170, 1)
    made.launch(155, 5, 180, 1, tid=AUTOGRAD)
    trace = read_trace(made.write(tmp_path / "t.json"))

    found = [op.name if op else "" for _, op in call_owners(trace.calls, trace.ops)]

    assert ["aten::addmm", "aten::linear", "aten::mul", ""] == found
