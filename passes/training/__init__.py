"""Derivation of a training step from a forward pass: loss, gradients, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.training.accumulate_gradients import AccumulateGradients
    from perfc.passes.training.checkpoint_activations import CheckpointActivations
    from perfc.passes.training.loss import LOSS
    from perfc.passes.training.prepare import separate_vectors, trained
    from perfc.passes.training.training import Training
else:
    __getattr__ = door(
        __name__,
        {
            "accumulate_gradients": ("AccumulateGradients",),
            "checkpoint_activations": ("CheckpointActivations",),
            "loss": ("LOSS",),
            "prepare": ("separate_vectors", "trained"),
            "training": ("Training",),
        },
    )

__all__ = [
    "LOSS",
    "AccumulateGradients",
    "CheckpointActivations",
    "Training",
    "separate_vectors",
    "trained",
]
