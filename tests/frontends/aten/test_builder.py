"""Calls of ATen ops become an op graph."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest
import torch
from tests.frontends.aten_recording import graph_of, ops_of, record
from tests.passes.lowered import lower
from torch import nn
from torch.nn import functional

from perfc.frontends.aten import Argument, AtenBuilder, AtenCall, AtenTensor, Ref
from perfc.ir import DTYPES, Program, TensorType
from perfc.ir.support import Level, UnsupportedModelError, VerifyError
from perfc.ir.text import print_graph
from perfc.ir.types import MemorySpace

F32, I64 = DTYPES["f32"], DTYPES["i64"]


def _tensor(name: str, *shape: int, host: bool = False) -> AtenTensor:
    space = MemorySpace.HOST if host else MemorySpace.DEVICE
    return AtenTensor(name, TensorType(F32, shape, space))


def _mlp() -> None:
    model = nn.Sequential(
        *(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(), nn.LayerNorm(16)),
        *(nn.GELU(), nn.Linear(16, 4)),
    )
    x, labels = torch.randn(5, 8), torch.randint(0, 4, (5,))
    torch.autograd.backward(functional.cross_entropy(model(x), labels))
    torch.optim.AdamW(model.parameters(), foreach=True).step()


def _convnet() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        *(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2), nn.AdaptiveAvgPool2d((2, 2))),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    torch.autograd.backward(model(torch.randn(2, 3, 16, 16)).sum())
    optimizer.step()


def _recommender(*, sparse: bool) -> None:
    bag, bottom = nn.EmbeddingBag(50, 8, mode="sum", sparse=sparse), nn.Linear(4, 8)
    top = nn.Linear(9, 1)
    dense = torch.relu(bottom(torch.randn(3, 4)))
    pooled = bag(torch.randint(0, 50, (7,)), torch.tensor([0, 2, 4]))
    features = torch.stack([dense, pooled], 1)
    products = torch.bmm(features, features.transpose(1, 2))
    joined = torch.cat([dense, products[:, [1], [0]]], 1)
    clicks = torch.sigmoid(top(joined))
    loss = functional.binary_cross_entropy(clicks, torch.rand(3, 1))
    torch.autograd.backward(loss)
    torch.optim.SGD(bag.parameters(), 0.1).step()


def _transformer() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    torch.autograd.backward(layer(torch.randn(2, 5, 16)).mean())


def _unknown(program: Program) -> list[object]:
    nodes = graph_of(program)
    return [node.attributes["op"] for node in nodes if node.op == "unknown"]


@pytest.mark.parametrize("step", [_mlp, _convnet, _transformer])
def test_training_steps_are_known(step: object) -> None:
    """A step of these models, forward to optimizer, needs no unknown op."""
    assert callable(step)
    program = record(step)

    assert [] == _unknown(program)
    assert () == program.diagnostics
    assert lower(program).kernels


def test_gradients_are_single_ops() -> None:
    """Each layer's backward is the op that PyTorch calls."""
    found = Counter(ops_of(record(_convnet)))

    assert 2 == found["conv_backward"]
    assert 3 == found["pool_backward"]
    assert 1 == found["batch_norm_backward"]
    assert 1 == found["relu_backward"]
    assert 1 == found["optimizer_step"]


def test_dense_gradient_of_a_table() -> None:
    """A bag's dense gradient is the whole table's, and SGD adds it like any other."""
    found = Counter(ops_of(record(lambda: _recommender(sparse=False))))

    assert 1 == found["embedding_bag"]
    assert 1 == found["embedding_bag_backward"]
    assert 0 == found["sparse_optimizer_step"]


def test_sparse_gradient_of_a_table() -> None:
    """A bag's sparse gradient is indices and rows, which SGD adds to the table."""
    graph = graph_of(record(lambda: _recommender(sparse=True)))
    (backward,) = (n for n in graph if n.op == "embedding_bag_backward")
    (step,) = (n for n in graph if n.op == "sparse_optimizer_step")

    assert ["i64[7]", "f32[7,8]"] == [str(v.type) for v in backward.results]
    assert backward.results == step.operands[1:]


def test_numbers_are_shared_constants() -> None:
    """Numbers and sizes become constants, one for all calls that have them."""
    builder = AtenBuilder("m")
    builder.input(_tensor("x", 2, 3))
    for source, name in (("x", "y"), ("y", "z")):
        arguments: dict[str, Argument] = {"self": Ref(source), "other": 2}
        result = (_tensor(name, 2, 3),)
        builder.call(AtenCall("aten.mul.Tensor", arguments, result))
    builder.outputs(["z"])

    assert print_graph(graph_of(builder.program())).splitlines() == [
        "graph @m(%x: f32[2,3]) {",
        "  %constant = constant() {dtype = !f32, shape = [], value = 2.0} : f32[]",
        "  %y = mul(%x, %constant) : f32[2,3]",
        "  %z = mul(%y, %constant) : f32[2,3]",
        "  return %z",
        "}",
    ]


