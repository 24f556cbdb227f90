"""PyTorch modules to programs: a step is recorded on tensors without memory.

Importing this package imports PyTorch; nothing else in perfc does.
"""

from __future__ import annotations

from perfc.frontends.torch.capture import Source, capture_module
from perfc.frontends.torch.factory import capture_factory
from perfc.frontends.torch.loss import Loss
from perfc.frontends.torch.optimizer import Optimizer

__all__ = ["Loss", "Optimizer", "Source", "capture_factory", "capture_module"]
