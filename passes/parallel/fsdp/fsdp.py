"""The pass `fsdp`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from perfc import ir
from perfc.ir import node_kinds
from perfc.ir.dims import ceil_div, total
from perfc.ir.location import Location
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import Pass, PassContext, Phase, Transform
from perfc.passes.facts import TYPED
from perfc.passes.parallel.data import Replicas
from perfc.passes.parallel.fsdp import parameter_dtype
from perfc.passes.parallel.fsdp.fsdp_units import repeated_blocks, told_units, unit_of
from perfc.passes.parallel.fsdp.regather import Regather
from perfc.passes.shapes import Inference
from perfc.passes.training import trained

STREAM = "fsdp"
"""Stream of the communicator that shares parameters."""

ACROSS = f"{STREAM}.nodes"
"""Stream of the one between nodes, a `ProcessGroup` of its own: what it adds up runs
beside the next gather."""

FULL, GRAD_OP, HYBRID = "full", "grad-op", "hybrid"
STRATEGIES = (FULL, GRAD_OP, HYBRID)


@attrs.frozen
class Fsdp(Transform):
    """Share the parameters of each unit of a model among ranks, as PyTorch's FSDP.

    The parameters of a unit lie in one flat tensor, of which each rank has an equal
    part. It is gathered before the unit; `training`, after this pass, derives
    that gradients are scattered as soon as the unit's are complete, and that the
    optimizer steps on parts. The units are the modules that `wrap` names, each with
    what is below it; all other parameters are those of the root.

    It runs before `training`, which the pass `regather` follows for `full` and
    `hybrid`: gathered parameters are forgotten after forward and gathered again in
    backward (ZeRO-3); with `grad-op` they stay (ZeRO-2). Tables of embedding bags are
    not shared: `shard-embeddings` shards them.

    Attributes:
        ranks: How many ranks there are.
        strategy: `full`, `grad-op`, or `hybrid`: shared inside nodes, and gradients
            all-reduced between them.
        wrap: Path of the units, as `transformer.h.*`, where a star stands for one part;
            if empty, the repeated blocks of all lists of modules with parameters.
        per_node: Ranks of a node, for `hybrid`.
        prefetch: When `regather` gathers again: `pre`, before the unit before it
            in backward, or `none`, before the unit itself.
        param_dtype: `bf16` or `fp16`: mixed precision (`MixedPrecision.param_dtype`).
            The rank's part is cast before it is gathered, and the model computes in
            that type; parts, their gradients and the optimizer's states keep theirs.
            With autocast the pass comes before `convert-dtype`.
        reduce_dtype: `bf16`, `fp16` or `fp32`: what gradients are reduced in; if
            empty, the type that the model computes in.

    """

    name: ClassVar[str] = "fsdp"
    phase: ClassVar[Phase] = Phase.FORWARD
    shares: ClassVar[str] = "batch"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED})

    ranks: int
    strategy: str = FULL
    wrap: str = ""
    per_node: int = 8
    prefetch: str = "pre"
    param_dtype: str = ""
    reduce_dtype: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        least = 2
        if self.ranks < least:
            msg = f"ranks={self.ranks} of {self.name}: expected at least {least}"
            raise ir.UsageError(msg)
        self._check_words()
        if self.strategy == HYBRID and (
            self.per_node < least or self.ranks % min(self.per_node, self.ranks)
        ):
            msg = (
                f"per-node={self.per_node} of {self.name}: {self.ranks} ranks do not "
                "go evenly onto nodes of 2 or more"
            )
            raise ir.UsageError(msg)

    def _check_words(self) -> None:
        for option, value, known in (
            ("strategy", self.strategy, STRATEGIES),
            ("prefetch", self.prefetch, ("pre", "none")),
            ("param-dtype", self.param_dtype, tuple(parameter_dtype.PARAM_DTYPES)),
            ("reduce-dtype", self.reduce_dtype, tuple(parameter_dtype.REDUCE_DTYPES)),
        ):
            if value not in known:
                listed = ", ".join(filter(None, known))
                msg = f"{option}={value!r} of {self.name}: expected {listed}"
                raise ir.UsageError(msg)

    def brings(self, others: Sequence[Pass]) -> Sequence[Pass]:
        """Let a training step forget what it gathered, and gather it again."""
        known = {p.name for p in others}
        if self.regathers and "training" in known and Regather.name not in known:
            return (Regather(self.prefetch),)
        return ()

    @property
    def regathers(self) -> bool:
        """Whether parameters are forgotten after forward."""
        return self.strategy != GRAD_OP

    def run(self, program: ir.Program, ctx: PassContext) -> ir.Program:
        """Share the parameters of every rank class."""
        replicas = Replicas.of(program, self.ranks, self.name)
        for rank in replicas.program.classes:
            graph = _checked(program, rank.ops)
            groups = self._communicators(replicas.communicator("fsdp", rank))
            units = self._units(graph)
            # Let the graph compute in its type; return what parameters are stored in.
            shared = [value for values in units.values() for value in values]
            stored = {value: graphs.typed(value).dtype for value in shared}
            low = parameter_dtype.PARAM_DTYPES[self.param_dtype]
            if low is not None:
                apart = [value for value in trained(graph) if value not in stored]
                parameter_dtype.compute_in(graph, low, shared, apart)
            tape = graphs.Tape(graph, Inference(graph, BUILTIN_OPS))
            tape.constants = self.name
            sharing = _Sharing(
                tape, groups, stored, parameter_dtype.REDUCE_DTYPES[self.reduce_dtype]
            )
            sharing.write(units)
            names = [name for name in units if name]
            ctx.note("fsdp-units", told_units(names))
        return replicas.program

    def _communicators(
        self, whole: Mapping[str, ir.AttrValue]
    ) -> list[Mapping[str, ir.AttrValue]]:
        """Return who shares parameters, and who has equal parts of them."""
        stride = whole.get("stride", 1)
        if self.strategy != HYBRID or self.per_node >= self.ranks:
            return [{**whole, "stream": STREAM}]
        assert isinstance(stride, int)  # made here
        group = str(whole["group"])
        sharing = {**whole, "ranks": self.per_node, "stream": STREAM}
        across: dict[str, ir.AttrValue] = {
            "group": f"{group}.nodes",
            "ranks": self.ranks // self.per_node,
            "stride": stride * self.per_node,
            "stream": ACROSS,
        }
        return [sharing, across]

    def _units(self, graph: ir.Graph) -> dict[str, list[ir.Value]]:
        """Sort parameters by unit: path and parameters; "" is the root."""
        parameters = _shared_parameters(graph)
        names = [parameter.name for parameter in parameters]
        patterns = [self.wrap] if self.wrap else repeated_blocks(names)
        units: dict[str, list[ir.Value]] = {}
        for parameter in parameters:
            units.setdefault(unit_of(parameter.name, patterns), []).append(parameter)
        if self.wrap and not any(units):
            msg = f"no module of {graph} that has parameters fits wrap={self.wrap!r}"
            raise ir.UsageError(msg)
        return units


def _checked(program: ir.Program, graph: ir.Graph | None) -> ir.Graph:
    """Return a graph that parameters can be shared of."""
    if graph is None:
        msg = f"{program} is given as launches: it has no parameters"
        raise UnsupportedModelError(msg)
    if graphs.is_training_step(graph):
        msg = f"{graph} has a backward pass already; fsdp comes before training"
        raise ir.UsageError(msg)
    return graph


def _shared_parameters(graph: ir.Graph) -> list[ir.Value]:
    """Return the parameters that are shared: all but sharded tables."""
    tables: set[ir.Value] = set()
    for node in graph:
        if not node_kinds.is_embedding_bag(node):
            continue
        records = node.attributes.records("tables")
        if any("sharding" not in record for record in records):
            msg = (
                f"{node}: fsdp does not share tables of embedding bags; shard them "
                "first: --pass shard-embeddings"
            )
            raise UnsupportedModelError(msg)
        tables.update(node.operands[: len(records)])
    found = [v for v in trained(graph) if v not in tables and graphs.typed(v).numel]
    if not found:
        msg = f"{graph} has no parameters to share"
        raise UnsupportedModelError(msg)
    return found


@attrs.frozen(eq=False)
class _Sharing:
    """Puts flat parts in place of parameters.

    Attributes:
        tape: Where the graph is written.
        groups: Communicators: of who shares, and of who has equal parts.
        stored: What type each parameter is stored in.
        reduced: What gradients are reduced in; None for their own type.

    """

    tape: graphs.Tape
    groups: Sequence[Mapping[str, ir.AttrValue]]
    stored: Mapping[ir.Value, ir.DType]
    reduced: ir.DType | None

    def write(self, units: Mapping[str, Sequence[ir.Value]]) -> None:
        """Gather each unit before its first reader."""
        tape, graph = self.tape, self.tape.graph
        unit_of = {value: name for name, values in units.items() for value in values}
        left = {name: list(values) for name, values in units.items()}

        def step(node: ir.Node) -> None:
            read = {unit_of[v]: None for v in node.operands if v in unit_of}
            for name in read:
                values = left.pop(name, None)
                if values is not None:
                    tape.location = Location(module=name)
                    for kind in dict.fromkeys(self.stored[v] for v in values):
                        same = [v for v in values if self.stored[v] == kind]
                        self._gather(name or "root", same, kind)

        graph.rewrite(step)
        graph.erase_unused_parameters()

    def _gather(self, name: str, values: Sequence[ir.Value], stored: ir.DType) -> None:
        """Gather one flat tensor, and let all readers read views of it."""
        tape, graph = self.tape, self.tape.graph
        sizes = [int(graphs.typed(value).numel) for value in values]
        ranks = self.groups[0]["ranks"]
        assert isinstance(ranks, int)  # made here
        part = ceil_div(total(sizes), ranks)
        padding = part * ranks - sum(sizes)
        flat = graph.add_parameter(
            graph.fresh_name(f"{name}.flat"), ir.TensorType(stored, (part,))
        )
        tape.stem = f"{name}.fsdp"
        whole = self._gathered(flat, graphs.typed(values[0]).dtype)
        if padding:
            sizes.append(padding)
        pieces: Sequence[ir.Value] = (whole,)
        if len(sizes) > 1:
            pieces = tape.ops("split", len(sizes), whole, axis=0, sizes=tuple(sizes))
        for value, piece in zip(values, pieces, strict=False):
            tape.stem = f"{value.name}.fsdp"
            view = tape.reshape(piece, *graphs.typed(value).shape)
            graph.replace_uses(value, view)

    def _gathered(self, part: ir.Value, dtype: ir.DType) -> ir.Value:
        """Gather parts in a type; gradients of equal parts are reduced likewise."""
        tape = self.tape
        if graphs.typed(part).dtype != dtype:
            # A gradient is cast back where the last that adds it up has left it.
            stream = graphs.cast_stream(str(self.groups[-1]["stream"]))
            part = tape.op("cast", part, dtype=dtype, stream=stream)
        for across in self.groups[1:]:
            part = tape.op("replicated", part, **across)
        reduced: dict[str, ir.AttrValue] = {}
        if self.reduced not in (None, dtype):
            reduced["reduce_dtype"] = self.reduced
        return tape.op("all_gather", part, **self.groups[0], **reduced)
