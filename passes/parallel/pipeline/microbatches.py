"""Microbatches: parts of a batch, and the order in which stages compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.ir import Graph, Value
from perfc.ir.dims import Dim, Expr, evaluate, symbol, symbols_of
from perfc.ir.support import UnsupportedModelError
from perfc.passes.graphs import (
    typed,
)

GPIPE, ONE_F_ONE_B, INTERLEAVED = "gpipe", "1f1b", "interleaved"


@attrs.frozen
class Step:
    """Forward or backward of one microbatch, through one chunk of a stage's layers."""

    microbatch: int
    backward: bool = False
    chunk: int = 0


def _gpipe(stage: int, stages: int, count: int) -> list[Step]:
    """All forward, then all backward (Huang et al., 2019)."""
    forward = [Step(number) for number in range(count)]
    return forward + [Step(number, backward=True) for number in range(count)]


def _one_f_one_b(stage: int, stages: int, count: int) -> list[Step]:
    """Return steps: as many forward as stages follow, then in turn (PipeDream-Flush).

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


def _interleaved(stage: int, stages: int, count: int, chunks: int) -> list[Step]:
    """1F1B of chunks (Narayanan et al., 2021, section 2.2; Megatron-LM).

    As many microbatches as there are stages go through one chunk, then through the
    next; the bubble is that of 1F1B over the number of chunks.
    """
    total = count * chunks

    def step(number: int, *, backward: bool) -> Step:
        # A group has as many microbatches as there are stages, so that the first one
        # returns from the last stage just when its next chunk is due here.
        turn, place = divmod(number, stages * chunks)
        chunk, microbatch = divmod(place, stages)
        if backward:  # through the layers the other way round
            chunk = chunks - 1 - chunk
        return Step(turn * stages + microbatch, backward, chunk)

    # The first backward step can run here after a group has passed all chunks but the
    # last and then went on to the last stage and back, one step per stage each way.
    ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, total)
    steps = [step(number, backward=False) for number in range(ahead)]
    for number in range(ahead, total):
        steps.append(step(number, backward=False))
        steps.append(step(number - ahead, backward=True))
    rest = range(total - ahead, total)
    return steps + [step(number, backward=True) for number in rest]


def steps_of(  # noqa: PLR0913 - where, how many, and of what
    schedule: str,
    stage: int,
    stages: int,
    count: int,
    *,
    training: bool,
    chunks: int = 1,
) -> list[Step]:
    """Return the steps of a stage, in order; of an inference forward alone.

    Args:
        schedule: One of `SCHEDULES`, or `INTERLEAVED`.
        stage: Which of the stages.
        stages: How many there are.
        count: How many microbatches; interleaved a multiple of the stages.
        training: Whether there is a backward pass.
        chunks: How many chunks of layers a stage has, interleaved.

    """
    if schedule == INTERLEAVED:
        steps = _interleaved(stage, stages, count, chunks)
    else:
        steps = SCHEDULES[schedule](stage, stages, count)
    return [step for step in steps if training or not step.backward]


def batch_symbols(graph: Graph) -> frozenset[str]:
    """Return the symbols that stand first and alone in the shape of an input."""
    firsts = [typed(v).shape[0] for v in graph.inputs if typed(v).shape]
    return frozenset(
        str(dim) for dim in firsts if symbols_of((dim,)) == frozenset((str(dim),))
    )


def microbatch_dims(graph: Graph, count: int) -> dict[str, Dim]:
    """Return the size of each symbol in one of *count* equal parts of the batch."""
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
    """Return the axis of an input that is divided; None if there is none."""
    shape = typed(value).shape
    axes = [n for n, dim in enumerate(shape) if symbols_of((dim,)) & batch]
    if not axes:
        return None
    if len(axes) > 1 or not _is_multiple(shape[axes[0]], batch):
        msg = f"input {value} of {typed(value)} cannot be divided into microbatches"
        raise UnsupportedModelError(msg)
    return axes[0]


def _is_multiple(dim: Dim, batch: frozenset[str]) -> bool:
    if not isinstance(dim, Expr):
        return False
    numbers = {name: 0 if name in batch else symbol(name) for name in dim.symbols()}
    rest: Dim = evaluate(dim, numbers)
    return rest == 0
