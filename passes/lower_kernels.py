"""The pass `lower-kernels`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import attrs

from perfc.costmodels import Target
from perfc.ir import (
    AnyKey,
    AttrValue,
    Expr,
    Graph,
    LaunchGraph,
    LaunchOp,
    MemorySpace,
    Node,
    Program,
    RankClass,
    Record,
    TaskKind,
    TensorType,
    UnboundSymbolError,
    UsageError,
    Value,
    VerifyError,
    evaluate,
    symbols_of,
)
from perfc.passes.base import Pass, PassContext
from perfc.passes.eager import (
    DEVICE_SYNC,
    STREAM_SYNC,
    Eager,
    Launch,
    Layout,
    Settings,
    Site,
    Tensor,
    dtype_name,
)
from perfc.passes.eager_launches import FREE, eager_launches
from perfc.passes.eager_movement import memcpy_launch
from perfc.passes.facts import ELEMENTS, LAUNCHES, TYPED

INPUTS = ("host-pinned", "host-pageable", "device")
"""Where the inputs of an iteration are when it starts."""

_MAYBE_NOTHING = frozenset({"identity", "cast", "cast_like"})

THREAD = "main"
STREAM = "compute"


@attrs.frozen
class LowerKernels(Pass):
    """Turn each op graph into what eager PyTorch launches for one iteration.

    An iteration copies the inputs to the device, runs the ops in order on one
    stream and waits for the device. Parameters are on the device already. Ops
    whose results are known without running do not exist in eager PyTorch, nor do
    identities and casts to the same type. A rank class that already is a launch
    graph stays as it is.

    Attributes:
        inputs: Where the inputs are: `host-pinned` (copied while the host goes
            on), `host-pageable` (the host waits for each copy), or `device`.
        tf32: Whether fp32 products use TF32 where the target has it; PyTorch's
            default is not to.
        fused_bias: Whether the kernel of `linear` adds the bias, as PyTorch 2
            does; else a kernel copies the bias into the output first.

    Raises:
        UsageError: `inputs` is none of the three.
        UnboundSymbolError: dimensions have no number; all of them are named.

    """

    name: ClassVar[str] = "lower-kernels"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})

    inputs: str = "host-pinned"
    tf32: bool = False
    fused_bias: bool = True

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.inputs not in INPUTS:
            msg = f"inputs={self.inputs!r} of {self.name}: expected {', '.join(INPUTS)}"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Lower every op graph of the program."""
        check_bound(program)
        settings = self._settings(ctx.system)
        lowered = (
            self._lower(rank, program, ctx, settings) for rank in program.classes
        )
        ctx.set(LAUNCHES, program, tuple(lowered))

    def _settings(self, target: Target | None) -> Settings:
        rates: Iterable[str] = () if target is None else target.device.flops_per_s
        return Settings(
            "tf32" if self.tf32 and "tf32" in rates else "fp32",
            "fp64_tensor" if "fp64_tensor" in rates else "fp64",
            self.fused_bias,
        )

    def _lower(
        self,
        rank: RankClass,
        program: Program,
        ctx: PassContext,
        settings: Settings,
    ) -> LaunchGraph:
        if rank.launches is not None:
            return rank.launches
        if rank.ops is None:  # RankClass refuses it
            msg = f"ranks {rank.ranks} have no graph"
            raise VerifyError(msg)
        known = ctx.get(ELEMENTS, rank.ops)
        lowering = _Lowering(rank.ops.name, program.bindings, known, settings)
        if self.inputs != "device":
            lowering.copy_inputs(rank.ops, pinned=self.inputs == "host-pinned")
        lowering.lower(rank.ops)
        lowering.synchronize()
        return lowering.graph


@attrs.frozen(eq=False)
class _Lowered:
    """What a site became: enough to repeat it for an equal site.

    Attributes:
        name: Name of the op for the host.
        launches: Launches, each with the index of its kernel.
        results: The results, for the sites that read them.

    """

    name: str
    launches: tuple[tuple[Launch, int], ...]
    results: tuple[Tensor, ...]


