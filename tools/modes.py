"""What an iteration is: a forward pass, or a step of training."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import UsageError
from perfc.passes import BatchEmbeddings, ConvertDtype, Pass, Training

INFERENCE, TRAINING = "inference", "training"
MODES = (INFERENCE, TRAINING)
"""What an iteration is: a forward pass, or a step of training."""


_EARLY = (BatchEmbeddings, ConvertDtype)
"""What changes forward, of which backward is derived: what autocast casts is what
backward reads."""


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
    if mode == INFERENCE:
        return transforms
    if not any(isinstance(p, Training) for p in transforms):
        early = [p for p in transforms if isinstance(p, _EARLY)]
        late = [p for p in transforms if not isinstance(p, _EARLY)]
        transforms = [*early, Training(), *late]
    if optimizer is None:
        return transforms
    return [
        attrs.evolve(p, optimizer=optimizer) if isinstance(p, Training) else p
        for p in transforms
    ]
