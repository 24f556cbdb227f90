"""ATen ops that reduce, scan or normalise along axes."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.ir import AttrValue

_KINDS = {
    "sum": "sum",
    "nansum": "sum",
    "mean": "mean",
    "nanmean": "mean",
    "prod": "prod",
    "amax": "max",
    "amin": "min",
    "any": "any",
    "all": "all",
    "var": "var",
    "std": "std",
    "logsumexp": "log_sum_exp",
    "count_nonzero": "sum",
}


def _axes(node: AtenNode, rank: int) -> tuple[int, ...] | None:
    """Return the axes; none given, and an empty list, mean all."""
    if not node.is_given("dim") or not rank:
        return None
    return tuple(axis % rank for axis in node.integers("dim")) or None


def _reduce_attributes(node: AtenNode, kind: str) -> dict[str, AttrValue]:
    attributes: dict[str, AttrValue] = {"kind": kind}
    axes = _axes(node, node.operands[0].rank)
    if axes is not None:
        attributes["axes"] = axes
    if node.flag("keepdim"):
        attributes["keepdims"] = True
    return attributes


def _reduce(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        attributes = _reduce_attributes(node, kind)
        node.emit("reduce", node.operands[:1], attributes)

    return handler


def _with_second(kind: str) -> Handler:
    """Two results of one kernel: values and places, or variance and mean."""

    def handler(node: AtenNode) -> None:
        attributes = _reduce_attributes(node, kind)
        results = range(len(node.results))
        node.emit("reduce", node.operands[:1], attributes, results=results)

    return handler


def _extreme(kind: str, pairwise: str) -> Handler:
    """`max` is three ops: of all, along an axis, and of two tensors."""

    def handler(node: AtenNode) -> None:
        if node.is_given("other"):
            node.emit(pairwise, (node.tensor("self"), node.tensor("other")))
        else:
            _with_second(kind)(node)

    return handler


def _norm(node: AtenNode) -> None:
    order = node.arguments.get("ord", node.arguments.get("p", 2))
    kinds: Mapping[object, str] = {1: "l1", float("inf"): "max", float("-inf"): "min"}
    attributes = _reduce_attributes(node, kinds.get(order, "l2"))
    node.emit("reduce", node.operands[:1], attributes)


def _arg(op: str) -> Handler:
    """Return a handler of *op*; without an axis it takes all elements, in order."""

    def handler(node: AtenNode) -> None:
        x = node.tensor("self")
        if node.is_given("dim"):
            attributes: dict[str, AttrValue] = {
                "axis": node.integer("dim"),
                "keepdims": node.flag("keepdim"),
            }
            node.emit(op, (x,), attributes)
            return
        (flat,) = node.helper("reshape", (x, node.listed((-1,))), {"view": True})
        node.emit(op, (flat,), {"axis": 0})

    return handler


def _scan(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        node.emit(op, (node.tensor("self"),), {"axis": node.integer("dim")})

    return handler


def _histogram(node: AtenNode) -> None:
    """Limits that are equal, as they are if none are given, stand for the extremes."""
    limits = node.number("min", 0.0) != node.number("max", 0.0)
    attributes: dict[str, AttrValue] = {
        "bins": node.integer("bins", 100),
        "limits": limits,
    }
    node.emit("histogram", (node.tensor("self"),), attributes)


def _bincount(node: AtenNode) -> None:
    """The host reads both extremes, then it is a histogram (`cuda/SummaryOps.cu`)."""
    bins = node.result().shape[0]
    if not isinstance(bins, int):
        msg = "a number of bins that is not known"
        raise Misfit(msg)
    if node.is_given("weights"):
        msg = "counts of what elements weigh"
        raise Misfit(msg)
    if node.integer("minlength", 0) == bins:  # and not a number that a file knows
        node.assumption = f"no element is larger than {bins - 1}"
    attributes: dict[str, AttrValue] = {"bins": bins, "limits": False}
    node.emit("histogram", (node.tensor("self"),), attributes)


def _softmax(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        node.emit(op, node.operands[:1], {"axis": node.integer("dim")})

    return handler


REDUCTION_HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": _reduce(kind) for name, kind in _KINDS.items()},
    "aten.max": _extreme("max", "maximum"),
    "aten.min": _extreme("min", "minimum"),
    "aten.median": _with_second("max"),
    "aten.nanmedian": _with_second("max"),
    "aten.mode": _with_second("max"),
    "aten.aminmax": _with_second("min_max"),
    "aten.var_mean": _with_second("var_mean"),
    "aten.std_mean": _with_second("std_mean"),
    "aten.norm": _norm,
    "aten.linalg_norm": _norm,
    "aten.linalg_vector_norm": _norm,
    "aten.argmax": _arg("argmax"),
    "aten.argmin": _arg("argmin"),
    "aten.histc": _histogram,
    "aten.bincount": _bincount,
    "aten.cumsum": _scan("cumsum"),
    "aten.cumprod": _scan("cumprod"),
    **dict.fromkeys(
        ("aten.logcumsumexp", "aten.cummax", "aten.cummin"), _scan("cumsum")
    ),
    **dict.fromkeys(
        ("aten.softmax", "aten._softmax", "aten._safe_softmax"), _softmax("softmax")
    ),
    **dict.fromkeys(("aten.log_softmax", "aten._log_softmax"), _softmax("log_softmax")),
}
"""ATen ops to the functions that write them."""
