"""Give every symbol of a model a number, from what the user says.

`--batch` binds the symbols recognised as the batch, `--dim` any symbol by name;
the number of indices of an embedding bag that is still open becomes batch x
pooling, which is reported.
"""

from __future__ import annotations

import operator
import shlex
from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.ir import Diagnostic, Graph, Node, PerfcError, Program, TensorType, Value
from perfc.ir.dims import Dim, Expr, evaluate, symbols_of
from perfc.ir.node_kinds import has_trait, is_embedding_bag
from perfc.ir.opdef import Trait
from perfc.ir.ops.embedding import bags
from perfc.ir.support import Level, UnboundSymbolError

_SHOWN = 6


@attrs.frozen
class Dimensions:
    """What the user says of a model's dimensions.

    Attributes:
        batch: Samples in the batch, or None.
        pooling: Lookups per embedding bag, or None.
        dims: Symbol and number.

    """

    batch: int | None = None
    pooling: int | None = None
    dims: Mapping[str, int] = attrs.field(factory=dict[str, int])


@attrs.frozen
class Symbols:
    """The symbols of a graph, by what they mean.

    Attributes:
        every: All of them.
        batch: Those that are the batch.
        bounds: Those that are the batch plus one.
        lookups: Numbers of indices, each with the number of bags that they fill.

    """

    every: frozenset[str]
    batch: frozenset[str]
    bounds: frozenset[str]
    lookups: Mapping[str, Dim]


def classify_symbols(graph: Graph, *, inputs_only: bool = False) -> Symbols:
    """Tell the batch from the other symbols; with *inputs_only* those of the inputs.

    The batch is any symbol that stands first in the shape of an input and does
    not merely count the indices or the bounds of an embedding bag. A symbol that
    counts indices is the batch too if it counts the bags, or the rows of an
    input: then there is one index a bag.
    """
    lookups: dict[str, Dim] = {}
    bounds: set[str] = set()
    counted: set[str] = set()
    for node in graph:
        if is_embedding_bag(node) and node.attributes.flag("has_offsets"):
            _classify_bag(node, lookups, bounds, counted)
    first: set[str] = set()
    for value in graph.inputs:
        if value.type is not None and value.type.shape:
            names = symbols_of(value.type.shape[:1])
            first |= names
            counted |= names if value.type.rank > 1 else set()
    values = graph.inputs if inputs_only else graph.values()
    # Many values, few types, fewer symbols: each is looked into once.
    types = frozenset(map(operator.attrgetter("type"), values)) - {None}
    every = symbols_of({d for t in types for d in t.shape if isinstance(d, Expr)})
    bounds &= every
    lookups = {name: count for name, count in lookups.items() if name in every}
    batch = first - ((lookups.keys() | bounds) - counted)
    return Symbols(
        every,
        frozenset(batch),
        frozenset(bounds - batch),
        {name: count for name, count in lookups.items() if name not in batch},
    )


def _classify_bag(
    node: Node, lookups: dict[str, Dim], bounds: set[str], counted: set[str]
) -> None:
    if any(value.type is None for value in node.operands):
        return
    tables = len(node.attributes.records("tables"))
    indices, offsets = node.operands[tables], node.operands[tables + 1]
    for value in (indices, *node.operands[tables + 2 :]):
        name = _length(value)
        if name is not None:
            lookups.setdefault(name, bags(node.attributes, _types(node)) * tables)
    name = _length(offsets)
    if name is None:
        return
    if node.attributes.flag("include_last_offset"):
        bounds.add(name)
    else:
        counted.add(name)


def _length(value: Value) -> str | None:
    if value.type is None or not value.type.shape:
        return None
    return _lone_symbol(value.type.shape[0])


def _lone_symbol(dim: Dim) -> str | None:
    """Return the symbol that *dim* is, unless it is an expression."""
    if not isinstance(dim, Expr):
        return None
    names = dim.symbols()
    return str(dim) if len(names) == 1 and str(dim) in names else None


def classify_program(
    program: Program, *, inputs_only: bool = False
) -> tuple[Symbols | None, ...]:
    """Classify the symbols of each rank class that has an op graph."""
    return tuple(
        None
        if rank.ops is None
        else classify_symbols(rank.ops, inputs_only=inputs_only)
        for rank in program.classes
    )


