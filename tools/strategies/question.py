"""What is asked of strategies."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.costmodels import Target
from perfc.ir import UsageError
from perfc.ir.program import MAX_RANKS
from perfc.ir.support import brief
from perfc.planning.strategies import PRICE, Objective
from perfc.tools.analysis import check_world
from perfc.tools.request import Request
from perfc.tools.strategies.models import StrategyModels

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
        accumulate: Microbatches of a step of which gradients are added up, in all
            strategies but those whose microbatches somebody says; None for whole
            batches.
        memory_gb: What a GPU may need, if not all it has.
        usd_per_hour: What a GPU costs, if that is known; by default by its sheet.

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
    accumulate: int | None = None
    memory_gb: float | None = None
    usd_per_hour: float | None = attrs.field(
        default=attrs.Factory(lambda self: self.target.usd_per_hour, takes_self=True)
    )

    @property
    def request(self) -> Request:
        """How the model is asked for; its batch is that of all GPUs together."""
        return self.models.request

    def check(self) -> None:
        """Refuse what no strategy could answer."""
        if self.objective.name == PRICE and self.usd_per_hour is None:
            msg = (
                f"--objective price needs --price USD, what an hour of one GPU costs: "
                f"the sheet of {self.target.name} has no price"
            )
            raise UsageError(msg)
        for count in self.ranks:
            if count > MAX_RANKS:
                msg = f"--ranks {count}: expected at most {MAX_RANKS:,}"
                raise UsageError(msg)
            check_world(count, self.target)
