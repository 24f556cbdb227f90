"""ATen's calls of attention, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.frontends.aten.op_map_normalization import emit_wanted
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue

_MASKS = ("attn_mask", "attn_bias")
_HEADS = ("q", "k", "v", "mask")


def _attributes(node: AtenNode) -> dict[str, AttrValue]:
    attributes: dict[str, AttrValue] = {}
    if node.flag("is_causal"):
        attributes["causal"] = True
    if node.is_given("scale"):
        attributes["scale"] = node.number("scale")
    return attributes


def _heads(node: AtenNode) -> list[Operand]:
    return [node.tensor(name) for name in ("query", "key", "value")]


def _masks(node: AtenNode) -> Sequence[Operand]:
    return [node.tensor(name) for name in _MASKS if node.is_given(name)]


def _attention(node: AtenNode) -> None:
    """What else the kernel writes is read by its own backward only."""
    node.emit("attention", (*_heads(node), *_masks(node)), _attributes(node))


def _attention_backward(node: AtenNode) -> None:
    grad = next(n for n in _GRADS if node.is_given(n))
    operands = [node.tensor(grad), *_heads(node), node.tensor("out"), *_masks(node)]
    names = _HEADS if _masks(node) else _HEADS[:3]
    emit_wanted(node, "attention_backward", operands, _attributes(node), names)


_GRADS = ("grad_out", "grad_out_", "grad_output")
_FUSED = ("flash", "efficient", "cudnn")
_CALLS = (
    "aten.scaled_dot_product_attention",
    *(f"aten._scaled_dot_product_{kind}_attention" for kind in _FUSED),
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_fused_attention_overrideable",
)

ATTENTION_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(_CALLS, _attention),
    **dict.fromkeys((f"{name}_backward" for name in _CALLS[1:]), _attention_backward),
}
"""ATen ops to the functions that write them."""