@attrs.define(eq=False)
class _Lowering:
    """Makes one launch graph; equal sites are worked out once.

    Tensors and bound records are interned, so that a site is looked up by
    identity: an op graph of a hundred thousand nodes has few distinct sites.
    """

    name: str
    bindings: Mapping[str, int]
    known: Mapping[Value, object]
    settings: Settings
    graph: LaunchGraph = attrs.field(init=False)
    _thread: int = attrs.field(init=False)
    _stream: int = attrs.field(init=False)
    _tensors: dict[Value, Tensor] = attrs.field(factory=dict[Value, Tensor], init=False)
    _interned: dict[Tensor, Tensor] = attrs.field(
        factory=dict[Tensor, Tensor], init=False
    )
    _plain: dict[TensorType, Tensor] = attrs.field(
        factory=dict[TensorType, Tensor], init=False
    )
    _records: dict[Record, Record] = attrs.field(
        factory=dict[Record, Record], init=False
    )
    _memo: dict[tuple[object, ...], _Lowered] = attrs.field(
        factory=dict["tuple[object, ...]", _Lowered], init=False
    )

    def __attrs_post_init__(self) -> None:
        self.graph = LaunchGraph(self.name)
        self._thread = self.graph.thread(THREAD)
        self._stream = self.graph.stream(STREAM)

    def copy_inputs(self, graph: Graph, *, pinned: bool) -> None:
        """Copy each input that the graph reads on the device."""
        copies: dict[TensorType | None, _Lowered | None] = {}
        for value in graph.inputs:
            if value.type not in copies:
                copies[value.type] = self._input_copy(value, pinned=pinned)
            copy = copies[value.type]
            if copy is not None:
                self._emit(copy, value.name)

    def _input_copy(self, value: Value, *, pinned: bool) -> _Lowered | None:
        """Return the copy of an input, or None if it is on the device or empty."""
        type_ = self._result(value).type
        nbytes = int(type_.nbytes)
        if type_.space is not MemorySpace.DEVICE or not nbytes:
            return None
        dtype = dtype_name(type_.dtype)
        launch = memcpy_launch(nbytes, "h2d", pinned=pinned, dtype=dtype)
        return _Lowered("aten::to", ((launch, self.graph.intern(launch.kernel)),), ())

    def lower(self, graph: Graph) -> None:
        """Lower every node, in order."""
        weights: dict[TensorType | None, Tensor] = {}
        for value in graph.parameters:
            tensor = weights.get(value.type)
            if tensor is None:
                weight = attrs.evolve(self._result(value), parameter=True)
                tensor = weights[value.type] = self._intern(weight)
            self._tensors[value] = tensor
        for node in graph:
            if node.op in FREE or self._is_known(node):
                continue
            if node.op in _MAYBE_NOTHING and self._is_nothing(node):
                self._tensors[node.results[0]] = self._tensor(node.operands[0])
                continue
            lowered = self._lowered(node)
            self._tensors.update(zip(node.results, lowered.results, strict=True))
            name = node.results[0].name if node.results else node.location.name
            self._emit(lowered, name)

    def _is_known(self, node: Node) -> bool:
        """Whether all results are shape arithmetic: Python integers in eager."""
        for value in node.results:
            if value not in self.known:
                return False
        return bool(node.results)

    def _is_nothing(self, node: Node) -> bool:
        """Whether the result is the operand: exporters write casts to its own type."""
        x, y = self._tensor(node.operands[0]), self._result(node.results[0])
        return node.op == "identity" or x.type.dtype == y.type.dtype

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        graph = self.graph
        last = _last_device_task(graph)
        op = graph.add_op(LaunchOp(DEVICE_SYNC))
        graph.task(TaskKind.SYNC, self._thread, op=op, after=last, detail=DEVICE_SYNC)

    def _lowered(self, node: Node) -> _Lowered:
        tensors = self._tensors
        operands = tuple([tensors.get(v) or self._tensor(v) for v in node.operands])
        results = tuple([self._result(value) for value in node.results])
        key = (node.op, node.attributes, operands, results)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._evaluate(node, operands, results)
        return found

    def _evaluate(
        self, node: Node, operands: tuple[Tensor, ...], results: tuple[Tensor, ...]
    ) -> _Lowered:
        attributes = self._bound(node.attributes)
        types = tuple(result.type for result in results)
        site = Site(node.op, attributes, operands, types, self.settings)
        eager = eager_launches(site)
        launches = tuple(
            (launch, self.graph.intern(launch.kernel)) for launch in eager.launches
        )
        laid_out = tuple(map(self._intern, _laid_out(eager, results)))
        return _Lowered(eager.name, launches, laid_out)

    def _emit(self, lowered: _Lowered, name: str) -> None:
        graph, thread, stream = self.graph, self._thread, self._stream
        op = graph.add_op(LaunchOp(lowered.name, name))
        for launch, kernel in lowered.launches:
            task = graph.launch(
                launch.kind,
                thread,
                stream,
                op=op,
                kernel=kernel,
                call=launch.call,
                detail=launch.detail,
                stated_s=launch.stated_s,
            )
            if launch.waits:
                graph.task(
                    TaskKind.SYNC, thread, op=op, after=(task,), detail=STREAM_SYNC
                )

    def _tensor(self, value: Value) -> Tensor:
        """Return what is known of a value that no lowered node made."""
        tensor = self._tensors.get(value)
        if tensor is None:
            tensor = self._result(value)
            if value in self.known:
                tensor = self._intern(attrs.evolve(tensor, known=True))
            self._tensors[value] = tensor
        return tensor

    def _result(self, value: Value) -> Tensor:
        type_ = value.type
        if type_ is None:
            msg = f"value {value} has no type; run shape-inference first"
            raise VerifyError(msg)
        tensor = self._plain.get(type_)
        if tensor is None:
            tensor = self._intern(Tensor(type_.bind(self.bindings)))
            self._plain[type_] = tensor
        return tensor

    def _intern(self, tensor: Tensor) -> Tensor:
        return self._interned.setdefault(tensor, tensor)

    def _bound(self, record: Record) -> Record:
        found = self._records.get(record)
        if found is None:
            found = bind_record(record, self.bindings)
            self._records[record] = found
        return found


