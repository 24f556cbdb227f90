"""ATen ops that view, join or copy tensors."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue
from perfc.ir.dims import Dim
from perfc.ir.types import MemorySpace

_FAR = 2**63 - 1
_MATRIX = 2


def _view(node: AtenNode) -> None:
    """The source knows that the same memory does: nothing is copied."""
    _reshaped(node, node.tensor("self"), {"view": True})


def _reshape(node: AtenNode) -> None:
    """A view if the layout allows it."""
    _reshaped(node, node.tensor("self"), {})


def _reshaped(node: AtenNode, x: Operand, attributes: dict[str, AttrValue]) -> None:
    shape = node.result().shape
    if any(isinstance(dim, int) and dim == 0 for dim in shape):
        attributes["allowzero"] = True
    node.emit("reshape", (x, node.listed(shape)), attributes)


def _opaque_view(node: AtenNode) -> None:
    """A view of other strides than the ops here can say."""
    tensors = [i for i, type_ in enumerate(node.results) if type_ is not None]
    for index in tensors:
        node.emit(
            "view", (node.tensor("self"),), {"call": node.label}, results=(index,)
        )


def _alias(node: AtenNode) -> None:
    node.emit("alias", (node.tensor("self"),), {"call": node.label})


def _permuted(node: AtenNode, perm: tuple[int, ...]) -> None:
    x = node.tensor("self")
    node.emit("transpose", (x,), {"perm": tuple(axis % x.rank for axis in perm)})


def _permute(node: AtenNode) -> None:
    _permuted(node, node.integers("dims"))


def _transpose(node: AtenNode) -> None:
    rank = node.tensor("self").rank
    names = ("dim0", "dim1") if node.is_given("dim0") else ("axis0", "axis1")
    first, second = (node.integer(name) % max(rank, 1) for name in names)
    perm = list(range(rank))
    if rank:
        perm[first], perm[second] = second, first
    _permuted(node, tuple(perm))


def _t(node: AtenNode) -> None:
    _permuted(node, tuple(reversed(range(node.tensor("self").rank))))


def _matrix_t(node: AtenNode) -> None:
    *batch, rows, columns = range(node.tensor("self").rank)
    _permuted(node, (*batch, columns, rows))


def _movedim(node: AtenNode) -> None:
    rank = node.tensor("self").rank
    source = [axis % rank for axis in node.integers("source")]
    target = [axis % rank for axis in node.integers("destination")]
    placed = dict(zip(target, source, strict=True))
    rest = iter([axis for axis in range(rank) if axis not in source])
    places = range(rank)
    _permuted(node, tuple(placed[i] if i in placed else next(rest) for i in places))


def _squeeze(node: AtenNode) -> None:
    """Named axes that are not 1 stay."""
    x = node.tensor("self")
    axes = tuple(range(x.rank))
    if node.is_given("dim"):
        axes = tuple(axis % max(x.rank, 1) for axis in node.integers("dim"))
    ones = tuple(a for a in axes if a < x.rank and x.type.shape[a] == 1)
    node.emit("squeeze", (x,), {"axes": ones})


def _unsqueeze(node: AtenNode) -> None:
    node.emit("unsqueeze", (node.tensor("self"),), {"axes": (node.integer("dim"),)})


def _expand(node: AtenNode) -> None:
    node.emit("expand", (node.tensor("self"), node.listed(node.result().shape)))


def _expand_all(node: AtenNode) -> None:
    for index, x in enumerate(node.tensors("tensors")):
        shape = node.result(index).shape
        node.emit("expand", (x, node.listed(shape)), results=(index,))


def cut(
    node: AtenNode, axis: int, start: Dim, end: Dim, step: int = 1
) -> tuple[Operand, ...]:
    """Return the operands that a `slice` has behind the tensor."""
    return tuple(node.listed((n,)) for n in (start, end, axis, step))


def _slice(node: AtenNode) -> None:
    x = node.tensor("self")
    bounds = cut(
        node,
        node.integer("dim", 0),
        node.dim("start", 0),
        node.dim("end", _FAR),
        node.integer("step", 1),
    )
    node.emit("slice", (x, *bounds))


def _narrow(node: AtenNode) -> None:
    start, length = node.dim("start"), node.dim("length")
    bounds = cut(node, node.integer("dim"), start, start + length)
    node.emit("slice", (node.tensor("self"), *bounds))


def _select(node: AtenNode) -> None:
    """What there is at one index of an axis; of an unknown one it is a view, too."""
    index = node.arguments.get("index")
    if not isinstance(index, int):
        _opaque_view(node)
        return
    at = node.constant((index,), node.listed(()).type.dtype, ())
    node.emit("gather", (node.tensor("self"), at), {"axis": node.integer("dim")})


def _pieces(node: AtenNode, axis: int) -> None:
    """Cut into the sizes that the results have."""
    x = node.tensor("self")
    count = len(node.results)
    sizes = [node.result(i).shape[axis] for i in range(count)]
    known = tuple(size for size in sizes if isinstance(size, int))
    results = range(count)
    if len(known) == count:
        node.emit("split", (x,), {"axis": axis, "sizes": known}, results=results)
        return
    operands = (x, node.listed(sizes))
    node.emit("split", operands, {"axis": axis, "parts": count}, results=results)


def _split(node: AtenNode) -> None:
    _pieces(node, node.integer("dim", 0) % max(node.tensor("self").rank, 1))


def _unbind(node: AtenNode) -> None:
    x = node.tensor("self")
    axis = node.integer("dim", 0) % max(x.rank, 1)
    count = len(node.results)
    attributes: dict[str, AttrValue] = {"axis": axis, "sizes": (1,) * count}
    pieces = node.helper("split", (x,), attributes, count=count)
    for index, piece in enumerate(pieces):
        node.emit("squeeze", (piece,), {"axes": (axis,)}, results=(index,))


def _cat(node: AtenNode) -> None:
    """Empty lists are skipped, whatever the others' rank."""
    axis, rank = node.integer("dim", 0), node.result().rank
    tensors = [t for t in node.tensors("tensors") if t.rank == rank]
    node.emit("concat", tensors, {"axis": axis})


