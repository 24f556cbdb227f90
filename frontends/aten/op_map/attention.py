"""ATen's calls of attention, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.op_map.normalization import emit_wanted
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue, TensorType

_MASKS = ("attn_mask", "attn_bias", "bias")
_HEADS = ("q", "k", "v", "mask")


def _attributes(node: AtenNode) -> dict[str, AttrValue]:
    attributes: dict[str, AttrValue] = {}
    if node.flag("is_causal") or node.integer("custom_mask_type", 0):
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


def _packed(node: AtenNode) -> None:
    """The kernel's own call: lengths in front of heads, maybe sequences in a row."""
    heads = [_heads_first(node, x) for x in _heads(node)]
    (out,) = node.helper("attention", (*heads, *_masks(node)), _attributes(node))
    node.alias(0, _heads_last(node, out, node.result()))


def _packed_backward(node: AtenNode) -> None:
    grad = next(n for n in _GRADS if node.is_given(n))
    names = (grad, "query", "key", "value", "out")
    operands = [_heads_first(node, node.tensor(name)) for name in names]
    wants = _HEADS[:3]
    attributes: dict[str, AttrValue] = {**_attributes(node), "wants": wants}
    operands += _masks(node)
    made = node.helper("attention_backward", operands, attributes, count=len(wants))
    for index, gradient in enumerate(made):
        node.alias(index, _heads_last(node, gradient, node.result(index)))


_ENDS = ("cum_seq_q", "cu_seqlens_q", "cu_seq_q")
_BATCHED_RANK = 4


def _heads_first(node: AtenNode, x: Operand) -> Operand:
    """View [batch, length, heads, width] as [batch, heads, length, width].

    Sequences one behind the other, whose ends are data, are taken to be equally long.
    """
    ends = [node.tensor(name) for name in _ENDS if node.is_given(name)]
    if ends or x.rank < _BATCHED_RANK:
        batch = ends[0].type.shape[0] - 1 if ends else 1
        heads, width = x.type.shape[-2:]
        tokens = x.type.numel // (heads * width)
        if not isinstance(tokens, int) or not isinstance(batch, int) or tokens % batch:
            msg = f"{tokens} tokens in {batch} sequences, which cannot be equally long"
            raise Misfit(msg)
        if ends:
            node.assumption = f"{batch} sequences are taken to be equally long"
        shape = node.listed((batch, tokens // batch, heads, width))
        (x,) = node.helper("reshape", (x, shape), {"view": True})
    return node.helper("transpose", (x,), {"perm": (0, 2, 1, 3)})[0]


def _heads_last(node: AtenNode, x: Operand, wanted: TensorType) -> Operand:
    """Take that back."""
    (x,) = node.helper("transpose", (x,), {"perm": (0, 2, 1, 3)})
    if x.type.shape == wanted.shape:
        return x
    return node.helper("reshape", (x, node.listed(wanted.shape)), {"view": True})[0]


_GRADS = ("grad_out", "grad_out_", "grad_output")
_OWN = ("flash", "efficient")
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
    **dict.fromkeys((f"aten._{kind}_attention_forward" for kind in _OWN), _packed),
    **dict.fromkeys(
        (f"aten._{kind}_attention_backward" for kind in _OWN), _packed_backward
    ),
    "torch_attn._varlen_attn": _packed,
    "torch_attn._varlen_attn_backward": _packed_backward,
}
"""ATen ops to the functions that write them."""
