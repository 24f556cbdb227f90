"""tensor-parallel: a vocabulary that ranks share, and the loss of scores in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from tests.passes.torch_graph import OPS, run_graph
from torch import Tensor

from perfc.ir import Graph, Node, UsageError
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import Pass, PassManager, ShapeInference, TensorParallel
from perfc.passes.training import Training

RANKS, TOKENS = 3, 12
PART = TOKENS // RANKS
TIED = """
graph @lm(%ids: i64[2,3], param %table: f64[12,8], param %up: f64[6,8],
          param %down: f64[8,6]) {
  %e = gather(%table, %ids) {axis = 0} : ?
  %h = linear(%e, %up) : ?
  %a = relu(%h) : ?
  %d = linear(%a, %down) : ?
  %s = add(%e, %d) : ?
  %y = linear(%s, %table) : ?
  return %y
}
"""
APART = """
graph @lm(%ids: i64[2,3], param %table: f64[12,8], param %up: f64[6,8],
          param %down: f64[8,6], param %head: f64[8,12], param %bias: f64[12]) {
  %e = gather(%table, %ids) {axis = 0} : ?
  %h = linear(%e, %up) : ?
  %a = relu(%h) : ?
  %d = linear(%a, %down) : ?
  %s = add(%e, %d) : ?
  %y = linear(%s, %head, %bias) {weight_is_kn = true} : ?
  return %y
}
"""
_OPS: Mapping[str, Callable[[Node, list[Tensor]], Sequence[Tensor]]] = {
    **OPS,
    "bitwise_or": lambda node, o: [o[0] | o[1]],
    "copy": lambda node, o: [o[0].clone()],
    "range": lambda node, o: [torch.arange(*map(int, o))],
}
SHARED = TensorParallel(ranks=RANKS, vocabulary="true")


def _made(text: str, *passes: Pass) -> Graph:
    inferred = [q for p in passes for q in (p, ShapeInference())]
    done = PassManager([ShapeInference(), *inferred]).run(parse_program(text))
    graph = done.program.classes[0].ops
    assert graph is not None
    verify(graph, BUILTIN_OPS)
    return graph


def _collective(node: Node, parts: list[Tensor]) -> list[Tensor]:
    if node.op == "all_gather":
        found = torch.cat(parts, node.attributes.integer("axis"))
    elif node.attributes.get("kind") == "max":
        found = torch.stack(parts).amax(0)
    else:
        found = torch.stack(parts).sum(0)
    return [found] * len(parts)


def _run(graph: Graph, ranks: list[dict[str, Tensor]]) -> None:
    """Run a step on all ranks at once, up to the optimizer."""
    for node in graph:
        if node.location.phase == "optimizer":
            continue
        operands = [[has[v.name] for v in node.operands] for has in ranks]
        if node.op in ("all_reduce", "all_gather"):
            results = [[r] for r in _collective(node, [x for (x,) in operands])]
        elif node.op in ("replicated", "split_cross_entropy"):
            results = [[values[node.op != "replicated"]] for values in operands]
        else:
            results = [list(_OPS[node.op](node, values)) for values in operands]
        for has, made in zip(ranks, results, strict=True):
            has |= {v.name: t for v, t in zip(node.results, made, strict=True)}


def _data(graph: Graph) -> dict[str, Tensor]:
    """Draw parameters, tokens and labels."""
    torch.manual_seed(0)
    made: dict[str, Tensor] = {}
    for value in graph.arguments():
        assert value.type is not None
        shape = [int(str(dim)) for dim in value.type.shape]
        is_float = value.type.dtype.is_float
        made[value.name] = (
            torch.randn(shape, dtype=torch.float64)
            if is_float
            else torch.randint(TOKENS, shape)
        )
    return made


def _cut(graph: Graph, whole: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """Give a rank its parts; it counts tokens from the first of its own."""
    made: dict[str, Tensor] = {}
    for value in graph.arguments():
        found = whole[value.name]
        made[value.name] = _part(found, graph, value.name, rank)
        if not found.is_floating_point():
            made[value.name] = found - rank * PART
    return made


def _part(whole: Tensor, graph: Graph, name: str, rank: int) -> Tensor:
    type_ = graph.value(name).type
    assert type_ is not None
    for axis, dim in enumerate(type_.shape):
        if dim != whole.shape[axis]:
            return whole.chunk(RANKS, axis)[rank]
    return whole


@pytest.mark.parametrize("text", [TIED, APART], ids=["tied", "apart"])
def test_ranks_have_the_loss_and_the_gradients_of_one(text: str) -> None:
    """Each rank has its part of them, of a table that is the head's weight, too."""
    training = Training(loss="cross_entropy")
    one, shared = _made(text, training), _made(text, SHARED, training)
    data = _data(one)
    expected = run_graph(one, data, ("forward", "loss", "backward"))
    ranks = [_cut(shared, data, rank) for rank in range(RANKS)]
    _run(shared, ranks)

    for rank, found in enumerate(ranks):
        assert torch.allclose(
            expected[one.outputs[1].name], found[shared.outputs[1].name]
        )
        for parameter in one.parameters:
            name = f"{parameter.name}.grad"
            part = _part(expected[name], shared, parameter.name, rank)
            assert torch.allclose(part, found[name]), name


