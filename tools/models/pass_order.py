"""What an iteration is: a forward pass, or a step of training."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import UsageError
from perfc.passes import Pass, parallel, training
from perfc.passes.kinds import is_a
from perfc.tools.models.rank_options import check_shared

INFERENCE = "inference"
TRAINING = "training"
MODES = (INFERENCE, TRAINING)
"""What an iteration is: a forward pass, or a step of training."""


_EARLY = (
    *("batch-embeddings", "convert-dtype", "fsdp", "place-embeddings"),
    *("set-popularity", "shard-embeddings", "tensor-parallel"),
)
"""What changes forward, of which backward is derived: what autocast casts is what
backward reads."""

_SHARING = ("fsdp", "shard-embeddings", "tensor-parallel")
"""What shares a model out among ranks, in forward."""


def check_mode(mode: str, optimizer: str | None) -> None:
    """Refuse a mode that is none, and an optimizer of nothing.

    Raises:
        UsageError: the mode is unknown, or there is an optimizer without training.

    """
    if mode not in MODES:
        msg = f"mode {mode!r} is none of {', '.join(MODES)}"
        raise UsageError(msg)
    if mode == INFERENCE and optimizer is not None:
        msg = f"optimizer {optimizer!r} needs mode training (--mode training)"
        raise UsageError(msg)


def training_passes(
    mode: str, optimizer: str | None, transforms: Sequence[Pass]
) -> Sequence[Pass]:
    """Return *transforms* with the pass that *mode* asks for, set to *optimizer*.

    Raises:
        UsageError: the mode is unknown, or there is an optimizer without training.

    """
    check_mode(mode, optimizer)
    transforms = _cast_late(transforms)
    if mode == INFERENCE:
        return transforms
    if not any(is_a(p, "training") for p in transforms):
        early = [p for p in transforms if is_a(p, *_EARLY)]
        late = [p for p in transforms if not is_a(p, *_EARLY)]
        transforms = [*early, training.Training(), *late]
    transforms = _regathered(transforms)
    if optimizer is None:
        return transforms
    return [
        attrs.evolve(p, optimizer=optimizer) if is_a(p, "training") else p
        for p in transforms
    ]


def _regathered(transforms: Sequence[Pass]) -> Sequence[Pass]:
    """Let what `fsdp` gathers be forgotten: behind what computes anything again."""
    if any(is_a(p, "regather") for p in transforms):
        return transforms
    again = [
        parallel.Regather(p.prefetch)
        for p in transforms
        if is_a(p, "fsdp") and p.regathers
    ]
    last = max(
        place
        for place, p in enumerate(transforms)
        if is_a(p, "training", "checkpoint-activations")
    )
    return [*transforms[: last + 1], *again, *transforms[last + 1 :]]


def _cast_late(transforms: Sequence[Pass]) -> Sequence[Pass]:
    """Put autocast behind `fsdp` with types of its own: it meets what FSDP gathers."""
    places = [
        place for place, p in enumerate(transforms) if is_a(p, "fsdp") and p.param_dtype
    ]
    if not places:
        return transforms
    first, last = transforms[: places[-1] + 1], transforms[places[-1] + 1 :]
    casts = [p for p in first if is_a(p, "convert-dtype") and p.autocast]
    return [*(p for p in first if p not in casts), *casts, *last]


def parallel_passes(ranks: int | None, transforms: Sequence[Pass]) -> Sequence[Pass]:
    """Return *transforms* with the one that fills *ranks* ranks with replicas.

    A `data-parallel` that says nothing of ranks is told how many there are. Stragglers
    come last: they are among the ranks that all others make.

    Raises:
        UsageError: there are fewer than one.

    """
    late = [p for p in transforms if is_a(p, "straggler")]
    transforms = [p for p in transforms if not is_a(p, "straggler")]
    return [*_replicated(ranks, transforms), *late]


def _replicated(ranks: int | None, transforms: Sequence[Pass]) -> Sequence[Pass]:
    if ranks is None:
        return transforms
    if ranks < 1:
        msg = f"ranks={ranks}: expected at least 1"
        raise UsageError(msg)
    check_shared(ranks, transforms)
    told = [
        attrs.evolve(p, world=ranks)
        if is_a(p, "data-parallel") and not (p.ranks or p.world)
        else p
        for p in transforms
    ]
    if any(is_a(p, "data-parallel") for p in told):
        return told
    return [*told, parallel.DataParallel(world=ranks)]


def check_recorded(name: str, mode: str, transforms: Sequence[Pass]) -> None:
    """Refuse passes that change forward where PyTorch recorded backward with it.

    Raises:
        UsageError: there is one.

    """
    sharing = [p for p in transforms if is_a(p, *_SHARING)]
    if mode == TRAINING and sharing:
        msg = (
            f"{name} is recorded with PyTorch's own backward pass, and "
            f"{sharing[0].name} changes forward: let perfc derive backward (--pass "
            "training behind it, without --mode training), or save torch.export.export("
            "module, arguments) as a .pt2 file and give that"
        )
        raise UsageError(msg)


def check_ranks(wanted: int | None, found: int) -> None:
    """Refuse passes that run a model on another number of ranks than was asked for.

    Raises:
        UsageError: they do.

    """
    if wanted not in (None, found):
        msg = (
            f"{wanted} ranks are asked for (--ranks), but the passes run the model on "
            f"{found}; leave one of the two out"
        )
        raise UsageError(msg)
