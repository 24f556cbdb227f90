"""Costs that `perfc shard` can search by, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from perfc.ir import OPTIMIZER_STATES, UsageError
from perfc.passes.embeddings import Codec
from perfc.planning import PerfRules, Topology, TorchRecCost
from perfc.planning.plans import PlanCost, Tiers
from perfc.planning.reference import CommBytes, StorageRules
from perfc.tools.request import TRAINING
from perfc.tools.sharding.model import ShardModel

CostFactory: TypeAlias = Callable[[ShardModel, Sequence[str], Tiers], PlanCost]
"""Makes the cost of a model on a machine, for sharding types and tiers."""


def _physical(model: ShardModel, types: Sequence[str], tiers: Tiers) -> PlanCost:
    """Return perfc's own cost."""
    name = model.request.optimizer
    if name is not None and name not in OPTIMIZER_STATES:
        msg = (
            f"--optimizer {name}: takes no sparse gradients, but updates whole tables; "
            f"--cost physical prices updates by {', '.join(OPTIMIZER_STATES)}"
        )
        raise UsageError(msg)
    return model.cost(types, tiers)


_SENT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}


def _comm_bytes(model: ShardModel) -> CommBytes:
    """Return the bytes that elements are sent as, without what int8 has beside them."""
    if not model.qcomm:
        return CommBytes()
    codec = Codec(model.qcomm, model.qcomm_backward or model.qcomm)
    sums = codec.of_sums()
    return CommBytes(
        forward_all_to_all=_SENT_BYTES[codec.forward],
        backward_all_to_all=_SENT_BYTES[codec.backward],
        forward_reduce_scatter=_SENT_BYTES[sums.forward],
        backward_all_gather=_SENT_BYTES[sums.backward],
    )


def _torchrec(model: ShardModel, types: Sequence[str], tiers: Tiers) -> PlanCost:
    """Return the cost of TorchRec's planner, with its constants for all machines."""
    rules = PerfRules(
        topology=Topology(world=model.world),
        batch=model.samples,
        inference=model.request.mode != TRAINING,
        comm_bytes=_comm_bytes(model),
    )
    kept = StorageRules(perf=rules, optimizer=model.request.optimizer or "sgd")
    return TorchRecCost(rules=rules, storage_rules=kept)


COSTS: Mapping[str, CostFactory] = MappingProxyType(
    {"physical": _physical, "torchrec": _torchrec}
)
"""`physical`: the critical path of the whole step, as perfc predicts it. `torchrec`:
the slowest rank by the rules of TorchRec's planner."""
