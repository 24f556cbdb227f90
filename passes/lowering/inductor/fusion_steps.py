"""Steps of the nodes of a compiled graph: what is computed where.

Inductor computes an elementwise result wherever it is read and writes it to memory
("realizes" it) only where somebody needs it there: a reduction's result, the operand
of an outside kernel, an output, or an expression that has grown too large to be
computed again. The thresholds are those of `torch/_inductor/config.py` and
`StorageBox` in `ir.py`, PyTorch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import attrs

from perfc.ir import DTYPES, Graph, Node, TensorType, Value, node_kinds
from perfc.ir.opdef import Trait
from perfc.passes.lowering.eager import bound
from perfc.passes.lowering.inductor import fusible
from perfc.passes.lowering.inductor.fusion import (
    PERMUTED,
    ROWS,
    Buffer,
    Index,
    Read,
    Reads,
    Step,
)

_REALIZE_READS = 4
"""Reads of an expression that several read (`realize_reads_threshold`)."""
_REALIZE_READS_OF_ONE = 8
"""Reads of any expression (`_realize_acc_reads_threshold_default`)."""
_REALIZE_OPS = 30
"""Operations of an expression (`_realize_opcount_threshold_default`)."""
_MAX_CAT = 8
"""Tensors that one loop joins (`max_pointwise_cat_inputs`)."""
_BIAS = 2
_HALF_BITS = 16
_F32, _I64 = DTYPES["f32"], DTYPES["i64"]


@attrs.define(eq=False)
class Tensor:
    """A storage: an expression that is not computed yet, or a buffer.

    Attributes:
        type: Type of the value.
        reads: What the expression reads; of a buffer, the buffer.
        nodes: Whose work the expression is.
        ops: How many operations it takes.
        buffer: Where it lies, once it is in memory.
        parts: Where the operands of a join lie, which are in their places.

    """

    value: Value
    type: TensorType
    reads: Reads
    nodes: tuple[Node, ...] = ()
    ops: int = 0
    buffer: Buffer | None = None
    parts: tuple[Buffer, ...] = ()


@attrs.frozen
class View:
    """A value's place and order in a storage."""

    tensor: Tensor
    index: Index = ()


