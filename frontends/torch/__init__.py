"""PyTorch modules to programs: a step is recorded on tensors without memory.

Importing this package imports PyTorch; nothing else in perfc does.
"""

from __future__ import annotations

from perfc.frontends.torch.capture import Source, capture_module
from perfc.frontends.torch.custom_step import CustomStep
from perfc.frontends.torch.exported import given_sizes, is_exported, read_exported
from perfc.frontends.torch.factory import (
    Made,
    capture_factory,
    raised_by,
    run_factory,
)
from perfc.frontends.torch.loss import Label, Loss, loss_of, settled_loss
from perfc.frontends.torch.optimizer import Optimizer, make_optimizer

__all__ = [
    "CustomStep",
    "Label",
    "Loss",
    "Made",
    "Optimizer",
    "Source",
    "capture_factory",
    "capture_module",
    "given_sizes",
    "is_exported",
    "loss_of",
    "make_optimizer",
    "raised_by",
    "read_exported",
    "run_factory",
    "settled_loss",
]
