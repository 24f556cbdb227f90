"""Names that options and attributes choose from, apart from the ops they are of.

Every analysis reads its options; the definitions of these ops are for models that have
them.
"""

from __future__ import annotations

from collections.abc import Mapping

ATTENTION_KERNELS = (
    *("auto", "flash-1", "flash-2", "flash-3", "cudnn", "efficient", "math"),
)
"""Kernels that attention may be asked to run by.

Unasked, PyTorch takes its own flash attention, which is version 2, where it can, else
the memory-efficient kernel.
"""

COMM_STREAM = "comm"
"""Stream of a collective that names none."""

OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "adamw")
"""Optimizers by name: the kinds of the op `optimizer_step`."""

OPTIMIZER_STATES: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("element",),
    "rowwise_adagrad": ("row",),
    "adam": ("element", "element"),
}
"""Optimizers of embedding tables: each state has a number per element, or per row.

`torch.optim.SGD`, `Adagrad` and `SparseAdam` take sparse gradients, and so does the
`RWSAdagrad` of facebookresearch/dlrm; fbgemm fuses the same four into its lookups.
AdamW takes dense gradients alone.
"""

INPUTS = ("host-pinned", "host-pinned-blocking", "host-pageable", "device")
"""Places of the inputs of an iteration when it starts."""