def test_work_in_place_is_marked() -> None:
    """An op whose name ends in `_` writes over its first operand."""
    graph = graph_of(record(lambda: torch.ones(3).relu_()))
    (node,) = (n for n in graph if n.op == "relu")

    assert True is node.attributes["in_place"]


def test_types_of_mixed_operands() -> None:
    """What kernels convert as they write is an attribute, not another op."""
    graph = graph_of(record(lambda: torch.ones(3, dtype=torch.int64) / 2))
    (node,) = (n for n in graph if n.op == "div")

    assert F32 == node.attributes["dtype"]
    assert "f32[3]" == str(node.results[0].type)


def test_an_op_that_is_not_in_the_maps() -> None:
    """It becomes an unknown op of its name, with its operands and results."""
    builder = AtenBuilder("m")
    builder.input(_tensor("x", 2))
    call = AtenCall("mine.twist.default", {"x": Ref("x")}, (_tensor("y", 2),))
    builder.call(call)
    builder.outputs(["y"])
    program = builder.program()

    assert ["mine::twist"] == _unknown(program)
    assert () == program.diagnostics


def test_a_call_that_does_not_fit_its_rule() -> None:
    """It becomes an unknown op, and the program says why."""
    builder = AtenBuilder("m")
    builder.input(_tensor("x", 2, 3))
    arguments = {"self": Ref("x"), "mat2": Ref("x")}
    builder.call(AtenCall("aten.mm.default", arguments, (_tensor("y", 2, 2),)))
    builder.outputs(["y"])
    program = builder.program()
    (remark,) = program.diagnostics

    assert ["aten::mm"] == _unknown(program)
    assert "unknown-use" == remark.code
    assert "inner dimensions" in remark.message


def test_what_data_decide_is_said() -> None:
    """Experts' groups are taken to be equally large: the program says so, once."""
    rows = torch.zeros(8, 8).bfloat16()
    experts = torch.zeros(2, 8, 8).bfloat16()
    ends = torch.tensor([4, 8], dtype=torch.int32)

    def step() -> None:
        for _ in range(2):
            functional.grouped_mm(rows, experts, offs=ends)

    (remark,) = record(step).diagnostics

    assert (Level.NOTE, "data-assumed") == (remark.level, remark.code)
    assert "2 groups are taken to be equally large" in remark.message


def test_byproducts_are_defined_when_they_are_read() -> None:
    """What a kernel notes for its backward costs nothing of its own."""
    builder = AtenBuilder("m")
    for name in ("q", "k", "v"):
        builder.input(_tensor(name, 1, 2, 4, 8))
    heads = {"query": Ref("q"), "key": Ref("k"), "value": Ref("v")}
    results = (_tensor("out", 1, 2, 4, 8), _tensor("lse", 1, 2, 4), None)
    target = "aten._scaled_dot_product_efficient_attention.default"
    builder.call(AtenCall(target, heads, results))
    builder.call(AtenCall("mine.use.default", {"x": Ref("lse")}, (_tensor("u", 1),)))
    builder.outputs(["out", "u"])

    ops = [node.op for node in graph_of(builder.program())]
    assert ["attention", "constant", "unknown"] == ops


def test_tensors_of_the_host() -> None:
    """Calls on tensors of the host, as step counters are, launch nothing."""
    builder = AtenBuilder("m")
    builder.state(_tensor("step", host=True))
    arguments: dict[str, Argument] = {"self": Ref("step"), "other": 1}
    result = (_tensor("step_1", host=True),)
    builder.call(AtenCall("aten.add_.Tensor", arguments, result))
    (node,) = graph_of(builder.program())

    assert ("host", "aten::add_") == (node.op, node.attributes["op"])


def test_a_tensor_that_nothing_defines() -> None:
    """Reading it is an error that names tensor and call."""
    builder = AtenBuilder("m")
    call = AtenCall("aten.relu.default", {"self": Ref("x")}, (_tensor("y", 2),))

    with pytest.raises(UnsupportedModelError, match="'x' is read by aten"):
        builder.call(call)
    with pytest.raises(UnsupportedModelError, match="'y' is read by an output"):
        builder.outputs(["y"])


def test_a_name_that_is_taken() -> None:
    """Names are unique in the whole graph."""
    builder = AtenBuilder("m")
    builder.input(_tensor("x", 2))

    with pytest.raises(VerifyError, match="%x is defined twice"):
        builder.parameter(_tensor("x", 2))
    with pytest.raises(VerifyError, match="%x is defined twice"):
        builder.call(
            AtenCall("aten.relu.default", {"self": Ref("x")}, (_tensor("x", 2),))
        )


def _lstm_weights(builder: AtenBuilder, inputs: int) -> tuple[Ref, ...]:
    """Declare the weights of two layers of two directions, 4 units each."""
    names: list[str] = []
    for layer in range(2):
        width = inputs if layer == 0 else 8
        for direction in "fb":
            stem = f"{layer}{direction}"
            for kind, shape in (("w", (16, width)), ("r", (16, 4)), ("b", (16,))):
                builder.parameter(_tensor(f"{kind}{stem}", *shape))
                names.append(f"{kind}{stem}")
            builder.parameter(_tensor(f"c{stem}", 16))
            names.append(f"c{stem}")
    return tuple(map(Ref, names))


