"""What loops and branches are in eager PyTorch: the ops that they run, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Graph, TensorType, Value
from perfc.ir.dims import Expr
from perfc.ir.support import UnsupportedModelError, VerifyError
from perfc.passes.control_flow.unrolling import Item, Rule, Site, Unroller

_ADVICE = (
    "perfc has to know how often it runs: export the model with a constant number of "
    "iterations, or with the loop written out"
)
_BAG = "embedding_bag"


def _if(unroller: Unroller, site: Site) -> Sequence[Item]:
    """Take the branch that is known to be taken, else the one with more work."""
    condition = site.tensor(0)
    known = unroller.known(condition)
    then_branch, else_branch = site.node.regions
    if known is None:
        unroller.read_on_host(site, condition)
        return _costlier(unroller, site, (then_branch, else_branch))
    taken = then_branch if known[0] else else_branch
    return _results(site, unroller.copy_region(taken, (), site.env))


@attrs.frozen(eq=False)
class _Branch:
    """A branch that may be taken: its flops plus bytes, results, and host reads.

    And why it cannot, if it cannot.
    """

    name: str
    work: int
    results: Sequence[Item]
    reads: range
    error: VerifyError | None = None


def _costlier(
    unroller: Unroller, site: Site, regions: tuple[Graph, Graph]
) -> Sequence[Item]:
    """Add both branches, and return the results of the one with more work.

    The other's nodes are dead, but for those by which the host waits. One whose
    ops do not take the sizes at hand cannot be the one that runs.
    """
    before = unroller.work, unroller.weighing
    unroller.weighing = True
    branches: list[_Branch] = []
    for name, region in zip(("then", "else"), regions, strict=True):
        # Add one branch, up to the first op that does not take its operands.
        unroller.work, first = 0, len(unroller.reads)
        error: VerifyError | None = None
        results: Sequence[Item] = ()
        try:
            results = _results(site, unroller.copy_region(region, (), site.env))
        except VerifyError as problem:
            error = problem
        reads = range(first, len(unroller.reads))
        branch = _Branch(name, unroller.work, results, reads, error)
        branches.append(branch)
    taken, other = sorted(branches, key=_preference, reverse=True)
    if taken.error is not None:
        raise taken.error
    unroller.work, unroller.weighing = before[0] + taken.work, before[1]
    unroller.dropped.update(unroller.reads[index] for index in other.reads)
    unroller.warn(
        "branch-assumed",
        f"{site}: its condition depends on data; its {taken.name} branch, "
        f"{_reason(taken, other)}",
        str(site.node),
    )
    return taken.results


def _preference(branch: _Branch) -> tuple[bool, int]:
    return branch.error is None, branch.work


def _reason(taken: _Branch, other: _Branch) -> str:
    """Say why one branch is taken, and not the other."""
    if other.error is not None:
        return f"as the other does not take these sizes, is taken to run: {other.error}"
    differ = "" if _types(taken) == _types(other) else "; the results' types differ"
    return f"which does more, is taken to run each time{differ}"


def _types(branch: _Branch) -> list[TensorType | None]:
    return [v.type if isinstance(v, Value) else None for v in branch.results]


def _results(site: Site, results: Sequence[Item]) -> Sequence[Item]:
    if len(results) != len(site.node.results):
        msg = f"{site}: {len(site.node.results)} results, its graph has {len(results)}"
        raise UnsupportedModelError(msg)
    return results


def _loop(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    """Run the body as often as trip count and condition say."""
    if _BAG in site.node.location.origin:
        return None  # a bag that was not raised: costed as one op, as reported
    if len(site.operands) < 2:  # trip count and condition
        msg = f"{site}: it has no trip count and condition"
        raise UnsupportedModelError(msg)
    trips = _known(unroller, site, site.tensor(0), "trip count")
    body, carried = site.node.regions[0], list(site.operands[2:])
    going: Item = site.tensor(1)
    counts = _is_read(body, 0)
    rows: list[list[Item]] = [[] for _ in body.outputs[len(carried) + 1 :]]
    for index in range(trips):
        condition = _condition(site, going)
        if not _known(unroller, site, condition, "condition"):
            break
        unroller.count(site.node)
        counter = unroller.constant(site, (index,), (), "i64") if counts else None
        arguments = (counter, condition, *carried)
        found = unroller.copy_region(body, arguments, site.env)
        going, carried = found[0], found[1 : len(carried) + 1]
        for made, row in zip(rows, found[len(carried) + 1 :], strict=True):
            made.append(row)
    declared = body.outputs[len(carried) + 1 :]
    stacked = [
        _stacked(unroller, site, made, 0, output)
        for made, output in zip(rows, declared, strict=True)
    ]
    return _results(site, [*carried, *stacked])


def _is_read(body: Graph, index: int) -> bool:
    value = body.inputs[index] if index < len(body.inputs) else None
    return value is not None and bool(body.readers(value) or value in body.outputs)


def _condition(site: Site, going: Item) -> Value:
    if isinstance(going, Value):
        return going
    msg = f"{site}: its condition is no tensor"
    raise UnsupportedModelError(msg)


def _known(unroller: Unroller, site: Site, value: Value, what: str) -> int:
    """Return the number that *value* is."""
    known = unroller.known(value)
    if known is not None:
        return known[0]
    symbolic = unroller.inference.elements.get(value, ())
    names = sorted({n for e in symbolic if isinstance(e, Expr) for n in e.symbols()})
    if names:
        advice = ", ".join(f"{name}=N" for name in names)
        msg = (
            f"{site}: its {what} depends on {', '.join(names)}; bind it: --dim {advice}"
        )
        raise UnsupportedModelError(msg)
    msg = f"{site}: its {what} {value} depends on data; {_ADVICE}"
    raise UnsupportedModelError(msg)


def _stacked(
    unroller: Unroller, site: Site, rows: Sequence[Item], axis: int, output: Value
) -> Value:
    """Return the tensor whose slices along a new axis are *rows* (`torch.stack`)."""
    if not rows:
        type_ = output.type
        if type_ is None:
            msg = (
                f"{site}: it runs 0 times, and the type of its result {output} is not "
                "declared; add it to the model (an ONNX value_info)"
            )
            raise UnsupportedModelError(msg)
        shape = (*type_.shape[:axis], 0, *type_.shape[axis:])
        attributes: dict[str, AttrValue] = {"dtype": type_.dtype, "shape": shape}
        return unroller.add(site, "constant", (), attributes)[0]
    made = [
        unroller.add(site, "unsqueeze", (row,), {"axes": (axis,)})[0]
        for row in rows
        if isinstance(row, Value)
    ]
    return unroller.add(site, "concat", made, {"axis": axis})[0]


def _scan(unroller: Unroller, site: Site) -> Sequence[Item]:
    """Run the body once for each slice of the last operands."""
    attributes, body = site.node.attributes, site.node.regions[0]
    count = attributes.integer("inputs")
    states = len(site.operands) - count
    if count < 1 or states < 0:
        msg = f"{site}: {count} scan inputs, but {len(site.operands)} operands"
        raise UnsupportedModelError(msg)
    scanned = [site.tensor(index) for index in range(states, len(site.operands))]
    axes = _options(site, "input_axes", count)
    reverse = _options(site, "input_reverse", count)
    trips = _length(site, scanned, axes)
    carried: list[Item] = list(site.operands[:states])
    rows: list[list[Item]] = [[] for _ in body.outputs[states:]]
    for index in range(trips):
        unroller.count(site.node)
        slices: list[Value] = []
        for x, axis, backward in zip(scanned, axes, reverse, strict=True):
            position = unroller.constant(
                site, (trips - 1 - index if backward else index,), (), "i64"
            )
            value = unroller.add(site, "gather", (x, position), {"axis": axis})[0]
            slices.append(value)
        found = unroller.copy_region(body, (*carried, *slices), site.env)
        carried = found[:states]
        for made, row in zip(rows, found[states:], strict=True):
            made.append(row)
    return _results(site, [*carried, *_scanned(unroller, site, rows, states)])


def _scanned(
    unroller: Unroller, site: Site, rows: Sequence[list[Item]], states: int
) -> Iterable[Value]:
    """Stack the rows of each result of a scan, along its axis, in its direction."""
    axes = _options(site, "output_axes", len(rows))
    reverse = _options(site, "output_reverse", len(rows))
    outputs = site.node.regions[0].outputs[states:]
    for made, axis, backward, output in zip(rows, axes, reverse, outputs, strict=True):
        yield _stacked(unroller, site, made[::-1] if backward else made, axis, output)


def _options(site: Site, name: str, count: int) -> tuple[int, ...]:
    """Return one number per scanned tensor; 0 unless the node says otherwise."""
    if site.node.attributes.get(name) is None:
        return (0,) * count
    numbers = site.node.attributes.integers(name)
    if len(numbers) != count:
        msg = f"{site}: {name} has {len(numbers)} numbers, expected {count}"
        raise UnsupportedModelError(msg)
    return numbers


def _length(site: Site, scanned: Sequence[Value], axes: Sequence[int]) -> int:
    """Return the number of slices, which all tensors scanned agree on."""
    found: set[object] = set()
    for x, axis in zip(scanned, axes, strict=True):
        shape = () if x.type is None else x.type.shape
        if not -len(shape) <= axis < len(shape):
            msg = f"{site}: {x} has no axis {axis} to scan"
            raise UnsupportedModelError(msg)
        found.add(shape[axis])
    length = found.pop()
    if found:
        shown = sorted(map(str, (length, *found)))
        msg = f"{site}: the lengths to scan differ: {', '.join(shown)}"
        raise UnsupportedModelError(msg)
    if not isinstance(length, int):
        msg = f"{site}: the length to scan, {length}, has no number; {_ADVICE}"
        raise UnsupportedModelError(msg)
    return length


CONTROL_RULES: Mapping[str, Rule] = {"if": _if, "loop": _loop, "scan": _scan}
"""Rules by op."""
