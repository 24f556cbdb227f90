"""ATen ops that the host answers itself, and reads of the device's results."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler


def _nothing(node: AtenNode) -> None:
    """Python's own integers, marks of the profiler: no op of eager PyTorch."""
    for index, type_ in enumerate(node.results):
        if type_ is not None and node.operands:
            node.alias(index, node.operands[0])


def _item(node: AtenNode) -> None:
    node.emit("item", (node.operands[0],), results=())


def _left_aligned(node: AtenNode) -> None:
    """The host asks whether `nn.TransformerEncoder` may leave padding out."""
    node.assumption = "padding is computed like any other token"
    node.emit("item", (node.tensor("mask"),), results=())


_NOTHING = (
    *("aten.sym_size", "aten.sym_numel", "aten.sym_stride", "aten.sym_storage_offset"),
    *("aten.sym_constrain_range", "aten.sym_constrain_range_for_size"),
    *("aten.sym_is_contiguous", "aten.is_same_size", "aten.record_stream"),
    *("aten._assert_scalar", "aten._assert_tensor_metadata", "aten._assert_async"),
    *("aten._functional_assert_scalar", "aten._functional_assert_async"),
    *("aten._version", "aten.is_pinned", "aten.dim", "aten.size", "aten.stride"),
    *("aten._functional_sym_constrain_range",),
    *("aten._functional_sym_constrain_range_for_size",),
    *("profiler._record_function_enter_new", "profiler._record_function_exit"),
    *("profiler._record_function_enter", "prim.device", "aten._print"),
    *("_operator.add", "_operator.mul", "_operator.sub", "_operator.floordiv"),
)

HOST_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(_NOTHING, _nothing),
    "aten._local_scalar_dense": _item,
    "aten._nested_tensor_from_mask_left_aligned": _left_aligned,
    "aten.item": _item,
    "aten.is_nonzero": _item,
    "aten.equal": _item,
}
"""ATen ops to the functions that write them."""
