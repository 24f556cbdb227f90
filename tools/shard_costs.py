"""Costs that `perfc shard` can search by, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from perfc.planning import (
    CommBytes,
    PerfRules,
    PlanCost,
    StorageRules,
    Tiers,
    Topology,
    TorchRecCost,
)
from perfc.tools.modes import TRAINING
from perfc.tools.shard_model import ShardModel

CostFactory: TypeAlias = Callable[[ShardModel, Sequence[str], Tiers], PlanCost]
"""From a model on a machine, and the sharding types and tiers that are asked for."""


def _physical(model: ShardModel, types: Sequence[str], tiers: Tiers) -> PlanCost:
    return model.cost(types, tiers)


_SENT_BYTES = {"": None, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}


def _torchrec(model: ShardModel, types: Sequence[str], tiers: Tiers) -> PlanCost:
    """Return the cost of TorchRec's planner, with its constants for all machines."""
    sent = _SENT_BYTES[model.qcomm]
    rules = PerfRules(
        topology=Topology(world=model.world),
        batch=model.samples,
        inference=model.mode != TRAINING,
        comm_bytes=CommBytes() if sent is None else CommBytes.all_alike(sent),
    )
    kept = StorageRules(perf=rules, optimizer=model.optimizer or "sgd")
    return TorchRecCost(rules=rules, storage_rules=kept)


COSTS: Mapping[str, CostFactory] = MappingProxyType(
    {"physical": _physical, "torchrec": _torchrec}
)
"""`physical`: the critical path of the whole step, as perfc predicts it. `torchrec`:
the slowest rank by the rules of TorchRec's planner."""
