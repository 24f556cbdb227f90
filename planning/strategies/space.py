"""All strategies for a number of GPUs, and why some of them cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs

from perfc.planning.strategies.strategy import (
    CHUNKS,
    COLUMN_WISE,
    DATA,
    DP,
    GRAD_OP,
    HYBRID,
    INTERLEAVED,
    ONE_F_ONE_B,
    ROW_WISE,
    SCHEDULES,
    SHARDINGS,
    TABLE_WISE,
    Strategy,
)

FSDP_IN_STAGES = (
    "pipeline-parallel cuts a model after its backward pass, and fsdp comes before: "
    "stages keep their parameters whole"
)
TABLES_AND_PARTS = (
    "tables are sharded over ranks that each have the whole model besides: not over "
    "ranks of tensor-parallel or of stages"
)
TABLES_OF_ONE = "one replica has all tables"
ACCUMULATES_NOTHING = "an inference has no gradients to add up over microbatches"
"""Why passes do not go together."""

Order: TypeAlias = tuple[str, int]
"""A schedule, and how many chunks of layers a stage has."""

_FORWARD: tuple[Order, ...] = ((ONE_F_ONE_B, 1),)
_ORDERS: tuple[Order, ...] = (
    *((schedule, 1) for schedule in SCHEDULES),
    (INTERLEAVED, CHUNKS),
)
"""Orders that are tried; without a backward pass the first two are the same."""

_AHEAD = (1, 2, 4)
"""Microbatches, as multiples of the stages, that are tried if nobody says which. With
four times as many, the bubble is a fifth of the time, or less (Huang et al., 2019)."""


@attrs.frozen
class Refused:
    """A strategy that cannot be priced, and why."""

    strategy: Strategy
    reason: str


@attrs.frozen(kw_only=True)
class StrategySpace:
    """What strategies there are for a model on a number of GPUs.

    Attributes:
        ranks: GPUs in all.
        gpus_per_node: GPUs of a node.
        tables: Whether the model has tables of embedding bags.
        training: Whether a step is one of training.
        batch: Samples of all GPUs together; None if nobody says how many.
        fixed: Samples of a replica, where the model fixes them.
        microbatches: Numbers of microbatches to try; if empty, a few for each number of
            stages.
        accumulate: Microbatches of strategies without stages, of which gradients are
            added up; and of stages, if there is a number and `microbatches` has none.

    """

    ranks: int
    gpus_per_node: int
    tables: bool
    training: bool
    batch: int | None
    fixed: int | None = None
    microbatches: tuple[int, ...] = ()
    accumulate: int | None = None

    def __iter__(self) -> Iterator[Strategy | Refused]:
        """Yield every strategy, or why it cannot be, in the order of its degrees."""
        # All (a, b) whose product divides a number.
        number = self.ranks
        divisors = _divisors(number)
        for tensor, stages in (
            (first, second)
            for first in divisors
            for second in divisors
            if number // first % second == 0
        ):
            replicas = self.ranks // (tensor * stages)
            for data in DATA:
                for tables in self._tables():
                    yield from self.completed(
                        Strategy(
                            replicas=replicas,
                            data=data,
                            tensor=tensor,
                            stages=stages,
                            microbatches=0,
                            tables=tables,
                        ),
                        given=False,
                    )

    def _tables(self) -> tuple[str, ...]:
        """Return the ways of tables; on one node those of nodes are none of their own.

        There `table-row-wise` is `row-wise`, and `grid` is both.
        """
        if not self.tables:
            return ("",)
        nodes = self.ranks > self.gpus_per_node
        return (DP, *(SHARDINGS if nodes else (TABLE_WISE, ROW_WISE, COLUMN_WISE)))

    def completed(
        self, strategy: Strategy, *, given: bool, orders: Sequence[Order] = ()
    ) -> Iterator[Strategy | Refused]:
        """Yield a strategy with the microbatches that it may have, or why it cannot be.

        Args:
            strategy: It; 0 microbatches leave their number open.
            given: Whether somebody asks for it. Nothing is yielded twice otherwise:
                that sharing of parameters among one replica, or of gradients alone in
                an inference, are other strategies.
            orders: Orders of microbatches; all that differ if there are none.

        """
        if not given and self._is_another(strategy):
            return
        if reason := self._reason(strategy):
            yield Refused(strategy, reason)
            return
        if strategy.stages == 1:
            count = strategy.microbatches or self.accumulate or 1
            yield self._checked(attrs.evolve(strategy, microbatches=count))
            return
        tried = orders or (_ORDERS if self.training else _FORWARD)
        for count in self._counts(strategy):
            for schedule, chunks in tried[:1] if count == 1 else tried:
                if not orders and schedule == INTERLEAVED and count % strategy.stages:
                    continue
                yield self._checked(
                    attrs.evolve(
                        strategy, microbatches=count, schedule=schedule, chunks=chunks
                    )
                )

    def _checked(self, strategy: Strategy) -> Strategy | Refused:
        """Return a strategy, or why its batch cannot be divided."""
        own, count = self.samples(strategy), strategy.microbatches
        if strategy.stages == 1 and count > 1 and not self.training:
            return Refused(strategy, ACCUMULATES_NOTHING)
        if strategy.stages == 1 and count > 1 and self.fixed:
            reason = f"the model fixes the {self.fixed:,} samples of a microbatch"
            return Refused(strategy, reason)
        if own is not None and own % count:
            return Refused(strategy, _undivided(own, f"{count} microbatches"))
        if strategy.schedule == INTERLEAVED and count % strategy.stages:
            reason = f"{INTERLEAVED} takes a multiple of {strategy.stages} microbatches"
            return Refused(strategy, reason)
        return strategy

    def samples(self, strategy: Strategy) -> int | None:
        """Return the batch of a replica; None if it is not known."""
        if self.batch is None:
            return self.fixed
        return self.batch // strategy.replicas

    def _is_another(self, strategy: Strategy) -> bool:
        """Whether a strategy does what another one does."""
        if strategy.replicas == 1:
            return strategy.data != DP or strategy.shards_tables
        if strategy.data == GRAD_OP:
            return not self.training
        return strategy.data == HYBRID and self._nodes(strategy) < 2  # noqa: PLR2004

    def _nodes(self, strategy: Strategy) -> int:
        """Return how many nodes a hybrid all-reduces gradients over; 0 if it cannot."""
        inside = self.gpus_per_node // strategy.tensor
        if inside < 2 or strategy.replicas % inside:  # noqa: PLR2004
            return 0
        return strategy.replicas // inside

    def _reason(self, strategy: Strategy) -> str:
        """Return why passes cannot make a strategy; "" if nothing is known."""
        if strategy.stages > 1 and strategy.data != DP and strategy.replicas > 1:
            return FSDP_IN_STAGES
        if strategy.shards_tables and strategy.tensor * strategy.stages > 1:
            return TABLES_AND_PARTS
        if strategy.shards_tables and strategy.replicas == 1:
            return TABLES_OF_ONE
        if self.batch is not None and self.batch % strategy.replicas:
            return _undivided(self.batch, f"{strategy.replicas} replicas")
        if self.batch and self.fixed and self.samples(strategy) != self.fixed:
            return (
                f"the model fixes {self.fixed:,} samples of a replica, so that a batch "
                f"of {self.batch:,} is for other numbers of replicas"
            )
        return ""

    def _counts(self, strategy: Strategy) -> tuple[int, ...]:
        """Return numbers of microbatches to try."""
        if strategy.microbatches:
            return (strategy.microbatches,)
        if self.microbatches:
            return self.microbatches
        if self.accumulate:
            return (self.accumulate,)
        own = self.samples(strategy) or 1
        limits = [times * strategy.stages for times in _AHEAD]
        if self.fixed or self.tables:  # often there is no other way
            limits.append(1)
        return tuple(sorted({_divisor(own, limit) for limit in limits}))


def _undivided(samples: int, parts: str) -> str:
    return f"a batch of {samples:,} does not divide into {parts}"


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _divisor(number: int, most: int) -> int:
    return max(n for n in _divisors(number) if n <= most)
