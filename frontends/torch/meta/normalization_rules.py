"""What layer norm and softmax return on tensors without elements: see `quick_rules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from perfc.frontends.torch.internals import op
from perfc.frontends.torch.meta.quick_rules import UseTorch, empty_like
from perfc.frontends.torch.weightless import META

_WIDENED = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""Types that are summed up in another one."""


def _layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """Return the result, means and reciprocal deviations: one of each a row."""
    shape = tuple(normalized_shape)
    given = [t.shape for t in (weight, bias) if t is not None]
    axes = input.dim() - len(shape)
    fits = axes >= 0 and input.shape[axes:] == shape and all(s == shape for s in given)
    if not fits or not shape or not input.is_contiguous():
        raise UseTorch
    rows = (*input.shape[:axes], *(1 for _ in shape))
    kind = _WIDENED.get(input.dtype, input.dtype)
    notes = (torch.empty(rows, dtype=kind, device=META) for _ in range(2))
    return (empty_like(input), *notes)


def _layer_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    contiguous = all(t.is_contiguous() for t in (grad_out, input))
    if not contiguous or grad_out.shape != input.shape or not input.numel():
        raise UseTorch
    sources = zip((input, weight, bias), output_mask, strict=True)
    return tuple(
        empty_like(source) if wanted and source is not None else None
        for source, wanted in sources
    )


def _softmax(
    input: torch.Tensor,
    dim: int,
    half_to_float: bool,
) -> torch.Tensor:
    if not input.is_floating_point() or not input.is_contiguous():
        raise UseTorch
    if half_to_float and input.dtype not in _WIDENED:
        raise UseTorch
    if not -input.dim() <= dim < input.dim():
        raise UseTorch
    return empty_like(input, torch.float32 if half_to_float else None)


def _softmax_backward(
    grad_output: torch.Tensor,
    output: torch.Tensor,
    dim: int,
    input_dtype: torch.dtype,
) -> torch.Tensor:
    if grad_output.shape != output.shape or not grad_output.is_contiguous():
        raise UseTorch
    return empty_like(grad_output, input_dtype)


NORMALIZATION_RULES: Mapping[Any, Callable[..., Any]] = {
    op("native_layer_norm"): _layer_norm,
    op("native_layer_norm_backward"): _layer_norm_backward,
    op("_softmax"): _softmax,
    op("_log_softmax"): _softmax,
    op("_softmax_backward_data"): _softmax_backward,
    op("_log_softmax_backward_data"): _softmax_backward,
}
"""What ops return, by their arguments; the first is a tensor on `meta`."""
