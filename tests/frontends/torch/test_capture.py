"""Modules recorded without memory: the graph is what eager PyTorch on a GPU calls."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import perfc
from perfc.ir import Graph, Node
from perfc.passes.training import Training


class Mlp(nn.Module):
    """Two layers, dropout between them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return torch.sigmoid(self.second(self.drop(torch.relu(self.first(x)))))


class Tables(nn.Module):
    """A bag and a plain lookup, summed and multiplied."""

    def __init__(self, *, sparse: bool) -> None:
        """Make the tables."""
        super().__init__()
        self.bag = nn.EmbeddingBag(100, 8, mode="sum", sparse=sparse)
        self.table = nn.Embedding(50, 8, sparse=sparse)
        self.top = nn.Linear(8, 1)

    def forward(self, indices: Tensor, offsets: Tensor, ids: Tensor) -> Tensor:
        """Return numbers."""
        out: Tensor = self.top(self.bag(indices, offsets) + self.table(ids))
        return out


IDS = (torch.zeros(20, dtype=torch.int64), torch.arange(4) * 5, torch.zeros(4).long())
X = (torch.zeros(4, 8),)


def graph_of(module: nn.Module, args: Any = X, **options: Any) -> Graph:
    """Record a module and return its op graph."""
    graph = perfc.from_torch(module, args, **options).program.classes[0].ops
    assert graph is not None
    return graph


def ops(graph: Graph, phase: str) -> list[str]:
    """Return the ops of a phase that are no constants or views, in order."""
    skipped = {"constant", "transpose", "reshape", "alias", "empty"}
    return [n.op for n in graph if n.location.phase == phase and n.op not in skipped]


def nodes(graph: Graph, op: str) -> list[Node]:
    """Return the nodes of an op."""
    return [node for node in graph if node.op == op]


def test_inference_is_the_forward_pass_in_evaluation() -> None:
    """A module that was made for training is run as in `eval()`: without dropout."""
    graph = graph_of(Mlp())
    assert ["linear", "relu", "linear", "sigmoid"] == ops(graph, "forward")
    assert ["x"] == [value.name for value in graph.inputs]


def test_training_runs_forward_loss_backward_and_optimizer() -> None:
    """The step has four phases, in eager order."""
    graph = graph_of(Mlp(), mode="training", optimizer="sgd")
    assert ["linear", "relu", "dropout", "linear", "sigmoid"] == ops(graph, "forward")
    assert ["loss"] == ops(graph, "loss")
    assert [
        *("fill", "loss_backward", "sigmoid_backward"),
        *("matmul", "matmul", "reduce", "dropout_backward", "relu_backward"),
        *("matmul", "reduce"),
    ] == ops(graph, "backward")
    assert ["foreach"] == ops(graph, "optimizer")


def test_derived_step_launches_what_the_recorded_one_does() -> None:
    """The pass `training` copies no gradient that autograd lays out as the weight."""
    module, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), X
    derived = perfc.from_torch(module, x, transforms=[Training(loss="sum")])
    recorded = perfc.from_torch(module, x, mode="training", optimizer="sgd", loss="sum")
    launches = [
        perfc.analyze(model, "a100").summary["launches"]
        for model in (derived, recorded)
    ]
    assert launches[0] == launches[1]


def test_backward_is_where_its_forward_is() -> None:
    """A gradient has the module and the line of the op that it is the gradient of."""
    graph = graph_of(Mlp(), mode="training", optimizer="sgd")
    forward = {n.op: n.location for n in graph if n.location.phase == "forward"}
    backward = {n.op: n.location for n in graph if n.location.phase == "backward"}
    assert forward["relu"].source == backward["relu_backward"].source
    assert "test_capture.py:" in backward["relu_backward"].source
    assert "drop" == backward["dropout_backward"].module
    modules = [n.location.module for n in nodes(graph, "matmul")]
    assert ["second", "second", "first"] == modules


