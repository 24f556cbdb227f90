"""Microbatches: parts of a batch, and the order in which stages compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.ir import (
    Dim,
    Expr,
    Graph,
    UnsupportedModelError,
    Value,
    evaluate,
    symbol,
    symbols_of,
)
from perfc.passes.tape import typed

GPIPE, ONE_F_ONE_B = "gpipe", "1f1b"


@attrs.frozen
class Step:
    """Forward or backward of one microbatch on one stage."""

    microbatch: int
    backward: bool = False


def _gpipe(stage: int, stages: int, count: int) -> list[Step]:
    """All forward, then all backward (Huang et al., 2019)."""
    forward = [Step(number) for number in range(count)]
    return forward + [Step(number, backward=True) for number in range(count)]


def _one_f_one_b(stage: int, stages: int, count: int) -> list[Step]:
    """As many forward as there are stages behind, then in turn (PipeDream-Flush).

    Narayanan et al., 2021: at most `stages - stage` microbatches wait for backward.
    """
    ahead = min(stages - 1 - stage, count)
    steps = [Step(number) for number in range(ahead)]
    for number in range(ahead, count):
        steps += [Step(number), Step(number - ahead, backward=True)]
    rest = range(count - ahead, count)
    return steps + [Step(number, backward=True) for number in rest]


SCHEDULES: Mapping[str, Callable[[int, int, int], list[Step]]] = {
    GPIPE: _gpipe,
    ONE_F_ONE_B: _one_f_one_b,
}
"""Steps of a stage, of so many, for so many microbatches."""


def steps_of(
    schedule: str, stage: int, stages: int, count: int, *, training: bool
) -> list[Step]:
    """Return what a stage computes, in order; of an inference forward alone."""
    steps = SCHEDULES[schedule](stage, stages, count)
    return [step for step in steps if training or not step.backward]


def batch_symbols(graph: Graph) -> frozenset[str]:
    """Return the symbols that stand first and alone in the shape of an input."""
    firsts = [typed(v).shape[0] for v in graph.inputs if typed(v).shape]
    return frozenset(
        str(dim) for dim in firsts if symbols_of((dim,)) == frozenset((str(dim),))
    )


def microbatch_dims(graph: Graph, count: int) -> dict[str, Dim]:
    """Return what each symbol is in one of *count* equal parts of the batch.

    Raises:
        UnsupportedModelError: the batch is no symbol.

    """
    batch = batch_symbols(graph)
    if count > 1 and not batch:
        msg = (
            f"{graph} has a fixed batch, which cannot be divided into {count} "
            "microbatches; export it with a dynamic one"
        )
        raise UnsupportedModelError(msg)
    every = symbols_of(dim for value in graph.values() for dim in typed(value).shape)
    parts: dict[str, Dim] = {name: symbol(name) for name in every}
    return {**parts, **{name: symbol(name) // count for name in batch}}


def batch_axis(value: Value, batch: frozenset[str]) -> int | None:
    """Return the axis of an input that is divided; None if there is none.

    Raises:
        UnsupportedModelError: its size is not a multiple of the batch, or there are
            several axes.

    """
    shape = typed(value).shape
    axes = [n for n, dim in enumerate(shape) if symbols_of((dim,)) & batch]
    if not axes:
        return None
    if len(axes) > 1 or not _is_multiple(shape[axes[0]], batch):
        msg = f"input {value} of {typed(value)} cannot be divided into microbatches"
        raise UnsupportedModelError(msg)
    return axes[0]


def _is_multiple(dim: Dim, batch: frozenset[str]) -> bool:
    """Whether nothing is left of a size if there is no batch."""
    if not isinstance(dim, Expr):
        return False
    numbers = {name: 0 if name in batch else symbol(name) for name in dim.symbols()}
    rest: Dim = evaluate(dim, numbers)
    return rest == 0
