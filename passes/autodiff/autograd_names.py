"""Nodes of autograd, by the names under which traces record them.

Eager PyTorch goes back node by node: one for each call of the forward pass, whatever
ops its formula runs. To the host such a node is one op, `AddmmBackward0` say: what it
takes lies around and between the launches of all of them. A node of an op graph says
which node of autograd runs it by the origin of its location, `AddmmBackward0(%h)`.

The names are those of PyTorch 2's `derivatives.yaml`: the call's in camel case, and the
number of the signature that an export to a graph calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfc.ir import Node, Value, node_kinds

_MATRIX = 2

_CALLS = frozenset(
    {
        *("abs", "acos", "acosh", "add", "addcdiv", "addcmul", "asin", "asinh", "atan"),
        *("atan2", "atanh", "ceil", "celu", "copysign", "cos", "cosh", "cumprod"),
        *("cumsum", "digamma", "div", "elu", "erf", "erfc", "erfinv", "exp", "exp2"),
        *("expand", "expm1", "floor", "fmod", "frac", "gelu", "glu", "hardsigmoid"),
        *("hardswish", "hypot", "index", "leaky_relu", "lerp", "lgamma", "log"),
        *("log10", "log1p", "log2", "log_sigmoid", "logaddexp", "logit", "log_softmax"),
        *("masked_fill", "maximum", "minimum", "mish", "mul", "nan_to_num", "neg"),
        *("nll_loss", "pixel_shuffle", "pow", "reciprocal", "relu", "round", "rsqrt"),
        *("sigmoid", "sign", "silu", "sin", "sinc", "sinh", "slice", "softmax"),
        *("softplus", "sort", "split", "sqrt", "stack", "sub", "tan", "tanh", "topk"),
        *("trunc", "unsqueeze", "where", "xlogy"),
    }
)
"""Ops that one call makes, under their own name."""

_NAMES: Mapping[str, str] = {
    **{op: f"{op.title().replace('_', '')}Backward0" for op in _CALLS},
    "alias": "AliasBackward0",
    "batch_norm": "CudnnBatchNormBackward0",
    "cast": "ToCopyBackward0",
    "cast_like": "ToCopyBackward0",
    "clip": "ClampBackward1",
    "concat": "CatBackward0",
    "conv": "ConvolutionBackward0",
    "conv_transpose": "ConvolutionBackward0",
    "copy": "CloneBackward0",
    "dropout": "NativeDropoutBackward0",
    "flatten": "ViewBackward0",
    "gather": "EmbeddingBackward0",
    "gather_elements": "GatherBackward0",
    "group_norm": "NativeGroupNormBackward0",
    "index_put": "IndexPutBackward0",
    "layer_norm": "NativeLayerNormBackward0",
    "pad": "ConstantPadNdBackward0",
    "prelu": "PreluKernelBackward0",
    "recurrent": "CudnnRnnBackward0",
    "reshape": "ViewBackward0",
    "rms_norm": "FusedRmsNormBackward0",
    "squeeze": "SqueezeBackward1",
    "tile": "RepeatBackward0",
}
"""Nodes of autograd by the ops that one call makes, some under another name."""

_LOSSES: Mapping[str, str] = {
    "bce": "BinaryCrossEntropyBackward0",
    "bce_with_logits": "BinaryCrossEntropyWithLogitsBackward0",
    "mse": "MseLossBackward0",
}


def autograd_name(node: Node, fused: str = "") -> str:
    """Return the node of autograd that goes back through *node*; "" for several.

    An op that stands for several calls, a rotary embedding say, has no node of its own.

    Args:
        node: A node of the forward pass.
        fused: The optimizer that a lookup in several tables applies; "" for none.

    """
    if node_kinds.is_embedding_bag(node):
        split = f"torch::autograd::CppNode<SplitLookupFunction_{fused or 'Dense'}_Op>"
        return split if is_split_lookup(node) else "EmbeddingBagBackward0"
    named = _NAMES.get(node.op)
    if named is not None:
        return named
    rule = _RULES.get(node.op)
    return "" if rule is None else rule(node)


def autograd_origin(name: str, value: Value) -> str:
    """Return the origin of what a node of autograd runs; *value* tells it from others.

    Args:
        name: The name of the node; may be "".
        value: What the forward pass wrote there.

    """
    return f"{name}({value})" if name else ""


def is_split_lookup(node: Node) -> bool:
    """Whether a lookup is fbgemm's: of several tables, or of a rank's own.

    Of tables that all ranks have, the gradients are all-reduced first.
    """
    tables = node.attributes.records("tables")
    sharding = tables[0].get("sharding")
    if sharding is None:
        return len(tables) > 1
    from perfc.passes.embeddings import DATA_PARALLEL  # noqa: PLC0415 - for plans only

    return bool(sharding != DATA_PARALLEL)


def _reduce(node: Node) -> str:
    kind = node.attributes.text("kind")
    if kind not in ("sum", "mean"):
        return ""
    whole = node.attributes.get("axes") is None and not node.operands[1:]
    return f"{kind.title()}Backward{int(not whole)}"


def _pool(node: Node) -> str:
    window = node.attributes.integers("window")
    if node.attributes.text("kind") == "max":
        return "MaxPool3DWithIndicesBackward0" if len(window) > _MATRIX else _MAX_POOL
    return f"AvgPool{max(len(window), 2)}DBackward0" if window else "MeanBackward1"


_MAX_POOL = "MaxPool2DWithIndicesBackward0"


def _transpose(node: Node) -> str:
    perm = node.attributes.integers("perm")
    moved = sum(axis != place for place, axis in enumerate(perm))
    return "TransposeBackward0" if moved <= _MATRIX else "PermuteBackward0"


def _linear(node: Node) -> str:
    """The bias is added by `addmm`."""
    return "AddmmBackward0" if len(node.operands) > _MATRIX else "MmBackward0"


def _matmul(node: Node) -> str:
    ranks = [0 if value.type is None else value.type.rank for value in node.operands]
    return "BmmBackward0" if max(ranks) > _MATRIX else "MmBackward0"


def _recurrent_cell(node: Node) -> str:
    return f"ThnnFused{node.attributes.text('kind').title()}CellBackward0"


_RULES: Mapping[str, Callable[[Node], str]] = {
    "linear": _linear,
    "loss": lambda node: _LOSSES.get(node.attributes.text("kind"), ""),
    "matmul": _matmul,
    "pool": _pool,
    "recurrent_cell": _recurrent_cell,
    "reduce": _reduce,
    "transpose": _transpose,
}
