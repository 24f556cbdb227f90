"""ATen ops that make tensors of sizes: filled, random, or not written at all."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.ir import AttrValue


def _filled(value: float) -> Handler:
    def handler(node: AtenNode) -> None:
        _fill(node, value)

    return handler


def _fill(node: AtenNode, value: float | None) -> None:
    """A kernel writes it: its elements are no shape arithmetic, so not folded."""
    out = node.result()
    attributes: dict[str, AttrValue] = {"dtype": out.dtype}
    if value is not None:
        attributes["value"] = value
    node.emit("fill", (node.listed(out.shape),), attributes)


def _full(node: AtenNode) -> None:
    value = node.arguments.get("fill_value", node.arguments.get("s"))
    _fill(node, float(value) if isinstance(value, int | float) else None)


def _empty(node: AtenNode) -> None:
    out = node.result()
    node.emit("empty", (), {"dtype": out.dtype, "shape": out.shape})


def _overwritten(node: AtenNode) -> None:
    """`fill_` and `zero_`; out of place the result is written once."""
    value = node.arguments.get("value", 0.0)
    number = float(value) if isinstance(value, int | float) else None
    if not node.in_place:
        _fill(node, number)
        return
    attributes: dict[str, AttrValue] = {} if number is None else {"value": number}
    node.emit("overwrite", (node.tensor("self"),), attributes)


def _arange(node: AtenNode) -> None:
    """Emit a range of as many numbers as the result has."""
    out = node.result()
    bounds = (0, out.shape[0], 1)
    operands = [node.constant((bound,), out.dtype, ()) for bound in bounds]
    node.emit("range", operands, {"written": True})


def _random(kind: str) -> Handler:
    """New numbers; an op in place writes them over `self`."""

    def handler(node: AtenNode) -> None:
        out = node.result()
        attributes: dict[str, AttrValue] = {"kind": kind, "dtype": out.dtype}
        operands = (
            [node.tensor("self")]
            if node.in_place or (kind == "bernoulli" and node.is_given("self"))
            else []
        )
        sizes = tuple(dim for dim in out.shape if isinstance(dim, int))
        if not operands and len(sizes) == out.rank:
            attributes["shape"] = sizes
        elif not operands:
            shape: dict[str, AttrValue] = {"dtype": out.dtype, "shape": out.shape}
            operands += node.helper("empty", (), shape)
        node.emit("random", operands, attributes)

    return handler


def _eye(node: AtenNode) -> None:
    out = node.result()
    shape: dict[str, AttrValue] = {"dtype": out.dtype, "shape": out.shape}
    node.emit("eye_like", node.helper("empty", (), shape), {"dtype": out.dtype})


_EMPTY = (
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"),
    *("empty_permuted", "resize", "resize_as"),
)
_RANDOM = {
    "normal": ("randn", "randn_like", "normal", "log_normal", "normal_functional"),
    "uniform": (
        *("rand", "rand_like", "uniform", "randint", "randint_like", "random"),
        *("randperm", "exponential", "geometric", "cauchy"),
    ),
    "bernoulli": ("bernoulli",),
}

CREATION_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys((f"aten.{name}" for name in _EMPTY), _empty),
    **dict.fromkeys(("aten.zeros", "aten.zeros_like", "aten.new_zeros"), _filled(0.0)),
    **dict.fromkeys(("aten.ones", "aten.ones_like", "aten.new_ones"), _filled(1.0)),
    **dict.fromkeys(
        ("aten.full", "aten.full_like", "aten.new_full", "aten.scalar_tensor"), _full
    ),
    "aten.fill": _overwritten,
    "aten.zero": _overwritten,
    "aten.arange": _arange,
    "aten.linspace": _arange,
    "aten.logspace": _arange,
    "aten.eye": _eye,
    **{
        f"aten.{name}": _random(kind)
        for kind, names in _RANDOM.items()
        for name in names
    },
}
"""ATen ops to the functions that write them."""
