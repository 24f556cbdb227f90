"""Programs of `torch.export`, and graphs of `torch.fx`, as objects in memory."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frontends.aten_recording import graph_of
from torch import Tensor, nn
from torch.export.experimental import (
    _export_forward_backward,  # pyright: ignore[reportPrivateUsage]
)

import perfc
from perfc.frontends.pt2 import Pt2Frontend
from perfc.frontends.pt2.expression import parse_expression  # not public
from perfc.frontends.torch import read_exported
from perfc.ir import Graph
from perfc.ir.dims import symbols_of
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import print_graph

Exported = torch.export.ExportedProgram


class Net(nn.Module):
    """Rows of a table, pooled, and a perceptron."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.bag = nn.EmbeddingBag(1000, 16, mode="sum")
        self.top = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        """Look up, pool, and mix."""
        out: Tensor = self.top(self.bag(words, offsets))
        return out


WORDS, OFFSETS = torch.arange(50), torch.arange(10) * 5


def exported(*, dynamic: bool = True) -> Exported:
    """Export it with open sizes, or fixed ones."""
    sizes = ({0: torch.export.Dim("words")}, {0: torch.export.Dim("bags")})
    with torch.device("meta"):
        module = Net()
    return torch.export.export(
        module, (WORDS, OFFSETS), dynamic_shapes=sizes if dynamic else None
    )


class Loss(nn.Module):
    """Has a loss for its result."""

    def __init__(self) -> None:
        """Make the layer."""
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Compare with labels."""
        return nn.functional.cross_entropy(self.fc(x), labels)


def joint() -> Exported:
    """Export a forward and backward pass."""
    args = (torch.zeros(6, 8), torch.zeros(6, dtype=torch.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        return _export_forward_backward(torch.export.export(Loss(), args))


def saved(program: Exported, path: Path) -> Graph:
    """Return the graph of the archive."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.export.save(program, path)
    return graph_of(Pt2Frontend().load(path))


@pytest.mark.parametrize("make", [exported, joint])
def test_in_memory_as_in_a_file(make: Any, tmp_path: Path) -> None:
    """A program and the archive of it are the same graph, locations included."""
    program = make()
    found = graph_of(read_exported(program, "net"))

    assert print_graph(saved(program, tmp_path / "net.pt2")) == print_graph(found)


def test_module_path_source_line_and_open_sizes() -> None:
    """Each op knows its module and line; open sizes are PyTorch's symbols."""
    graph = graph_of(read_exported(exported()))
    relu = next(node for node in graph if node.op == "relu")
    words, offsets = (value.type for value in graph.inputs)
    assert words is not None
    assert offsets is not None

    assert "Net" == graph.name
    assert "top.1" == relu.location.module
    assert f"{__file__}:" == relu.location.source.rstrip("0123456789")
    names = [name for shape in (words, offsets) for name in map(str, shape.shape)]
    assert all(name.isidentifier() for name in names)
    assert 2 == len(set(names))
    assert str(relu.results[0].type).startswith(f"f32[{names[1]},")


def test_phases_of_a_joint_program() -> None:
    """Forward, loss and backward are told apart; a training step adds the optimizer."""
    step = perfc.from_torch(joint(), mode="training", optimizer="adam")
    phases = [node.location.phase for node in graph_of(step.program)]

    assert ["forward", "loss", "backward", "optimizer"] == list(dict.fromkeys(phases))
    assert "training" == perfc.from_torch(joint(), mode="training").mode


def test_open_sizes_are_bound() -> None:
    """By the batch and dimensions, as of a file, or by the sizes of arguments."""
    program = exported()
    words, bags = (
        str(graph.type.shape[0])
        for graph in graph_of(read_exported(program)).inputs
        if graph.type is not None
    )
    by_name = perfc.load(program, batch=7, dims={words: 21})
    assert {words: 21, bags: 7} == by_name.program.bindings
    assert {words: 14, bags: 7} == perfc.load(
        program, batch=7, pooling=2
    ).program.bindings
    assert {words: 21, bags: 7} == perfc.from_torch(
        program, batch=7, dims={words: 21}
    ).program.bindings
    by_size = perfc.from_torch(program, (WORDS, torch.Size([10])))
    assert {words: 50, bags: 10} == by_size.program.bindings


