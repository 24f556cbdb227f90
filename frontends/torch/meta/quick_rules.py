"""Quick answers: what common ops return on tensors without elements.

PyTorch's own kernels for these ops on `meta` are written in Python. They are slow, and
load a library of symbolic algebra, or PyTorch's compiler, before the first of them
answers, which takes longer than a capture. Where a rule here is not sure, it says so,
and PyTorch answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from perfc.frontends.torch.internals import op
from perfc.frontends.torch.weightless import META

_MATRIX = 2
_BATCHED = 3


class UseTorch(Exception):  # noqa: N818 - never leaves the frontend
    """PyTorch's own kernel has to say what such a call returns."""


def empty_like(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Make a tensor of the same shape, its axes in the same order in memory.

    Raises:
        UseTorch: the tensor is expanded, so that the order is a matter of rules.

    """
    kind = dtype or tensor.dtype
    if tensor.is_contiguous():
        return torch.empty(tensor.shape, dtype=kind, device=META)
    strides = tensor.stride()
    if 0 in strides:
        raise UseTorch
    step, dense = 1, [0] * len(strides)
    for axis in sorted(range(len(strides)), key=lambda a: (strides[a], -a)):
        dense[axis] = step
        step *= tensor.shape[axis]
    return torch.empty_strided(tensor.shape, dense, dtype=kind, device=META)


def _made_like(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Make a tensor like another, perhaps of another type."""
    given = {key for key, value in kwargs.items() if value is not None}
    other = kwargs.get("memory_format") not in (None, torch.preserve_format)
    if other or not given <= {"dtype", "device", "pin_memory", "memory_format"}:
        raise UseTorch
    if str(kwargs.get("device", "meta")) != "meta":
        raise UseTorch
    return empty_like(tensor, kwargs.get("dtype"))


def _like(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return a tensor like the first: what is done to each element."""
    return empty_like(tensor)


def _like_float(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return a tensor like the first, if it is of floats; others become floats."""
    if not tensor.is_floating_point():
        raise UseTorch
    return empty_like(tensor)


def _like_both(
    one: torch.Tensor,
    other: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """Return a tensor like the first of two of one shape and type.

    Its axes are in the order of the first one's, which decides if it has no axis
    that is expanded.
    """
    if one.shape != other.shape or one.dtype != other.dtype or 0 in one.stride():
        raise UseTorch
    return empty_like(one)


def _arithmetic(one: torch.Tensor, other: Any, **kwargs: Any) -> torch.Tensor:
    """Return the sum, difference or product of a tensor and a like one, or a number."""
    if isinstance(other, torch.Tensor):
        if one.shape == other.shape:
            return _like_both(one, other)
        # Broadcast two tensors of one type that lie in memory in order.
        if one.dtype != other.dtype or other.device != one.device:
            raise UseTorch
        if not one.is_contiguous() or not other.is_contiguous():
            raise UseTorch
        shape = _joint_shape((one.shape, other.shape))
        return torch.empty(shape, dtype=one.dtype, device=META)
    if isinstance(other, float) and not one.is_floating_point():
        raise UseTorch
    if isinstance(other, complex) or one.dtype == torch.bool:
        raise UseTorch
    return empty_like(one)


def _in_place(one: torch.Tensor, other: Any, **kwargs: Any) -> torch.Tensor:
    """Return the tensor that a like one, or a number, is added to or multiplied by."""
    if isinstance(other, torch.Tensor):
        alike = other.shape == one.shape and other.dtype == one.dtype
        if not alike or other.layout is not torch.strided:
            raise UseTorch
    elif not one.is_floating_point() or isinstance(other, complex):
        raise UseTorch
    return one


def _joint_shape(shapes: Sequence[Sequence[int]]) -> list[int]:
    """Broadcast; `torch.broadcast_shapes` would load symbolic algebra."""
    rank = max(map(len, shapes))
    padded = [(*(1,) * (rank - len(shape)), *shape) for shape in shapes]
    joint = [
        next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True)
    ]
    if any(
        n not in (1, wide) for row in padded for n, wide in zip(row, joint, strict=True)
    ):
        raise UseTorch
    return joint


def _lists_like(
    tensors: Sequence[torch.Tensor],
    *args: Any,
    **kwargs: Any,
) -> list[torch.Tensor]:
    return [empty_like(tensor) for tensor in tensors]


def _addmm(
    bias: torch.Tensor,
    one: torch.Tensor,
    other: torch.Tensor,
    **kwargs: Any,
) -> torch.Tensor:
    if one.dim() != 2 or other.dim() != 2 or one.shape[1] != other.shape[0]:  # noqa: PLR2004
        raise UseTorch
    if not one.dtype == other.dtype == bias.dtype or bias.dim() != 1:
        raise UseTorch
    if bias.shape[0] != other.shape[1]:
        raise UseTorch
    return torch.empty(one.shape[0], other.shape[1], dtype=one.dtype, device=META)


def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    first = tensors[0]
    shape = list(first.shape)
    for tensor in tensors[1:]:
        others = tensor.shape[:dim] == first.shape[:dim]
        if dim < 0 or tensor.dim() != len(shape) or not others:
            raise UseTorch
        if tensor.shape[dim + 1 :] != first.shape[dim + 1 :]:
            raise UseTorch
        if tensor.dtype != first.dtype or not tensor.is_contiguous():
            raise UseTorch
        shape[dim] += tensor.shape[dim]
    if not 0 <= dim < len(shape) or not first.is_contiguous():
        raise UseTorch
    return torch.empty(shape, dtype=first.dtype, device=META)


def _mm(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.dim() != _MATRIX or other.dim() != _MATRIX or one.dtype != other.dtype:
        raise UseTorch
    if one.shape[1] != other.shape[0]:
        raise UseTorch
    return torch.empty(one.shape[0], other.shape[1], dtype=one.dtype, device=META)


def _bmm(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    if one.dim() != _BATCHED or other.dim() != _BATCHED or one.dtype != other.dtype:
        raise UseTorch
    if one.shape[0] != other.shape[0] or one.shape[2] != other.shape[1]:
        raise UseTorch
    shape = (*one.shape[:2], other.shape[2])
    return torch.empty(shape, dtype=one.dtype, device=META)


def _sum(
    tensor: torch.Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    if not tensor.is_contiguous() or not tensor.is_floating_point() or not dim:
        raise UseTorch
    axes = {axis % tensor.dim() for axis in dim}
    sizes = enumerate(tensor.shape)
    shape = [1 if a in axes else n for a, n in sizes if keepdim or a not in axes]
    return torch.empty(shape, dtype=dtype or tensor.dtype, device=META)


def _index(
    tensor: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> torch.Tensor:
    """Look neighbouring axes up by tensors of integers."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not tensor.is_contiguous() or axes != list(range(axes[0], axes[-1] + 1)):
        raise UseTorch
    if any(index.dtype not in (torch.int64, torch.int32) for index in given):
        raise UseTorch
    found = _joint_shape([index.shape for index in given])
    shape = (*tensor.shape[: axes[0]], *found, *tensor.shape[axes[-1] + 1 :])
    return torch.empty(shape, dtype=tensor.dtype, device=META)


def _new(tensor: torch.Tensor, size: Sequence[int], **kwargs: Any) -> torch.Tensor:
    if str(kwargs.get("device") or "meta") != "meta":
        raise UseTorch
    dtype = kwargs.get("dtype") or tensor.dtype
    return torch.empty(size, dtype=dtype, device=META)


def _embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    *args: Any,
) -> torch.Tensor:
    shape = (*indices.shape, weight.shape[1])
    return torch.empty(shape, dtype=weight.dtype, device=META)


def _embedding_gradient(
    grad: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    *args: Any,
) -> torch.Tensor:
    shape = (num_weights, grad.shape[-1])
    return torch.empty(shape, dtype=grad.dtype, device=META)


_SUM = 0


def _bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, ...]:
    """Pool sums; the other results are what CUDA's kernel notes for its backward."""
    if mode != _SUM or indices.dim() != 1 or weight.dim() != _MATRIX:
        raise UseTorch
    bags = offsets.shape[0] - include_last_offset
    out = torch.empty(bags, weight.shape[1], dtype=weight.dtype, device=META)
    notes = (indices.shape[0], bags, 0)
    return (out, *(torch.empty(n, dtype=indices.dtype, device=META) for n in notes))


def _bag_gradient(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    bag_size: torch.Tensor,
    maximum_indices: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    *rest: Any,
) -> torch.Tensor:
    shape = (num_weights, grad.shape[1])
    if not sparse:
        return torch.empty(shape, dtype=grad.dtype, device=META)
    rows = torch.empty(indices.shape[0], shape[1], dtype=grad.dtype, device=META)
    return op("_sparse_coo_tensor_unsafe")(indices.unsqueeze(0), rows, shape)  # type: ignore[no-any-return]


def _cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    """Binary cross entropy: one number, unless it is not reduced."""
    if input.shape != target.shape:
        raise UseTorch
    if reduction == 0:
        return empty_like(input)
    return torch.empty((), dtype=input.dtype, device=META)


def _mse(input: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    return _cross_entropy(input, target, None, reduction)


def _class_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Negative log likelihood of classes, and the sum of their weights."""
    if input.dim() != _MATRIX or target.shape != input.shape[:1]:
        raise UseTorch
    shape = target.shape if reduction == 0 else ()
    loss, total = (
        torch.empty(size, dtype=input.dtype, device=META) for size in (shape, ())
    )
    return loss, total


def _loss_backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    return empty_like(input)


def _made(size: Sequence[int], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Make a tensor of zeros or ones without making them."""
    return torch.empty(size, **{k: v for k, v in kwargs.items() if k != "pin_memory"})


def _range(*limits: float, **kwargs: Any) -> torch.Tensor:
    """Count from 0, or from the first, to below the last, by ones or the third."""
    start, end, step = ((0, *limits, 1) if len(limits) == 1 else (*limits, 1))[:3]
    dtype = kwargs.get("dtype")
    if dtype is None:
        whole = all(isinstance(limit, int) for limit in limits)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    if not step or (end - start) / step < 0:
        raise UseTorch
    return torch.empty(math.ceil((end - start) / step), dtype=dtype, device=META)


_ALIKE = """
relu sigmoid tanh gelu silu neg exp log sqrt rsqrt sin cos
"""
_BOTH_ALIKE = """
threshold_backward sigmoid_backward tanh_backward gelu_backward silu_backward
native_dropout_backward
"""
_ARITHMETIC = """
add.Tensor sub.Tensor mul.Tensor
"""
_IN_PLACE = """
add_.Tensor sub_.Tensor mul_.Tensor
"""
_LISTS_ALIKE = """
_foreach_add.Scalar _foreach_add.List _foreach_mul.Scalar _foreach_mul.List
_foreach_mul.ScalarList _foreach_div.Scalar _foreach_div.List _foreach_div.ScalarList
_foreach_sqrt _foreach_neg _foreach_reciprocal _foreach_pow.Scalar _foreach_sub.List
"""


QUICK_RULES: Mapping[Any, Callable[..., Any]] = {
    **{op(name): _like_float for name in _ALIKE.split()},
    **{op(name): _like_both for name in _BOTH_ALIKE.split()},
    **{op(name): _arithmetic for name in _ARITHMETIC.split()},
    **{op(name): _in_place for name in _IN_PLACE.split()},
    **{op(name): _lists_like for name in _LISTS_ALIKE.split()},
    op("empty_like"): _made_like,
    op("zeros_like"): _made_like,
    op("ones_like"): _made_like,
    op("zeros"): _made,
    op("ones"): _made,
    op("arange"): _range,
    op("arange.start"): _range,
    op("arange.start_step"): _range,
    op("addmm"): _addmm,
    op("mm"): _mm,
    op("bmm"): _bmm,
    op("sum.dim_IntList"): _sum,
    op("index.Tensor"): _index,
    op("index_put"): _like,
    op("new_zeros"): _new,
    op("full_like"): _made_like,
    op("embedding"): _embedding,
    op("embedding_dense_backward"): _embedding_gradient,
    op("_embedding_bag"): _bag,
    op("_embedding_bag_backward"): _bag_gradient,
    op("cat"): _cat,
    op("nll_loss_forward"): _class_loss,
    op("nll_loss_backward"): _loss_backward,
    op("mse_loss"): _mse,
    op("mse_loss_backward"): _loss_backward,
    op("binary_cross_entropy"): _cross_entropy,
    op("binary_cross_entropy_backward"): _loss_backward,
}
"""What ops return, by their arguments; the first is a tensor on `meta`."""
