"""Functions, images and rearrangements in PyTorch, for `torch_graph.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tests.passes.torch_layers import F, Results, Run, aten, axis_of

from perfc.ir import Node

_DET: Any = getattr(torch.linalg, "det")  # noqa: B009 - typed in part


def _plain(function: Callable[..., Any]) -> Run:
    return lambda node, operands: [function(*operands)]


def _number(node: Node, name: str) -> float:
    value = node.attributes.get(name)
    return value if isinstance(value, float) else 1.0


def _elu_backward(node: Node, operands: list[Any]) -> Results:
    alpha, scale = _number(node, "alpha"), _number(node, "scale")
    return [aten.elu_backward(operands[0], alpha, scale, 1.0, False, operands[1])]


def _shrink(node: Node, operands: list[Any]) -> Results:
    hard = node.attributes.flag("hard")
    return [(F.hardshrink if hard else F.softshrink)(operands[0], 0.5)]


def _by_autograd(run: Run) -> Run:
    """Differentiate the forward op with respect to what follows the gradient."""

    def backward(node: Node, operands: list[Any]) -> Results:
        grad, *saved = operands
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in saved]
            out = run(node, leaves)[0]
        autograd: Any = torch.autograd
        return list(autograd.grad(out, leaves[: len(node.results)], grad))

    return backward


def _prelu(node: Node, operands: list[Any]) -> Results:
    x, slope = operands
    return [torch.where(x < 0, x * slope, x)]


def _prelu_backward(node: Node, operands: list[Any]) -> Results:
    return list(aten._prelu_kernel_backward(*operands))


def _resize_backward(node: Node, operands: list[Any]) -> Results:
    x = operands[0].new_zeros(node.attributes.integers("shape"))
    return _by_autograd(_resize)(node, [operands[0], x])


def _resize(node: Node, operands: list[Any]) -> Results:
    return [F.interpolate(operands[0], scale_factor=2, mode="nearest")]


def _pad_backward(node: Node, operands: list[Any]) -> Results:
    """One axis, padded by 1 and 2 as the case has it."""
    x = operands[0].new_zeros(node.attributes.integers("shape"))
    pad: Run = lambda node, o: [F.pad(o[0], (1, 2), node.attributes.text("mode"))]  # noqa: E731
    return _by_autograd(pad)(node, [operands[0], x])


def _grid_sample(node: Node, operands: list[Any]) -> Results:
    return [F.grid_sample(*operands, align_corners=False)]


FUNCTIONS: Mapping[str, Run] = {
    "elu": _plain(F.elu),
    "celu": _plain(F.celu),
    "selu": _plain(F.selu),
    "elu_backward": _elu_backward,
    "shrink": _shrink,
    "shrink_backward": _by_autograd(_shrink),
    "log_sigmoid": _plain(F.logsigmoid),
    "log_sigmoid_backward": _by_autograd(_plain(F.logsigmoid)),
    "logit": _plain(torch.logit),
    "logit_backward": _by_autograd(_plain(torch.logit)),
    "thresholded_relu": lambda node, o: [F.threshold(o[0], 0.5, 0.0)],
    "glu": lambda node, o: [F.glu(o[0], axis_of(node))],
    "glu_backward": _by_autograd(lambda node, o: [F.glu(o[0], axis_of(node))]),
    "prelu": _prelu,
    "prelu_backward": _prelu_backward,
    "polygamma": lambda node, o: [torch.polygamma(1, o[0])],
    "masked_fill": _plain(torch.masked_fill),
    "cumprod": lambda node, o: [o[0].cumprod(axis_of(node))],
    "item": lambda node, o: [],
    "det": _plain(_DET),
    "det_backward": lambda node, o: _by_autograd(_plain(_DET))(node, o[:2]),
    "resize": _resize,
    "resize_backward": _resize_backward,
    "grid_sample": _grid_sample,
    "grid_sample_backward": _by_autograd(_grid_sample),
    "pad_backward": _pad_backward,
    "alias": lambda node, o: [o[0]],
    "stack": lambda node, o: [torch.stack(o, axis_of(node))],
    "sort": lambda node, o: list(o[0].sort(axis_of(node))),
    "rearrange": lambda node, o: [o[0].flip(0, 1)],
    "max_unpool": lambda node, o: [F.max_unpool2d(*o, 2)],
    "overwrite": lambda node, o: [o[0] * 0],
    "assign": lambda node, o: [o[0] * 0 + o[1]],
    **{
        name: _plain(getattr(torch, name))
        for name in (
            *("trunc", "frac", "exp2", "expm1", "log2", "log10", "log1p", "rsqrt"),
            *("erfc", "erfinv", "lgamma", "digamma", "sinc", "nan_to_num", "fmod"),
            *("atan2", "hypot", "copysign", "logaddexp", "xlogy", "addcmul"),
            *("addcdiv", "lerp", "isfinite", "floor_divide", "bitwise_and"),
        )
    },
}
"""How each is run, by name."""
