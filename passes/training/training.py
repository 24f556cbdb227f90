"""The pass `training`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import attrs

from perfc import ir
from perfc.ir.choices import OPTIMIZERS
from perfc.ir.dims import Dim
from perfc.ir.node_kinds import (
    is_embedding_bag,
)
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs, raising
from perfc.passes.autodiff import (
    GRADIENT_RULES,
    Backward,
    Rows,
    Tables,
    first_complex,
    is_split_lookup,
    needs_gradient,
)
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.shapes import Inference
from perfc.passes.training import prepare
from perfc.passes.training.joint_graph import take_gradients
from perfc.passes.training.loss import AUTO, LOSS, LOSSES, chosen_loss, write_loss
from perfc.passes.training.optimizer import (
    ONE_BY_ONE,
    ROWWISE,
    TAKE_ROWS,
    Parameters,
    check_masters,
    is_narrow,
    main_gradients,
    write_step,
    zero_gradients,
)

_NEVER = ", or give --pass 'training{sparse-gradients=never}'"
SPARSE = (AUTO, "always", "never")
"""Values of `sparse-gradients`: tables that get sparse gradients."""

WIDTHS = ("", "fp32")
"""Values of `masters` and `main-grads`: none, or of this type."""


@attrs.frozen
class Training(Transform):
    """Turn a forward graph into a training step; complete one without an optimizer.

    The loss, the backward pass and the optimizer are appended, op by op in the
    order in which eager PyTorch runs them. Gradients that no parameter needs are
    not computed. The loss compares the first output with `labels`, a new input.
    What inference has taken out of the graph stays out: dropout, but that of built-in
    workloads (`dropout=0.1`), and batch norms folded into convolutions.

    A graph that has a backward pass, and returns its gradients, gets the optimizer
    alone: they are outputs `w.grad` of a parameter `w`, as in a joint `.pt2` file.

    Attributes:
        optimizer: `sgd`, `adagrad`, `rowwise_adagrad`, `adam` or `adamw`, as
            `torch.optim` sets them up by default. Row-wise Adagrad keeps one number
            a row of an embedding bag's table, and is Adagrad for everything else.
        loss: `bce`, `bce_with_logits`, `cross_entropy`, `mse`, `sum`, or `auto`:
            `bce` of probabilities, `cross_entropy` of logits, `mse` of the rest.
        fused: Whether the optimizer is one kernel over all parameters.
        foreach: Whether, if not, it takes all parameters in one call, PyTorch's
            default, or one after another (`sgd` and `adagrad`).
        late_labels: Whether labels are copied where the loss reads them, by
            `labels.to(device)`, and the host waits, not with the other inputs.
        read_loss: Whether the host reads the loss before backward, as `loss.item()`.
        kept_gradients: Whether gradients stay from step to step, zeroed one by one
            before backward, as `zero_grad(set_to_none=False)` does, PyTorch's default
            until 2.0, and are added to; else each step makes new ones.
        masters: `fp32`: the optimizer steps on copies of the parameters of 16 bits, its
            states and gradients have their type, and they are copied back, as
            mixed-precision optimizers of Megatron-LM, DeepSpeed and Apex do. PyTorch's
            own keep none, which is the default.
        main_grads: `fp32`: gradients of such parameters are added to sums in fp32 as
            soon as they are made, which stay from step to step and are zeroed, as
            Megatron-LM's `main_grad`.
        atomic_updates: Whether batched lookups update their tables in one kernel that
            adds lookup by lookup (`sgd`), as the batched embedding of DLRM before
            fbgemm did, whose kernels sort the lookups first.
        sparse_gradients: Whether embedding bags get sparse gradients: `always`,
            `never`, or `auto`: as the source notes it; if it does not, where the
            optimizer takes them.

    """

    name: ClassVar[str] = "training"
    phase: ClassVar[Phase] = Phase.DERIVE_BACKWARD
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})

    optimizer: str = "sgd"
    loss: str = AUTO
    fused: bool = False
    sparse_gradients: str = AUTO
    foreach: bool = True
    late_labels: bool = False
    read_loss: bool = False
    kept_gradients: bool = False
    atomic_updates: bool = False
    masters: str = ""
    main_grads: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        for option, value, known in (
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("loss", self.loss, (AUTO, *LOSSES)),
            ("sparse-gradients", self.sparse_gradients, SPARSE),
            ("masters", self.masters, WIDTHS),
            ("main-grads", self.main_grads, WIDTHS),
        ):
            if value not in known:
                listed = ", ".join(filter(None, known))
                msg = f"{option}={value!r} of {self.name}: expected {listed}"
                raise ir.UsageError(msg)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Refuse options that do not go with each other."""
        if self.main_grads and (not self.masters or self.kept_gradients):
            what = "without kept-gradients" if self.masters else "with masters=fp32"
            msg = f"main-grads={self.main_grads} of {self.name} goes {what}"
            raise ir.UsageError(msg)
        if self.sparse_gradients == "always" and self.optimizer not in TAKE_ROWS:
            msg = (
                f"{self.optimizer} takes no sparse gradients, as in PyTorch; "
                f"{', '.join(sorted(TAKE_ROWS))} do"
            )
            raise ir.UsageError(msg)
        if self.atomic_updates and self.optimizer != "sgd":
            msg = (
                f"atomic-updates of {self.name} goes with sgd, which has no state, not "
                f"with {self.optimizer}"
            )
            raise ir.UsageError(msg)
        if not self.foreach and (self.fused or self.optimizer not in ONE_BY_ONE):
            kind = "fused " * self.fused + self.optimizer
            msg = (
                f"foreach=false of {self.name} goes with "
                f"{', '.join(sorted(ONE_BY_ONE))}, one parameter after another, not "
                f"with {kind}"
            )
            raise ir.UsageError(msg)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Extend every op graph."""
        for rank in program.classes:
            if rank.ops is None:
                msg = f"{program.name}: a launch graph has no ops to train"
                raise UnsupportedModelError(msg)
            self._extend(rank.ops, ctx, from_file=bool(program.sha256))

    def _extend(self, graph: ir.Graph, ctx: PassContext, *, from_file: bool) -> None:
        prepare.refuse_narrow_weights(graph)
        inference = Inference(graph, BUILTIN_OPS)
        known: Mapping[ir.Value, tuple[Dim, ...]] = ctx.get(ELEMENTS, graph)
        inference.elements.update(known)
        tape = graphs.Tape(graph, inference)
        if graphs.is_training_step(graph):
            self._complete(tape, ctx)
        else:
            self._derive(tape, ctx, from_file=from_file)
        ctx.set(TYPED, graph, True)
        ctx.set(ELEMENTS, graph, inference.elements)

    def _complete(self, tape: graphs.Tape, ctx: PassContext) -> None:
        """Add the optimizer to a step that returns its gradients."""
        given = (self.loss, self.sparse_gradients) != (AUTO, AUTO)
        loop = self.late_labels or self.read_loss or self.kept_gradients
        if given or loop or self.atomic_updates or bool(self.main_grads):
            msg = (
                f"{tape.graph}: is a training step already: {self.name} takes its loss "
                "and its gradients as they are, and only adds the optimizer"
            )
            raise UnsupportedModelError(msg)
        found = take_gradients(tape.graph)
        for table in found.rows:
            self._check_rows(str(table), "")
        self._write_step(tape, found)
        ctx.note(
            "training-step",
            f"a step with its loss and gradients; added the optimizer {self.optimizer}",
        )

    def _derive(self, tape: graphs.Tape, ctx: PassContext, *, from_file: bool) -> None:
        """Add loss, backward pass and optimizer to a forward graph."""
        graph = tape.graph
        self._prepare(tape, ctx)
        parameters = prepare.trained(graph)
        tables = Tables(
            self._sparse_tables(graph, frozenset(parameters)),
            self.optimizer if self.optimizer in ir.OPTIMIZER_STATES else "",
            self.atomic_updates,
        )
        if from_file:
            self._tell_assumed(graph, tables.rows, ctx)
        needing = needs_gradient(graph, frozenset(parameters))
        output = self._output(graph, needing, ctx)
        kind = chosen_loss(output) if self.loss == AUTO else self.loss
        # Whether a model computes in less than it is stored in.
        widest = max(
            (graphs.typed(parameter).dtype.bits for parameter in parameters), default=0
        )
        wide = graphs.typed(output).dtype.bits < widest
        place = graph.outputs.index(output)
        loss = write_loss(tape, output, kind, wide=wide, late_labels=self.late_labels)
        ctx.note(
            "training-step",
            f"the loss is {kind} of {graph.outputs[place]}, the optimizer "
            f"{self.optimizer}",
        )
        if self.read_loss:
            tape.effect("item", (loss,), f"{LOSS}.item")
        needing |= needs_gradient(graph, frozenset(parameters))
        kept, main = self._kept(tape, loss, parameters, tables)
        backward = Backward(
            tape, GRADIENT_RULES, needing, frozenset(parameters), tables, kept, main
        )
        grads = backward.run(loss)
        rows = {table: r for table, r in tables.rows.items() if r is not None}
        ordered = {
            p: grads[p] for p in parameters if p in grads and graphs.typed(p).numel
        }
        self._write_step(tape, Parameters(ordered, rows))
        graph.outputs = [*graph.outputs, loss]
        for op, value in backward.unknown.items():
            ctx.warn(
                "no-gradient-rule",
                f"the backward pass of {op!r} is not known: its gradients are costed "
                "by their bytes",
                str(value),
            )

    def _kept(
        self,
        tape: graphs.Tape,
        loss: ir.Value,
        parameters: Iterable[ir.Value],
        tables: Tables,
    ) -> tuple[dict[ir.Value, ir.Value], dict[ir.Value, ir.Value]]:
        """Zero the gradients that stay: those of the step before, and main ones."""
        if not self.kept_gradients and not self.main_grads:
            return {}, {}
        reached = _reached(tape.graph, loss, fused=bool(tables.fused))
        dense = [p for p in parameters if p in reached and p not in tables.rows]
        if self.main_grads:
            return {}, main_gradients(tape, [p for p in dense if is_narrow(p)])
        return zero_gradients(tape, dense), {}

    def _write_step(self, tape: graphs.Tape, found: Parameters) -> None:
        kind, fused, foreach = self.optimizer, self.fused, self.foreach
        graphs.require_updated_in_place(tape.graph, {*found.grads, *found.rows})
        if self.masters:
            check_masters(tape.graph, found)
        masters = bool(self.masters)
        write_step(tape, kind, found, fused=fused, foreach=foreach, masters=masters)

    def _prepare(self, tape: graphs.Tape, ctx: PassContext) -> None:
        graph = tape.graph
        raising.drop_elements(tape)
        raising.take_apart(tape)
        # Say that kernels of attention draw no random numbers here.
        kept = [node for node in graph if node.attributes.get("dropout")]
        if kept:
            ctx.note(
                "attention-dropout",
                f"{len(kept)} attentions drop weights within their kernel, which is "
                "priced "
                "as the one without",
                str(kept[0]),
            )
        raising.fold_batches(tape)
        raising.pair_einsums(tape)
        for node in raising.left_whole(graph):
            ctx.note(
                "calls-not-known",
                f"the source spells {node.op!r} out; its backward pass is that of one "
                "call",
                str(node),
            )
        prepare.turn_weights_back(graph)
        prepare.separate_vectors(graph, ctx)
        prepare.switch_to_training(graph)

    def _output(
        self, graph: ir.Graph, needing: set[ir.Value], ctx: PassContext
    ) -> ir.Value:
        found = [value for value in graph.outputs if value in needing]
        barrier = first_complex(graph, needing)
        if not found:
            raise UnsupportedModelError(prepare.nothing_to_train(graph, barrier))
        if barrier is not None:
            ctx.warn(
                "complex-gradients",
                f"gradients do not pass through complex numbers "
                f"({prepare.called(barrier)} makes the first): parameters have none "
                "from there",
                str(barrier),
            )
        if len(found) > 1:
            names = ", ".join(map(str, found[1:]))
            ctx.note(
                "training-outputs",
                f"only the first output has a loss; none of {names}",
            )
        return found[0]

    def _sparse_tables(
        self, graph: ir.Graph, parameters: frozenset[ir.Value]
    ) -> dict[ir.Value, Rows | None]:
        """Return the tables whose gradients are rows: looked up once, nowhere else."""
        tables: dict[ir.Value, Rows | None] = {}
        for node in graph:
            if not self._is_sparse(node.op, prepare.noted_sparse(node)):
                continue
            table = node.operands[0]
            if not _has_own_table(node) or table not in parameters:
                continue
            if len(graph.uses(table)) == 1:
                self._check_rows(str(node), _NEVER)
                tables[table] = None
        return tables

    def _tell_assumed(
        self, graph: ir.Graph, tables: Mapping[ir.Value, Rows | None], ctx: PassContext
    ) -> None:
        """Say which tables have sparse gradients though the file does not tell."""
        bags = [node for node in graph if node.operands and node.operands[0] in tables]
        silent = [node for node in bags if prepare.noted_sparse(node) is None]
        if silent and self.sparse_gradients == AUTO:
            names = ", ".join(dict.fromkeys(str(node.operands[0]) for node in silent))
            ctx.note(
                "sparse-assumed",
                f"the source does not say whether the gradients of {names} are sparse; "
                f"they are taken to be, as {self.optimizer} takes such: "
                "'training{sparse-gradients=never}' makes them dense",
            )

    def _is_sparse(self, op: str, noted: bool | None) -> bool:  # noqa: FBT001 - a fact
        bag = op == "embedding_bag"
        if self.sparse_gradients != AUTO or op not in ("embedding_bag", "gather"):
            return bag and self.sparse_gradients == "always"
        if noted is not None and self.optimizer != ROWWISE:
            return noted
        return bool(noted) or (bag and self.optimizer in TAKE_ROWS)

    def _check_rows(self, where: str, remedy: str) -> None:
        if self.optimizer not in TAKE_ROWS:
            msg = (
                f"{where}: the source asks for sparse gradients, which "
                f"{self.optimizer} does not take, as in PyTorch; choose "
                f"{', '.join(sorted(TAKE_ROWS))}{remedy}"
            )
            raise UnsupportedModelError(msg)


def _reached(graph: ir.Graph, loss: ir.Value, *, fused: bool) -> set[ir.Value]:
    """Return the values that *loss* depends on, but for tables that lookups update."""
    found = {loss}
    for node in reversed([*graph]):
        if found.isdisjoint(node.results):
            continue
        own = fused and is_embedding_bag(node) and is_split_lookup(node)
        skipped = len(node.attributes.records("tables")) if own else 0
        found.update(node.operands[skipped:])
    return found


def _has_own_table(node: ir.Node) -> bool:
    """Whether a lookup may have a sparse gradient: of one table, not sharded."""
    tables = node.attributes.records("tables")
    return len(tables) <= 1 and not any("sharding" in table for table in tables)
