"""GEMMs, plain and batched."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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


_PASSES: Mapping[str, tuple[str, str, bool]] = MappingProxyType(
    {
        "forward": ("rows wide deep", "nt", True),
        "without bias": ("rows wide deep", "nt", False),
        "of input": ("rows wide deep", "nn", False),
        "of weight": ("wide deep rows", "tn", False),
    }
)
"""A layer and its gradients: what m, n and k are, the layout, the bias."""


def _of_layer(point: Point) -> Point:
    names, layout, bias = _PASSES[str(point["pass"])]
    sizes = {size: point[name] for size, name in zip("mnk", names.split(), strict=True)}
    return {**sizes, "dtype": point["dtype"], "layout": layout, "bias": bias}


class Gemm(Family):
    """C[m,n] = A[m,k] B[k,n], with a bias for half of them, as a linear layer has."""

    op = "gemm"
    turns = 16

    def space(self, device: Device) -> Space:
        """Return all dtypes, and every layout: gradients transpose.

        On a CPU the GEMMs of linear layers: libraries choose among many kernels for
        what no layer is, and the time there is is short.
        """
        if not device.is_cuda:
            return {
                "rows": Size(1, 32768),
                "wide": Size(1, 4096),
                "deep": Size(8, 4096),
                "dtype": Choice(device.dtypes),
                "pass": Choice(tuple(_PASSES)),
            }
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
        if "pass" in point:
            point = _of_layer(point)
        sizes = Record(point)
        if point["dtype"] == "fp8":
            rounded = {
                name: -(-sizes.integer(name) // _FP8_MULTIPLE) * _FP8_MULTIPLE
                for name in "nk"
            }
            sizes = sizes.updated(**rounded, layout="nt", bias=False)
        return super().case({"b": 1, **sizes})

    def takes(self, case: Case) -> bool:
        """Whether it is one GEMM."""
        return case.params.integer("b") == 1

    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Call `mm`, `addmm` or, for fp8, `_scaled_mm`."""
        a, b = _operands(case, tensors, ())
        if case.dtype == "fp8":
            one = torch.ones((), device=tensors.kind)
            return lambda: _ATEN._scaled_mm(a, b, one, one, None, None, torch.bfloat16)
        if not case.params.flag("bias"):
            return lambda: torch.mm(a, b)
        bias = tensors.random(case.dtype, case.params.integer("n"))
        return lambda: torch.addmm(bias, a, b)


class BatchedGemm(Family):
    """C[b,m,n] = A[b,m,k] B[b,k,n]: attention by hand, the interaction of DLRM."""

    op = "gemm"
    turns = 5

    def space(self, device: Device) -> Space:
        """Return many small GEMMs as well as few large ones.

        On a CPU what attention and interactions of features are made of.
        """
        smallest, largest = (1, 4096) if device.is_cuda else (4, 512)
        return {
            "b": Size(2, 8192),
            "m": Size(smallest, largest),
            "n": Size(smallest, largest),
            "k": Size(4, largest),
            "dtype": Choice(without(device.dtypes, "fp8")),
            "layout": Choice(_LAYOUTS if device.is_cuda else _LAYOUTS[:3]),
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