def bind_dimensions(
    program: Program,
    wanted: Dimensions,
    classified: Sequence[Symbols | None] | None = None,
) -> Program:
    """Return *program* with its symbols bound, and a note of what was assumed.

    Args:
        program: The program.
        wanted: What the user says.
        classified: What `classify_program` said of it, if it was asked already.

    """
    bindings = {**program.bindings, **wanted.dims}
    notes: list[Diagnostic] = []
    every: set[str] = set()
    if classified is None:
        classified = classify_program(program)
    fixed = not any(s.batch | s.bounds for s in classified if s is not None)
    for rank, symbols in zip(program.classes, classified, strict=True):
        if rank.ops is None or symbols is None:
            continue
        every |= symbols.every
        alone = len(program.classes) == 1  # stages after the first may have no inputs
        if fixed and wanted.batch is not None and (alone or rank.ops.inputs):
            _require_fixed_batch(rank.ops, wanted.batch, program.microbatches)
        _bind_batch(symbols, wanted, bindings, program.microbatches)
        notes += _bind_lookups(symbols, wanted, bindings)
        _refuse_unbound(rank.ops, symbols, bindings)
    _refuse_unknown(program, every, wanted)
    bound = attrs.evolve(program, diagnostics=(*_kept(program.diagnostics), *notes))
    return bound.bind(bindings)


def _kept(diagnostics: tuple[Diagnostic, ...]) -> Iterator[Diagnostic]:
    """Binding anew replaces what an earlier binding assumed."""
    return (d for d in diagnostics if d.code != "pooling-assumed")


def _bind_batch(
    symbols: Symbols, wanted: Dimensions, bindings: dict[str, int], microbatches: int
) -> None:
    """Bind the batch, of one microbatch where there are several."""
    for name in symbols.batch:
        if wanted.batch is not None:
            _agree(wanted, name, wanted.batch, "the batch")
        whole = wanted.dims.get(name, wanted.batch)
        if whole is not None:
            bindings[name] = _part(whole, microbatches)
    if wanted.batch is not None:
        batch: int | None = _part(wanted.batch, microbatches)
    else:
        named = sorted(symbols.batch & bindings.keys())
        batch = bindings[named[0]] if named else None
    if batch is not None:
        for name in symbols.bounds:
            _agree(wanted, name, batch + 1, "the batch plus one")
            bindings[name] = batch + 1


def _part(batch: int, microbatches: int) -> int:
    """Return the samples of one of some microbatches."""
    if batch % microbatches:
        what = (
            "has fewer samples than" if batch < microbatches else "does not divide into"
        )
        msg = (
            f"a batch of {batch} {what} {microbatches} microbatches (--accumulate): "
            f"expected a multiple of {microbatches}"
        )
        raise PerfcError(msg)
    return batch // microbatches


def _agree(wanted: Dimensions, name: str, number: int, meaning: str) -> None:
    """Refuse a `--dim` that contradicts the batch."""
    if wanted.dims.get(name, number) != number:
        msg = (
            f"--dim {name}={wanted.dims[name]}: {name!r} is {meaning}, "
            f"so it has to be {number}"
        )
        raise PerfcError(msg)


def batch_size(
    program: Program, classified: Sequence[Symbols | None] | None = None
) -> int | None:
    """Return the number of samples that *program* computes, if that is known.

    Args:
        program: The program.
        classified: What `classify_program` said of it, if it was asked already.

    """
    graph = program.classes[0].ops
    if graph is None or _rows_are_linked(graph):
        return None
    known = None if classified is None else classified[0]
    symbols, bindings = known or classify_symbols(graph), program.bindings
    for name in sorted(symbols.batch & bindings.keys()):
        return bindings[name]
    for name in sorted(symbols.bounds & bindings.keys()):
        return bindings[name] - 1
    return _fixed_batch(graph)


def _rows_are_linked(graph: Graph) -> bool:
    """Whether rows of data are read by indices that are inputs: nodes of a network.

    A graph network gathers the features of nodes by the ends of its edges, so that a
    row is no sample. Rows of parameters, or by constant or computed indices (a router's
    choice of experts), are read by samples as well.
    """
    parameters = set(graph.parameters)
    lookups = [
        node
        for node in graph
        if has_trait(node, Trait.LOOKUP)
        and node.attributes.get("axis") == 0
        and node.operands[0] not in parameters
    ]
    if not lookups:
        return False
    data = {v for v in graph.inputs if v.type is not None and v.type.dtype.is_float}
    indices = {v for v in graph.inputs if v not in data}
    for node in graph:
        for values in (data, indices):
            if not values.isdisjoint(node.operands):
                values.update(node.results)
    return any(
        node.operands[0] in data
        and node.operands[1] in indices
        and node.operands[1] not in data
        for node in lookups
    )


