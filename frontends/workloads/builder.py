"""Writes a model layer by layer into a graph, named as PyTorch names modules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

from perfc.ir import DTYPES, AttrValue, DType, Graph, TensorType, Value
from perfc.ir.dims import Dim, symbol
from perfc.ir.location import Location

F32, I32, I64 = DTYPES["f32"], DTYPES["i32"], DTYPES["i64"]

BATCH = symbol("batch")
"""Samples in the batch: the one symbol that every workload leaves open."""


@attrs.define(eq=False)
class Builder:
    """A graph that grows by layers.

    A layer's path is what `named_modules()` of the PyTorch model would call it;
    its parameters are `path.weight` and `path.bias`, with PyTorch's shapes. A node
    is called by its path and op, and belongs to the module of that path.

    Attributes:
        graph: What is written into.
        dtype: Element type of weights and activations.

    """

    graph: Graph
    dtype: DType = F32

    def input(self, name: str, *dims: Dim, dtype: DType | None = None) -> Value:
        """Declare an input whose first dimension is the batch, *dims* behind it."""
        type_ = TensorType(dtype or self.dtype, (BATCH, *dims))
        return self.graph.add_input(name, type_)

    def indices(self, name: str, *dims: Dim, dtype: DType = I64) -> Value:
        """Declare an input of indices of exactly *dims*."""
        return self.graph.add_input(name, TensorType(dtype, dims))

    def parameter(self, name: str, *dims: int) -> Value:
        """Declare a weight."""
        return self.graph.add_parameter(name, TensorType(self.dtype, dims))

    def op(
        self, op: str, name: str, *operands: Value, **attributes: AttrValue
    ) -> Value:
        """Append a node of one result; what *name* has before its last dot is where."""
        return self.ops(op, (name,), *operands, **attributes)[0]

    def ops(
        self, op: str, names: Sequence[str], *operands: Value, **attributes: AttrValue
    ) -> Sequence[Value]:
        """Append a node of several results; it belongs where the first one does."""
        location = Location(name=names[0], module=names[0].rpartition(".")[0])
        results = [self.graph.fresh_name(name) for name in names]
        node = self.graph.add(op, operands, results, attributes, location=location)
        return node.results

    def integers(self, name: str, values: Sequence[Dim], *dims: int) -> Value:
        """Return an i64 constant with these elements: a list, or of shape *dims*."""
        shape = dims or (len(values),)
        elements = tuple(values)
        return self.op("constant", name, dtype=I64, shape=shape, elements=elements)

    def buffer(
        self, name: str, dtype: DType, *dims: Dim, on_host: bool = False
    ) -> Value:
        """Return a constant whose elements do not matter."""
        where = {"host": True} if on_host else {}
        return self.op("constant", name, dtype=dtype, shape=dims, **where)

    def scalar(self, name: str, value: float) -> Value:
        """Return a constant of one number."""
        return self.op("constant", name, dtype=self.dtype, shape=(), value=value)

    def reshape(self, x: Value, name: str, *dims: int) -> Value:
        """View *x* in another shape; -1 solves, 0 copies."""
        return self.op("reshape", name, x, self.integers(f"{name}_shape", dims))

    def transpose(self, x: Value, name: str, *perm: int) -> Value:
        """View *x* with its axes in another order."""
        return self.op("transpose", name, x, perm=perm)

    def pick(self, x: Value, name: str, *, axis: int, index: int) -> Value:
        """View what *x* has at one index of an axis."""
        name_of_index = f"{name}_index"
        at = self.op("constant", name_of_index, dtype=I64, shape=(), elements=(index,))
        return self.op("gather", name, x, at, axis=axis)

    def split(self, x: Value, name: str, *sizes: int) -> Sequence[Value]:
        """View consecutive pieces of the last axis."""
        names = [f"{name}_{piece}" for piece in range(len(sizes))]
        return self.ops("split", names, x, axis=-1, sizes=sizes)

    def linear(
        self, x: Value, path: str, sizes: tuple[int, int], *, bias: bool = True
    ) -> Value:
        """Multiply the last axis by weight[out, in]; *sizes* are (in, out)."""
        features_in, features_out = sizes
        parameters = [self.parameter(f"{path}.weight", features_out, features_in)]
        if bias:
            parameters.append(self.parameter(f"{path}.bias", features_out))
        return self.op("linear", f"{path}.linear", x, *parameters)

    def mlp(self, x: Value, path: str, widths: Sequence[int], last: str = "") -> Value:
        """Stack linear layers of these widths, each with an activation after it.

        As in `nn.Sequential`, layers have the even numbers and activations the odd
        ones; the activation is relu, and *last* (none, if empty) at the end.
        """
        layers = len(widths) - 1
        for layer, sizes in enumerate(pairwise(widths)):
            x = self.linear(x, f"{path}.{2 * layer}", sizes)
            if activation := last if layer == layers - 1 else "relu":
                x = self.op(activation, f"{path}.{2 * layer + 1}.{activation}", x)
        return x

    def dropout(self, x: Value, path: str, share: float) -> Value:
        """Zero a share of the elements in training; inference keeps all of them."""
        if not share:
            return x
        return self.op("identity", f"{path}.dropout", x, dropout=share)

    def layer_norm(self, x: Value, path: str, size: int, epsilon: float) -> Value:
        """Normalise the last axis, with scale and bias."""
        scale = self.parameter(f"{path}.weight", size)
        bias = self.parameter(f"{path}.bias", size)
        name = f"{path}.layer_norm"
        return self.op("layer_norm", name, x, scale, bias, axis=-1, epsilon=epsilon)

    def embedding(self, indices: Value, path: str, rows: int, dim: int) -> Value:
        """Look up one row of weight[rows, dim] an index."""
        weight = self.parameter(f"{path}.weight", rows, dim)
        return self.op("gather", f"{path}.embedding", weight, indices, axis=0)
