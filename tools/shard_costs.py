"""Costs that `perfc shard` can search by, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from perfc.planning import PlanCost
from perfc.tools.shard_model import ShardModel

CostFactory: TypeAlias = Callable[[ShardModel, Sequence[str]], PlanCost]
"""From a model on a machine, and the sharding types that will be asked for."""


def _physical(model: ShardModel, types: Sequence[str]) -> PlanCost:
    return model.cost(types)


COSTS: Mapping[str, CostFactory] = MappingProxyType({"physical": _physical})
"""`physical`: the critical path of the whole step, as perfc predicts it."""
