"""A small numpy interpreter of op graphs, to prove that passes keep their meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from tests.frontends.evaluate_raised import FORMULAS, Formula

from perfc.ir import AttrValue, Graph, Node, Value
from perfc.ir.dims import Dim, Expr
from perfc.ir.dims import evaluate as evaluate_dim

Array = npt.NDArray[Any]
_NUMPY: Mapping[str, type[np.generic]] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bool": np.bool_,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u64": np.uint64,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
}


def evaluate(graph: Graph, data: Mapping[str, Array]) -> dict[str, Array]:
    """Return every value of *graph* by name.

    *data* holds the inputs, the parameters, and the constants whose elements the
    graph does not know. Types are checked against what is computed.
    """
    run = _Run(bindings_of(graph, data), data, {})
    for value in (*graph.inputs, *graph.parameters):
        run.values[value] = run.checked(value, data[value.name])
    for node in graph:
        results = _OPS[node.op](_Site(node, run))
        for value, array in zip(node.results, results, strict=True):
            run.values[value] = run.checked(value, array)
    return {value.name: array for value, array in run.values.items()}


def outputs(graph: Graph, data: Mapping[str, Array]) -> list[Array]:
    """Return what *graph* returns."""
    values = evaluate(graph, data)
    return [values[value.name] for value in graph.outputs]


def bindings_of(graph: Graph, data: Mapping[str, Array]) -> dict[str, int]:
    """Read the numbers of the symbols off the shapes of the inputs."""
    bindings: dict[str, int] = {}
    for value in graph.inputs:
        if value.type is None:
            continue
        for dim, size in zip(value.type.shape, data[value.name].shape, strict=True):
            if isinstance(dim, Expr):
                bindings.setdefault(str(dim), size)
    return bindings


@attrs.frozen(eq=False)
class _Run:
    """One evaluation."""

    bindings: Mapping[str, int]
    data: Mapping[str, Array]
    values: dict[Value, Array]

    def checked(self, value: Value, array: Array) -> Array:
        """Return *array* if it has the type that the graph says."""
        assert value.type is not None, f"{value} has no type"
        bound = value.type.bind(self.bindings)
        assert bound.shape == array.shape, f"{value}: {bound} against {array.shape}"
        assert _NUMPY[bound.dtype.name] == array.dtype, f"{value}: {array.dtype}"
        return array


@attrs.frozen(eq=False)
class _Site:
    """One node with its operands at hand."""

    node: Node
    run: _Run

    def __getitem__(self, index: int) -> Array:
        return self.run.values[self.node.operands[index]]

    @property
    def arrays(self) -> list[Array]:
        return [self.run.values[value] for value in self.node.operands]

    @property
    def dtype(self) -> type[np.generic]:
        """Element type of the result."""
        type_ = self.node.results[0].type
        assert type_ is not None
        return _NUMPY[type_.dtype.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        type_ = self.node.results[0].type
        assert type_ is not None
        return tuple(evaluate_dim(dim, self.run.bindings) for dim in type_.shape)

    def integer(self, name: str, default: int | None = None) -> int:
        return self.node.attributes.integer(name, default)

    def integers(self, name: str) -> tuple[int, ...] | None:
        if self.node.attributes.get(name) is None:
            return None
        return self.node.attributes.integers(name)

    def flag(self, name: str) -> bool:
        return self.node.attributes.flag(name)

    def listed(self, index: int) -> list[int]:
        return [int(v) for v in self[index].reshape(-1)]


_Rule = Callable[[_Site], Sequence[Array]]


def _simple(function: Callable[..., Any]) -> _Rule:
    """Apply a numpy function to all operands."""

    def rule(site: _Site) -> Sequence[Array]:
        return [np.asarray(function(*site.arrays)).astype(site.dtype)]

    return rule


def _raised(formula: Formula) -> _Rule:
    """Apply the formula of a raised op."""

    def rule(site: _Site) -> Sequence[Array]:
        result = formula(site.node.attributes, site.arrays)
        return [result.astype(site.dtype)]

    return rule


def _constant(site: _Site) -> Sequence[Array]:
    elements: AttrValue = site.node.attributes.get("elements")
    if isinstance(elements, tuple):
        dims: list[Dim] = [e for e in elements if isinstance(e, int | Expr)]
        flat = [evaluate_dim(dim, site.run.bindings) for dim in dims]
        return [np.array(flat, site.dtype).reshape(site.shape)]
    value = site.node.attributes.get("value")
    if isinstance(value, float):
        return [np.full(site.shape, value, site.dtype)]
    return [site.run.data[site.node.results[0].name]]


def _fill(site: _Site) -> Sequence[Array]:
    return [np.full(site.listed(0), site.node.attributes["value"], site.dtype)]


def _shape(site: _Site) -> Sequence[Array]:
    shape = site[0].shape
    end = site.integer("end", len(shape))
    return [np.array(shape[site.integer("start", 0) : end], np.int64)]


def _range(site: _Site) -> Sequence[Array]:
    start, limit, delta = (float(array.reshape(())) for array in site.arrays)
    return [np.arange(start, limit, delta).astype(site.dtype)]


def _linear(site: _Site) -> Sequence[Array]:
    weight = site[1] if site.flag("weight_is_kn") else site[1].T
    matmul = site[0] @ weight
    return [matmul + site[2] if len(site.node.operands) > 2 else matmul]


def _reshape(site: _Site) -> Sequence[Array]:
    shape = site.listed(1)
    if not site.flag("allowzero"):
        shape = [site[0].shape[i] if dim == 0 else dim for i, dim in enumerate(shape)]
    return [site[0].reshape(shape)]


def _flatten(site: _Site) -> Sequence[Array]:
    rows = math.prod(site[0].shape[: site.integer("axis") % (site[0].ndim + 1)])
    return [site[0].reshape(rows, -1)]


def _squeeze(site: _Site) -> Sequence[Array]:
    return [np.squeeze(site[0], site.integers("axes"))]


def _unsqueeze(site: _Site) -> Sequence[Array]:
    return [np.expand_dims(site[0], site.integers("axes") or ())]


def _transpose(site: _Site) -> Sequence[Array]:
    return [np.transpose(site[0], site.integers("perm"))]


def _expand(site: _Site) -> Sequence[Array]:
    shape = np.broadcast_shapes(site[0].shape, tuple(site.listed(1)))
    return [np.broadcast_to(site[0], shape)]


def _cast(site: _Site) -> Sequence[Array]:
    return [site[0].astype(site.dtype)]


def _concat(site: _Site) -> Sequence[Array]:
    return [np.concatenate(site.arrays, site.integer("axis"))]


def _split(site: _Site) -> Sequence[Array]:
    sizes = site.integers("sizes")
    if sizes is None:
        return np.split(site[0], site.integer("parts"), site.integer("axis"))
    cuts = list(accumulate(sizes))[:-1]
    return np.split(site[0], cuts, site.integer("axis"))


def _einsum(site: _Site) -> Sequence[Array]:
    equation = site.node.attributes.text("equation")
    return [np.asarray(np.einsum(equation, *site.arrays))]


def _trilu(site: _Site) -> Sequence[Array]:
    diagonal = site.listed(1)[0] if len(site.node.operands) > 1 else 0
    return [(np.triu if site.flag("upper") else np.tril)(site[0], diagonal)]


def _slice(site: _Site) -> Sequence[Array]:
    cut = [slice(None)] * site[0].ndim
    bounds = [site.listed(i) for i in range(1, len(site.node.operands))]
    count = len(bounds[0])
    bounds += [list(range(count)), [1] * count][len(bounds) - 2 :]
    for start, end, axis, step in zip(*bounds, strict=True):
        cut[axis] = slice(start, end, step)
    return [site[0][tuple(cut)]]


def _gather(site: _Site) -> Sequence[Array]:
    return [np.take(site[0], site[1], site.integer("axis"))]


def _gather_elements(site: _Site) -> Sequence[Array]:
    return [np.take_along_axis(site[0], site[1], site.integer("axis"))]


def _gather_nd(site: _Site) -> Sequence[Array]:
    batch, (x, indices) = site.integer("batch_dims", 0), site.arrays
    lead = x.shape[:batch]
    x = x.reshape(math.prod(lead), *x.shape[batch:])
    picks = indices.reshape(math.prod(lead), *indices.shape[batch:])
    rows = [a[tuple(np.moveaxis(i, -1, 0))] for a, i in zip(x, picks, strict=True)]
    return [np.stack(rows).reshape(*lead, *rows[0].shape)]


def _reduce(site: _Site) -> Sequence[Array]:
    function = getattr(np, str(site.node.attributes["kind"]))
    keep = site.flag("keepdims")
    return [np.asarray(function(site[0], axis=site.integers("axes"), keepdims=keep))]


def _softmax(site: _Site) -> Sequence[Array]:
    axis = site.integer("axis")
    powers = np.exp(site[0] - site[0].max(axis, keepdims=True))
    return [powers / powers.sum(axis, keepdims=True)]


def _layer_norm(site: _Site) -> Sequence[Array]:
    x, axis = site[0], site.integer("axis")
    axes = tuple(range(axis % x.ndim, x.ndim))
    epsilon = site.node.attributes.get("epsilon")
    assert isinstance(epsilon, float)
    scale = np.sqrt(x.var(axes, keepdims=True) + epsilon)
    normal = (x - x.mean(axes, keepdims=True)) / scale
    for function, operand in zip((np.multiply, np.add), site.arrays[1:], strict=False):
        normal = function(normal, operand)
    return [normal.astype(x.dtype)]


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.reshape(-1)], x.dtype).reshape(x.shape)


def _divide(left: Array, right: Array) -> Array:
    if np.issubdtype(left.dtype, np.integer):
        return np.trunc(left / right)
    return left / right


def _embedding_bag(site: _Site) -> Sequence[Array]:
    """One lookup per table; bags of several tables follow one another."""
    attributes = site.node.attributes
    tables = len(attributes.records("tables"))
    weights, rest = site.arrays[:tables], site.arrays[tables:]
    indices, rest = rest[0], rest[1:]
    if site.flag("has_offsets"):
        bounds = [int(start) for start in rest[0]]
        if not site.flag("include_last_offset"):
            bounds.append(len(indices))
    else:
        bounds = list(range(0, indices.size + 1, indices.shape[1]))
        indices = indices.reshape(-1)
    factors = rest[-1] if site.flag("weighted") else np.ones(len(indices), np.float32)
    cuts = [slice(*pair) for pair in pairwise(bounds)]
    padding = attributes.get("padding_index")
    count = len(cuts) // tables
    columns: list[Array] = []
    for table, weight in enumerate(weights):
        pooled = [
            _pool(attributes.text("mode"), weight, indices[cut], factors[cut], padding)
            for cut in cuts[table * count : (table + 1) * count]
        ]
        columns.append(np.stack(pooled))
    return [np.concatenate(columns, axis=1)]


def _pool(
    mode: str, weight: Array, picks: Array, factors: Array, padding: AttrValue
) -> Array:
    kept = picks != padding if padding is not None else np.ones(len(picks), np.bool_)
    rows = weight[picks[kept]] * factors[kept][:, np.newaxis].astype(weight.dtype)
    if not len(rows):
        return np.zeros(weight.shape[1:], weight.dtype)
    return np.asarray(getattr(np, mode)(rows, axis=0))


_OPS: Mapping[str, _Rule] = {
    "constant": _constant,
    "fill": _fill,
    "shape": _shape,
    "size": _simple(np.size),
    "range": _range,
    "linear": _linear,
    "matmul": _simple(np.matmul),
    "relu": _simple(_relu),
    "sigmoid": _simple(_sigmoid),
    "tanh": _simple(np.tanh),
    "erf": _simple(_erf),
    "sqrt": _simple(np.sqrt),
    "isnan": _simple(np.isnan),
    "not": _simple(np.logical_not),
    "add": _simple(np.add),
    "sub": _simple(np.subtract),
    "mul": _simple(np.multiply),
    "div": _simple(_divide),
    "pow": _simple(np.power),
    "equal": _simple(np.equal),
    "less": _simple(np.less),
    "greater": _simple(np.greater),
    "and": _simple(np.logical_and),
    "or": _simple(np.logical_or),
    "where": _simple(np.where),
    "identity": _simple(np.asarray),
    "cast": _cast,
    "cast_like": _cast,
    "reshape": _reshape,
    "flatten": _flatten,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "transpose": _transpose,
    "expand": _expand,
    "concat": _concat,
    "split": _split,
    "slice": _slice,
    "trilu": _trilu,
    "einsum": _einsum,
    "cos": _simple(np.cos),
    "sin": _simple(np.sin),
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "reduce": _reduce,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "embedding_bag": _embedding_bag,
    "neg": _simple(np.negative),
    "reciprocal": _simple(np.reciprocal),
    **{name: _raised(formula) for name, formula in FORMULAS.items()},
}