def test_user_module_is_unchanged() -> None:
    """Weights, buffers, gradients, flags and random numbers are as before."""
    module = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout())
    module[0].weight.grad = torch.ones(4, 8)
    module[2].eval()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    x = torch.rand(4, 8)
    copy, seed = x.clone(), torch.get_rng_state()
    graph_of(module, (x,), mode="training", optimizer="adam")
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(torch.ones(4, 8), module[0].weight.grad)
    assert [True, True, True, False] == [m.training for m in module.modules()]
    assert torch.equal(copy, x)
    assert torch.equal(seed, torch.get_rng_state())
    assert not vars(x)


def test_factory_takes_no_memory() -> None:
    """A module of a terabyte is recorded from a function that makes it."""
    graph = graph_of(lambda: nn.Linear(1 << 19, 1 << 19), (torch.Size([4, 1 << 19]),))  # type: ignore[arg-type]
    weight = graph.value("weight").type
    assert weight is not None
    assert 1 << 40 == weight.nbytes


def test_arguments_may_be_shapes() -> None:
    """A `torch.Size`, and a pair of a shape and a type, stand for tensors."""
    args = (((20,), torch.int64), ((4,), torch.int64), ((4,), torch.int64))
    graph = graph_of(Tables(sparse=False), args)
    assert ["i64[20]", "i64[4]", "i64[4]"] == [str(v.type) for v in graph.inputs]


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", ["foreach"]),
        ("adagrad", ["host", "foreach", "foreach", "foreach", "foreach", "foreach"]),
        (partial(torch.optim.AdamW, fused=True), ["foreach", "optimizer_step"]),
        (partial(torch.optim.SGD, lr=0.1, fused=True), ["optimizer_step"]),
    ],
    ids=["sgd", "adagrad", "fused-adamw", "fused-sgd"],
)
def test_optimizers_take_their_defaults_for_cuda(
    optimizer: Any,
    expected: list[str],
) -> None:
    """Lists at once unless the user asks for the fused kernel; state is made before."""
    graph = graph_of(Mlp(), mode="training", optimizer=optimizer)
    found = [op for op in ops(graph, "optimizer") if op != "fill"]
    counted = Counter(found)
    counted["host"] = min(counted["host"], 1)
    assert Counter(expected) == +counted


def test_state_is_declared() -> None:
    """Adam has two tensors of the device for each parameter, and a step on the host."""
    graph = graph_of(Mlp(), mode="training", optimizer="adam")
    states = {value.name: str(value.type) for value in graph.states}
    assert "f32[16,8]" == states["first.weight.exp_avg"]
    assert "f32[]@host" == states["first.weight.step"]
    assert 12 == len(states)


@pytest.mark.parametrize("optimizer", ["adagrad", "adamw"])
def test_number_that_an_optimizer_adds_is_no_parameter(optimizer: str) -> None:
    """The 1 that the counters of steps grow by is a number of the host."""
    graph = graph_of(Mlp(), mode="training", optimizer=optimizer)
    names = [name for name, _ in Mlp().named_parameters()]
    assert names == [value.name for value in graph.parameters]


@pytest.mark.parametrize("sparse", [False, True])
def test_tables_and_their_gradients(*, sparse: bool) -> None:
    """Sparse tables are updated one call each, dense ones with all the rest."""
    graph = graph_of(Tables(sparse=sparse), IDS, mode="training", optimizer="adagrad")
    steps = [n.operands[0].name for n in nodes(graph, "sparse_optimizer_step")]
    assert (["bag.weight", "table.weight"] if sparse else []) == steps
    for op in ("embedding_bag_backward", "embedding_backward"):
        (node,) = nodes(graph, op)
        assert sparse == node.attributes.flag("sparse")
        assert (2 if sparse else 1) == len(node.results)


@pytest.mark.parametrize(
    ("optimizer", "step"),
    [("sgd", ["add"]), ("adagrad", ["addcmul", "sqrt", "add", "addcdiv"])],
)
def test_dense_parameters_beside_sparse_tables(optimizer: str, step: list[str]) -> None:
    """PyTorch's functions for lists take no sparse gradient: it steps one by one."""
    options = {"mode": "training", "optimizer": optimizer}
    graph = graph_of(Tables(sparse=True), IDS, **options)
    dense = 2  # weight and bias of the layer on top
    found = [op for op in ops(graph, "optimizer") if op not in {"host", "fill"}]
    assert [*step * dense, *["sparse_optimizer_step"] * 2] == found


