"""The pass `quantize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import attrs

from perfc.ir import DTYPES, AnyKey, DType, Graph, Node, Program, UsageError, Value
from perfc.ir.node_kinds import is_embedding_bag, is_gather, is_linear
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import is_training_step, typed
from perfc.passes.precision import keep_list, own_weights, stored_types
from perfc.passes.precision.convert_part import PLAIN_FLOATS, convert_nodes
from perfc.passes.precision.quantized_linears import QuantizedLinears, pack_weights

STATIC, DYNAMIC, TENSOR = "static", "dynamic", "dynamic-tensor"
ACTIVATIONS = (STATIC, DYNAMIC, TENSOR)
"""Sources of scales of activations: a calibration; each row's own largest number, as
the layer runs; or that of the whole tensor, which a kernel before finds."""

_HALF, _MATRIX = 16, 2


@attrs.frozen
class Candidate:
    """A table, or a linear layer, that can be stored in another type.

    Attributes:
        kind: `table` or `linear`.
        name: Its parameter, without `.weight`.
        names: All that it can be called by, its name first.
        graph: The op graph that it is of.
        node: The lookup, or the layer.
        weight: Its parameter.

    """

    kind: str
    name: str
    names: tuple[str, ...]
    graph: Graph = attrs.field(repr=False)
    node: Node = attrs.field(repr=False)
    weight: Value = attrs.field(repr=False)


def candidates(program: Program) -> Iterator[Candidate]:
    """Yield the tables and linear layers of a model, in the order they are used in."""
    for rank in program.classes:
        if rank.ops is None:
            continue
        parameters = frozenset(rank.ops.parameters)
        for node in rank.ops:
            for kind, weight in _weights(node):
                if weight in parameters:
                    yield _candidate(kind, rank.ops, node, weight)


def _weights(node: Node) -> Iterator[tuple[str, Value]]:
    if is_embedding_bag(node):
        count = len(node.attributes.records("tables"))
        yield from ((keep_list.TABLE, value) for value in node.operands[:count])
    elif (layer := own_weights.weight_of(node)) is not None:
        yield keep_list.LINEAR, layer
    elif is_gather(node) and not node.attributes.integer("axis"):
        weight = node.operands[0]
        if weight.type is not None and weight.type.rank == _MATRIX:
            yield keep_list.TABLE, weight


def _candidate(kind: str, graph: Graph, node: Node, weight: Value) -> Candidate:
    name = weight.name.removesuffix(".weight")
    others = [weight.name]
    if kind == keep_list.LINEAR:
        others += [node.name, node.location.module]
    names = tuple(dict.fromkeys((name, *filter(None, others))))
    return Candidate(kind, name, names, graph, node, weight)


@attrs.frozen
class Quantize(Transform):
    """Store tables and linear layers of a model for inference in fewer bits.

    Rows of tables have their scales beside them, and are dequantised in the kernel that
    looks them up. The weight of a linear layer is quantised once, before the model
    runs; its activations as it runs, by a kernel of their own. The product is of 8
    bits, and its kernel undoes the scales as it writes. Where another layer reads what
    it writes, possibly after a `relu`, it writes the 8 bits of that one, so that
    neither of the two conversions between them is left (static scales only). What no
    pattern of *keep* matches has the types asked for; a type that is no narrower than
    the model's own leaves a table or layer as it is.

    Attributes:
        embeddings: Type of tables: `fp16`, `bf16`, `fp8`, `int8`, `int4`, `int2`, or
            `int4-codebook`; empty to leave them.
        linear: Type of linear layers: `fp16`, `bf16`, `int8`, `fp8`, `mxfp8`, `nvfp4`,
            or of their weights alone, `w8a16` and `w4a16`; empty to leave them.
        activations: `static`: scales are known beforehand, and a kernel converts;
            `dynamic`: each row's is found by the kernel that converts it;
            `dynamic-tensor`: a kernel before finds that of the whole tensor.
        keep: `PATTERN:TYPE`, several separated by commas: tables and layers of another
            type; a pattern without a type has that of the next one.
        rows: How rows of tables lie in memory: `fbgemm`, with scale and bias in fp16,
            filled up to 16 bytes, as on GPUs; `caffe2`, in fp32 and not filled up, as
            on CPUs; empty for that of the target that the model is analyzed on. With
            no type of tables it is the layout of those that are of few bits already.
        sum_bits: Width of the integers that a CPU adds products of 8 bits up in: 32, or
            16, which is faster and can overflow.

    """

    name: ClassVar[str] = "quantize"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    embeddings: str = ""
    linear: str = ""
    activations: str = STATIC
    keep: str = ""
    rows: str = ""
    sum_bits: int = 32

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.embeddings:
            stored_types.table_type(self.embeddings, f"embeddings of {self.name}")
        if self.linear:
            stored_types.linear_type(self.linear, f"linear of {self.name}")
        for option, value, known in (
            ("activations", self.activations, ACTIVATIONS),
            ("rows", self.rows or stored_types.FBGEMM, stored_types.ROW_LAYOUTS),
            ("sum-bits", self.sum_bits, (16, 32)),
        ):
            if value not in known:
                listed = ", ".join(map(str, known))
                msg = f"{option}={value!r} of {self.name}: expected {listed}"
                raise UsageError(msg)
        self.kept  # noqa: B018 - reads the list, to refuse it here

    @property
    def kept(self) -> tuple[keep_list.Kept, ...]:
        """What is kept in other types."""
        return keep_list.read_kept(self.keep)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Quantise every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                _refuse_gradients(rank.ops)
        own_weights.raise_layers(program)
        if self.linear in stored_types.FALLBACKS:
            ctx.note(
                "no-such-rate",
                f"no device multiplies {self.linear} by {self.linear}: linear layers "
                f"have {stored_types.FALLBACKS[self.linear]}, weights of 4 bits beside "
                "16",
            )
        if self.linear:
            own_weights.say_unchanged(program, self.linear, ctx)
        chosen = self.chosen(program)
        if self.rows and not self.embeddings:
            _lay_out(program, self.rows)
        for rank in program.classes:
            if rank.ops is None:
                continue
            known = ctx.get(ELEMENTS, rank.ops)
            mine = {one: t for one, t in chosen.items() if one.graph is rank.ops}
            self._run(rank.ops, mine, known, ctx)
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, known)

    def chosen(self, program: Program) -> Mapping[Candidate, str]:
        """Return the types that tables and layers of a model are to be stored in."""
        found = list(candidates(program))
        keep_list.check_matched(self.kept, [one.names for one in found], program.name)
        return {one: dtype for one in found if (dtype := self._type_of(one))}

    def _type_of(self, one: Candidate) -> str:
        for kept in self.kept:
            if kept.matches(one.names):
                return kept.dtype_of(one.kind, one.name)
        asked = self.embeddings if one.kind == keep_list.TABLE else self.linear
        return (
            asked
            if one.kind == keep_list.TABLE
            else stored_types.FALLBACKS.get(asked, asked)
        )

    def _run(
        self,
        graph: Graph,
        chosen: Mapping[Candidate, str],
        known: Mapping[Value, object],
        ctx: PassContext,
    ) -> None:
        tables = {one: t for one, t in chosen.items() if one.kind == keep_list.TABLE}
        for one, dtype in tables.items():
            self._store(one, dtype, ctx)
        linears = {
            one: stored_types.LINEAR_TYPES[t]
            for one, t in chosen.items()
            if one.kind == keep_list.LINEAR
        }
        narrower = {
            one: dtype
            for one, dtype in linears.items()
            if _narrows(one, dtype) and _can_be(one, dtype, ctx)
        }
        self._convert(graph, narrower, known)
        packed = {
            one.node: dtype
            for one, dtype in narrower.items()
            if not dtype.is_plain and not dtype.activations
        }
        pack_weights(graph, packed)
        both = {one.node: dtype for one, dtype in narrower.items() if dtype.activations}
        QuantizedLinears(graph, both, self.activations, self.sum_bits).run()

    def _convert(
        self,
        graph: Graph,
        chosen: Mapping[Candidate, stored_types.LinearType],
        known: Mapping[Value, object],
    ) -> None:
        """Let layers compute in 16 bits that are to, and those of packed weights."""
        by_type: dict[DType, set[Node]] = {}
        for one, dtype in chosen.items():
            if dtype.is_plain:
                by_type.setdefault(dtype.weight, set()).add(one.node)
            elif (
                not dtype.activations and typed(one.node.operands[0]).dtype.bits > _HALF
            ):
                by_type.setdefault(DTYPES["f16"], set()).add(one.node)
        for low, nodes in by_type.items():
            convert_nodes(graph, low, nodes, known)

    def _store(self, one: Candidate, name: str, ctx: PassContext) -> None:
        """Give a table its type; its lookup still returns what it did."""
        dtype = stored_types.row_type(name, self.rows or stored_types.FBGEMM)
        old = typed(one.weight)
        if old.dtype.bits <= dtype.bits:
            return
        readers = one.graph.readers(one.weight)
        if not all(is_embedding_bag(node) or is_gather(node) for node in readers):
            ctx.note(
                "not-quantized",
                f"table {one.name} keeps its type: other ops than lookups read it",
                one.name,
            )
            return
        for node in readers:
            told = "out_dtype" if is_embedding_bag(node) else "dtype"
            if node.attributes.get(told) is None:
                out = typed(node.results[0])
                one.graph.set_attributes(node, **{told: out.dtype})
        one.weight.type = attrs.evolve(old, dtype=dtype)


def _lay_out(program: Program, layout: str) -> None:
    """Let rows that are of few bits already lie so in memory."""
    for one in candidates(program):
        old = typed(one.weight)
        if (
            one.kind == keep_list.TABLE
            and (dtype := stored_types.laid_out(old.dtype, layout)) is not None
        ):
            one.weight.type = attrs.evolve(old, dtype=dtype)


def _refuse_gradients(graph: Graph) -> None:
    if is_training_step(graph):
        msg = (
            f"{graph} is a training step: gradients of weights of few bits make no "
            "sense; quantize the forward graph, or train with --dtype fp8"
        )
        raise UsageError(msg)


def _narrows(one: Candidate, dtype: stored_types.LinearType) -> bool:
    old = typed(one.weight)
    return old.dtype in PLAIN_FLOATS and old.dtype.bits > dtype.weight.bits


def _can_be(one: Candidate, dtype: stored_types.LinearType, ctx: PassContext) -> bool:
    """Whether the sizes of a layer allow its type; say so where they do not."""
    readers = one.graph.readers(one.weight)
    why = ""
    if not all(map(is_linear, readers)):
        why = "its weight is read by other ops, too"
    elif any(dim % dtype.multiple for dim in typed(one.weight).shape):
        sizes = " x ".join(map(str, typed(one.weight).shape))
        why = f"its weight of {sizes} is no multiple of {dtype.multiple} both ways"
    if why:
        ctx.note(
            "not-quantized", f"linear layer {one.name} keeps its type: {why}", one.name
        )
    return not why
