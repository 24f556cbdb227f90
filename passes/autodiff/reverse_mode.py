"""Reverse mode: from a loss back to the parameters, as eager autograd goes.

Autograd runs the recorded ops by descending sequence number, which is the order of
the nodes reversed; a collective that is a `request` goes back as soon as all readers
have sent its gradient. What arrives at a value from several readers is added up, in
place where nothing else holds the memory of the sum so far, not even the tensor that it
is a view of; a parameter takes over the last of it, unless it is a view that parameters
must not be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from perfc.ir import AttrValue, Node, Value, node_kinds
from perfc.ir.dims import Dim, product
from perfc.ir.location import ACCUMULATE_GRAD, Location
from perfc.ir.opdef import Trait
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import graphs
from perfc.passes.autodiff.autograd_names import autograd_name, autograd_origin
from perfc.passes.autodiff.wanted_gradients import DETACH
from perfc.passes.embeddings import encoder

_WEIGHT = 1
_TURN = "TBackward0"
_VIEW = "ViewBackward0"


@attrs.frozen(eq=False)
class Rows:
    """A sparse gradient: rows of a table, and which rows of it they are."""

    indices: Value
    values: Value
    popularity: str = attrs.field(default="", kw_only=True)
    kept: float = attrs.field(default=1.0, kw_only=True)


@attrs.frozen(eq=False)
class Tables:
    """Destination of the gradients of embedding tables.

    Attributes:
        rows: Tables whose gradients are rows; a rule that meets one puts them here
            instead of returning a gradient.
        fused: The optimizer that the backward kernel of a batched lookup applies at
            once; "" for none.
        atomic: Whether it adds to rows lookup by lookup, without sorting them.

    """

    rows: dict[Value, Rows | None] = attrs.field(factory=dict["Value", "Rows | None"])
    fused: str = ""
    atomic: bool = False


@attrs.frozen(eq=False)
class Site:
    """One node whose operands want gradients.

    Attributes:
        tape: Where the rule writes.
        node: The node.
        grads: The gradient of each result; None where nothing wants that result.
        wanted: The operands that want one.
        tables: Destination of the gradients of tables.

    """

    tape: graphs.Tape
    node: Node
    grads: tuple[Value | None, ...]
    wanted: frozenset[int]
    tables: Tables

    @property
    def grad(self) -> Value:
        """The gradient of the first result; zeros, if only others have readers."""
        return self.grad_of(0)

    @property
    def x(self) -> Value:
        """Operand 0."""
        return self.node.operands[0]

    @property
    def y(self) -> Value:
        """Operand 1."""
        return self.node.operands[1]

    @property
    def out(self) -> Value:
        """Result 0."""
        return self.node.results[0]

    def grad_of(self, index: int) -> Value:
        """Return the gradient of a result; zeros, if nobody reads it."""
        grad = self.grads[index]
        if grad is None:
            return self.tape.full(graphs.typed(self.node.results[index]), 0.0)
        return grad

    def op(self, op: str, *operands: Value, **attributes: AttrValue) -> Value:
        """Write a node of one result."""
        return self.tape.op(op, *operands, **attributes)

    def by(self, op: str, x: Value, number: float) -> Value:
        """Write a node of a tensor and a number."""
        return self.tape.op(op, x, self.tape.number(x, number))

    def viewed(self, x: Value, *shape: Dim) -> Value:
        """View *x* in another shape, by a node of autograd's own."""
        tape, here = self.tape, self.tape.location
        tape.location = attrs.evolve(here, origin=autograd_origin(_VIEW, x))
        found = tape.reshape(x, *shape)
        tape.location = here
        return found

    def kept(self, *names: str) -> dict[str, AttrValue]:
        """Return those of the node's attributes that it has."""
        found = self.node.attributes
        return {name: found[name] for name in names if found.get(name) is not None}


Gradients: TypeAlias = Mapping[int, Value]
"""Gradients by the number of the operand; in the order in which autograd has them."""

Rule: TypeAlias = Callable[[Site], Gradients | None]
"""Writes the gradients of the operands that want one; None where it has no formula."""


