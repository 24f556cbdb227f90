"""What no kernel of attention can beat."""

from __future__ import annotations

from perfc.costmodels.attention.tiles import fp32_flops_per_s
from perfc.costmodels.kernels import (
    Maths,
    Number,
    Signatures,
    executed_share,
    moved_s,
)
from perfc.costmodels.machine import Target


def attention_bound_s(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """Return the bound of bytes, and of flops that a causal mask does not hide.

    In fp32 three matmuls on tensor cores may stand for one.
    """
    flops = kernels.flops * executed_share(kernels, maths)
    limit = kernels.limit_flops_per_s(target)
    tripled = kernels.math == "fp32"
    if maths.any(tripled):
        fp32 = maths.most(limit, fp32_flops_per_s(target))
        limit = maths.where(tripled, fp32, limit)
    return maths.most(moved_s(kernels.bytes, target, maths), flops / limit)