def _laid_out(eager: Eager, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if not any(layout is not Layout.CONTIGUOUS for layout in eager.layouts):
        return results
    return tuple(
        attrs.evolve(result, layout=layout)
        for result, layout in zip(results, eager.layouts, strict=True)
    )


def _last_device_task(graph: LaunchGraph) -> tuple[int, ...]:
    for task in range(len(graph) - 1, -1, -1):
        if graph.kernel[task] != -1:
            return (task,)
    return ()


def bind_record(record: Record, bindings: Mapping[str, int]) -> Record:
    """Put numbers in place of the symbols of an attribute record."""
    if not record.is_symbolic:
        return record
    return Record({name: _bind(value, bindings) for name, value in record.items()})


def _bind(value: AttrValue, bindings: Mapping[str, int]) -> AttrValue:
    match value:
        case Expr():
            number: int = evaluate(value, bindings)
            return number
        case Record():
            return bind_record(value, bindings)
        case tuple():
            return tuple(_bind(item, bindings) for item in value)
        case _:
            return value


def check_bound(program: Program) -> None:
    """Raise one `UnboundSymbolError` that names every symbol without a number."""
    bindings = program.bindings
    dims = {
        dim
        for rank in program.classes
        if rank.ops is not None
        for value in rank.ops.values()
        if value.type is not None
        for dim in value.type.shape
        if isinstance(dim, Expr)
    }
    unbound = symbols_of(dims) - set(bindings)
    if unbound:
        names = sorted(unbound)
        advice = ", ".join(map(_advice, names))
        dimensions = "dimension has" if len(names) == 1 else "dimensions have"
        msg = f"{program.name}: {len(names)} {dimensions} no number; give {advice}"
        raise UnboundSymbolError(msg)


def _advice(name: str) -> str:
    batch_like = name.lower() in ("b", "n", "bs") or "batch" in name.lower()
    return f"--batch N (or --dim {name}=N)" if batch_like else f"--dim {name}=N"
