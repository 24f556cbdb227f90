"""PyTorch modules to programs: a step is recorded on tensors without memory.

Importing this package imports PyTorch; nothing else in perfc does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.torch.capture import Source
    from perfc.frontends.torch.custom_step import CustomStep
    from perfc.frontends.torch.embedding_bag_op import TRANSLATION
    from perfc.frontends.torch.exported import read_exported
    from perfc.frontends.torch.factory import Made, raised_by, run_factory
    from perfc.frontends.torch.loss import Label, Loss, loss_of, settled_loss
    from perfc.frontends.torch.onnx_file import weightless_onnx
    from perfc.frontends.torch.optimizer import Optimizer, make_optimizer
else:
    __getattr__ = door(
        __name__,
        {
            "capture": ("Source",),
            "custom_step": ("CustomStep",),
            "embedding_bag_op": ("TRANSLATION",),
            "exported": ("read_exported",),
            "factory": ("Made", "raised_by", "run_factory"),
            "loss": ("Label", "Loss", "loss_of", "settled_loss"),
            "onnx_file": ("weightless_onnx",),
            "optimizer": ("Optimizer", "make_optimizer"),
        },
    )

__all__ = [
    "TRANSLATION",
    "CustomStep",
    "Label",
    "Loss",
    "Made",
    "Optimizer",
    "Source",
    "loss_of",
    "make_optimizer",
    "raised_by",
    "read_exported",
    "run_factory",
    "settled_loss",
    "weightless_onnx",
]
