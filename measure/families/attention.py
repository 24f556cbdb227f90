"""Scaled dot-product attention by each of PyTorch's algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch.nn.attention import SDPBackend, sdpa_kernel

from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device
from perfc.measurements import bytes_of

_MATH = "math"
_SCORES_KEPT = 4
"""Matrices of scores that plain matmuls keep for their gradients, about."""


class Attention(Family):
    """Queries, keys and values of [batch, heads, length, head_dim], contiguous."""

    op = "attention"
    turns = 7

    def space(self, device: Device) -> Space:
        """Return encoders, decoders (causal), and few queries on many keys."""
        dtypes = without(device.dtypes, "tf32", "fp8")
        narrow = without(dtypes, "fp32") if device.is_cuda else dtypes
        ways = [("flash", dtype) for dtype in narrow]
        ways += [(_MATH, dtype) for dtype in dtypes]
        if device.is_cuda:
            ways += [("efficient", dtype) for dtype in dtypes]
            ways += [("cudnn", dtype) for dtype in narrow]
        return {
            "batch": Size(1, 128),
            "heads": Size(1, 64, (1, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64)),
            "q_len": Size(1, 8192, (1, 16, 64, 128, 197, 256, 512, 1024, 2048, 4096)),
            "longer": Choice((1, 1, 1, 2, 16)),
            "head_dim": Choice((32, 64, 64, 80, 96, 128, 128, 256)),
            "causal": Choice((False, True)),
            "phase": Choice(("forward", "backward")),
            "way": Choice(tuple(ways)),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; a causal one has as many keys as queries."""
        sizes = Record(point)
        algorithm, dtype = sizes.texts("way")
        longer = sizes.integer("longer")
        causal = sizes.flag("causal")
        if causal and longer > 1:  # a mask of its own kind in each algorithm
            return None
        named = ("batch", "heads", "q_len", "head_dim", "causal")
        params: Point = {name: point[name] for name in named}
        params["kv_len"] = longer * sizes.integer("q_len")
        params["algorithm"] = algorithm
        if sizes.text("phase") != "forward":
            params["phase"] = sizes.text("phase")
        return super().case({**params, "dtype": dtype})

    def runs_on(self, case: Case, device: Device) -> bool:
        """Whether it has the dtype, and the algorithm gradients of such lengths.

        cuDNN has none of one query on one key: "s_q = s_kv = 1 is not supported".
        """
        lengths = (case.params["q_len"], case.params["kv_len"])
        cudnn = case.params["algorithm"] == "cudnn"
        if cudnn and "phase" in case.params and lengths == (1, 1):
            return False
        return super().runs_on(case, device)

    def memory_bytes(self, case: Case) -> int:
        """Return the operands and results, and the scores where they are stored."""
        if case.params.text("algorithm") != _MATH:
            return 2 * int(case.work.bytes)
        sizes = map(case.params.integer, ("batch", "heads", "q_len", "kv_len"))
        batch, heads, q_len, kv_len = sizes
        scores = batch * heads * q_len * kv_len * int(bytes_of(case.dtype))
        return 2 * int(case.work.bytes) + _SCORES_KEPT * scores

    def capturable(self, case: Case) -> bool:
        """Return no where autograd works: on the stream of forward, not the graph's."""
        return case.params["algorithm"] != _MATH or "phase" not in case.params

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call the algorithm itself: nothing chooses, nothing falls back."""
        batch, heads, q_len, kv_len, width = map(
            case.params.integer, ("batch", "heads", "q_len", "kv_len", "head_dim")
        )
        q, g = (tensors.random(case.dtype, batch, heads, q_len, width) for _ in "qg")
        k, v = (tensors.random(case.dtype, batch, heads, kv_len, width) for _ in "kv")
        operands = _Operands(q, k, v, g, case.params.flag("causal"))
        algorithm = case.params.text("algorithm")
        on_cpu = tensors.kind == "cpu" and algorithm != _MATH
        forward, backward = _CALLS["cpu" if on_cpu else algorithm]
        if case.params.get("phase") == "backward":
            return backward(operands)
        return lambda: forward(operands)


@attrs.frozen(eq=False)
class _Operands:
    """Queries, keys, values, the gradient of the result, and whether it is causal."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    causal: bool


def _aten(name: str, *arguments: object) -> tuple[torch.Tensor, ...]:
    found: tuple[torch.Tensor, ...]
    found = getattr(torch.ops.aten, f"_scaled_dot_product_{name}")(*arguments)
    return found


def _flash(o: _Operands) -> tuple[torch.Tensor, ...]:
    return _aten("flash_attention", o.q, o.k, o.v, 0.0, o.causal)


def _flash_backward(o: _Operands) -> Call:
    *results, cum_q, cum_k, max_q, max_k, seed, offset, _ = _flash(o)
    saved = (o.q, o.k, o.v, *results, cum_q, cum_k, max_q, max_k)
    rest = (0.0, o.causal, seed, offset)
    return lambda: _aten("flash_attention_backward", o.g, *saved, *rest)


def _efficient(o: _Operands) -> tuple[torch.Tensor, ...]:
    return _aten("efficient_attention", o.q, o.k, o.v, None, True, 0.0, o.causal)


def _efficient_backward(o: _Operands) -> Call:
    results = _efficient(o)
    wanted = [True, True, True, False]
    saved = (o.q, o.k, o.v, None, *results)
    rest = (0.0, wanted, o.causal)
    return lambda: _aten("efficient_attention_backward", o.g, *saved, *rest)


def _cudnn(o: _Operands) -> tuple[torch.Tensor, ...]:
    return _aten("cudnn_attention", o.q, o.k, o.v, None, True, 0.0, o.causal)


def _cudnn_backward(o: _Operands) -> Call:
    out, sums, cum_q, cum_k, max_q, max_k, seed, offset, _ = _cudnn(o)
    saved = (o.q, o.k, o.v, out, sums, seed, offset)
    # PyTorch takes None for a tensor that is not there, here the bias.
    rest = (None, cum_q, cum_k, max_q, max_k, 0.0, o.causal)
    return lambda: _aten("cudnn_attention_backward", o.g, *saved, *rest)


def _cpu(o: _Operands) -> tuple[torch.Tensor, ...]:
    return _aten("flash_attention_for_cpu", o.q, o.k, o.v, 0.0, o.causal)


def _cpu_backward(o: _Operands) -> Call:
    saved = (o.q, o.k, o.v, *_cpu(o), 0.0, o.causal)
    return lambda: _aten("flash_attention_for_cpu_backward", o.g, *saved)


def _matmuls(o: _Operands) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(o.q, o.k, o.v, is_causal=o.causal)


def _matmuls_backward(o: _Operands) -> Call:
    """Let autograd make the matmuls: they have no function of their own."""
    inputs = [operand.requires_grad_() for operand in (o.q, o.k, o.v)]
    with torch.enable_grad():
        out = _matmuls(o)
    return lambda: torch.autograd.grad(out, inputs, o.g, retain_graph=True)


_CALLS: Mapping[
    str, tuple[Callable[[_Operands], object], Callable[[_Operands], Call]]
] = {
    "flash": (_flash, _flash_backward),
    "efficient": (_efficient, _efficient_backward),
    "cudnn": (_cudnn, _cudnn_backward),
    "cpu": (_cpu, _cpu_backward),
    _MATH: (_matmuls, _matmuls_backward),
}
"""Forward, and what makes the call of backward, by algorithm."""
