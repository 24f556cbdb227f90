"""Layers and losses in PyTorch, and their gradients, for `torch_graph.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from perfc.ir import Node, Record

Results = Sequence[Tensor]
Run = Callable[[Node, list[Any]], Results]
"""Runs a node on its operands. They are `Any`: torch's functions are typed in part."""

aten: Any = torch.ops.aten
F: Any = nn.functional


def _grad(out: Any, of: Any, grad: Any) -> list[Any]:
    """Differentiate; typed, which torch's function is not."""
    autograd: Any = torch.autograd
    return list(autograd.grad(out, of, grad))


def axis_of(node: Node) -> int:
    """Return the axis that an op works along."""
    return node.attributes.integer("axis")


def _layer_norm(node: Node, operands: list[Any]) -> Results:
    x, *weights = operands
    return [F.layer_norm(x, x.shape[axis_of(node) :], *weights)]


def _rms_norm(node: Node, operands: list[Any]) -> Results:
    x, *weight = operands
    return [F.rms_norm(x, x.shape[axis_of(node) :], *weight, eps=1e-5)]


def _group_norm(node: Node, operands: list[Any]) -> Results:
    x, *weights = operands
    return [F.group_norm(x, node.attributes.integer("groups"), *weights)]


def _batch_norm(node: Node, operands: list[Any]) -> Results:
    x, weight, bias, _, _ = operands
    return [F.batch_norm(x, None, None, weight, bias, training=True)]


_BIAS_AXES = {"conv": 1, "conv_tbc": 2}
"""Axes of results that a bias is as long as, where not as its scale."""


def _by_autograd(op: str, names: Mapping[str, int]) -> Run:
    """Compute several gradients by running the forward op under autograd.

    Operand 0 of the backward op is the gradient, the others are the forward op's; a
    missing bias is zeros.
    """

    def run(node: Node, operands: list[Any]) -> Results:
        grad, *saved = operands
        wants = [str(w) for w in _texts(node.attributes, "wants")]
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in saved]
            while len(leaves) <= max(names[w] for w in wants):
                axis = _BIAS_AXES.get(op)
                like = leaves[1] if axis is None else grad
                size = like.shape if axis is None else like.shape[axis]
                leaves.append(grad.new_zeros(size).requires_grad_())
            used = leaves
            if op == "batch_norm":
                used = [*leaves, leaves[1], leaves[1]]
            out = LAYERS[_forward(node, op)](node, list(used))[0]
        return _grad(out, [leaves[names[w]] for w in wants], grad)

    return run


def _forward(node: Node, op: str) -> str:
    return "conv_transpose" if node.attributes.flag("transposed") else op


def _texts(attributes: Record, name: str) -> tuple[object, ...]:
    found = attributes.get(name)
    assert isinstance(found, tuple)
    return found


def _conv(node: Node, operands: list[Any]) -> Results:
    x, weight, *bias = operands
    attributes = node.attributes
    stride = attributes.integers("stride") or (1,) * (x.ndim - 2)
    padding = attributes.integers("padding")[: x.ndim - 2] or (0,) * (x.ndim - 2)
    groups = attributes.integer("groups", 1)
    first = bias[0] if bias else None
    return [F.conv2d(x, weight, first, stride, padding, groups=groups)]


def _conv_transpose(node: Node, operands: list[Any]) -> Results:
    x, weight, *bias = operands
    stride = node.attributes.integers("stride") or (1,) * (x.ndim - 2)
    first = bias[0] if bias else None
    return [F.conv_transpose2d(x, weight, first, stride)]


def _pool(node: Node, operands: list[Any]) -> Results:
    x, attributes = operands[0], node.attributes
    window, stride = attributes.integers("window"), attributes.integers("stride")
    if attributes.text("kind") == "max":
        return list(F.max_pool2d(x, window, stride, return_indices=True))
    return [F.avg_pool2d(x, window, stride)]


def _pool_backward(node: Node, operands: list[Any]) -> Results:
    grad, x, *places = operands
    attributes = node.attributes
    window, stride = attributes.integers("window"), attributes.integers("stride")
    if places:
        zeros = torch.zeros_like(x).flatten(2)
        flat = places[0].flatten(2)
        return [zeros.scatter_add(2, flat, grad.flatten(2)).view_as(x)]
    pads = [0] * len(window)
    back = aten.avg_pool2d_backward(grad, x, window, stride, pads, False, True, None)
    return [back]


def _attention(node: Node, operands: list[Any]) -> Results:
    q, k, v, *masks = operands
    scale = node.attributes.get("scale")
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        masks[0] if masks else None,
        is_causal=node.attributes.flag("causal"),
        scale=scale if isinstance(scale, float) else None,
    )
    return [out]


def _attention_backward(node: Node, operands: list[Any]) -> Results:
    grad, q, k, v, _, *masks = operands
    forward = _by_autograd("attention", {"q": 0, "k": 1, "v": 2, "mask": 3})
    return forward(node, [grad, q, k, v, *masks])


