"""Sizes and types of what some ops return on tensors without elements.

PyTorch has no kernel for the device `meta` for some of these ops, for others a slow
one, or one that answers as the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from perfc.frontends.torch import values
from perfc.frontends.torch.internals import op
from perfc.frontends.torch.meta.normalization_rules import NORMALIZATION_RULES
from perfc.frontends.torch.meta.quick_rules import QUICK_RULES, UseTorch, empty_like
from perfc.frontends.torch.meta.recurrent_rules import RECURRENT_RULES
from perfc.frontends.torch.weightless import META


def _filled(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Fill nothing: PyTorch's own kernels would load its compiler to do so."""
    return tensor


def _heads_inside(tensor: torch.Tensor, width: int) -> torch.Tensor:
    """Make [batch, heads, length, width] as fused attention lays it out in memory."""
    batch, heads, length = tensor.shape[:3]
    made = torch.empty(batch, length, heads, width, dtype=tensor.dtype, device=META)
    return made.transpose(1, 2)


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    batch, heads, length = query.shape[:3]
    sums = torch.empty(batch, heads, length, dtype=torch.float32, device=META)
    seed = torch.empty(2, dtype=torch.uint64, device=META)
    offset = torch.empty((), dtype=torch.uint64, device=META)
    mask = torch.empty(0, dtype=query.dtype, device=META)
    out = _heads_inside(query, value.shape[-1])
    return (out, sums, None, None, length, key.shape[2], seed, offset, mask)


def _flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *rest: Any,
    **options: Any,
) -> tuple[torch.Tensor, ...]:
    return tuple(_heads_inside(x, x.shape[-1]) for x in (query, key, value))


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    *rest: Any,
    **options: Any,
) -> tuple[torch.Tensor, ...]:
    batch, heads, length = query.shape[:3]
    sums = torch.empty(batch, heads, length, dtype=torch.float32, device=META)
    seed = torch.empty((), dtype=torch.int64, device=META)
    return (_heads_inside(query, value.shape[-1]), sums, seed, seed.clone())


def _efficient_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    *rest: Any,
    **options: Any,
) -> tuple[torch.Tensor | None, ...]:
    wanted = grad_input_mask[3] and attn_bias is not None
    of_bias = empty_like(attn_bias) if wanted and attn_bias is not None else None
    heads = (_heads_inside(x, x.shape[-1]) for x in (query, key, value))
    return (*heads, of_bias)


_GATES = (1, 1, 4, 3)
"""Gates of cuDNN's modes: RNN with ReLU or tanh, LSTM, GRU."""


def _cudnn_rnn(
    input: torch.Tensor,
    weight: Sequence[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor | None,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """Give shapes as cuDNN does; what it reserves for backward is not documented.

    It is taken as all gates, and the state of each step.
    """
    directions = 2 if bidirectional else 1
    width = (proj_size or hidden_size) * directions
    out = input.new_empty((*input.shape[:-1], width))
    steps = input.numel() // input.shape[-1]
    kept = steps * num_layers * directions * hidden_size * (_GATES[mode] + 1)
    reserve = input.new_empty(kept if train else 0)
    cell = input.new_empty(0) if cx is None else empty_like(cx)
    return (out, empty_like(hx), cell, reserve, input.new_empty(0))


def _cudnn_rnn_backward(
    input: torch.Tensor,
    weight: Sequence[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    *rest: Any,
) -> tuple[Any, ...]:
    wanted: Sequence[bool] = rest[-1]
    of_cell = empty_like(cx) if cx is not None and wanted[2] else None
    of_weights = [empty_like(w) for w in weight] if wanted[3] else []
    return (
        empty_like(input) if wanted[0] else None,
        empty_like(hx) if wanted[1] else None,
        of_cell,
        of_weights,
    )


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    """One loss a sequence, and what is summed up for it: twice the longest target."""
    steps, batch = log_probs.shape[:2]
    lengths = target_lengths
    if isinstance(lengths, torch.Tensor):
        lengths = values.value_of(lengths)
    longest = targets.shape[-1] if lengths is None else max(map(int, lengths))
    sums = log_probs.new_empty(batch, steps, 2 * longest + 1)
    return (log_probs.new_empty(batch), sums)


def _grouped_mm(
    one: torch.Tensor,
    other: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Matmuls of groups; PyTorch's own rule takes no type but bf16."""
    shape = (*one.shape[:-1], other.shape[-1])
    if offs is not None and one.dim() == other.dim():
        shape = (offs.shape[0], *shape)
    return torch.empty(shape, dtype=out_dtype or one.dtype, device=META)


def _like_second(
    grad: torch.Tensor,
    tensor: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    return empty_like(tensor)


def _is_left_aligned(tensor: torch.Tensor, mask: torch.Tensor) -> bool:
    """Say that padding is no reason to leave it out: all tokens are computed."""
    return False


def _bincount(
    tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """Return so many counts as are asked for; elements may ask for more."""
    if values.value_of(tensor) is not None or not minlength:
        raise UseTorch  # and it follows from elements, or is not known
    kind = torch.int64
    if weights is not None:  # all but fp32 are converted to fp64
        kind = torch.float32 if weights.dtype == torch.float32 else torch.float64
    return torch.empty(minlength, dtype=kind, device=META)


RULES: Mapping[Any, Callable[..., Any]] = {
    **QUICK_RULES,
    **NORMALIZATION_RULES,
    **RECURRENT_RULES,
    op("_scaled_dot_product_flash_attention"): _flash,
    op("_scaled_dot_product_flash_attention_backward"): _flash_backward,
    op("_scaled_dot_product_efficient_attention"): _efficient,
    op("_scaled_dot_product_efficient_attention_backward"): _efficient_backward,
    op("_cudnn_rnn"): _cudnn_rnn,
    op("_cudnn_rnn_backward"): _cudnn_rnn_backward,
    op("_grouped_mm"): _grouped_mm,
    op("_nested_tensor_from_mask_left_aligned"): _is_left_aligned,
    op("bincount"): _bincount,
    op("_ctc_loss"): _ctc_loss,
    op("_ctc_loss.Tensor"): _ctc_loss,
    op("_ctc_loss_backward"): _like_second,
    op("_ctc_loss_backward.Tensor"): _like_second,
    op("fractional_max_pool3d_backward"): _like_second,
    op("multi_margin_loss_backward"): _like_second,
    op("multilabel_margin_loss_backward"): _like_second,
    op("normal_"): _filled,
    op("uniform_"): _filled,
    op("random_"): _filled,
    op("random_.to"): _filled,
    op("random_.from"): _filled,
    op("bernoulli_.float"): _filled,
    op("exponential_"): _filled,
    op("log_normal_"): _filled,
    op("cauchy_"): _filled,
    op("geometric_"): _filled,
}
"""What ops return, by their arguments; the first is a tensor on `meta`."""
