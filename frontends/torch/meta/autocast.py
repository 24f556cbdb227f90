"""`torch.autocast` as it is on CUDA, for tensors on `meta`.

PyTorch's own kernels of autocast only convert tensors that really are on a GPU, and
the lists for the CPU are others. These are CUDA's lists of PyTorch 2.13, from
`ATen/autocast_mode.h` and `autocast_mode.cpp`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.amp.autocast_mode import autocast
from torch.cuda.amp import common
from torch.utils._pytree import tree_map_only

from perfc.frontends.torch import internals
from perfc.frontends.torch.values import tensors_in

_LOWER = """
_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr
matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
scaled_dot_product_attention lstm.input gru.input rnn_tanh.input rnn_relu.input
"""
"""Ops that compute in the lower precision; recurrent layers do as `_cudnn_rnn`."""

_FP32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm
rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity
poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div
l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
dist pdist cdist renorm logsumexp norm.Scalar norm.ScalarOpt_dim
upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d
_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d
upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
upsample_bicubic2d _upsample_bicubic2d_aa
"""
"""Ops that compute in fp32."""

_FP32_RESULT = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
"""Ops that are told to return fp32, if they are not told anything else."""

_WIDEST = """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot
scatter_add cat stack
"""
"""Ops whose arguments are converted to the widest type among them."""


@contextmanager
def autocast_on_cuda() -> Generator[None]:
    """Make `torch.autocast` of CUDA work on tensors on `meta`."""
    cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    found = _kernels(cache)
    with (
        internals.kernels("AutocastCUDA", found),
        _available(cache),
        internals.autocast_looked_up(),
    ):
        yield


def _kernels(
    cache: dict[int, tuple[torch.Tensor, torch.Tensor]],
) -> Iterator[tuple[str, Callable[..., Any]]]:
    policies: tuple[tuple[str, Callable[..., Any]], ...] = (
        (_LOWER, functools.partial(_lower, cache)),
        (_FP32, _to_fp32),
        (_FP32_RESULT, _to_fp32_result),
        (_WIDEST, _to_widest),
    )
    for names, policy in policies:
        for name in names.split():
            with contextlib.suppress(AttributeError):  # other versions have other ops
                yield name, _kernel(internals.op(name), policy)


def _kernel(call: Any, policy: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with internals.below_autocast():
            return policy(call, args, kwargs)

    return kernel


@contextmanager
def _available(
    cache: dict[int, tuple[torch.Tensor, torch.Tensor]],
) -> Generator[None]:
    """Let `torch.autocast` be entered, and forget weights when it is left."""
    begin, clear = autocast.__init__, torch.clear_autocast_cache

    def on_cuda(self: autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, "cuda" if device_type == "meta" else device_type, *args, **kwargs)

    def clear_all() -> None:
        cache.clear()
        clear()

    with (
        patch.object(autocast, "__init__", on_cuda),
        patch.object(common, "amp_definitely_not_available", lambda: False),
        patch.object(torch.cuda, "is_bf16_supported", _yes),
        patch.object(torch, "clear_autocast_cache", clear_all),
    ):
        yield


def _yes(*args: Any, **kwargs: Any) -> bool:
    return True


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a tensor of the device, unless it is fp64 or has that type."""
    fits = tensor.is_floating_point() and tensor.device.type == "meta"
    return tensor.to(dtype) if fits and tensor.dtype != torch.float64 else tensor


def _lower(
    cache: dict[int, tuple[torch.Tensor, torch.Tensor]],
    call: Any,
    args: Any,
    kwargs: Any,
) -> Any:
    """Convert the arguments; weights once while autocast lasts."""
    dtype = torch.get_autocast_dtype("cuda")

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        cached = torch.is_autocast_cache_enabled() and tensor.dtype == torch.float32
        if not cached or not tensor.is_leaf or not tensor.requires_grad:
            return _cast(tensor, dtype)
        if id(tensor) not in cache:
            cache[id(tensor)] = (tensor, _cast(tensor, dtype))
        return cache[id(tensor)][1]

    args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
    return call(*args, **kwargs)


def _to_fp32(call: Any, args: Any, kwargs: Any) -> Any:
    cast = functools.partial(_cast, dtype=torch.float32)
    args, kwargs = tree_map_only(torch.Tensor, cast, (args, kwargs))
    return call(*args, **kwargs)


def _to_fp32_result(call: Any, args: Any, kwargs: Any) -> Any:
    names = [argument.name for argument in internals.schema(call).arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    first = args[0]
    halves = first.is_floating_point() and first.dtype != torch.float64
    if halves and given.get("dtype") is None:
        given["dtype"] = torch.float32
    positional = {a.name for a in internals.schema(call).arguments if not a.kwarg_only}
    ordered = [
        given.pop(name) for name in names if name in given and name in positional
    ]
    return call(*ordered, **given)


def _to_widest(call: Any, args: Any, kwargs: Any) -> Any:
    found = tensors_in((args, tuple(kwargs.values())))
    floats = [t.dtype for t in found if t.is_floating_point()]
    if torch.float32 not in floats:
        return call(*args, **kwargs)
    return _to_fp32(call, args, kwargs)
