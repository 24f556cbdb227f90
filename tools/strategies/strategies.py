"""Strategies of one model on one machine, compared."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir import Program, UsageError, node_kinds
from perfc.planning import strategies
from perfc.tools.request import TRAINING
from perfc.tools.strategies.pricer import Pricer
from perfc.tools.strategies.question import GB, Question
from perfc.tools.strategies.report import Comparison


def compare(question: Question) -> Comparison:
    """Price strategies.

    Args:
        question: What is asked.

    """
    question.check()
    alone, fixed = question.models.alone(question.request.batch)
    usable = float(question.target.device.memory.usable_bytes)
    if question.memory_gb is not None:
        usable = min(usable, question.memory_gb * GB)
    pricer = Pricer(
        models=question.models,
        target=question.target,
        batch=question.request.batch,
        fixed=fixed,
        limit_bytes=usable,
    )
    tables = _has_tables(alone.program)
    spaces: list[strategies.StrategySpace] = []
    for count in question.ranks:
        strategy_space = strategies.StrategySpace(
            ranks=count,
            gpus_per_node=pricer.gpus_per_node,
            tables=tables,
            training=question.request.mode == TRAINING,
            batch=question.request.batch,
            fixed=pricer.fixed,
            microbatches=question.microbatches,
            accumulate=question.accumulate,
        )
        spaces.append(strategy_space)
    given = [one for text in question.texts for one in _given(text, spaces)]
    others = (one for space in spaces for one in space) if question.method else ()
    search = strategies.Search(
        pricer,
        question.objective,
        method=question.method or "",
        limit=question.limit,
    )
    found = search.run(given, others)
    if found.interrupted and not found.priced:
        raise KeyboardInterrupt
    _check_found(found)
    return Comparison(question, pricer, found)


def _has_tables(program: Program) -> bool:
    graphs = [rank.ops for rank in program.classes if rank.ops is not None]
    return any(node_kinds.is_embedding_bag(node) for graph in graphs for node in graph)


def _given(
    text: str, spaces: Sequence[strategies.StrategySpace]
) -> list[strategies.Strategy | strategies.Refused]:
    """Return the strategies of a text, for the numbers of GPUs that it is for."""
    found: list[strategies.Strategy | strategies.Refused] = []
    errors: list[UsageError] = []
    for space in spaces:
        try:
            found += strategies.read_strategy(text, space)
        except UsageError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _check_found(found: strategies.Findings) -> None:
    """Raise why there is nothing to show."""
    if found.priced or found.left or not found.refused:
        return
    if found.errors:
        raise found.errors[0]
    first = found.refused[0]
    msg = f"strategy {str(first.strategy)!r}: {first.reason}"
    raise UsageError(msg)
