"""PyTorch on `meta` as it is on a GPU, though this build may have no CUDA.

Which ops a call is made of depends on the device for a few of PyTorch's composite
functions: attention, dropout, RMS norm, recurrent layers and cells, sparse gradients.
Here they are what they are on CUDA, as long as a capture lasts, for tensors on `meta`.
Which attention kernel it is, flash or memory-efficient, is not decided here, nor
whether a cell is one kernel or those of a CPU: `lower-kernels` knows the target.

Source: `aten/src/ATen/native/transformers/attention.cpp`, `Dropout.cpp`,
`layer_norm.cpp`, `RNN.cpp`, `Embedding.cpp`, `SoftMax.cpp` of PyTorch 2.6 to 2.13.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch

from perfc.frontends.torch import internals
from perfc.frontends.torch.recorder import Recorder

_HEADS_RANK = 4


@contextmanager
def as_on_cuda(recorder: Recorder) -> Generator[None]:
    """Make tensors on `meta` behave as on a GPU."""
    found = {**_KERNELS, **{name: make(recorder) for name, make in _RECORDED.items()}}
    with ExitStack() as stack:
        stack.enter_context(internals.kernels("AutogradMeta", found.items()))
        for where in ("foreach", "fused"):
            stack.enter_context(_supported(where))
        stack.enter_context(_capturable())
        stack.enter_context(_integers_multiplied())
        yield


@contextmanager
def _supported(what: str) -> Generator[None]:
    """Let optimizers, and what clips gradients, take their CUDA defaults."""
    name = f"_get_{what}_kernels_supported_devices"
    with ExitStack() as stack:
        for where in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
            module = import_module(where)  # `torch.optim` hides it
            devices = [*getattr(module, name)(), "meta"]
            stack.enter_context(patch.object(module, name, devices.copy))
        yield


@contextmanager
def _capturable() -> Generator[None]:
    """Let optimizers be `capturable`: each has a name of its own for the function."""
    name = "_get_capturable_supported_devices"
    known = getattr(import_module("torch.optim.optimizer"), name)

    def devices(**given: bool) -> list[str]:
        return [*known(**given), "meta"]

    with ExitStack() as stack:
        for module in [m for n, m in sys.modules.items() if n.startswith(_OPTIMIZERS)]:
            if hasattr(module, name):
                stack.enter_context(patch.object(module, name, devices))
        yield


_OPTIMIZERS = "torch.optim."


@contextmanager
def _integers_multiplied() -> Generator[None]:
    """Let `out_dtype` run what it runs on a GPU: of 8-bit integers, one kernel."""
    module = sys.modules.get(_OUT_DTYPE)
    if module is None:  # nobody can call it
        yield
        return

    def called(_: Any, func: Any, dtype: torch.dtype, *args: Any) -> Any:
        types = [x.dtype for x in args if isinstance(x, torch.Tensor)]
        multiplies = func is internals.op("mm") and dtype == torch.int32
        if multiplies and types == [torch.int8, torch.int8]:
            return internals.op("_int_mm")(*args)
        return module.out_dtype_fallback(func, dtype, *args)

    with patch.object(module.OutDtypeOperator, "__call__", called):
        yield


_OUT_DTYPE = "torch._higher_order_ops.out_dtype"


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """One kernel, unless the model or its ranks ask for matmuls and a softmax."""
    if not internals.fused_attention_enabled() or {
        query.dim(),
        key.dim(),
        value.dim(),
    } != {_HEADS_RANK}:
        found = internals.op("_scaled_dot_product_attention_math")(
            query, key, value, attn_mask, dropout_p, is_causal,
            scale=scale, enable_gqa=enable_gqa,
        )  # fmt: skip
    elif attn_mask is None:
        found = internals.op("_scaled_dot_product_flash_attention")(
            query, key, value, dropout_p, is_causal, scale=scale
        )
    else:
        found = internals.op("_scaled_dot_product_efficient_attention")(
            query, key, value, attn_mask, torch.is_grad_enabled(), dropout_p,
            is_causal, scale=scale,
        )  # fmt: skip
    first: torch.Tensor = found[0]
    return first


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0 or not input.numel():
        return input
    dropped: torch.Tensor = internals.op("native_dropout")(input, p, train)[0]
    return dropped


_HALVES = (torch.float16, torch.bfloat16)


def _softmax(kernel: Any) -> Callable[..., torch.Tensor]:
    """Convert halves to fp32 within the kernel."""

    def softmax(
        input: torch.Tensor, dim: int, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        widens = input.dtype in _HALVES and dtype == torch.float32
        x = input if widens or dtype is None else input.to(dtype)
        found: torch.Tensor = kernel(x, dim, widens)
        return found

    return softmax


def _recurrent(mode: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Run all layers and steps in one call of cuDNN."""

    def layers(
        input: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        params: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...]:
        hidden, cell = (hx, None) if isinstance(hx, torch.Tensor) else hx
        size = params[1].shape[1]  # of what recurs: the projection, if there is one
        units = params[1].shape[0] // (1, 1, 4, 3)[mode]
        stride = (4 if has_biases else 2) + (units != size)
        found = internals.op("_cudnn_rnn")(
            input, params, stride, None, hidden, cell, mode, units,
            size if units != size else 0, num_layers, batch_first, dropout, train,
            bidirectional, [], None,
        )  # fmt: skip
        return tuple(found[: 2 if cell is None else 3])

    return layers