def test_training_step_is_derived() -> None:
    """An exported forward pass becomes a step as its file does."""
    program = exported(dynamic=False)
    step = perfc.from_torch(program, mode="training", optimizer="sgd", loss="sum")
    loaded = perfc.load(program, mode="training", optimizer="sgd")

    assert "training" == step.mode == loaded.mode
    assert "bf16" == perfc.from_torch(program, dtype="bf16").dtype


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no-batch": ({}, "dimensions without a number: "),
    "count": ({"args": (WORDS,)}, "the program takes 2 arguments, given 1"),
    "rank": (
        {"args": (torch.Size([3, 3]), torch.Size([3]))},
        "argument words has 2 dimensions, but the program was exported for 1",
    ),
    "names": (
        {"args": (WORDS,), "kwargs": {"of": OFFSETS}},
        "the arguments by name are not those of the program: ",
    ),
    "no-optimizer": (
        {"mode": "training"},
        "a training step of Net needs the name of an optimizer",
    ),
    "optimizer": (
        {"mode": "training", "optimizer": torch.optim.SGD},
        "optimizer of an exported program has to be one by name",
    ),
    "step": (
        {"mode": "training", "step": print},
        "step of an exported program has to be one by name",
    ),
    "dtype": ({"dtype": "fp7"}, "dtype 'fp7' is none of fp32, "),
    "mode": ({"mode": "dreaming"}, "mode 'dreaming' is none of inference, training"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(options: dict[str, Any], message: str) -> None:
    """What does not fit an exported program is one line that says what does."""
    with pytest.raises(perfc.PerfcError) as caught:
        perfc.from_torch(exported(), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_sizes_than_exported() -> None:
    """Arguments of a size that the program fixes otherwise are named."""
    program = exported(dynamic=False)
    with pytest.raises(UnsupportedModelError) as caught:
        perfc.from_torch(program, (WORDS, torch.Size([11])))
    assert (
        "argument offsets has the shape [11], but the program was exported for ['10'], "
        "with 10 in the place of 11"
    ) == str(caught.value)


def test_what_pytorch_cannot_write_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its serializer raises is one line that says what to do instead."""

    def fail(program: Exported) -> bytes:
        msg = "Unsupported argument type\n\nstack"
        raise RuntimeError(msg)

    monkeypatch.setattr("perfc.frontends.torch.exported.describe_exported", fail)
    with pytest.raises(UnsupportedModelError) as caught:
        perfc.load(exported(), batch=4)
    assert (
        "torch.export cannot write this program down, and perfc reads what it writes: "
        "Unsupported argument type; record program.module() instead"
    ) == str(caught.value)


def test_newer_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of the schema that is not known is refused by its number."""

    def later(program: Exported) -> bytes:
        return b'{"schema_version": {"major": 99, "minor": 1}}'

    monkeypatch.setattr("perfc.frontends.torch.exported.describe_exported", later)
    with pytest.raises(UnsupportedModelError, match="schema version 99 "):
        perfc.load(exported(), batch=4)


class Scaled(nn.Module):
    """Has a layer, and an op outside of it."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Scale what comes out."""
        out: Tensor = self.body(x) * 2
        return out


def places(graph: Graph) -> dict[str, str]:
    """Return the module of each op that stands once."""
    return {node.op: node.location.module for node in graph if node.op != "constant"}


def test_graph_modules_keep_module_paths() -> None:
    """What nodes note is where their ops are, wherever the traced graph stands."""
    x = torch.zeros(4, 8)
    program = torch.export.export(nn.Sequential(Scaled()), (x,))
    flat = program.module()
    assert isinstance(flat, torch.fx.GraphModule)
    model = perfc.from_torch(flat, (x,))
    found = {node.op: node.location for node in graph_of(model.program)}

    assert ("0.body.0", "0.body.1", "0") == tuple(
        found[op].module for op in ("linear", "relu", "mul")
    )
    assert f"{__file__}:" == found["mul"].source.rstrip("0123456789")
    below = perfc.from_torch(nn.Sequential(torch.fx.symbolic_trace(Scaled())), (x,))
    assert {"linear": "0.body.0", "relu": "0.body.1", "mul": "0"}.items() <= places(
        graph_of(below.program)
    ).items()


def test_graphs_of_the_compiler_keep_module_paths() -> None:
    """The compiler's own way to write paths is understood, in backward, too."""
    graph = torch.fx.symbolic_trace(Scaled())
    for node in graph.graph.nodes:
        if node.target is not torch.nn.functional.relu and node.op == "call_function":
            node.meta["nn_module_stack"] = {"1": ("L['self'].outer[0]", nn.Module)}
            node.meta["stack_trace"] = 'File "model.py", line 3, in forward\n  x'
    model = perfc.from_torch(graph, (torch.zeros(4, 8),), mode="training")
    found = {(n.op, n.location.phase): n.location for n in graph_of(model.program)}

    assert (
        "outer[0]" == found["mul", "forward"].module == found["mul", "backward"].module
    )
    assert "model.py:3" == found["mul", "forward"].source


def test_example_arguments_of_graph_modules() -> None:
    """Where inputs note what they were none are needed; open sizes are refused."""
    fixed = torch.export.export(Scaled(), (torch.zeros(4, 8),)).module()
    assert 4 == perfc.load(fixed).batch
    with pytest.raises(UnsupportedModelError, match="needs example arguments"):
        perfc.load(torch.fx.symbolic_trace(Scaled()))
    with pytest.raises(UnsupportedModelError, match="input words of the graph has op"):
        perfc.load(exported().module())


S = "Symbol('s0', positive=True, integer=True)"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (S, "s0"),
        (f"Add({S}, Integer(-1))", "s0 - 1"),
        (f"Mul(Integer(4), {S}, Symbol('u1', integer=True))", "4*s0*u1"),
        (f"Add(Pow({S}, Integer(2)), Mod({S}, Integer(4)))", "s0 + s0*s0 - 4*(s0//4)"),
        (f"FloorDiv(Add({S}, Integer(1)), Integer(2))", "(s0 + 1)//2"),
        (f"CeilDiv({S}, Integer(2))", "-((-s0)//2)"),
        (f"Max(Integer(1), {S})", "max(1, s0)"),
        (f"Min(Integer(9), {S})", "-max(-9, -s0)"),
        (f"CeilToInt(IntTrueDiv({S}, Integer(3)))", "-((-s0)//3)"),
        (f"TruncToInt(Mul(Float('1.5', precision=53), ToFloat({S})))", "(3*s0)//2"),
        ("Integer(7)", "7"),
        ("2*s0**2 + 1", "2*s0*s0 + 1"),
        ("Max(1, s0)", "max(1, s0)"),
    ],
)
def test_sizes(text: str, size: str) -> None:
    """Both forms in which PyTorch writes sizes are read as what they compute."""
    assert size == str(parse_expression(text))


@pytest.mark.parametrize(
    "text",
    [
        f"Unheard({S})",
        f"Add({S}",
        f"Add({S}))",
        f"{S} {S}",
        f"FloorDiv({S}, Integer(0))",
        f"Pow({S}, Integer(99))",
        f"TruncToInt(ToFloat({S}, {S}))",
        "TruncToInt(Float('x'), Symbol('s0'))",
        "Add(" * 60 + S + ")" * 60,
    ],
)
def test_other_sizes_are_symbols(text: str) -> None:
    """What is no size that perfc can compute is a symbol of its own."""
    assert frozenset({text[:200]}) == symbols_of([parse_expression(text)])
