"""PyTorch modules to programs: a step is recorded on tensors without memory.

Importing this package imports PyTorch; nothing else in perfc does.
"""

from __future__ import annotations

from perfc.frontends.torch.capture import capture_module
from perfc.frontends.torch.factory import capture_factory
from perfc.frontends.torch.loss import Loss
from perfc.frontends.torch.optimizer import Optimizer
from perfc.frontends.torch.weightless import Module

__all__ = ["Loss", "Module", "Optimizer", "capture_factory", "capture_module"]