@attrs.define(eq=False)
class Backward:
    """One walk from a loss back to the parameters.

    Attributes:
        tape: Where the gradients are written.
        rules: Rules by op name.
        needing: Values that want gradients.
        parameters: Those at which the walk ends.
        tables: What becomes of the gradients of tables.
        kept: Gradients of the steps before, by parameter, which new ones are added to.
        main: Sums in a wider type, by parameter, to which gradients are added at once.
        unknown: Names of ops without a rule that were met, and their first result.

    """

    tape: graphs.Tape
    rules: Mapping[str, Rule]
    needing: set[Value]
    parameters: frozenset[Value]
    tables: Tables
    kept: Mapping[Value, Value] = attrs.field(factory=dict[Value, Value])
    main: Mapping[Value, Value] = attrs.field(factory=dict[Value, Value])
    unknown: dict[str, Value] = attrs.field(factory=dict[str, Value], init=False)
    _pending: dict[Value, Value] = attrs.field(factory=dict[Value, Value], init=False)
    _views: set[Value] = attrs.field(factory=set[Value], init=False)
    _grads: dict[Value, Value] = attrs.field(factory=dict[Value, Value], init=False)
    _awaited: dict[Value, int] = attrs.field(factory=dict[Value, int], init=False)
    _answered: set[Node] = attrs.field(factory=set[Node], init=False)
    _ahead: dict[Node, dict[int, Value]] = attrs.field(
        factory=dict[Node, "dict[int, Value]"], init=False
    )
    """Gradients that nodes send which were computed ahead of their turn."""

    def run(self, loss: Value) -> Mapping[Value, Value]:
        """Return the dense gradient of each parameter that *loss* depends on."""
        nodes = [n for n in self.tape.graph if not self.needing.isdisjoint(n.results)]
        reached = self._reached(nodes, loss)
        self.tape.stem = f"{loss.name}.grad"
        self.tape.location = Location(phase=graphs.BACKWARD)
        self._pending[loss] = self.tape.full(graphs.typed(loss), 1.0)
        for node in reversed(reached):
            if node not in self._answered:
                self._step(node)
                self._answer_requests(node)
        return self._grads

    def _answer_requests(self, reader: Node) -> None:
        """Send the gradients of requests of which *reader* was the last to go back.

        The wait of a request stands before its first reader, so that its node of
        autograd is the next to run (TorchRec's `All2All_Pooled_Wait`); who reads the
        gradient runs in its own turn, as `All2All_Pooled_Req` waits for it there.
        """
        for value in dict.fromkeys(reader.operands):
            node = value.producer
            if node is None or not node.attributes.get("request"):
                continue
            if not self._awaited.get(value, 1):
                self._step(node)
                self._answered.add(node)

    def _reached(self, nodes: list[Node], loss: Value) -> list[Node]:
        """Return the nodes that *loss* depends on; count who sends gradients."""
        wanted = {loss}
        reached: list[Node] = []
        for node in reversed(nodes):
            if wanted.isdisjoint(node.results):
                continue
            reached.append(node)
            for value in [value for value in node.operands if value in self.needing]:
                wanted.add(value)
                self._awaited[value] = self._awaited.get(value, 0) + 1
        return reached[::-1]

    def _step(self, node: Node) -> None:
        # Every reader of the results comes later in forward, so all of them have sent
        # their part by now and the sums are complete.
        grads = tuple(self._pending.pop(value, None) for value in node.results)
        operands = enumerate(node.operands)
        wanted = frozenset(i for i, value in operands if value in self.needing)
        # A node that was computed ahead of its turn finds its gradients in `_ahead`.
        # One without any still counts as a sender below, since others wait for
        # `_awaited` of its operands to become 0.
        sent = self._ahead.pop(node, {})
        if any(grad is not None for grad in grads):
            site = Site(self.tape, node, grads, wanted, self.tables)
            # Whether a layer is the last to send a gradient that ranks all-reduce.
            x, producer = site.x, site.x.producer
            is_shared = producer is not None and producer.op == "replicated"
            is_layer = node_kinds.is_linear(site.node) and len(site.wanted) > 1
            if is_shared and is_layer and self._awaited.get(x) == 1:
                sent, wanted = self._around_sum(site), wanted - {0}
            else:
                sent = self._sent(site)
        # Handing over is a second loop, because a node may read one parameter twice:
        # its gradient is complete only when both operands have received theirs.
        for index in sorted(wanted):
            here = self.tape.location
            self._receive(node, index, sent.get(index))
            self.tape.location = here
        for index in sorted(wanted):
            self._hand_over(node.operands[index])

    def _around_sum(self, site: Site) -> dict[int, Value]:
        """Send the gradient of a layer's input, add it up, then compute the others.

        As Megatron's `LinearWithGradAccumulationAndAsyncCommunication`: what ranks add
        up is under way while the GEMM that is the weight's gradient runs.
        """
        # The order of nodes is the order of issue: the gradient of the input has to
        # come first for its all-reduce to start, and that of the weight after the
        # all-reduce to run beside it. So the node that would issue it is stepped ahead
        # of its turn.
        node, shared = site.node, site.x.producer
        assert shared is not None  # asked before
        width = graphs.typed(site.out).shape[-1]
        self._locate(node)
        rows = product(graphs.typed(site.out).shape[:-1])
        site = attrs.evolve(site, grads=(site.viewed(site.grad, rows, width),))
        sent = self._sent(attrs.evolve(site, wanted=frozenset((0,))))
        self._receive(node, 0, sent.get(0))
        grads = (self._pending.pop(site.x, None),)
        above = Site(self.tape, shared, grads, frozenset((0,)), self.tables)
        self._ahead[shared] = self._sent(above)
        return self._sent(attrs.evolve(site, wanted=site.wanted - {0}))

    def _sent(self, site: Site) -> dict[int, Value]:
        """Apply the rule of a node; make gradients what its operands are."""
        node = site.node
        self._locate(node)
        rule = self.rules.get(node.op)
        found = None if rule is None else rule(site)
        if found is None:
            self.unknown.setdefault(node.op, node.results[0])
            found = _unknown(site)
        return {
            index: self._fitted(node, grad, node.operands[index])
            for index, grad in found.items()
            if index in site.wanted
        }

    def _locate(self, node: Node) -> None:
        """Write what follows as the gradient of a node."""
        self.tape.stem = node.results[0].name
        name = autograd_name(node, self.tables.fused)
        origin = autograd_origin(name, node.results[0])
        self.tape.location = attrs.evolve(
            node.location, phase=graphs.BACKWARD, origin=origin
        )

    def _fitted(self, node: Node, grad: Value, value: Value) -> Value:
        """Give the gradient that *node* sends the shape and element type of *value*.

        As `validate_outputs` of PyTorch's engine does: under autocast a sum of both
        types sends fp32 to the GEMM that it reads. To autograd what is encoded on
        its way is no tensor: its gradient has a format of its own. What ranks reduce
        has the type that they reduce it in until it comes to the parameter.
        """
        if encoder(value) is not None:
            return grad
        like = graphs.typed(value)
        grad = self.tape.summed(grad, like.shape)
        added_up = node_kinds.has_trait(node, Trait.SUMMED_GRADIENT)
        on_its_way = added_up and value not in self.parameters
        if on_its_way or graphs.typed(grad).dtype == like.dtype:
            return grad
        if not added_up:
            return self.tape.op("cast", grad, dtype=like.dtype)
        stream = graphs.gradient_stream(
            graphs.cast_stream(node.attributes.text("stream", ""))
        )
        return self.tape.op("cast", grad, dtype=like.dtype, stream=stream)

    def _receive(self, node: Node, index: int, grad: Value | None) -> None:
        """Add up what *node* sends to an operand.

        A linear layer reads a view of its weight, so the GEMM that is the gradient
        goes through `TBackward0`, though nothing here has to turn it.
        """
        value = node.operands[index]
        if grad is not None and _reads_turned(node, index):
            origin = autograd_origin(_TURN, node.results[0])
            self.tape.location = attrs.evolve(self.tape.location, origin=origin)
            grad = self.tape.op("alias", grad, call="aten::t")
        self._awaited[value] -= 1
        held = self._pending.get(value)
        if grad is not None and held is not None:
            grad = self._added(value, held, grad)
        elif grad is not None and _arrives_as_view(grad):
            self._views.add(value)
        if grad is not None:
            self._pending[value] = grad

    def _hand_over(self, value: Value) -> None:
        """End the walk at a parameter whose gradient is complete."""
        if value in self.parameters and not self._awaited[value]:
            last = self._pending.pop(value, None)
            if last is not None:
                self._grads[value] = self._owned(value, last)

    def _added(self, value: Value, held: Value, grad: Value) -> Value:
        """Add *grad* to the sum so far: see `accumulate` of PyTorch's InputBuffer."""
        # The first gradient may be a view that autograd holds together with its base.
        # After the addition the sum is a tensor of its own, so only the first one
        # counts.
        free = value not in self._views and self._is_free(value, held)
        in_place: dict[str, AttrValue] = {"in_place": True} if free else {}
        self._views.discard(value)
        return self.tape.op("add", held, grad, **in_place)

    def _is_free(self, value: Value, held: Value) -> bool:
        """Whether the sum so far is dense and nothing else will be read from it."""
        # Writing into memory that another pending gradient shares would change that
        # one: the gradient of an addition, for example, is sent to both of its
        # operands.
        source = _storage(held)
        if source is None:
            return False
        return not any(
            _storage(other) is source
            for holder, other in (*self._pending.items(), *self._grads.items())
            if holder is not value
        )

    def _owned(self, parameter: Value, grad: Value) -> Value:
        """Hand a parameter its gradient, as a node of autograd's own does.

        Copied is what a parameter must not take over: see `AccumulateGrad`. It is added
        to a gradient that the parameter has.
        """
        tape, here = self.tape, self.tape.location
        tape.location = attrs.evolve(here, origin=ACCUMULATE_GRAD)
        name = tape.graph.fresh_name(f"{parameter.name}.grad")
        kept = self.kept.get(parameter)
        if kept is not None:
            added: dict[str, AttrValue] = {"in_place": True}
            owned = tape.node("add", (kept, grad), [name], added)
        elif self._is_free(parameter, grad) and not _is_turned(grad):
            owned = tape.node("alias", (grad,), [name], {"call": DETACH})
        else:
            owned = tape.node("copy", (grad,), [name], {})
        found = owned.results[0]
        main = self.main.get(parameter)
        if main is not None:
            name = tape.graph.fresh_name(f"{main.name}.add")
            in_place: dict[str, AttrValue] = {"in_place": True}
            found = tape.node("add", (main, found), [name], in_place).results[0]
        tape.location = here
        return found


