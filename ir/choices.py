"""Names that options choose from, apart from the ops that they are of.

Every analysis reads its options; the definitions of these ops are for models that have
them.
"""

from __future__ import annotations

ATTENTION_KERNELS = (
    *("auto", "flash-1", "flash-2", "flash-3", "cudnn", "efficient", "math"),
)
"""Kernels that attention may be asked to run by.

Unasked, PyTorch takes its own flash attention, which is version 2, where it can, else
the memory-efficient kernel.
"""

OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "adamw")
"""Optimizers by name: the kinds of the op `optimizer_step`."""
