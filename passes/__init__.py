"""Analyses and transforms of a program, and what runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.base import Pass, PassContext, Phase, Transform
    from perfc.passes.embeddings import (
        DATA_PARALLEL,
        HBM,
        TIERS,
        USUAL_CACHE,
        Placement,
        Plan,
        ShardEmbeddings,
        World,
        is_share,
    )
    from perfc.passes.facts import KERNEL_COST, LAUNCHES
    from perfc.passes.lowering import LowerKernels, dtype_name
    from perfc.passes.manager import PassManager
    from perfc.passes.memory import MemoryUse
    from perfc.passes.parallel import Fsdp, PipelineParallel, TensorParallel
    from perfc.passes.shapes import ShapeInference
    from perfc.passes.timing import KernelCost, Timeline, task_mask
    from perfc.passes.training import CheckpointActivations
else:
    __getattr__ = door(
        __name__,
        {
            "base": ("Pass", "PassContext", "Phase", "Transform"),
            "embeddings": (
                "DATA_PARALLEL",
                "HBM",
                "Placement",
                "Plan",
                "ShardEmbeddings",
                "TIERS",
                "USUAL_CACHE",
                "World",
                "is_share",
            ),
            "facts": ("KERNEL_COST", "LAUNCHES"),
            "lowering": ("LowerKernels", "dtype_name"),
            "manager": ("PassManager",),
            "memory": ("MemoryUse",),
            "parallel": ("Fsdp", "PipelineParallel", "TensorParallel"),
            "shapes": ("ShapeInference",),
            "timing": ("KernelCost", "Timeline", "task_mask"),
            "training": ("CheckpointActivations",),
        },
    )

__all__ = [
    "DATA_PARALLEL",
    "HBM",
    "KERNEL_COST",
    "LAUNCHES",
    "TIERS",
    "USUAL_CACHE",
    "CheckpointActivations",
    "Fsdp",
    "KernelCost",
    "LowerKernels",
    "MemoryUse",
    "Pass",
    "PassContext",
    "PassManager",
    "Phase",
    "PipelineParallel",
    "Placement",
    "Plan",
    "ShapeInference",
    "ShardEmbeddings",
    "TensorParallel",
    "Timeline",
    "Transform",
    "World",
    "dtype_name",
    "is_share",
    "task_mask",
]