@attrs.define(eq=False)
class Stepping:
    """Makes the steps of some consecutive nodes of a graph.

    Attributes:
        graph: The graph.
        types: The type of every value, bound.
        known: Values that are Python's numbers.
        runs: Nodes that launch something in eager PyTorch.
        outputs: Values that are read after these nodes, or returned.
        sm_count: Of the device; 0 if it is not known: no reduction is split.
        steps: The steps so far.
        without_bias: GEMMs whose bias is added by a loop after them.

    """

    graph: Graph
    types: Mapping[Value, TensorType]
    known: Collection[Value]
    runs: frozenset[Node]
    outputs: frozenset[Value]
    sm_count: int
    steps: list[Step] = attrs.field(factory=list[Step], init=False)
    without_bias: set[Node] = attrs.field(factory=set["Node"], init=False)
    _views: dict[Value, View] = attrs.field(factory=dict[Value, View], init=False)
    _seed: Buffer | None = attrs.field(default=None, init=False)

    def add(self, node: Node) -> None:
        """Add a node, in program order."""
        known = [value in self.known for value in node.results]
        if node_kinds.is_free(node) or (known and all(known)):
            return
        if fusible.is_reindexing(node) or (node not in self.runs and node.operands):
            self._look(node)
        elif node_kinds.is_concat(node):
            self._join(node)
        elif fusible.is_loop(node):
            self._loop(node)
        elif node.operands and (
            found := fusible.reduction_of(node, self._shape(node.operands[0]))
        ):
            self._reduce(node, found)
        else:
            self._call(node)
        self._realize_by_use(node)

    def _look(self, node: Node) -> None:
        source = self._view(node.operands[0])
        for number, value in enumerate(node.results):
            entry = self._entry(node, number)
            self._views[value] = View(source.tensor, (*source.index, *entry))

    def _entry(self, node: Node, number: int) -> Index:
        if node.op in fusible.FLAT_VIEWS or node_kinds.is_cast(node):
            return ()
        perm = node_kinds.permutation(node)
        if perm is not None:
            return ((PERMUTED, perm),)
        shape = self._shape(node.operands[0])
        return ((node.op, number, node.attributes, shape),)

    def _loop(self, node: Node) -> None:
        """Note a pointwise op: it is computed where it is read."""
        shape = self._shape(node.results[0])
        reads, nodes, ops = self._expression(node, node.operands, shape)
        if node_kinds.has_trait(
            node, Trait.RANDOM
        ):  # one kernel per graph makes all seeds
            reads = {**reads, Read(self._seeds(node)): 8}
        for value in node.results:
            self._define(
                value, reads, (*nodes, node), ops + fusible.LOOPS.get(node.op, 1)
            )

    def _expression(
        self, node: Node, operands: Sequence[Value], shape: tuple[int, ...]
    ) -> tuple[dict[Read, int], tuple[Node, ...], int]:
        """Return the reads, nodes and number of ops that a loop over *shape* needs."""
        reads: dict[Read, int] = {}
        nodes: dict[Node, None] = {}
        ops = 0
        for number, value in enumerate(operands):
            if value in self.known or fusible.is_number(value):
                continue
            looked_up = number == 0 and node_kinds.has_trait(node, Trait.LOOKUP)
            entry: Index = ((node.op, node.attributes),) if looked_up else ()
            entry = entry or self._broadcast(node, value, shape)
            limit = self._bytes(node.results[0]) if looked_up else None
            view = self._view(value)
            for read, nbytes in self._reads(value, entry, limit).items():
                reads[read] = max(nbytes, reads.get(read, 0))
            nodes.update(dict.fromkeys(view.tensor.nodes))
            ops += view.tensor.ops
        return reads, tuple(nodes), ops

    def _broadcast(self, node: Node, value: Value, shape: tuple[int, ...]) -> Index:
        """Return how an operand is read by a loop over *shape*."""
        own = self._shape(value)
        if len(own) > len(shape) or node.op in fusible.ELSEWHERE:
            return ((node.op, node.attributes, own),)
        if math.prod(own) == math.prod(shape):
            return ()
        padded = (1,) * (len(shape) - len(own)) + own
        kept = next((i for i, n in enumerate(padded) if n != shape[i]), len(shape))
        rows = all(n == 1 for n in padded[kept:]) and padded[:kept] == shape[:kept]
        name = ROWS if rows and kept else "broadcast"
        return ((name, own, shape),)

    def _reads(self, value: Value, entry: Index, limit: int | None) -> dict[Read, int]:
        """Return the bytes of each read of a value: of a slice no more than its own."""
        view = self._view(value)
        index, tensor = (*view.index, *entry), view.tensor
        whole = max(math.prod(self._shape(tensor.value)), 1)
        part = min(math.prod(self._shape(value)), whole)

        def read_of(size: int) -> int:
            own = -(-size * part // whole)
            return min(own, limit or own)

        if tensor.buffer is not None:
            return {Read(tensor.buffer, index): read_of(tensor.buffer.nbytes)}
        return {
            Read(read.buffer, (*read.index, *index)): read_of(size)
            for read, size in tensor.reads.items()
        }

    def _define(
        self, value: Value, reads: Reads, nodes: tuple[Node, ...], ops: int
    ) -> Tensor:
        tensor = Tensor(value, self.types[value], reads, nodes, ops)
        self._views[value] = View(tensor)
        return tensor

    def _seeds(self, node: Node) -> Buffer:
        """Make the seeds, once a graph: `inductor_seeds`."""
        if self._seed is None:
            self._seed = Buffer("seeds", 8, _I64)
            # A kernel of no op: what dropout computes is counted where it is computed.
            self._step(node, {}, self._seed, (1, 1), nodes=(), reduces=False)
        return self._seed

    def _reduce(self, node: Node, reduction: fusible.Reduction) -> None:
        """Reduce at once or in two steps; then, if need be, a loop over all."""
        x = node.operands[0]
        shape = self._shape(x)
        rows, columns = fusible.rows_of(node, reduction, shape)
        # Inductor treats rows whose elements are contiguous apart: the split and the
        # longest row that a kernel holds in registers depend on it.
        inner = shape[-1] == 1 or len(shape) - 1 in reduction.axes
        reduced = node.operands[: reduction.operands]
        reads, nodes, _ = self._expression(node, reduced, shape)
        # A reduction over leading axes walks its operand in another order than the one
        # that the operand has in memory. Loops can be reordered to match, so that this
        # does not prevent fusion.
        if not fusible.are_trailing(shape, reduction.axes):
            turned: Index = ((PERMUTED, reduction.axes),)
            reads = {Read(r.buffer, r.index + turned): n for r, n in reads.items()}
        made = self._result(node, reduction, rows)
        parts = 1
        # Too few rows would leave SMs idle, so that parts of rows are reduced first. A
        # scan (no `results`) cannot be split: each element needs all those before it.
        if self.sm_count and reduction.results:
            parts = fusible.splits(rows, columns, inner=inner, sm_count=self.sm_count)
        if parts > 1:
            partial = Buffer(f"{x.name}.parts", made.nbytes * parts, _F32)
            space = (rows * parts, -(-columns // parts))
            self._step(node, reads, partial, space, nodes=nodes, inner=inner)
            # The first kernel computes the operand; the second must not count its work.
            reads, nodes, columns = {Read(partial): partial.nbytes}, (), parts
        space = (rows, columns)
        own = (*nodes, node)
        self._step(node, reads, made, space, nodes=own, inner=inner, reduces=True)
        # The result of a norm or a softmax is a pointwise loop, which may be fused into
        # its readers: only the numbers per row need to be in memory.
        if made.value is None:
            self._normalize(node, made)

    def _result(self, node: Node, reduction: fusible.Reduction, rows: int) -> Buffer:
        """Return the buffer of a reduction: the op's result, or numbers per row."""
        value = node.results[0]
        if reduction.normalizes and reduction.results:
            return Buffer(f"{value.name}.rows", 4 * rows * reduction.results, _F32)
        return self._buffer(value)

    def _normalize(self, node: Node, numbers: Buffer) -> None:
        """Compute the op's result of operand 0, the numbers and the weights."""
        shape = self._shape(node.operands[0])
        reads, nodes, ops = self._expression(node, node.operands, shape)
        reads[Read(numbers, ((ROWS,),))] = numbers.nbytes
        result, *statistics = node.results
        self._define(result, reads, (*nodes, node), ops + 5)
        for value in statistics:
            self._define(value, {Read(numbers): numbers.nbytes}, (), 1)

    def _step(  # noqa: PLR0913 - a step has this many parts
        self,
        node: Node,
        reads: Reads,
        made: Buffer,
        space: tuple[int, int],
        *,
        nodes: tuple[Node, ...],
        inner: bool = True,
        reduces: bool | None = None,
    ) -> None:
        self.steps.append(
            Step(
                order=len(self.steps),
                rows=space[0],
                columns=space[1],
                reads=reads,
                writes=(made,),
                nodes=nodes or (node,) if reduces is None else nodes,
                reduces=space[1] > 1 if reduces is None else reduces,
                inner=inner,
            )
        )

    def _join(self, node: Node) -> None:
        """Join in one loop, or let every operand be written into its place."""
        # Empty tensors contribute nothing and would count against `_MAX_CAT`.
        operands = [v for v in node.operands if math.prod(self._shape(v))]
        tensors = [self._view(value).tensor for value in operands]
        lowered = [t.buffer is None or _has_own_memory(t) for t in tensors]
        users = self.graph.readers(node.results[0])
        # A result of BLAS or cuDNN is in memory already, so that reading it in a loop
        # saves a copy only if the readers are loops that the join is fused into.
        as_loop = all(lowered) or (any(lowered) and all(map(fusible.is_loop, users)))
        if len(operands) <= _MAX_CAT and as_loop:
            self._join_in_loop(node, operands)
            return
        # Otherwise no kernel joins anything: each operand is written to its place in
        # the buffer of the whole, and readers read the places.
        pairs = zip(operands, lowered, strict=True)
        places = [self._placed(node, value, copied=copied) for value, copied in pairs]
        reads = {Read(p, ((node.op, i),)): p.nbytes for i, p in enumerate(places)}
        tensor = self._define(node.results[0], reads, (), 0)
        tensor.parts = tuple(places)

    def _join_in_loop(self, node: Node, operands: Sequence[Value]) -> None:
        reads: dict[Read, int] = {}
        nodes: dict[Node, None] = {}
        ops = 0
        for value in operands:
            view = self._view(value)
            reads.update(self._reads(value, ((node.op, value.name),), None))
            nodes.update(dict.fromkeys(view.tensor.nodes))
            ops += view.tensor.ops + fusible.LOOPS["where"]
        self._define(node.results[0], reads, (*nodes, node), ops)

    def _placed(self, node: Node, value: Value, *, copied: bool) -> Buffer:
        """Write one operand of a join into its place; a GEMM does so itself."""
        view = self._view(value)
        tensor = view.tensor
        single = len(self.graph.uses(value)) == 1 and not view.index
        if tensor.buffer is not None and not copied and single:
            return tensor.buffer
        whole, dtype = node.results[0], tensor.type.dtype
        place = Buffer(f"{whole.name}.{value.name}", self._bytes(value), dtype, whole)
        space = (math.prod(self._shape(value)), 1)
        own = (*tensor.nodes, node) if tensor.buffer is None else (node,)
        self._step(node, self._reads(value, (), None), place, space, nodes=own)
        return place

    def _call(self, node: Node) -> None:
        """Call an outside kernel: what it reads and writes is in memory."""
        reads: dict[Read, int] = {}
        for value in node.operands:
            if value not in self.known and not fusible.is_number(value):
                for buffer in self.realize(value):
                    reads[Read(buffer)] = buffer.nbytes
        # Whether a loop adds the bias: of a convolution always.
        # Of a GEMM in fp32, if only loops read it (`unfuse_bias_add_to_pointwise` in
        # `fx_passes/post_grad.py`).
        if len(node.operands) <= _BIAS or not node.results:
            unfused = False
        elif fusible.adds_bias_apart(node):
            unfused = node.attributes.get("dtype") is None
        else:
            narrow = self.types[node.results[0]].dtype.bits <= _HALF_BITS
            if (
                not node_kinds.is_linear(node)
                or narrow
                or node.results[0] in self.outputs
            ):
                unfused = False
            else:
                unfused = self._only_loops_read(node.results[0])
        made = tuple(self._buffer(value) for value in node.results)
        self.steps.append(
            Step(
                order=len(self.steps),
                reads=reads,
                writes=made,
                nodes=(node,),
                outside=node,
            )
        )
        if unfused:
            self.without_bias.add(node)
            self._add_bias(node, made[0])

    def _add_bias(self, node: Node, gemm: Buffer) -> None:
        value, bias = node.results[0], node.operands[_BIAS]
        entry: Index = (("broadcast", node.op),)
        reads = {Read(gemm): gemm.nbytes, **self._reads(bias, entry, None)}
        self._define(value, reads, (node,), 1)

    def _only_loops_read(self, value: Value) -> bool:
        users = self.graph.readers(value)
        looks = [node for node in users if fusible.is_reindexing(node)]
        if value in self.outputs or not all(
            fusible.is_reindexing(n) or fusible.is_loop(n) for n in users
        ):
            return False
        return all(self._only_loops_read(node.results[0]) for node in looks)

    def realize(self, value: Value) -> tuple[Buffer, ...]:
        """Put a value into memory; return the buffers that hold it."""
        tensor = self._view(value).tensor
        if tensor.buffer is not None:
            return (tensor.buffer,)
        if tensor.parts:
            return tensor.parts
        tensor.buffer = buffer = self._buffer(tensor.value, enter=False)
        space = (math.prod(self._shape(tensor.value)), 1)
        node = tensor.value.producer
        assert node is not None  # inputs are buffers
        self._step(node, tensor.reads, buffer, space, nodes=tensor.nodes or (node,))
        tensor.reads, tensor.nodes, tensor.ops = {}, (), 0
        return (buffer,)

    def keep(self, value: Value) -> None:
        """Put a value into memory for somebody who reads it later."""
        if value in self.known or fusible.is_number(value):
            return
        for buffer in self.realize(value):
            buffer.needed = True

    def _realize_by_use(self, node: Node) -> None:
        """Put a result into memory where computing it again costs more."""
        for value in node.results:
            view = self._views.get(value)
            if view is not None and self._is_worth_memory(value, view.tensor):
                self.realize(value)

    def _is_worth_memory(self, value: Value, tensor: Tensor) -> bool:
        if tensor.buffer is not None or tensor.parts:
            return False
        # An expression is computed again for every reader, so the thresholds are lower
        # where there are several.
        large, reads = tensor.ops > _REALIZE_OPS, len(tensor.reads)
        uses = [use.node.op for use in self.graph.uses(value)]
        often = len(uses) > 1 or not fusible.READ_TWICE.isdisjoint(uses)
        if often and (large or reads > _REALIZE_READS):
            return True
        # Otherwise an expression with one read costs no more traffic than a buffer
        # would, so that a write does not pay. Large ones are written even for one
        # reader, because the code of a kernel must not grow without bound.
        wanted = often and not fusible.REALIZES.isdisjoint(uses)
        return reads > 1 and (wanted or large or reads > _REALIZE_READS_OF_ONE)

    def _view(self, value: Value) -> View:
        """Return the view of a value: one from elsewhere is in memory."""
        view = self._views.get(value)
        if view is None:
            self._buffer(value)
            view = self._views[value]
        return view

    def _buffer(self, value: Value, *, enter: bool = True) -> Buffer:
        type_ = self.types[value]
        buffer = Buffer(value.name, int(type_.nbytes), type_.dtype, value)
        if enter:
            self._views[value] = View(Tensor(value, type_, {}, buffer=buffer))
        return buffer

    def _shape(self, value: Value) -> tuple[int, ...]:
        return tuple(map(bound, self.types[value].shape))

    def _bytes(self, value: Value) -> int:
        return int(self.types[value].nbytes)


def _has_own_memory(tensor: Tensor) -> bool:
    """Whether a kernel allocates its result itself: all but BLAS and convolutions."""
    node = tensor.value.producer
    gemms = ("linear", "matmul", "conv", "conv_transpose")
    return node is None or node.op not in gemms