def _fixed_batch(graph: Graph) -> int | None:
    """Return the batch that the file fixes.

    A model has as many samples as bags; without bags, as the first input that is
    no list has rows, or as the first list has elements.
    """
    shapes = [v.type.shape for v in graph.inputs if v.type is not None]
    rows = [
        bags(node.attributes, types)
        for node in graph
        if is_embedding_bag(node) and len(types := _types(node)) == len(node.operands)
    ]
    rows += [shape[0] for shape in shapes if len(shape) > 1]
    rows += [shape[0] for shape in shapes if shape]
    return rows[0] if rows and isinstance(rows[0], int) else None


def _types(node: Node) -> list[TensorType]:
    return [v.type for v in node.operands if v.type is not None]


def _require_fixed_batch(graph: Graph, batch: int, microbatches: int) -> None:
    fixed = _fixed_batch(graph)
    if fixed is None or fixed * microbatches != batch:
        found = "no batch dimension" if fixed is None else f"a fixed batch of {fixed}"
        if fixed is not None and microbatches > 1:
            found += f", in each of {microbatches} microbatches"
        msg = (
            f"--batch {batch}: the model has {found}; export it with a dynamic "
            "batch, or leave --batch out"
        )
        raise PerfcError(msg)


def _bind_lookups(
    symbols: Symbols, wanted: Dimensions, bindings: dict[str, int]
) -> list[Diagnostic]:
    """Bind open numbers of indices to batch x pooling."""
    pooling = 1 if wanted.pooling is None else wanted.pooling
    open_names = [n for n in symbols.lookups if n not in wanted.dims]
    if wanted.pooling is not None and not open_names:
        msg = f"--pooling {pooling}: the model leaves no number of lookups open"
        raise PerfcError(msg)
    assumed: list[str] = []
    counts: dict[Dim, int] = {}
    for name in open_names:
        bag_count = symbols.lookups[name]
        if bag_count not in counts and symbols_of([bag_count]) <= bindings.keys():
            counts[bag_count] = evaluate(bag_count, bindings)
        if bag_count in counts:
            bindings[name] = counts[bag_count] * pooling
            assumed.append(name)
    if not assumed or wanted.pooling is not None:
        return []
    more = f", … ({len(assumed)} in all)" if len(assumed) > _SHOWN else ""
    shown = ", ".join(f"{name}={bindings[name]}" for name in assumed[:_SHOWN])
    message = (
        f"number of embedding indices taken as batch x pooling 1: "
        f"{shown}{more}; set it with --pooling or --dim"
    )
    return [Diagnostic(Level.NOTE, "pooling-assumed", message)]


def _refuse_unbound(
    graph: Graph, symbols: Symbols, bindings: Mapping[str, int]
) -> None:
    """Ask for the numbers of the inputs' symbols; most others follow from them."""
    missing = symbols.every - set(bindings)
    if not missing:
        return
    inputs: set[str] = set()
    for value in graph.inputs:
        inputs |= value.type.symbols() if value.type is not None else frozenset()
    batch = missing & (symbols.batch | symbols.bounds)
    others = missing - batch - symbols.lookups.keys()
    asked = sorted(batch) + sorted(others & inputs)
    kind = ""
    if not asked:
        kind = " that depend on data" if others else ""
        asked = sorted(others) or sorted(missing)
    shown, more = asked[:_SHOWN], ""
    if len(asked) > _SHOWN:
        more = f", … ({len(asked)} in all)"
    names = [f"{n} (the batch)" if n in symbols.batch else n for n in shown]
    options = ["--batch N"] if batch else []
    options += [f"--dim {shlex.quote(n)}=N" for n in shown if n not in batch]
    msg = (
        f"dimensions without a number{kind}: {', '.join(names)}{more}; "
        f"add {' '.join(options)}"
    )
    raise UnboundSymbolError(msg)


def _refuse_unknown(program: Program, every: set[str], wanted: Dimensions) -> None:
    for name in wanted.dims:
        if program.bindings.get(name) == wanted.dims[name]:  # it is recorded with it
            continue
        if name not in every:
            known = ", ".join(sorted(every)) or "none: every size is fixed"
            msg = f"--dim {name}: {program} has no such dimension; it has {known}"
            raise PerfcError(msg)
        if not wanted.dims[name]:
            msg = f"--dim {name}=0: expected at least 1"
            raise PerfcError(msg)
    if (wanted.batch or wanted.pooling) and all(r.ops is None for r in program.classes):
        msg = f"{program} is a launch graph: it has no dimensions to set"
        raise PerfcError(msg)
