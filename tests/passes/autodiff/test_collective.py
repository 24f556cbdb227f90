"""Gradients of collectives, compared with what all ranks together compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from perfc.ir import Node
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import PassManager, ShapeInference
from perfc.passes.training import Training

Parts = Sequence[NDArray[np.float64]]
RANKS, ROWS = 3, 6


def _all_to_all(parts: Parts) -> Parts:
    pieces = [np.split(part, RANKS) for part in parts]
    return [np.concatenate([p[rank] for p in pieces]) for rank in range(RANKS)]


def _all_gather(parts: Parts) -> Parts:
    return [np.concatenate(parts)] * RANKS


def _reduce_scatter(parts: Parts) -> Parts:
    return np.split(sum(parts, np.zeros_like(parts[0])), RANKS)


RUN: dict[str, Callable[[Parts], Parts]] = {
    "all_to_all": _all_to_all,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
}


def _backward_of(op: str) -> list[Node]:
    """Return the collectives that training writes after one of a parameter."""
    text = f"""
    graph @g(param %w: f32[{ROWS},2]) {{
      %y = {op}(%w) {{group = "g", ranks = {RANKS}, stream = "own", stride = 2}} : ?
      return %y
    }}
    """
    passes = [ShapeInference(), Training(loss="sum")]
    graph = PassManager(passes).run(parse_program(text)).program.classes[0].ops
    assert graph is not None
    verify(graph, BUILTIN_OPS)
    return [
        n for n in graph if n.location.phase == "backward" and "ranks" in n.attributes
    ]


@pytest.mark.parametrize("op", RUN)
def test_gradient_is_the_adjoint(op: str) -> None:
    """What goes back weighs what went out as backward's own communicator says."""
    (back,) = _backward_of(op)
    random = np.random.default_rng(1)
    x = [random.normal(size=(ROWS, 2)) for _ in range(RANKS)]
    y = RUN[op](x)
    grads = [random.normal(size=part.shape) for part in y]
    returned = RUN[back.op](grads)

    assert ("g", RANKS, "own", 2) == tuple(
        back.attributes[name] for name in ("group", "ranks", "stream", "stride")
    )
    assert [part.shape for part in x] == [part.shape for part in returned]
    assert np.isclose(
        sum(float(np.vdot(g, part)) for g, part in zip(grads, y, strict=True)),
        sum(float(np.vdot(g, part)) for g, part in zip(returned, x, strict=True)),
    )


def test_a_sum_that_all_ranks_read_hands_its_gradient_on() -> None:
    """Each rank has the gradient of the whole sum already: nothing is sent."""
    assert [] == _backward_of("all_reduce")


def test_gradients_of_what_all_ranks_have_are_added_up() -> None:
    """Each rank has the gradient of its own samples."""
    (back,) = _backward_of("replicated")

    assert "all_reduce" == back.op
    assert (RANKS, "own") == (back.attributes["ranks"], back.attributes["stream"])