def _arrives_as_view(grad: Value) -> bool:
    """Whether autograd sends a view, which keeps the tensor that it is a view of."""
    producer = grad.producer
    return producer is not None and node_kinds.is_view(producer)


def _reads_turned(node: Node, index: int) -> bool:
    is_weight = node_kinds.is_linear(node) and index == _WEIGHT
    return is_weight and not node.attributes.flag("weight_is_kn")


def _storage(value: Value) -> Value | None:
    """Return the result whose memory *value* is; None for one with holes or repeats."""
    while (node := value.producer) is not None:
        view, in_place = BUILTIN_OPS[node.op].view, node.attributes.get("in_place")
        if view is None and not in_place:
            return value
        source = node.operands[view or 0]
        if graphs.typed(source).numel != graphs.typed(value).numel:
            return None
        value = source
    return None


def _is_turned(grad: Value) -> bool:
    """Whether views permute the axes of what a kernel wrote."""
    perm: tuple[int, ...] | None = None
    while (node := grad.producer) is not None and node_kinds.is_view(node):
        step = node_kinds.permutation(node)
        if step is not None:
            perm = step if perm is None else tuple(step[axis] for axis in perm)
        elif perm is not None:
            return perm != tuple(range(len(perm)))
        grad = node.operands[0]
    return perm is not None and perm != tuple(range(len(perm)))


def _unknown(site: Site) -> Gradients:
    """Read everything, write gradients of the operands' types: nobody knows how."""
    wanted = sorted(site.wanted)
    grads = [grad for grad in site.grads if grad is not None]
    names = [site.tape.graph.fresh_name(f"{site.out.name}.grad") for _ in wanted[:1]]
    for number in range(1, len(wanted)):
        names.append(f"{names[0]}.{number}")
    node = site.tape.node(
        "unknown",
        (*grads, *site.node.operands),
        names,
        {"op": f"{site.node.op}_backward"},
        [graphs.typed(site.node.operands[index]) for index in wanted],
    )
    return dict(zip(wanted, node.results, strict=True))