def _cell(
    kind: str,
) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """Multiply twice, then run one kernel; what it keeps for backward stays inside."""
    fused = internals.op(f"_thnn_fused_{kind}_cell")

    def cell(
        input: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor | None = None,
        b_hh: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        states = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        of_input = torch.matmul(input, w_ih.t())
        of_state = torch.matmul(states[0], w_hh.t())
        found = fused(of_input, of_state, states[-1], b_ih, b_hh)
        return found[0] if len(states) == 1 else tuple(found[:2])

    return cell


_KERNELS: Mapping[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _attention,
    "dropout": _dropout,
    "softmax.int": _softmax(internals.op("_softmax")),
    "log_softmax.int": _softmax(internals.op("_log_softmax")),
    "rnn_relu.input": _recurrent(0),
    "rnn_tanh.input": _recurrent(1),
    "lstm.input": _recurrent(2),
    "gru.input": _recurrent(3),
    "lstm_cell": _cell("lstm"),
    "gru_cell": _cell("gru"),
}
"""Composite functions, and what they are on CUDA."""


def _rms_norm(recorder: Recorder) -> Callable[..., torch.Tensor]:
    """Return RMS norm as one op, forward and backward."""

    class FusedRmsNorm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
            axes = x.dim() - len(shape)
            with recorder.paused():
                out = torch.empty_like(x)
                sizes = (*x.shape[:axes], *(1 for _ in shape))
                scale = x.new_empty(sizes, dtype=torch.float32)
            given = {"input": x, "normalized_shape": shape, "weight": weight}
            recorder.emit(
                internals.op("_fused_rms_norm"),
                {**given, "eps": eps},
                [out, scale],
            )
            ctx.save_for_backward(x, scale, weight)
            ctx.shape = shape
            return out

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            x, scale, weight = ctx.saved_tensors
            wanted = (ctx.needs_input_grad[0], ctx.needs_input_grad[2])
            with recorder.paused():
                of_x = torch.empty_like(x) if wanted[0] else None
                of_weight = torch.empty_like(weight) if wanted[1] else None
            given = {"grad_out": grads[0], "input": x, "normalized_shape": ctx.shape}
            recorder.emit(
                internals.op("_fused_rms_norm_backward"),
                {**given, "rstd": scale, "weight": weight, "output_mask": wanted},
                [of_x, of_weight],
            )
            return of_x, None, of_weight, None

    def rms_norm(
        input: torch.Tensor,
        normalized_shape: Sequence[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> torch.Tensor:
        shape = tuple(normalized_shape)
        function: Any = FusedRmsNorm  # its `apply` has no types
        found: torch.Tensor = function.apply(input, shape, weight, eps)
        return found

    return rms_norm


def _embedding_backward(recorder: Recorder) -> Callable[..., torch.Tensor]:
    """Return the gradient of an embedding; a sparse one is one call, too."""

    def embedding_backward(
        grad: torch.Tensor,
        indices: torch.Tensor,
        num_weights: int,
        padding_idx: int,
        scale_grad_by_freq: bool,
        sparse: bool,
    ) -> torch.Tensor:
        given = (grad, indices, num_weights, padding_idx, scale_grad_by_freq)
        if not sparse:
            dense: torch.Tensor = internals.op("embedding_dense_backward")(*given)
            return dense
        call = internals.op("embedding_backward")
        names = [argument.name for argument in internals.schema(call).arguments]
        with recorder.paused():
            found: torch.Tensor = internals.op("embedding_sparse_backward")(*given)
        recorder.emit(call, dict(zip(names, (*given, sparse), strict=True)), [found])
        return found

    return embedding_backward


def _mish_backward(recorder: Recorder) -> Callable[..., torch.Tensor]:
    """Return one kernel, where other devices go step by step."""

    def mish_backward(grad: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        with recorder.paused():
            found = torch.empty_like(tensor)
        given = {"grad_output": grad, "self": tensor}
        recorder.emit(internals.op("mish_backward"), given, [found])
        return found

    return mish_backward


_RECORDED: Mapping[str, Callable[[Recorder], Callable[..., Any]]] = {
    "rms_norm": _rms_norm,
    "embedding_backward": _embedding_backward,
    "mish_backward": _mish_backward,
}
"""Functions that no kernel of PyTorch on `meta` can stand for."""