def test_stacked_recurrent_layers() -> None:
    """Each layer and direction of one call is a recurrence of its own."""
    builder = AtenBuilder("m")
    builder.input(_tensor("x", 5, 2, 3))
    arguments: dict[str, Argument] = {
        "input": Ref("x"),
        "hx": (),
        "params": _lstm_weights(builder, 3),
        "has_biases": True,
        "num_layers": 2,
        "bidirectional": True,
    }
    results = (_tensor("y", 5, 2, 8), _tensor("h", 4, 2, 4), _tensor("c", 4, 2, 4))
    builder.call(AtenCall("aten.lstm.input", arguments, results))
    builder.outputs(["y"])
    program = builder.program()

    assert {"recurrent": 4, "concat": 2} == Counter(ops_of(program))
    assert () == program.diagnostics


def test_gradients_of_stacked_recurrent_layers() -> None:
    """They come back in the order of the weights, from the last layer on."""
    builder = AtenBuilder("m")
    for name, width in (("x", 3), ("y", 8), ("g", 8)):
        builder.input(_tensor(name, 5, 2, width))
    weights = _lstm_weights(builder, 3)
    arguments: dict[str, Argument] = {
        "input": Ref("x"),
        "weight": weights,
        "output": Ref("y"),
        "grad_output": Ref("g"),
        "mode": 2,
        "num_layers": 2,
        "bidirectional": True,
    }
    shapes = [(16, 3), (16, 4), (16,), (16,)] * 2 + [(16, 8), (16, 4), (16,), (16,)] * 2
    gradients = [_tensor(f"d{i}", *shape) for i, shape in enumerate(shapes)]
    results = (_tensor("dx", 5, 2, 3), None, None, *gradients)
    builder.call(AtenCall("aten._cudnn_rnn_backward.default", arguments, results))
    builder.outputs(["dx", "d0", "d8", "d9"])
    program = builder.program()
    graph = graph_of(program)

    assert {"recurrent_backward": 4} == Counter(ops_of(program))
    assert ["f32[5,2,3]", "f32[16,3]", "f32[16,8]", "f32[16,4]"] == [
        str(value.type) for value in graph.outputs
    ]


def _spectrum() -> object:
    return cast("object", torch.fft.rfft(torch.ones(4, 8)))


@pytest.mark.parametrize(
    ("run", "ops"),
    [
        (_spectrum, ["fill", "fft"]),
        (lambda: torch.ones(3, 4).unbind(1), ["fill", "split", *["squeeze"] * 4]),
        (lambda: torch.ones(3, 4).sort(), ["fill", "sort"]),
        (lambda: torch.ones(3, 4).topk(2), ["fill", "topk"]),
        (lambda: torch.ones(3, 4).max(1), ["fill", "reduce"]),
        (lambda: torch.ones(3, 4).argmax(), ["fill", "reshape", "argmax"]),
        (lambda: torch.var_mean(torch.ones(3, 4), 1), ["fill", "reduce"]),
        (lambda: torch.ones(3, 4).repeat(2, 1, 1), ["fill", "unsqueeze", "tile"]),
        (lambda: torch.ones(()).item(), ["fill", "item"]),
        (lambda: torch.zeros(3).normal_(), ["fill", "random"]),
        (lambda: torch.ones(3, 4)[:, torch.tensor([1])], None),
        (lambda: torch.ones(3, 4)[torch.ones(3, dtype=torch.bool)], None),
        (lambda: torch.ones(3, 4).masked_fill(torch.ones(4).bool(), 0.0), None),
        (
            lambda: torch.ones(3, 4).index_add(0, torch.tensor([1]), torch.ones(1, 4)),
            None,
        ),
        (
            lambda: functional.interpolate(torch.ones(1, 2, 4, 4), scale_factor=2.0),
            None,
        ),
        (lambda: functional.pad(torch.ones(2, 4, 4), (1, 1), "reflect"), None),
        (
            lambda: functional.conv_transpose2d(
                torch.ones(1, 2, 4, 4), torch.ones(2, 3, 3, 3)
            ),
            None,
        ),
        (lambda: functional.group_norm(torch.ones(1, 4, 4), 2), None),
        (lambda: torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(3, 2)), None),
        (
            lambda: torch.ones(2, 3).scatter_add(
                1, torch.zeros(2, 3).long(), torch.ones(2, 3)
            ),
            None,
        ),
        (
            lambda: torch.baddbmm(
                torch.ones(4), torch.ones(2, 3, 5), torch.ones(2, 5, 4)
            ),
            None,
        ),
        (
            lambda: torch.ones(3, dtype=torch.bfloat16) * torch.ones(3),
            ["fill", "fill", "mul"],
        ),
    ],
    ids=itertools.count(),
)
def test_calls_of_many_kinds(run: Callable[[], object], ops: list[str] | None) -> None:
    """Each is written without an unknown op, and its types are PyTorch's."""
    program = record(run)

    assert [] == _unknown(program)
    assert () == program.diagnostics
    if ops is not None:
        assert ops == [op for op in ops_of(program) if op != "alias"]
    lower(program)