@pytest.mark.parametrize("text", [TIED, APART], ids=["tied", "apart"])
def test_scores_that_somebody_reads_are_gathered_once(text: str) -> None:
    """An inference returns all of them, on every rank."""
    one, shared = _made(text), _made(text, SHARED)
    data = _data(one)
    expected = run_graph(one, data, ("forward",))[one.outputs[0].name]
    ranks = [_cut(shared, data, rank) for rank in range(RANKS)]
    _run(shared, ranks)

    assert 1 == sum(node.op == "all_gather" for node in shared)
    assert all(torch.allclose(expected, r[shared.outputs[0].name]) for r in ranks)


def test_scores_are_not_gathered_for_a_loss_that_takes_parts() -> None:
    """Three numbers a row are all-reduced; nothing of the size of a vocabulary is."""
    graph = _made(TIED, SHARED, Training(loss="cross_entropy"))
    loss = [n for n in graph if n.op == "all_reduce" and n.location.phase == "loss"]

    assert 3 == len(loss)
    assert not any(node.op == "all_gather" for node in graph)


def test_another_loss_reads_gathered_scores() -> None:
    """Each rank cuts its part out of the gradient, which is the same on all."""
    graph = _made(TIED, SHARED, Training(loss="mse"))

    assert 1 == sum(node.op == "all_gather" for node in graph)
    assert not any(node.op == "reduce_scatter" for node in graph)


def test_tokens_that_do_not_divide() -> None:
    """By itself the vocabulary stays whole then; asked for, it is an error."""
    uneven = TIED.replace("table: f64[12,8]", "table: f64[13,8]")
    whole = _made(uneven, TensorParallel(ranks=2))
    with pytest.raises(UnsupportedModelError, match="13 tokens do not divide by 2"):
        _made(uneven, TensorParallel(ranks=2, vocabulary="true"))

    assert whole.value("table").type == _made(uneven).value("table").type


def test_a_vocabulary_that_is_not_there() -> None:
    """A table that is no vocabulary is not taken for one."""
    other = TIED.replace("%y = linear(%s, %table) : ?", "%y = exp(%s) : ?")

    assert "all_gather" not in {n.op for n in _made(other, TensorParallel(ranks=2))}
    with pytest.raises(UnsupportedModelError, match="no vocabulary"):
        _made(other, TensorParallel(ranks=2, vocabulary="true"))


def test_the_option_is_one_of_three() -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="expected auto, true or false"):
        TensorParallel(ranks=2, vocabulary="some")
