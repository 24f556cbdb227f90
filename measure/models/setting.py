"""How a model is run for one row: the options of an iteration."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch
from torch.nn.attention import SDPBackend

_FLASH, _EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
_CUDNN, _MATH = SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH

MODES = ("inference", "training")
CUDAGRAPH = "cudagraph"
RUNTIMES = ("eager", CUDAGRAPH, "compiled")
INPUTS = ("host-pinned", "host-pinned-blocking", "host-pageable", "device")
ON_DEVICE = "device"
OWN = "own"
"""The optimizer that a factory returns with its model; sgd, if it returns none."""

STORED: Mapping[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""What weights and floats are converted to."""

AUTOCAST: Mapping[str, torch.dtype] = {
    "amp-bf16": torch.bfloat16,
    "amp-fp16": torch.float16,
}
"""What autocast computes in."""

AUTO = "auto"
ATTENTION: Mapping[str, tuple[SDPBackend, ...]] = {
    "flash": (_FLASH, _EFFICIENT, _MATH),
    "efficient": (_EFFICIENT, _MATH),
    "cudnn": (_CUDNN, _EFFICIENT, _MATH),
    "math": (_MATH,),
}
"""Algorithms that PyTorch may choose, the first that can be, by what was asked for;
what it takes of itself is `auto`."""

DTYPES = ("fp32", "tf32", *STORED, *AUTOCAST)


@attrs.frozen(kw_only=True)
class Setting:
    """One iteration, as `perfc analyze` has the same options.

    Attributes:
        batch: Samples; None for what the model's factory makes.
        mode: inference or training.
        optimizer: Of a training step, by name or `own`; empty in inference.
        dtype: fp32, tf32, bf16, fp16, amp-bf16 or amp-fp16.
        runtime: eager, cudagraph or compiled.
        inputs: Where inputs are when the iteration starts.
        attention: auto, or the algorithm that scaled dot-product attention takes.

    """

    batch: int | None
    mode: str
    optimizer: str
    dtype: str
    runtime: str
    inputs: str
    attention: str = AUTO

    @property
    def training(self) -> bool:
        """Whether there are a loss, a backward pass and an optimizer."""
        return self.mode == "training"

    def __str__(self) -> str:
        batch = [] if self.batch is None else [f"batch {self.batch}"]
        mode = f"{self.mode} {self.optimizer}".strip()
        asked = [] if self.attention == AUTO else [f"{self.attention} attention"]
        return ", ".join([*batch, mode, self.dtype, self.runtime, *asked])
