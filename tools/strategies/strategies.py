"""Strategies of one model on one machine, compared."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import attrs

from perfc.costmodels import Target
from perfc.ir import Program, UsageError
from perfc.ir.node_kinds import (
    is_embedding_bag,
)
from perfc.ir.program import MAX_RANKS
from perfc.ir.support import brief
from perfc.passes.pipeline_spec import format_pipeline
from perfc.planning.strategies import (
    PRICE,
    Findings,
    Objective,
    Refused,
    Search,
    Strategy,
    StrategySpace,
    read_strategy,
)
from perfc.tools.analysis import check_world
from perfc.tools.request import TRAINING, Request
from perfc.tools.strategies.models import StrategyModels
from perfc.tools.strategies.pricer import Pricer

_SAID = (
    *("batch", "pooling", "mode", "optimizer", "dtype", "runtime", "inputs"),
    *("overheads", "target", "ranks", "dims", "overrides", "passes"),
)
"""Fields of a request that a printed command repeats, in this order."""

GB = 1e9
"""Bytes of a gigabyte, as `--memory` counts them."""


@attrs.frozen(kw_only=True, eq=False)
class Question:
    """What is asked of strategies.

    Attributes:
        models: The model, and how it is asked for.
        target: The machine.
        ranks: Numbers of GPUs.
        objective: What is best.
        texts: Strategies to price in any case.
        method: How to search for others; None for not at all.
        limit: How many to price; None for no limit.
        microbatches: Their numbers to try; none for a few of the program's choice.
        memory_gb: What a GPU may need, if not all it has.
        usd_per_hour: What a GPU costs, if that is known.

    """

    __repr__ = brief

    models: StrategyModels
    target: Target
    ranks: tuple[int, ...]
    objective: Objective = attrs.field(factory=Objective)
    texts: Sequence[str] = ()
    method: str | None = None
    limit: int | None = None
    microbatches: tuple[int, ...] = ()
    memory_gb: float | None = None
    usd_per_hour: float | None = None

    @property
    def request(self) -> Request:
        """How the model is asked for; its batch is that of all GPUs together."""
        return self.models.request

    def check(self) -> None:
        """Refuse what no strategy could answer.

        Raises:
            PerfcError: it asks for prices of GPUs that it does not give, or for ranks
                that the machine has not.

        """
        if self.objective.name == PRICE and self.usd_per_hour is None:
            msg = (
                "--objective price needs --price-per-hour USD, what one GPU costs: "
                "sheets of systems have no prices"
            )
            raise UsageError(msg)
        for count in self.ranks:
            if count > MAX_RANKS:
                msg = f"--ranks {count}: expected at most {MAX_RANKS:,}"
                raise UsageError(msg)
            check_world(count, self.target)


@attrs.frozen(eq=False)
class Comparison:
    """What was asked, and found.

    Attributes:
        question: The question.
        pricer: Who priced.
        findings: Prices, and what has none.

    """

    __repr__ = brief

    question: Question
    pricer: Pricer
    findings: Findings

    def passes(self, strategy: Strategy) -> list[str]:
        """Return the passes of a strategy as `--pass` takes them."""
        own = strategy.passes(self.pricer.gpus_per_node)
        made = self.question.models.ordered(own, replicas=True)
        texts = [format_pipeline([p]) for p in made]
        return [*texts, *self.question.request.passes]

    def command(self, strategy: Strategy) -> str:
        """Return the command that analyzes a strategy in full."""
        pricer = self.pricer
        asked = attrs.evolve(
            self.question.request,
            batch=None if pricer.fixed else pricer.samples(strategy),
            ranks=strategy.ranks,
            passes=tuple(self.passes(strategy)),
        )
        return shlex.join(["perfc", "analyze", asked.model, *asked.words(*_SAID)])


def compare(question: Question, progress: Callable[[str], None]) -> Comparison:
    """Price strategies.

    Args:
        question: What is asked.
        progress: Is told in words how far it is.

    Raises:
        PerfcError: the question or the model is at fault, or no strategy works.

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
    spaces = [
        _space(question, pricer, count, tables=tables) for count in question.ranks
    ]
    given = [one for text in question.texts for one in _given(text, spaces)]
    others = (one for space in spaces for one in space) if question.method else ()
    search = Search(
        pricer,
        question.objective,
        method=question.method or "",
        limit=question.limit,
        progress=progress,
    )
    found = search.run(given, others)
    if found.interrupted and not found.priced:
        raise KeyboardInterrupt
    _check_found(found)
    return Comparison(question, pricer, found)


def _space(
    question: Question, pricer: Pricer, ranks: int, *, tables: bool
) -> StrategySpace:
    return StrategySpace(
        ranks=ranks,
        gpus_per_node=pricer.gpus_per_node,
        tables=tables,
        training=question.request.mode == TRAINING,
        batch=question.request.batch,
        fixed=pricer.fixed,
        microbatches=question.microbatches,
    )


def _has_tables(program: Program) -> bool:
    graphs = [rank.ops for rank in program.classes if rank.ops is not None]
    return any(is_embedding_bag(node) for graph in graphs for node in graph)


def _given(text: str, spaces: Sequence[StrategySpace]) -> list[Strategy | Refused]:
    """Return the strategies of a text, for the numbers of GPUs that it is for.

    Raises:
        UsageError: it is for none of them.

    """
    found: list[Strategy | Refused] = []
    errors: list[UsageError] = []
    for space in spaces:
        try:
            found += read_strategy(text, space)
        except UsageError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def _check_found(found: Findings) -> None:
    """Raise why there is nothing to show.

    Raises:
        PerfcError: no strategy can be priced.

    """
    if found.priced or found.left or not found.refused:
        return
    if found.errors:
        raise found.errors[0]
    first = found.refused[0]
    msg = f"strategy {str(first.strategy)!r}: {first.reason}"
    raise UsageError(msg)
