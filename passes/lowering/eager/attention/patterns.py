"""Attention that a source spells out, and that Inductor knows for one call.

The facts are those of `torch/_inductor/fx_passes/fuse_attention.py` of PyTorch 2.13.
Fused kernels multiply in TF32, so that fp32 attention is left alone unless TF32 is
allowed. Scores that are scaled may go straight into the softmax, by a product or a
quotient; with a mask only a quotient is known, scores that are not scaled, or queries
and keys scaled before.
"""

from __future__ import annotations

from collections.abc import Sequence

_NEVER = frozenset({"fp32", "fp64", "fp64_tensor"})
"""Math modes of GEMMs in which no pattern is taken."""

_SCORES = "matmul(q, k)"
_MASKING = ("add(s", "where(", "masked_fill(")


def has_pattern(calls: Sequence[str], math: str) -> bool:
    """Whether Inductor replaces calls by `scaled_dot_product_attention`.

    Args:
        calls: The calls, as `spelled_out` lists them.
        math: Math mode of the GEMMs.

    """
    if math in _NEVER:
        return False
    after = calls[calls.index(_SCORES) :] if _SCORES in calls else calls
    masked = any(call.startswith(_MASKING) for call in after)
    return not (masked and any(call.startswith("mul(s") for call in after))


def without_loops(calls: Sequence[str]) -> tuple[str, ...]:
    """Return the calls that are kernels of their own once loops are fused.

    What is done to the scores one by one is computed where the softmax reads them.
    """
    return tuple(
        call for call in calls if call.startswith(("matmul(", "softmax(", "dropout("))
    )
