"""Ops that the source spells out: several calls in eager PyTorch, not one.

The attribute `spelled_out` of a raised op lists the calls, each with a letter
for what it reads: `x` a tensor of the op's size, `r` one number per row, `w` the
weights; in attention `q`, `k`, `v`, the scores `s` and the mask `m`. Numbers are
left out: `mul(x)` is a product with a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.ir import Record, TensorType
from perfc.ir.opdef import Abstract
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.record import EMPTY
from perfc.passes.lowering.eager.rule_table import RULES
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Site,
    Tensor,
    elementwise_launch,
)

_ATTRIBUTES: Mapping[str, tuple[str, Record]] = {
    "mean": ("reduce", Record({"kind": "mean", "axes": (-1,), "keepdims": True})),
    "softmax": ("softmax", Record({"axis": -1})),
    "matmul": ("matmul", EMPTY),
}
"""Calls that are more than elementwise: the op and its attributes."""

_RESULTS: Mapping[str, str] = {"matmul(q, k)": "s", "matmul(s, v)": "o"}
_PAIR = 2


def calls_of(site: Site) -> tuple[str, ...]:
    """Return the calls that the source makes for this op; none if it is one."""
    calls = site.attributes.get("spelled_out")
    if not site.settings.spelled_out or not isinstance(calls, tuple):
        return ()
    return tuple(str(call) for call in calls)


def spelled_out(site: Site, tensors: Mapping[str, Tensor]) -> Eager:
    """Launch call by call; *tensors* are what the letters stand for at first."""
    known = dict(tensors)
    launches: list[Launch] = []
    first = ""
    for call in calls_of(site):
        name, _, rest = call.removesuffix(")").partition("(")
        operands = tuple(known[letter] for letter in rest.split(", "))
        if name in _ATTRIBUTES:
            made = _by_rule(name, operands, site)
        else:
            out = attrs.evolve(
                max(operands, key=lambda tensor: tensor.numel), parameter=False
            )
            types = [tensor.type for tensor in operands]
            flops = out.numel
            if name in BUILTIN_OPS:
                padded = (types * _PAIR)[:_PAIR]
                work = BUILTIN_OPS[name].work(EMPTY, padded, [out.type])
                flops = math.trunc(work.flops)
            launch = elementwise_launch(name, operands, out, flops)
            made = out, Eager(f"aten::{name}", (launch,))
        result, eager = made
        known[_RESULTS.get(call, "r" if name == "mean" else rest[0])] = result
        first = first or eager.name
        if eager.launches:
            head = attrs.evolve(eager.launches[0], op=eager.name if launches else "")
            launches += [head, *eager.launches[1:]]
    return Eager(first, tuple(launches))


def _by_rule(
    name: str, operands: tuple[Tensor, ...], site: Site
) -> tuple[Tensor, Eager]:
    op, attributes = _ATTRIBUTES[name]
    found = BUILTIN_OPS[op].infer(attributes, [Abstract(t.type) for t in operands])
    types: list[TensorType] = [result.type for result in found if result is not None]
    eager = RULES[op](Site(op, attributes, operands, tuple(types), site.settings))
    return Tensor(types[0]), eager