def test_rowwise_adagrad_keeps_one_number_a_row() -> None:
    """The state of a table has its rows, and no columns."""
    options = {"mode": "training", "optimizer": "rowwise_adagrad"}
    graph = graph_of(Tables(sparse=True), IDS, **options)
    states = {value.name: str(value.type) for value in graph.states}
    assert "f32[100]" == states["bag.weight.sum"]
    assert "f32[1,8]" == states["top.weight.sum"]


class Attention(nn.Module):
    """Attention with what it is given."""

    def __init__(self, **options: Any) -> None:
        """Remember the options."""
        super().__init__()
        self.options = options

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend to itself."""
        return functional.scaled_dot_product_attention(x, x, x, mask, **self.options)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_one_call(*, masked: bool) -> None:
    """Forward and backward have one op each; which kernel is the target's business."""
    x = torch.zeros(2, 4, 16, 8, requires_grad=True)
    args = (x, torch.ones(16, 16, dtype=torch.bool)) if masked else (x,)
    graph = graph_of(Attention(is_causal=not masked), args, mode="training", loss="sum")
    assert ["attention"] == ops(graph, "forward")
    assert 1 == ops(graph, "backward").count("attention_backward")


def test_model_that_turns_fused_attention_off_multiplies() -> None:
    """`torch.nn.attention.sdpa_kernel` is honoured."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        graph = graph_of(Attention(), (torch.zeros(2, 4, 16, 8),))
    assert not nodes(graph, "attention")
    assert 2 == len(nodes(graph, "matmul"))


@pytest.mark.parametrize(
    ("module", "op"),
    [(nn.RMSNorm(8), "rms_norm"), (nn.LayerNorm(8), "layer_norm")],
)
def test_norms_are_one_call(module: nn.Module, op: str) -> None:
    """So are their gradients."""
    graph = graph_of(module, mode="training", loss="sum")
    assert [op] == ops(graph, "forward")
    assert 1 == ops(graph, "backward").count(f"{op}_backward")


def test_autocast_converts_as_on_cuda() -> None:
    """Matmuls in bf16, layer norm and loss in fp32, each weight converted once."""
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    graph = graph_of(module, mode="training", dtype="amp-bf16", loss="mse")
    results = {n.location.module: n.results[0].type for n in nodes(graph, "linear")}
    assert ["bf16[4,8]"] * 2 == [str(type_) for type_ in results.values()]
    (norm,) = nodes(graph, "layer_norm")
    assert "f32[4,8]" == str(norm.results[0].type)


def test_autocast_within_a_model_is_honoured() -> None:
    """The model's own `torch.autocast` of CUDA works without CUDA."""

    class Own(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=torch.float16):
                out: Tensor = self.first(x)
            return out

    graph = graph_of(Own())
    assert "f16[4,16]" == str(nodes(graph, "linear")[0].results[0].type)


def test_half_precision_converts_weights_and_inputs() -> None:
    """`dtype="bf16"` is `module.to(torch.bfloat16)`."""
    graph = graph_of(Mlp(), dtype="bf16")
    values = [*graph.inputs, *graph.parameters]
    assert {"bf16"} == {v.type.dtype.name for v in values if v.type is not None}


def test_known_elements_answer_questions() -> None:
    """A model may look at a small argument: here whether a mask hides anything."""

    class Looks(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x if bool(mask.all()) else x * mask

    full = graph_of(Looks(), (torch.zeros(4), torch.ones(4, dtype=torch.bool)))
    some = graph_of(Looks(), (torch.zeros(4), torch.zeros(4, dtype=torch.bool)))
    assert not nodes(full, "mul")
    assert 1 == len(nodes(some, "mul"))


def test_tied_weights_are_one_parameter() -> None:
    """An output layer that shares the table's weight is not a second weight."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Tensor) -> Tensor:
            out: Tensor = self.head(self.table(ids))
            return out

    graph = graph_of(Tied(), (torch.zeros(4, dtype=torch.int64),))
    assert ["table.weight"] == [value.name for value in graph.parameters]