def _stack(node: AtenNode) -> None:
    node.emit("stack", node.tensors("tensors"), {"axis": node.integer("dim", 0)})


def _clone(node: AtenNode) -> None:
    """One that makes a tensor contiguous stands where it was not, as it was traced."""
    wanted = "contiguous" in str(node.arguments.get("memory_format", ""))
    attributes: dict[str, AttrValue] = {"unless_contiguous": True} if wanted else {}
    node.emit("copy", (node.tensor("self"),), attributes)


def _contiguous(node: AtenNode) -> None:
    """Emit a copy unless the tensor lies in order already."""
    x = node.tensor("self" if node.is_given("self") else "input")
    node.emit("copy", (x,), {"unless_contiguous": True})


def _to(node: AtenNode) -> None:
    """To another element type, another memory, or nothing at all."""
    x, out = node.tensor("self"), node.result()
    if x.type.space is not out.space:
        node.emit("copy", (x,))
    elif x.type.dtype != out.dtype:
        node.emit("cast", (x,), {"dtype": out.dtype})
    elif node.name == "_to_copy":
        node.emit("copy", (x,))
    else:
        node.emit("alias", (x,), {"call": node.label})


def _copy(node: AtenNode) -> None:
    """`copy_` writes over `self`; between memories it is a transfer."""
    x, source = node.tensor("self"), node.tensor("src")
    if x.type.space is not source.type.space:
        msg = "a copy between host and device over an existing tensor"
        if MemorySpace.DEVICE not in (x.type.space, source.type.space):
            raise Misfit(msg)
        node.emit("copy", (source,))
        return
    node.emit("assign", (x, source))


VIEW_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(
        (
            *("aten.view", "aten._unsafe_view", "aten._reshape_alias"),
            *("aten.view_as", "aten.unflatten"),
        ),
        _view,
    ),
    **dict.fromkeys(("aten.reshape", "aten.flatten", "aten.reshape_as"), _reshape),
    **dict.fromkeys(
        (
            *("aten.as_strided", "aten.diagonal", "aten.unfold", "aten.real"),
            *("aten.imag", "aten.view_as_real", "aten.view_as_complex"),
            *("aten._conj", "aten._neg_view"),
        ),
        _opaque_view,
    ),
    **dict.fromkeys(
        (
            *("aten.alias", "aten.detach", "aten.lift_fresh", "aten.lift"),
            *("aten._fw_primal", "aten.requires_grad"),
            *("aten._nested_view_from_buffer", "aten.positive", "aten.lift_fresh_copy"),
            *(
                "aten.resolve_conj",
                "aten.resolve_neg",
                "aten._autocast_to_full_precision",
            ),
        ),
        _alias,
    ),
    "aten.permute": _permute,
    "aten.transpose": _transpose,
    "aten.swapaxes": _transpose,
    "aten.swapdims": _transpose,
    "aten.t": _t,
    "aten.numpy_T": _t,
    "aten.mT": _matrix_t,
    "aten.mH": _matrix_t,
    "aten.matrix_H": _matrix_t,
    "aten.adjoint": _matrix_t,
    "aten.movedim": _movedim,
    "aten.moveaxis": _movedim,
    "aten.squeeze": _squeeze,
    "aten.unsqueeze": _unsqueeze,
    "aten.expand": _expand,
    "aten.expand_as": _expand,
    "aten.broadcast_to": _expand,
    "aten.broadcast_tensors": _expand_all,
    "aten.slice": _slice,
    "aten.narrow": _narrow,
    "aten.select": _select,
    **dict.fromkeys(
        (
            *("aten.split", "aten.split_with_sizes", "aten.chunk"),
            *("aten.tensor_split", "aten.unsafe_split", "aten.unsafe_chunk"),
            "aten.unsafe_split_with_sizes",
        ),
        _split,
    ),
    "aten.unbind": _unbind,
    **dict.fromkeys(("aten.cat", "aten.concat", "aten.concatenate"), _cat),
    "aten.stack": _stack,
    "aten.clone": _clone,
    "aten.contiguous": _contiguous,
    "aten._to_copy": _to,
    "aten.to": _to,
    "aten.type_as": _to,
    "aten.copy": _copy,
}
"""ATen ops to the functions that write them."""
