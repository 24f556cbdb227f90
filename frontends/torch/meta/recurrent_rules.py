"""Sizes and types of what CUDA's fused kernels of recurrent cells return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from perfc.frontends.torch.internals import op
from perfc.frontends.torch.meta.quick_rules import empty_like

_GRU_GATES, _GRU_KEPT = 3, 5
"""Vectors of hidden size: of each matmul, and of the workspace
(`GRU_WORKSPACE_MULTIPLIER` in `RNN.cu`)."""


def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    *biases: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    return (empty_like(cx), empty_like(cx), empty_like(input_gates))


def _lstm_cell_backward(
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    cx: torch.Tensor,
    cy: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor | None, ...]:
    bias = workspace.new_empty(workspace.shape[1]) if has_bias else None
    return (empty_like(workspace), empty_like(cx), bias)


def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    *biases: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    rows, hidden = hx.shape
    return (empty_like(hx), hx.new_empty(rows, hidden * _GRU_KEPT))


def _gru_cell_backward(
    grad_hy: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor | None, ...]:
    rows, kept = workspace.shape
    width = kept // _GRU_KEPT * _GRU_GATES
    gates = (workspace.new_empty(rows, width) for _ in range(2))
    biases = (workspace.new_empty(width) if has_bias else None for _ in range(2))
    return (*gates, empty_like(grad_hy), *biases)


RECURRENT_RULES: Mapping[Any, Callable[..., Any]] = {
    op("_thnn_fused_lstm_cell"): _lstm_cell,
    op("_thnn_fused_lstm_cell_backward_impl"): _lstm_cell_backward,
    op("_thnn_fused_gru_cell"): _gru_cell,
    op("_thnn_fused_gru_cell_backward"): _gru_cell_backward,
}
"""What ops return, by their arguments on `meta`."""
