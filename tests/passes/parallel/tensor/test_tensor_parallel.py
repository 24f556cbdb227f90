"""tensor-parallel: which layers ranks share, and what they tell each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, Node, Program, TensorType, Value
from perfc.ir.dims import Dim, symbol
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import Fsdp, Pass, PassManager, ShapeInference, TensorParallel
from perfc.passes.parallel import DataParallel
from perfc.passes.parallel.tensor.split_axes import viewed_axis
from perfc.passes.precision import ConvertDtype
from perfc.passes.training import Training

Array = NDArray[np.float64]
BATCH, RANKS, LAYERS, SEQ, HIDDEN = 2, 4, 3, 16, 64
SIZES = f"layers={LAYERS},hidden={HIDDEN},heads=4,seq={SEQ},vocab=101"
STREAM = 4 * BATCH * SEQ * HIDDEN
"""Bytes of what goes from block to block."""


def _run(model: str, *passes: Pass) -> Program:
    inferred = [q for p in passes for q in (p, ShapeInference())]
    manager = PassManager([ShapeInference(), *inferred])
    program = manager.run(build_workload(model)).program
    for rank in program.classes:
        assert rank.ops is not None
        verify(rank.ops, BUILTIN_OPS)
    return program.bind({"batch": BATCH})


def _graph(model: str, *passes: Pass) -> Graph:
    (rank,) = _run(model, *passes).classes
    assert rank.ops is not None
    return rank.ops


def _type(value: Value) -> TensorType:
    assert value.type is not None
    return value.type.bind({"batch": BATCH})


def _flops(node: Node) -> int:
    operands, results = map(_type, node.operands), map(_type, node.results)
    work = BUILTIN_OPS[node.op].work(node.attributes, [*operands], [*results])
    return int(work.flops)


def _biases(node: Node) -> int:
    has_bias = node.op == "linear" and len(node.operands) > 2
    return int(_type(node.results[0]).numel) if has_bias else 0


def _matmuls(graph: Graph) -> Mapping[str, int]:
    """Return the flops of matmuls and attention, biases apart, by name."""
    return {
        node.name: _flops(node) - _biases(node)
        for node in graph
        if node.op in ("linear", "attention", "matmul")
    }


@pytest.mark.parametrize("model", [f"gpt2:{SIZES}", f"bert-base:{SIZES}"])
def test_work_of_shared_layers_adds_up(model: str) -> None:
    """All ranks together do the matmuls once, but for layers that are not shared."""
    whole = _matmuls(_graph(model))
    part = _matmuls(_graph(model, TensorParallel(ranks=RANKS)))
    alike = {name for name in whole if whole[name] == part[name]}

    assert whole.keys() == part.keys()
    assert all(RANKS * part[name] == whole[name] for name in whole.keys() - alike)
    assert alike <= {"lm_head.linear"} | {
        n
        for n in whole
        if "pooler" in n or "cls" in n or "classifier" in n or "predictions" in n
    }


def test_two_sums_of_a_layer() -> None:
    """Batch x sequence x hidden, after attention and MLP; twice more in backward."""
    graph = _graph(f"gpt2:{SIZES}", TensorParallel(ranks=RANKS), Training())
    reduces = [node for node in graph if node.op == "all_reduce"]
    by_phase = [node.location.phase for node in reduces]

    assert 2 * LAYERS == by_phase.count("forward") == by_phase.count("backward")
    assert {STREAM} == {_type(node.results[0]).nbytes for node in reduces}
    assert {("tp", RANKS)} == {
        (node.attributes["group"], node.attributes["ranks"]) for node in reduces
    }


@pytest.mark.parametrize("model", [f"gpt2:{SIZES}", f"bert-base:{SIZES}"])
def test_a_weight_has_its_gradient_while_that_of_the_input_is_added_up(
    model: str,
) -> None:
    """The matmul of the weight stands after the all-reduce, before who reads it."""
    nodes = [*_graph(model, TensorParallel(ranks=RANKS), Training())]
    reduces = [
        place
        for place, node in enumerate(nodes)
        if node.op == "all_reduce" and node.location.phase == "backward"
    ]

    assert 2 * LAYERS == len(reduces)
    for place in reduces:
        module = nodes[place].location.module
        total = nodes[place].results[0]
        readers = (n for n, node in enumerate(nodes) if total in node.operands)
        between = nodes[place + 1 : next(readers)]
        assert [module] == [n.location.module for n in between if n.op == "matmul"]


def test_weights_add_up() -> None:
    """Matrices of blocks are cut, and biases of first layers; the rest is whole."""
    whole = _graph(f"gpt2:{SIZES}").parameters
    part = {
        v.name: v for v in _graph(f"gpt2:{SIZES}", TensorParallel(ranks=4)).parameters
    }
    shared = {
        value.name
        for value in whole
        if _type(part[value.name]).numel * RANKS == _type(value).numel
    }

    assert all(part[v.name].type == v.type for v in whole if v.name not in shared)
    assert {
        f"transformer.h.{layer}.{name}"
        for layer in range(LAYERS)
        for name in (
            *("attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight"),
            *("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight"),
        )
    } == shared


def _evaluate(graph: Graph, ranks: list[dict[str, Array]]) -> list[Array]:
    """Run an MLP on all ranks at once; each starts from what it has by name."""
    for node in graph:
        operands = [[has[v.name] for v in node.operands] for has in ranks]
        if node.op == "all_reduce":
            total = sum((x for (x,) in operands), np.zeros_like(operands[0][0]))
            results = [total] * len(ranks)
        else:
            results = [_one(node.op, values) for values in operands]
        for has, result in zip(ranks, results, strict=True):
            has[node.results[0].name] = result
    (out,) = graph.outputs
    return [has[out.name] for has in ranks]


def _one(op: str, values: list[Array]) -> Array:
    match op:
        case "linear":
            x, weight, *bias = values
            return np.asarray(sum(bias, x @ weight.T))
        case "add":
            return np.asarray(values[0] + values[1])
        case "relu":
            return np.maximum(values[0], 0.0)
        case _:
            assert "replicated" == op
            return values[0]


def _sizes(value: Value) -> tuple[int, ...]:
    return tuple(int(str(dim)) for dim in _type(value).shape)


def _slice(value: Value, whole: Array, rank: int) -> Array:
    """Cut a parameter as its type says."""
    for axis, dim in enumerate(_type(value).shape):
        if dim != whole.shape[axis]:
            return np.split(whole, RANKS, axis)[rank]
    return whole


def test_ranks_compute_what_one_would() -> None:
    """Four layers: parts of outputs, partial sums, added up, twice; biases once."""
    text = """
    graph @mlp(%x: f32[3,8], param %a: f32[16,8], param %b: f32[12,16],
               param %c: f32[20,12], param %d: f32[1,20], param %e: f32[16],
               param %f: f32[12]) {
      %1 = linear(%x, %a, %e) : ?
      %2 = relu(%1) : ?
      %3 = linear(%2, %b, %f) : ?
      %4 = relu(%3) : ?
      %5 = linear(%4, %c) : ?
      %6 = relu(%5) : ?
      %7 = linear(%6, %d) : ?
      return %7
    }
    """
    random = np.random.default_rng(3)
    graphs: list[Graph] = []
    for passes in ([], [TensorParallel(ranks=RANKS), ShapeInference()]):
        done = PassManager([ShapeInference(), *passes]).run(parse_program(text))
        made = done.program.classes[0].ops
        assert made is not None
        graphs.append(made)
    one, part = graphs
    data = {v.name: random.normal(size=_sizes(v)) for v in one.arguments()}
    (expected,) = _evaluate(one, [dict(data)])
    cut = [
        {v.name: _slice(v, data[v.name], rank) for v in part.arguments()}
        for rank in range(RANKS)
    ]

    assert 2 == sum(node.op == "all_reduce" for node in part)
    for found in _evaluate(part, cut):
        assert np.allclose(expected, found)


def test_sums_of_a_classifier_are_logits() -> None:
    """The loss is chosen as of one rank, though a layer by rows ends the model."""
    text = """
    graph @mlp(%x: f32[3,8], param %a: f32[16,8], param %b: f32[12,16],
               param %c: f32[12]) {
      %1 = linear(%x, %a) : ?
      %2 = relu(%1) : ?
      %3 = linear(%2, %b, %c) : ?
      return %3
    }
    """
    shared = [TensorParallel(ranks=RANKS), ShapeInference()]
    manager = PassManager([ShapeInference(), *shared, Training()])
    (rank,) = manager.run(parse_program(text)).program.classes

    assert rank.ops is not None
    assert 1 == sum(node.op == "nll_loss" for node in rank.ops)


def test_replicas_stand_outside() -> None:
    """Ranks that share layers are neighbours; replicas begin one behind another."""
    model, shared = f"gpt2:{SIZES}", TensorParallel(ranks=2)
    for after in (DataParallel(ranks=3), DataParallel(world=6)):
        program = _run(model, shared, Training(), after)
        (rank,) = program.classes
        assert rank.ops is not None
        groups = {
            (n.attributes["group"], n.attributes["ranks"], n.attributes.get("stride"))
            for n in rank.ops
            if n.op == "all_reduce"
        }

        assert (3, tuple(range(6))) == (program.replicas, rank.ranks)
        assert {("tp", 2, None), ("dp", 3, 2)} == groups


def test_shared_layers_are_shared_again() -> None:
    """Fsdp over replicas of two ranks each gathers the parts that a rank has."""
    graph = _graph(f"gpt2:{SIZES}", TensorParallel(ranks=2), Fsdp(ranks=4))
    gathers = [node for node in graph if node.op == "all_gather"]
    unit = 6 * HIDDEN * HIDDEN + (3 + 4) * HIDDEN // 2 + 6 * HIDDEN

    assert {2} == {node.attributes["stride"] for node in gathers}
    assert unit == _type(gathers[1].results[0]).numel


@pytest.mark.parametrize(
    ("before", "after", "axis", "expected"),
    [
        ((2, 6, 8), (2, 6, 4, 2), 2, (2, 1)),
        ((2, 6, 4, 2), (2, 6, 8), 2, (2, 1)),
        ((2, 6, 8), (12, 8), 2, (1, 1)),
        ((2, 6, 8), (2, 6, 1, 8), 2, (3, 1)),
        ((2, 6, 4, 2), (2, 6, 8), 3, (2, 4)),
        ((2, 6, 8), (2, 48), 2, (1, 6)),
        ((symbol("B"), 6, 8), (6 * symbol("B"), 8), 1, (0, symbol("B"))),
        ((4, 6), (3, 8), 0, None),
    ],
)
def test_an_axis_in_another_shape(
    before: tuple[Dim, ...],
    after: tuple[Dim, ...],
    axis: int,
    expected: tuple[int, Dim] | None,
) -> None:
    """It stays, splits into factors, or is joined by what stands around it."""
    assert expected == viewed_axis(before, after, axis)


def test_blocks_of_an_axis() -> None:
    """Of queries, keys and values that lie one behind another each is shared."""
    assert (2, 1) == viewed_axis((5, 24), (5, 3, 8), 1, blocks=3)
    assert (1, 3) == viewed_axis((5, 3, 8), (5, 24), 2)


def test_heads_that_do_not_divide_name_the_module() -> None:
    """Twelve heads over eight ranks: the attention of the first block is named."""
    with pytest.raises(
        UnsupportedModelError, match=r"transformer\.h\.0\.attn: 12 .* by 8 ranks"
    ):
        _run("gpt2:layers=1", TensorParallel(ranks=8))


def test_autocast_before_changes_nothing() -> None:
    """A weight that is cast is still the layer's own: as many layers are shared."""
    cast = ConvertDtype(to="bf16", autocast=True)
    graphs = [
        _graph(f"gpt2:{SIZES}", *passes)
        for passes in (
            (TensorParallel(ranks=RANKS),),
            (cast, TensorParallel(ranks=RANKS)),
        )
    ]
    shapes = [[_type(v).shape for v in graph.parameters] for graph in graphs]

    assert shapes[0] == shapes[1]
