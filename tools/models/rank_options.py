"""Ranks of passes that share a model, where `--ranks` says them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.ir import UsageError
from perfc.passes import Pass, Transform, parallel
from perfc.passes.pipeline_spec import PassRequest, option_kinds


def made_passes(
    requests: Sequence[PassRequest],
    ranks: int | None,
    accumulate: int | None,
    *,
    captured: bool = False,
) -> list[Pass]:
    """Make passes; those that share a model have the ranks that others leave.

    Args:
        requests: What is asked for.
        ranks: Ranks of the run, if that is said.
        accumulate: Microbatches of passes that do not say theirs, if that is said.
        captured: Whether the step is captured as a CUDA graph: lookups that do not say
            otherwise have bags of fixed lengths, for which no host has to wait.

    """
    made: list[Pass] = []
    for request in requests:
        settings: dict[str, int] = {}
        options = option_kinds(request.cls)
        if captured and "fixed-lengths" in options:
            settings["fixed_lengths"] = True
        if ranks is not None and _is_open(request):
            settings["ranks"] = _left(request, requests, ranks)
        if accumulate is not None and "microbatches" in options:
            settings["microbatches"] = accumulate
        made.append(request.make(**settings))
    return made


def _is_open(request: PassRequest) -> bool:
    return bool(_shares(request.cls)) and "ranks" not in request.written


def _shares(cls: type[Pass]) -> str:
    return cls.shares if issubclass(cls, Transform) else ""


def _left(request: PassRequest, requests: Sequence[PassRequest], ranks: int) -> int:
    """Return how many of *ranks* a pass has."""
    beside = "batch" if _shares(request.cls) == "layers" else "layers"
    others = [
        other
        for other in requests
        if _shares(other.cls) == beside
        or (beside == "batch" and issubclass(other.cls, parallel.DataParallel))
    ]
    unsaid = [other.cls.name for other in others if _is_open(other)]
    if unsaid:
        msg = (
            f"--ranks {ranks} does not say how many are of {request.cls.name} and how "
            f"many of {unsaid[0]}: give one of them, as tensor-parallel{{ranks=2}}"
        )
        raise UsageError(msg)
    taken: int = max((other.written.get("ranks", 1) for other in others), default=1)
    stages = [r for r in requests if _has_stages(r.cls)]
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
    """
    if any(_has_stages(type(p)) for p in transforms):
        return
    layers = math.prod(_ranks(p) for p in transforms if _shares(type(p)) == "layers")
    for p in transforms:
        sharing = _ranks(p)
        if _shares(type(p)) != "batch" or sharing * layers == ranks or ranks % layers:
            continue
        wanted = ranks // layers
        beside = f", times {layers} of tensor-parallel" if layers > 1 else ""
        advice = f"{p.name}{{ranks={wanted}}}"
        hybrid = isinstance(p, parallel.Fsdp) and wanted > sharing
        if hybrid and wanted % sharing == 0:
            advice += (
                f", or fsdp{{ranks={wanted},strategy=hybrid,per-node={sharing}}}, "
                f"which shares among {sharing} and all-reduces gradients between them"
            )
        msg = (
            f"{ranks} ranks are asked for (--ranks), and {p.name} shares among "
            f"{sharing}{beside}: expected {advice}"
        )
        raise UsageError(msg)


def _has_stages(cls: type[Pass]) -> bool:
    return "stages" in option_kinds(cls)


def _ranks(p: Pass) -> int:
    """Return how many ranks a pass spreads a model over: 1 if it spreads none."""
    return getattr(p, "ranks", 1)
