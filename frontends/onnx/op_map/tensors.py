"""ONNX ops that compute: matmuls, reductions, norms, losses."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.ir import DTYPES, AttrValue

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}
_SOFTMAX = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Hardmax": "hardmax",
}


def _gemm(node: OnnxNode) -> bool:
    """`alpha` and `beta` scale in the epilogue, at no cost worth modelling."""
    operands = list(node.present)
    if operands and node.integer("transA", 0):
        operands[0] = node.emit_helper("transpose", (operands[0],), {"perm": (1, 0)})
    kn = not node.integer("transB", 0)
    node.emit("linear", tuple(operands), {"weight_is_kn": True} if kn else {})
    return True


def _reduce(node: OnnxNode) -> bool:
    """Axes are an attribute, or since opset 13 to 18 an operand, maybe computed."""
    axes = node.integers("axes")
    given = axes is not None or node.operand(1) is not None
    if axes is None:
        axes = node.constant_integers(1)
    if node.integer("noop_with_empty_axes", 0) and (axes == () or not given):
        # What a reduction over no axes does to each element.
        node.emit(_ALONE.get(node.op, "identity"), node.present[:1])
        return True
    attributes: dict[str, AttrValue] = {
        "kind": _REDUCTIONS[node.op],
        "keepdims": bool(node.integer("keepdims", 1)),
    }
    if axes:
        attributes["axes"] = axes
    computed = given and axes is None
    node.emit("reduce", node.present[: 1 + computed], attributes)
    return True


_ALONE = {
    "ReduceL1": "abs",
    "ReduceL2": "abs",
    "ReduceLogSum": "log",
    "ReduceSumSquare": "square",
}


def _softmax(node: OnnxNode) -> bool:
    """Before opset 13 all axes from the given one on are one row."""
    flat = node.opset < 13
    attributes: dict[str, AttrValue] = {"axis": node.integer("axis", 1 if flat else -1)}
    if flat:
        attributes["flat"] = True
    node.emit(_SOFTMAX[node.op], attributes=attributes)
    return True


def _batch_norm(node: OnnxNode) -> bool:
    """More than one result means training, as does `training_mode` since opset 14."""
    attributes: dict[str, AttrValue] = {"epsilon": node.number("epsilon", 1e-5)}
    if len(node.results) > 1 or node.integer("training_mode", 0):
        attributes["training"] = True
    node.emit("batch_norm", attributes=attributes)
    return True


def _dropout(node: OnnxNode) -> bool:
    """Inference keeps everything; its mask, where read, is true throughout."""
    x = node.operand(0)
    if x is None:
        return False
    training = node.operand(2)
    if training is not None and node.constant_integers(2) != (0,):
        node.emit("dropout")
        return True
    node.emit("identity", (x,), results=node.results[:1])
    if len(node.results) > 1:
        shape = node.emit_helper("shape", (x,))
        filled: dict[str, AttrValue] = {"dtype": DTYPES["bool"], "value": True}
        node.emit("fill", (shape,), filled, results=node.results[1:])
    return True


def _lp_normalization(node: OnnxNode) -> bool:
    """Divide by the norm, as PyTorch's `normalize` does."""
    x = node.required(0)
    kind = "l1" if node.integer("p", 2) == 1 else "l2"
    axes = (node.integer("axis", -1),)
    norm = node.emit_helper(
        "reduce", (x,), {"kind": kind, "axes": axes, "keepdims": True}
    )
    node.emit("div", (x, node.emit_helper("clip", (norm,))))
    return True


def _mean_variance_normalization(node: OnnxNode) -> bool:
    """Subtract the mean and divide by the standard deviation, in single steps."""
    x = node.required(0)
    reduced: dict[str, AttrValue] = {
        "kind": "mean",
        "axes": node.integers("axes") or (0, 2, 3),
        "keepdims": True,
    }
    centred = node.emit_helper("sub", (x, node.emit_helper("reduce", (x,), reduced)))
    square = node.emit_helper("square", (centred,))
    variance = node.emit_helper("reduce", (square,), reduced)
    node.emit("div", (centred, node.emit_helper("sqrt", (variance,))))
    return True


def _nll_loss(node: OnnxNode) -> bool:
    node.emit("nll_loss", attributes={"reduction": node.text("reduction", "mean")})
    return True


def _softmax_cross_entropy(node: OnnxNode) -> bool:
    """`log_softmax` over the classes, then `nll_loss`, as in PyTorch."""
    scores, others = node.required(0), node.present[1:]
    log, axis = node.results[1:], {"axis": 1}
    if log:
        value = node.emit("log_softmax", (scores,), axis, results=log).results[0]
    else:
        value = node.emit_helper("log_softmax", (scores,), axis)
    attributes: dict[str, AttrValue] = {"reduction": node.text("reduction", "mean")}
    node.emit("nll_loss", (value, *others), attributes, results=node.results[:1])
    return True


def _cumulative(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "exclusive": bool(node.integer("exclusive", 0)),
        "reverse": bool(node.integer("reverse", 0)),
    }
    axis = node.constant_integer(1)
    if axis is not None:
        attributes["axis"] = axis
    count = 2 if axis is None else 1
    node.emit(node.op.lower(), node.present[:count], attributes)
    return True


TENSOR_HANDLERS: Mapping[str, Handler] = {
    "Gemm": _gemm,
    "MatMul": plain("matmul"),
    "Einsum": plain("einsum", equation=""),
    "Det": plain("det"),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "ArgMax": plain("argmax", axis=0, keepdims=True),
    "ArgMin": plain("argmin", axis=0, keepdims=True),
    "CumSum": _cumulative,
    "CumProd": _cumulative,
    **dict.fromkeys(_SOFTMAX, _softmax),
    "BatchNormalization": _batch_norm,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "LRN": plain("local_response_norm", size=1),
    "Dropout": _dropout,
    "NegativeLogLikelihoodLoss": _nll_loss,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
