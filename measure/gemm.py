"""Matrix products, plain and batched."""

from __future__ import annotations

from typing import Any

import torch

from perfc.ir import Record
from perfc.measure.case import Call, Case, Family, Tensors, without
from perfc.measure.design import Choice, Point, Size, Space
from perfc.measure.device import Device

_ATEN: Any = torch.ops.aten
_LAYOUTS = ("nn", "nt", "tn", "tt")
_FP8_MULTIPLE = 16
"""`_scaled_mm` takes no other depth or width."""


class Gemm(Family):
    """C[m,n] = A[m,k] B[k,n], with a bias for half of them, as a linear layer has."""

    op = "gemm"
    turns = 8

    def space(self, device: Device) -> Space:
        """Return all dtypes, and every layout: gradients transpose."""
        return {
            "m": Size(1, 32768),
            "n": Size(1, 32768),
            "k": Size(4, 32768),
            "dtype": Choice(device.dtypes),
            "layout": Choice(_LAYOUTS),
            "bias": Choice((False, True)),
        }

    def case(self, point: Point) -> Case | None:
        """Return the case; of fp8 there is one layout, and no bias."""
        sizes = Record(point)
        if point["dtype"] == "fp8":
            rounded = {
                name: -(-sizes.integer(name) // _FP8_MULTIPLE) * _FP8_MULTIPLE
                for name in "nk"
            }
            sizes = sizes.updated(**rounded, layout="nt", bias=False)
        return super().case({"b": 1, **sizes})

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `mm`, `addmm` or, for fp8, `_scaled_mm`."""
        a, b = _operands(case, tensors, ())
        if case.dtype == "fp8":
            one = torch.ones((), device=tensors.kind)
            return lambda: _ATEN._scaled_mm(  # noqa: SLF001 - there is no public one
                a, b, one, one, None, None, torch.bfloat16
            )
        if not case.params.flag("bias"):
            return lambda: torch.mm(a, b)
        bias = tensors.random(case.dtype, case.params.integer("n"))
        return lambda: torch.addmm(bias, a, b)


class BatchedGemm(Family):
    """C[b,m,n] = A[b,m,k] B[b,k,n]: attention by hand, the interaction of DLRM."""

    op = "gemm"
    turns = 3

    def space(self, device: Device) -> Space:
        """Return many small products as well as few large ones."""
        return {
            "b": Size(2, 8192),
            "m": Size(1, 4096),
            "n": Size(1, 4096),
            "k": Size(4, 4096),
            "dtype": Choice(without(device.dtypes, "fp8")),
            "layout": Choice(_LAYOUTS),
        }

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `bmm`."""
        a, b = _operands(case, tensors, (case.params.integer("b"),))
        return lambda: torch.bmm(a, b)


def _operands(
    case: Case, tensors: Tensors, batch: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = (case.params.integer(name) for name in "mnk")
    layout = case.params.text("layout")
    a = _stored(case, tensors, (*batch, m, k), transposed=layout[0] == "t")
    b = _stored(case, tensors, (*batch, k, n), transposed=layout[1] == "t")
    return a, b


def _stored(
    case: Case, tensors: Tensors, shape: tuple[int, ...], *, transposed: bool
) -> torch.Tensor:
    if not transposed:
        return tensors.random(case.dtype, *shape)
    *batch, rows, columns = shape
    return tensors.random(case.dtype, *batch, columns, rows).transpose(-1, -2)
