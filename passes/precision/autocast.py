"""Element types that CUDA's autocast runs ops in.

The lists of `aten/src/ATen/autocast_mode.h` (PyTorch 2.x) in perfc's ops, as the
"Autocast Op Reference" of PyTorch's documentation gives them. Ops in none of them run
in the type of what they read, the widest if it differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import DTYPES, DType, Node

LOW_DTYPES: Mapping[str, str] = {"bf16": "bf16", "fp16": "f16"}
"""Element types that a model can be converted to, by their names for users."""

LOW_PRECISION = frozenset(
    {
        *("linear", "matmul", "einsum", "conv", "conv_transpose", "prelu"),
        *("attention", "recurrent", "recurrent_cell"),
    }
)
"""Run in the narrow type: their fp32 operands are cast."""

FP32 = frozenset(
    {
        *("layer_norm", "rms_norm", "group_norm", "local_response_norm"),
        *("exp", "log", "pow", "reciprocal", "softplus"),
        *("acos", "asin", "cosh", "sinh", "tan", "cumsum", "cumprod"),
        *("nll_loss", "loss"),
    }
)
"""Run in fp32: their narrow operands are cast."""

COMPUTES_IN_FP32 = frozenset({"softmax", "log_softmax", "reduce"})
"""Read the narrow type and compute and write fp32 in one kernel: PyTorch has a `dtype`
argument there, which autocast sets (`fp32_set_opt_dtype`)."""

_WIDENS_HALF_ONLY = frozenset({"softmax", "log_softmax"})
"""Ops of these that have such kernels for fp16 (`SoftMax.cpp`); bf16 is cast first."""

_REDUCED_IN_FP32 = frozenset(
    {"sum", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"}
)
"""Kinds of `reduce`; a mean or a maximum keeps its type."""


def casts_first(op: str, low: DType) -> bool:
    """Whether an op that needs fp32 has no kernel that reads *low*."""
    if op in COMPUTES_IN_FP32:
        return op in _WIDENS_HALF_ONLY and low != DTYPES["f16"]
    return True


def needs_fp32(node: Node) -> bool:
    """Whether a node computes in fp32 whatever it reads."""
    if node.op == "reduce":
        return node.attributes.text("kind") in _REDUCED_IN_FP32
    return node.op in FP32 or node.op in COMPUTES_IN_FP32
