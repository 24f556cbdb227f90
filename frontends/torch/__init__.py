"""PyTorch modules to programs: a step is recorded on tensors without memory.

Importing this package imports PyTorch; nothing else in perfc does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.torch.capture import Recording, Source, capture_module
    from perfc.frontends.torch.custom_step import CustomStep
    from perfc.frontends.torch.embedding_bag_op import TRANSLATION
    from perfc.frontends.torch.exported import given_sizes, is_exported, read_exported
    from perfc.frontends.torch.factory import (
        Made,
        capture_factory,
        raised_by,
        run_factory,
    )
    from perfc.frontends.torch.loss import Label, Loss, loss_of, settled_loss
    from perfc.frontends.torch.onnx_file import weightless_onnx
    from perfc.frontends.torch.optimizer import Optimizer, make_optimizer
else:
    __getattr__ = door(
        __name__,
        {
            "capture": ("Recording", "Source", "capture_module"),
            "custom_step": ("CustomStep",),
            "embedding_bag_op": ("TRANSLATION",),
            "exported": ("given_sizes", "is_exported", "read_exported"),
            "factory": ("Made", "capture_factory", "raised_by", "run_factory"),
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
    "Recording",
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
    "weightless_onnx",
]
