"""Element types that CUDA's autocast runs ops in.

The lists of `aten/src/ATen/autocast_mode.h` (PyTorch 2.x) in perfc's ops, as the
"Autocast Op Reference" of PyTorch's documentation gives them. Ops in none of them run
in the type of what they read, the widest if it differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from perfc.ir import DTYPES, DType, Node

LOW_DTYPES: Mapping[str, str] = {"bf16": "bf16", "fp16": "f16"}
"""Element types that a model can be converted to, by their names for users."""


class Autocast(Enum):
    """What autocast does to an op, whatever its operands are."""

    LOW = "runs in the narrow type: its fp32 operands are cast"
    FP32 = "runs in fp32: its narrow operands are cast"
    COMPUTES_IN_FP32 = "reads the narrow type, and writes fp32, in one kernel"


AUTOCAST: Mapping[str, Autocast] = {
    **dict.fromkeys(
        (
            *("linear", "matmul", "einsum", "conv", "conv_transpose", "prelu"),
            *("attention", "recurrent", "recurrent_cell"),
        ),
        Autocast.LOW,
    ),
    **dict.fromkeys(
        (
            *("layer_norm", "rms_norm", "group_norm", "local_response_norm"),
            *("exp", "log", "pow", "reciprocal", "softplus"),
            *("acos", "asin", "cosh", "sinh", "tan", "cumsum", "cumprod"),
            *("nll_loss", "loss"),
        ),
        Autocast.FP32,
    ),
    **dict.fromkeys(("softmax", "log_softmax", "reduce"), Autocast.COMPUTES_IN_FP32),
}
"""What autocast does, by op. PyTorch computes in fp32 where a kernel has an argument
`dtype`, which autocast sets (`fp32_set_opt_dtype`)."""

_WIDENS_HALF_ONLY = frozenset({"softmax", "log_softmax"})
"""Ops of these that have such kernels for fp16 (`SoftMax.cpp`); bf16 is cast first."""

_REDUCED_IN_FP32 = frozenset(
    {"sum", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"}
)
"""Kinds of `reduce`; a mean or a maximum keeps its type."""


def casts_first(op: str, low: DType) -> bool:
    """Whether an op that needs fp32 has no kernel that reads *low*."""
    if AUTOCAST.get(op) is Autocast.COMPUTES_IN_FP32:
        return op in _WIDENS_HALF_ONLY and low != DTYPES["f16"]
    return True


def is_narrowed(node: Node) -> bool:
    """Whether a node computes in the narrow type whatever it reads."""
    return AUTOCAST.get(node.op) is Autocast.LOW


def needs_fp32(node: Node) -> bool:
    """Whether a node computes in fp32 whatever it reads."""
    found = AUTOCAST.get(node.op)
    if found is Autocast.COMPUTES_IN_FP32 and "kind" in node.attributes:
        return node.attributes.text("kind") in _REDUCED_IN_FP32
    return found in (Autocast.FP32, Autocast.COMPUTES_IN_FP32)
