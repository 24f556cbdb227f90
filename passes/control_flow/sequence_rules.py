"""What sequences and optional tensors stand for: Python's lists and None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir import AttrValue, TensorType, Value, spend
from perfc.ir.dims import ceil_div
from perfc.ir.support import UnsupportedModelError
from perfc.passes.control_flow.unrolling import Item, Rule, Site, Unroller


def _alias(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    """An `identity` of a sequence, or of nothing."""
    return None if isinstance(site.operands[0], Value) else site.operands[:1]


def _empty(unroller: Unroller, site: Site) -> Sequence[Item]:
    return [()]


def _construct(unroller: Unroller, site: Site) -> Sequence[Item]:
    return [site.operands]


def _absent(unroller: Unroller, site: Site) -> Sequence[Item]:
    return [None]


def _has_element(unroller: Unroller, site: Site) -> Sequence[Item]:
    present = int(site.operands[0] is not None)
    return [unroller.constant(site, (present,), (), "bool")]


def _elements(site: Site, index: int = 0) -> tuple[Item, ...] | None:
    """The elements of a sequence; None if it is opaque, so that the node stays."""
    item = site.operands[index] if index < len(site.operands) else None
    if item is None:
        msg = f"{site}: operand {index} is nothing, expected a sequence"
        raise UnsupportedModelError(msg)
    return None if isinstance(item, Value) else item


def _position(unroller: Unroller, site: Site, index: int, length: int) -> int:
    """Return the known position in a sequence that operand *index* is."""
    value = site.tensor(index)
    known = unroller.known(value)
    if known is None:
        msg = (
            f"{site}: the position {value} in the sequence depends on data; export "
            "the model with constant positions"
        )
        raise UnsupportedModelError(msg)
    position = known[0] + length if known[0] < 0 else known[0]
    if not 0 <= position <= length:
        msg = f"{site}: position {known[0]} in a sequence of {length}"
        raise UnsupportedModelError(msg)
    return position


def _insert(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    elements = _elements(site)
    if elements is None:
        return None
    place = len(elements)
    if len(site.operands) > 2:  # sequence, tensor, position
        place = _position(unroller, site, 2, len(elements))
    return [(*elements[:place], site.tensor(1), *elements[place:])]


def _erase(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    elements = _elements(site)
    if elements is None:
        return None
    place = len(elements) - 1
    if len(site.operands) > 1:
        place = _position(unroller, site, 1, len(elements))
    _require(site, place, elements)
    return [(*elements[:place], *elements[place + 1 :])]


def _at(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    elements = _elements(site)
    if elements is None:
        return None
    place = _position(unroller, site, 1, len(elements))
    _require(site, place, elements)
    return [elements[place]]


def _require(site: Site, place: int, elements: tuple[Item, ...]) -> None:
    if not 0 <= place < len(elements):
        msg = f"{site}: no element {place} in a sequence of {len(elements)}"
        raise UnsupportedModelError(msg)


def _length(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    elements = _elements(site)
    if elements is None:
        return None
    return [unroller.constant(site, (len(elements),), (), "i64")]


def _split(unroller: Unroller, site: Site) -> Sequence[Item]:
    """One `split`; pieces of size 1 lose their axis unless it is kept."""
    x, axis = site.tensor(0), site.node.attributes.integer("axis")
    type_ = x.type
    if type_ is None or not -type_.rank <= axis < type_.rank:
        msg = f"{site}: {x} has no axis {axis} to split"
        raise UnsupportedModelError(msg)
    sizes = _sizes(unroller, site, type_, axis)
    attributes: dict[str, AttrValue] = {"axis": axis, "sizes": sizes}
    pieces = unroller.add(site, "split", (x,), attributes, results=len(sizes))
    one_each = len(site.operands) == 1
    if one_each and not site.node.attributes.flag("keepdims"):
        axes = {"axes": (axis,)}
        pieces = [unroller.add(site, "squeeze", (p,), axes)[0] for p in pieces]
    return [tuple(pieces)]


def _sizes(
    unroller: Unroller, site: Site, type_: TensorType, axis: int
) -> tuple[int, ...]:
    length = type_.shape[axis]
    if not isinstance(length, int):
        msg = f"{site}: the length to split, {length}, has no number"
        raise UnsupportedModelError(msg)
    if len(site.operands) == 1:
        return (1,) * _checked(site, length)
    wanted = site.tensor(1)
    known = unroller.known(wanted)
    if known is None or min(known) < 0:
        msg = f"{site}: the sizes to split into, {wanted}, depend on data"
        raise UnsupportedModelError(msg)
    if wanted.type is not None and wanted.type.rank:
        return known
    piece = max(1, known[0])
    count = _checked(site, ceil_div(length, piece))
    return tuple(min(piece, length - i * piece) for i in range(count))


def _checked(site: Site, pieces: int) -> int:
    """Return how many pieces a tensor is split into, if a model can have as many."""
    spend("nodes", pieces, f"{site}: a sequence of tensors")
    return pieces


def _concat(unroller: Unroller, site: Site) -> Sequence[Item] | None:
    elements = _elements(site)
    if elements is None:
        return None
    made = [element for element in elements if isinstance(element, Value)]
    if not made:
        msg = f"{site}: the sequence to join is empty"
        raise UnsupportedModelError(msg)
    axis = site.node.attributes.integer("axis")
    if site.node.attributes.integer("new_axis", 0):
        axes = {"axes": (axis,)}
        made = [unroller.add(site, "unsqueeze", (x,), axes)[0] for x in made]
    return list(unroller.add(site, "concat", made, {"axis": axis}))


def _map(unroller: Unroller, site: Site) -> Sequence[Item]:
    """Run the region on the elements of the first operand, and of others beside."""
    first = _elements(site)
    if first is None:
        msg = f"{site}: operand 0 is a tensor, expected a sequence"
        raise UnsupportedModelError(msg)
    rows: list[list[Item]] = []
    for index in range(len(first)):
        arguments = [_picked(site, sequence, index) for sequence in site.operands]
        rows.append(unroller.copy_region(site.node.regions[0], arguments, site.env))
    count = len(site.node.results)
    return [tuple(row[column] for row in rows) for column in range(count)]


def _picked(site: Site, item: Item, index: int) -> Item:
    if not isinstance(item, tuple):
        return item
    _require(site, index, item)
    return item[index]


SEQUENCE_RULES: Mapping[str, Rule] = {
    "identity": _alias,
    "sequence_empty": _empty,
    "sequence_construct": _construct,
    "sequence_insert": _insert,
    "sequence_erase": _erase,
    "sequence_at": _at,
    "sequence_length": _length,
    "sequence_map": _map,
    "split_to_sequence": _split,
    "concat_from_sequence": _concat,
    "optional_empty": _absent,
    "optional_has_element": _has_element,
}
"""Rules by op."""
