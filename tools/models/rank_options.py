"""Ranks of passes that share a model, where `--ranks` says them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.ir import UsageError
from perfc.passes import Pass
from perfc.passes.kinds import is_a
from perfc.passes.pipeline_spec import PassRequest

_REPLICAS = ("fsdp", "shard-embeddings")
"""Passes whose ranks have a batch each: as many as there are replicas of one."""

_SHARING = (*_REPLICAS, "tensor-parallel")


def made_passes(requests: Sequence[PassRequest], ranks: int | None) -> list[Pass]:
    """Make passes; those that share a model have the ranks that others leave.

    Raises:
        UsageError: an option is missing, or *ranks* do not say it.

    """
    return [
        request.make(ranks=_left(request, requests, ranks))
        if ranks is not None and _is_open(request)
        else request.make()
        for request in requests
    ]


def _is_open(request: PassRequest) -> bool:
    return is_a(request.cls, *_SHARING) and "ranks" not in request.written


def _left(request: PassRequest, requests: Sequence[PassRequest], ranks: int) -> int:
    """Return how many of *ranks* a pass has.

    Raises:
        UsageError: another pass does not say its own, or they do not divide.

    """
    layers = is_a(request.cls, "tensor-parallel")
    beside = (*_REPLICAS, "data-parallel") if layers else ("tensor-parallel",)
    others = [other for other in requests if is_a(other.cls, *beside)]
    unsaid = [other.cls.name for other in others if _is_open(other)]
    if unsaid:
        msg = (
            f"--ranks {ranks} does not say how many are of {request.cls.name} and how "
            f"many of {unsaid[0]}: give one of them, as tensor-parallel{{ranks=2}}"
        )
        raise UsageError(msg)
    taken: int = max((other.written.get("ranks", 1) for other in others), default=1)
    stages = [r for r in requests if is_a(r.cls, "pipeline-parallel")]
    taken *= math.prod(r.written.get("stages", 1) for r in stages)
    if taken < 1 or ranks % taken:
        named = ", ".join(other.text for other in (*others, *stages))
        msg = (
            f"--ranks {ranks} beside {named}: expected a multiple of {taken}, for "
            f"{request.cls.name} to have the rest"
        )
        raise UsageError(msg)
    return ranks // taken


def check_shared(ranks: int, transforms: Sequence[Pass]) -> None:
    """Refuse passes that share one model among other ranks than there are.

    Beside stages they are refused in any case, by those who find them there.

    Raises:
        UsageError: there is one.

    """
    if any(is_a(p, "pipeline-parallel") for p in transforms):
        return
    layers = math.prod(p.ranks for p in transforms if is_a(p, "tensor-parallel"))
    for p in transforms:
        if not is_a(p, "fsdp", "shard-embeddings"):
            continue
        if p.ranks * layers == ranks or ranks % layers:
            continue
        wanted = ranks // layers
        beside = f", times {layers} of tensor-parallel" if layers > 1 else ""
        advice = f"{p.name}{{ranks={wanted}}}"
        if is_a(p, "fsdp") and wanted > p.ranks and wanted % p.ranks == 0:
            advice += (
                f", or fsdp{{ranks={wanted},strategy=hybrid,per-node={p.ranks}}}, "
                f"which shares among {p.ranks} and adds gradients up between them"
            )
        msg = (
            f"{ranks} ranks are asked for (--ranks), and {p.name} shares among "
            f"{p.ranks}{beside}: expected {advice}"
        )
        raise UsageError(msg)
