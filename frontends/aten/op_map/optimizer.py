"""ATen ops on lists of tensors: what optimizers step with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue

_KINDS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "neg": "neg",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "pow": "pow",
    "abs": "abs",
    "sign": "sign",
    "exp": "exp",
    "log": "log",
    "maximum": "maximum",
    "minimum": "minimum",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
    "addcmul": "addcmul",
    "addcdiv": "addcdiv",
    "lerp": "lerp",
    "copy": "copy",
    "zero": "zero",
    "norm": "norm",
    "max": "norm",
}
_LISTS = frozenset(
    (
        *("self", "other", "src", "tensor1", "tensor2", "tensors1", "tensors2"),
        *("weights", "weight", "exponent"),
    )
)
"""Arguments that are lists of tensors, or numbers."""

_FUSED = {
    "_fused_adam": "adam",
    "_fused_adamw": "adamw",
    "_fused_sgd": "sgd",
    "_fused_adagrad": "adagrad",
}
_STATES = (
    *("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_sums"),
    *("momentum_buffer_list", "state_steps"),
)


def _lists(node: AtenNode, names: Sequence[str], length: int) -> list[Operand]:
    """Return, one after another, the lists that are as long as the first."""
    operands: list[Operand] = []
    for name in names:
        given = node.arguments.get(name)
        if not isinstance(given, tuple) or len(given) != length:
            continue
        tensors = [tensor for tensor in given if isinstance(tensor, Operand)]
        operands += tensors if len(tensors) == length else []
    return operands


def _foreach(kind: str) -> Handler:
    """Numbers, one for all or one for each, are arguments of the kernel."""

    def handler(node: AtenNode) -> None:
        listed = isinstance(node.arguments.get("self"), tuple)
        own = node.tensors("self" if listed else "exponent")
        if not own:
            return
        names = [name for name in node.arguments if name in _LISTS]
        operands = _lists(node, names, len(own))
        attributes: dict[str, AttrValue] = {
            "kind": kind,
            "lists": len(operands) // len(own),
        }
        if not node.in_place:
            results = range(len(node.results))
            node.emit("foreach", operands, attributes, results=results)
            return
        node.emit("foreach", operands, attributes, results=())
        for index, operand in enumerate(own[: len(node.results)]):
            node.alias(index, operand)

    return handler


def _update_scale(node: AtenNode) -> None:
    """What `GradScaler.update` does, in one kernel."""
    scale = node.tensor("self")
    operands = (scale, node.tensor("growth_tracker"), node.tensor("found_inf"))
    attributes: dict[str, AttrValue] = {"kind": "update_scale", "lists": len(operands)}
    node.emit("foreach", operands, attributes, results=())
    node.alias(0, scale)


def _fused(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        own = node.tensors("self")
        if not node.in_place:
            msg = "an optimizer that does not work in place"
            raise Misfit(msg)
        if not own:
            return
        operands = _lists(node, ("self", "grads", *_STATES), len(own))
        attributes: dict[str, AttrValue] = {
            "kind": kind,
            "lists": len(operands) // len(own),
        }
        node.emit("optimizer_step", operands, attributes, results=())
        for index, operand in enumerate(own[: len(node.results)]):
            node.alias(index, operand)

    return handler


OPTIMIZER_HANDLERS: Mapping[str, Handler] = {
    **{f"aten._foreach_{name}": _foreach(kind) for name, kind in _KINDS.items()},
    **{f"aten.{name}": _fused(kind) for name, kind in _FUSED.items()},
    "aten._amp_foreach_non_finite_check_and_unscale_": _foreach("unscale"),
    "aten._amp_update_scale_": _update_scale,
}
"""ATen ops to the functions that write them."""
