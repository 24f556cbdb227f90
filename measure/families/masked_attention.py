"""Attention with a mask of floats, as a model that pads its sequences calls it."""

from __future__ import annotations

from typing import Any

import torch

from perfc.measure.case import Call, Case, Tensors
from perfc.measure.families.given import Given

_ATEN: Any = torch.ops.aten


class MaskedAttention(Given):
    """Heads side by side, as projections leave them; one mask for all heads.

    Only the memory-efficient kernel, and that of a CPU, take masks.
    """

    op = "attention"

    def takes(self, case: Case) -> bool:
        """Whether there is a mask."""
        efficient = case.params.get("algorithm") == "efficient"
        return case.params.flag("masked") and efficient

    def memory_bytes(self, case: Case) -> int:
        """Return operands, results and the mask, each with its gradient."""
        batch, q_len, kv_len = map(case.params.integer, ("batch", "q_len", "kv_len"))
        return 2 * int(case.work.bytes) + 8 * batch * q_len * kv_len

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the kernel, or that of its gradients; a mask is wanted none of."""
        batch, heads, q_len, kv_len, width = map(
            case.params.integer, ("batch", "heads", "q_len", "kv_len", "head_dim")
        )
        of_queries, of_keys = ((batch, n, heads, width) for n in (q_len, kv_len))
        q, g = (tensors.random(case.dtype, *of_queries).transpose(1, 2) for _ in "qg")
        k, v = (tensors.random(case.dtype, *of_keys).transpose(1, 2) for _ in "kv")
        mask = tensors.random(case.dtype, batch, 1, q_len, kv_len)
        mask = mask.expand(batch, heads, q_len, kv_len)
        backward = case.params.get("phase") == "backward"
        if tensors.kind == "cpu":
            return _on_cpu(q, k, v, mask, g if backward else None)
        if not backward:
            return lambda: _ATEN._scaled_dot_product_efficient_attention(
                q, k, v, mask, False
            )
        out = _ATEN._scaled_dot_product_efficient_attention(q, k, v, mask, True)
        wanted = [True, True, True, False]
        return lambda: _ATEN._scaled_dot_product_efficient_attention_backward(
            g, q, k, v, mask, *out, 0.0, wanted
        )


def _on_cpu(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    g: torch.Tensor | None,
) -> Call:
    name = "_scaled_dot_product_flash_attention_for_cpu"
    forward = getattr(_ATEN, name)
    if g is None:
        return lambda: forward(q, k, v, 0.0, False, attn_mask=mask)
    results = forward(q, k, v, 0.0, False, attn_mask=mask)
    backward = getattr(_ATEN, f"{name}_backward")
    return lambda: backward(g, q, k, v, *results, 0.0, False, attn_mask=mask)
