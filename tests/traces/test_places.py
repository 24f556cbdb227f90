"""In which modules, and by which line, ops were called."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import AUTOGRAD, Made

from perfc.traces import HostOp, read_trace, record

LINE = "models/net.py(7): forward"


def _ops(made: Made, tmp_path: Path) -> dict[str, HostOp]:
    trace = read_trace(made.write(tmp_path / "t.json"))
    return {op.name: op for op in trace.ops}


def test_calls_around_an_op(tmp_path: Path) -> None:
    """Modules nest; the line is the innermost of the model, not PyTorch's own."""
    made = Made()
    made.add("python_function", "nn.Module: Net_0", 0, 100)
    made.add("python_function", LINE, 1, 98)
    made.add("python_function", "nn.Module: Linear_3", 10, 30)
    made.add("python_function", "torch/nn/modules/linear.py(125): forward", 11, 28)
    made.add("python_function", "<built-in function linear>", 12, 26)
    made.op("aten::linear", 15, 20)
    made.op("aten::relu", 50, 20)
    made.op("aten::mul", 200, 20)

    ops = _ops(made, tmp_path)

    linear = ops["aten::linear"].place
    assert ("Net_0.Linear_3", LINE) == (linear.module, linear.source)
    assert ops["aten::relu"].place.module == "Net_0"
    assert not ops["aten::mul"].place.module
    assert not ops["aten::mul"].place.source


def test_calls_of_another_thread_say_nothing(tmp_path: Path) -> None:
    """Two threads run at a time."""
    made = Made()
    made.add("python_function", "nn.Module: Net_0", 0, 100, tid=AUTOGRAD)
    made.op("aten::linear", 15, 20)

    assert not _ops(made, tmp_path)["aten::linear"].place.module


def test_labels_name_modules(tmp_path: Path) -> None:
    """As `record_function` writes them."""
    made = Made()
    made.add("user_annotation", "nn.Module: Net_0", 0, 100)
    made.op("aten::linear", 15, 20)

    assert _ops(made, tmp_path)["aten::linear"].place.module == "Net_0"


@pytest.mark.parametrize("between", [";", "\n"])
def test_ops_that_say_it_themselves(tmp_path: Path, between: str) -> None:
    """Older profilers write the stack into each op, innermost first."""
    site = "/home/me/lib/python3.8/site-packages"
    stack = between.join(
        (
            f"{site}/torch/nn/functional.py(1848): linear",
            f"{site}/torchvision/models/resnet.py(136): forward",
            "train.py(46): <module>",
        )
    )
    made = Made()
    made.op("aten::linear", 15, 20)
    made.events[-1]["args"] |= {"Call stack": stack, "Module Hierarchy": "A(Net).b(B)"}

    place = _ops(made, tmp_path)["aten::linear"].place

    assert place.source == "torchvision/models/resnet.py(136): forward"
    assert place.module == "A(Net).b(B)"


def test_gradients_belong_to_their_ops(tmp_path: Path) -> None:
    """By autograd's number, of which the last op is what the gradient is of."""
    made = Made()
    for start, number, module in ((0, 10, "A_0"), (20, 10, "B_0"), (40, 11, "C_0")):
        made.add("python_function", f"nn.Module: {module}", start, 20)
        made.op(f"aten::of_{module}", start + 5, 10)
        made.events[-1]["args"] |= {"Sequence number": number, "Fwd thread id": 0}
    for start, number in ((100, 11), (150, 10)):
        name = f"autograd::engine::evaluate_function: G{number}"
        made.op(name, start, 40, tid=AUTOGRAD)
        made.events[-1]["args"] |= {"Sequence number": number, "Fwd thread id": 1}
        made.op(f"aten::in_{number}", start + 10, 10, tid=AUTOGRAD)
        # Counted anew on this thread: no op of the forward pass.
        made.events[-1]["args"] |= {"Sequence number": 11, "Fwd thread id": 0}

    ops = _ops(made, tmp_path)

    assert ops["aten::in_11"].place.module == "C_0"
    assert ops["aten::in_10"].place.module == "B_0"


def test_a_launch_graph_says_it(tmp_path: Path) -> None:
    """Ops of the host have it beside their name; others have nothing."""
    made = Made()
    made.add("python_function", "nn.Module: Net_0", 0, 100)
    made.op("aten::linear", 15, 20)
    made.launch(20, 5, 30, 50)
    made.op("aten::relu", 115, 20)
    made.launch(120, 5, 130, 50)

    graph = record(read_trace(made.write(tmp_path / "t.json"))).graph

    assert [{"module": "Net_0"}, {}] == [dict(op.attributes) for op in graph.ops]


def test_calls_of_python_do_not_move_the_beginning(tmp_path: Path) -> None:
    """Times count from the first op, call or kernel, whoever called it before."""
    made = Made()
    made.add("python_function", "nn.Module: Net_0", 0, 1000)
    made.op("aten::linear", 500, 20)

    assert _ops(made, tmp_path)["aten::linear"].start_us == 0
