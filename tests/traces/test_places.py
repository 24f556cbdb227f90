"""In which modules, and by which line, ops were called."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import AUTOGRAD, Made

from perfc.traces import Recorded
from perfc.traces.events import HostOp
from perfc.traces.kineto import read_trace
from perfc.traces.places import frame_name
from perfc.traces.recording import record

LINE = "models/net.py(7): forward"


def _ops(made: Made, tmp_path: Path) -> dict[str, HostOp]:
    trace = read_trace(made.write(tmp_path / "t.json"))
    return {op.name: op for op in trace.ops}


def _recorded(made: Made, tmp_path: Path) -> Recorded:
    return record(read_trace(made.write(tmp_path / "t.json")))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("torch/nn/functional.py(9): linear", None),
        ("/opt/conda/lib/python3.10/site-packages/torch/_ops.py(9): __call__", None),
        ("/srv/pytorch/torch/nn/modules/module.py(9): _call_impl", None),
        ("/usr/lib/python3.10/contextlib.py(79): inner", None),
        ("threading.py(9): run", None),
        ("<string>(1): <lambda>", None),
        ("<built-in function linear>", None),
        ("/opt/conda/envs/torch/lib/python3.10/site-packages/hf/x.py(3): forward",
         "hf/x.py(3): forward"),
        ("torchvision/models/resnet.py(3): forward",
         "torchvision/models/resnet.py(3): forward"),
        ("/srv/torch/train.py(3): main", "/srv/torch/train.py(3): main"),
    ],
)  # fmt: skip
def test_lines_of_the_model(name: str, kept: str | None) -> None:
    """Not PyTorch's own, nor Python's; paths to what is installed are left out."""
    assert frame_name(name) == (None if kept is None else (kept, False))


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
    site = "/srv/env/lib/python3.8/site-packages"
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


def test_an_op_outside_of_modules_has_its_own_gradient(tmp_path: Path) -> None:
    """The loss is in no module; a view with its number, before it, was in one."""
    made = Made()
    made.add("python_function", "nn.Module: A_0", 0, 20)
    made.op("aten::detach", 5, 10)
    made.events[-1]["args"] |= {"Sequence number": 11, "Fwd thread id": 0}
    made.op("aten::sum", 30, 10)
    made.events[-1]["args"] |= {"Sequence number": 11, "Fwd thread id": 0}
    made.op("SumBackward0", 100, 10, tid=AUTOGRAD)
    made.events[-1]["args"] |= {"Sequence number": 11, "Fwd thread id": 1}

    assert not _ops(made, tmp_path)["SumBackward0"].place.module


def test_gradients_on_the_thread_of_the_call(tmp_path: Path) -> None:
    """They are called by `backward`'s line, and belong to their op's all the same."""
    made = Made()
    made.add("python_function", LINE, 0, 20)
    made.op("aten::linear", 5, 10)
    made.events[-1]["args"] |= {"Sequence number": 3, "Fwd thread id": 0}
    made.add("python_function", "train.py(9): step", 50, 100)
    made.op("LinearBackward0", 60, 50)
    made.events[-1]["args"] |= {"Sequence number": 3, "Fwd thread id": 1}
    made.op("aten::mm", 70, 10)

    ops = _ops(made, tmp_path)

    assert ops["LinearBackward0"].place.source == LINE
    assert ops["aten::mm"].place.source == LINE


def test_halves_of_characters_are_replaced(tmp_path: Path) -> None:
    """No file, and no terminal, can hold them."""
    made = Made()
    made.op("aten::linear", 15, 20)
    made.events[-1]["args"] |= {"Call stack": "n\ud800et.py(7): forward"}

    assert _ops(made, tmp_path)["aten::linear"].place.source == "n?et.py(7): forward"


@pytest.mark.parametrize("stack", [7, ["a"], {"a": 1}, ""])
def test_stacks_of_another_type_say_nothing(tmp_path: Path, stack: object) -> None:
    """As does a number of autograd's that is none."""
    made = Made()
    made.op("aten::linear", 15, 20)
    made.events[-1]["args"] |= {"Call stack": stack, "Sequence number": stack}

    assert not _ops(made, tmp_path)["aten::linear"].place.source


def test_launches_belong_to_what_is_innermost(tmp_path: Path) -> None:
    """To the op in a checkpoint, not to the checkpoint; outside of ops to the frame."""
    made = Made()
    made.add("python_function", "nn.Module: Net_0", 0, 300)
    made.op("CheckpointFunction", 5, 100)
    made.add("python_function", "nn.Module: Layer_0", 20, 60)
    made.op("aten::linear", 30, 40)
    made.launch(40, 5, 50, 10)
    made.add("python_function", "nn.Module: Fused_0", 200, 50)
    made.launch(210, 5, 220, 10)

    found = _recorded(made, tmp_path)

    kernels = [found.places[task].module for task in found.works]
    assert ["Net_0.Layer_0", "Net_0.Fused_0"] == kernels


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