def _rotary(node: Node, operands: list[Any]) -> Results:
    x, cos, sin = operands
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return [x * cos + turned * sin]


def _bags(node: Node, operands: list[Any]) -> Results:
    weight, indices, *rest = operands
    return [_pooled(node, weight, indices, *rest)]


def _pooled(node: Node, weight: Any, indices: Any, *rest: Any) -> Any:
    """Pool; of offsets and weights of samples those are there that the node has."""
    weights = rest[-1] if node.attributes.flag("weighted") else None
    offsets = rest[:1] if node.attributes.flag("has_offsets") else ()
    return F.embedding_bag(
        indices,
        weight,
        *offsets,
        mode=node.attributes.text("mode"),
        per_sample_weights=weights,
    )


def _bags_backward(node: Node, operands: list[Any]) -> Results:
    """Differentiate the bags; the sparse form lists each lookup's row."""
    grad, indices, *rest = operands
    table = node.attributes.records("tables")[0]
    shape = table.integer("rows"), table.integer("dim")
    with torch.enable_grad():
        weight = grad.new_zeros(shape).requires_grad_()
        out = _pooled(node, weight, indices, *rest)
    return _grad(out, weight, grad)


def _bag_weights_backward(node: Node, operands: list[Any]) -> Results:
    grad, table, indices, *offsets = operands
    with torch.enable_grad():
        weights = grad.new_zeros(indices.shape).requires_grad_()
        out = _pooled(node, table, indices, *offsets, weights)
    return _grad(out, weights, grad)


def _embedding_backward(node: Node, operands: list[Any]) -> Results:
    grad, indices = operands
    rows, dim = node.attributes.integers("shape")
    zeros = grad.new_zeros(rows, dim)
    return [zeros.index_add(0, indices.reshape(-1), grad.reshape(-1, dim))]


def _loss(node: Node, operands: list[Any]) -> Results:
    return [_LOSSES[node.attributes.text("kind")](*operands)]


_LOSSES: Mapping[str, Callable[[Any, Any], Any]] = {
    "mse": F.mse_loss,
    "bce": F.binary_cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
}


def _loss_backward(node: Node, operands: list[Any]) -> Results:
    grad, x, target = operands
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        loss = _LOSSES[node.attributes.text("kind")](leaf, target)
    return _grad(loss, leaf, grad)


def _nll_loss_backward(node: Node, operands: list[Any]) -> Results:
    grad, scores, labels = operands
    with torch.enable_grad():
        leaf = scores.detach().requires_grad_()
        loss = F.nll_loss(leaf, labels)
    return _grad(loss, leaf, grad)


def _conv_tbc(node: Node, operands: list[Any]) -> Results:
    return [F.conv_tbc(*operands, node.attributes.integer("padding", 0))]


def _weight_norm(node: Node, operands: list[Any]) -> Results:
    x, g, *_ = operands
    axes = [axis for axis in range(x.dim()) if axis != axis_of(node)]
    norms = x.norm(dim=axes, keepdim=True)
    return [x * (g / norms), norms]


def _distances(node: Node, operands: list[Any]) -> Results:
    order = float(str(node.attributes["order"]))
    x, *others = operands
    return [torch.cdist(x, others[0], order) if others else F.pdist(x, order)]


def _distances_backward(node: Node, operands: list[Any]) -> Results:
    grad, x, *others, _ = operands
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (out,) = _distances(node, [leaf, *others])
    return _grad(out, leaf, grad)


LAYERS: Mapping[str, Run] = {
    "layer_norm": _layer_norm,
    "layer_norm_backward": _by_autograd("layer_norm", {"x": 0, "weight": 1, "bias": 2}),
    "rms_norm": _rms_norm,
    "rms_norm_backward": _by_autograd("rms_norm", {"x": 0, "weight": 1}),
    "group_norm": _group_norm,
    "group_norm_backward": _by_autograd("group_norm", {"x": 0, "weight": 1, "bias": 2}),
    "batch_norm": _batch_norm,
    "batch_norm_backward": _by_autograd("batch_norm", {"x": 0, "weight": 1, "bias": 2}),
    "conv_tbc": _conv_tbc,
    "conv_tbc_backward": _by_autograd("conv_tbc", {"x": 0, "weight": 1, "bias": 2}),
    "weight_norm": _weight_norm,
    "weight_norm_backward": _by_autograd("weight_norm", {"x": 0, "weight": 1}),
    "distances": _distances,
    "distances_backward": _distances_backward,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_backward": _by_autograd("conv", {"x": 0, "weight": 1, "bias": 2}),
    "pool": _pool,
    "pool_backward": _pool_backward,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "rotary": _rotary,
    "embedding_backward": _embedding_backward,
    "bag_weights_backward": _bag_weights_backward,
    "embedding_bag": _bags,
    "embedding_bag_backward": _bags_backward,
    "loss": _loss,
    "loss_backward": _loss_backward,
    "nll_loss_backward": _nll_loss_backward,
    "nll_loss": lambda node, o: [F.nll_loss(*o)],
}
"""How each is run, by name."""
