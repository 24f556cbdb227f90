"""ATen ops to perfc ops."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import Handler
from perfc.frontends.aten.op_map.attention import ATTENTION_HANDLERS
from perfc.frontends.aten.op_map.cell import CELL_HANDLERS
from perfc.frontends.aten.op_map.composite import COMPOSITE_HANDLERS
from perfc.frontends.aten.op_map.convolution import CONVOLUTION_HANDLERS
from perfc.frontends.aten.op_map.creation import CREATION_HANDLERS
from perfc.frontends.aten.op_map.distance import DISTANCE_HANDLERS
from perfc.frontends.aten.op_map.elementwise import ELEMENTWISE_HANDLERS
from perfc.frontends.aten.op_map.embedding import EMBEDDING_HANDLERS
from perfc.frontends.aten.op_map.host import HOST_HANDLERS
from perfc.frontends.aten.op_map.image import IMAGE_HANDLERS
from perfc.frontends.aten.op_map.indexing import INDEXING_HANDLERS
from perfc.frontends.aten.op_map.loss import LOSS_HANDLERS
from perfc.frontends.aten.op_map.normalization import NORMALIZATION_HANDLERS
from perfc.frontends.aten.op_map.optimizer import OPTIMIZER_HANDLERS
from perfc.frontends.aten.op_map.product import PRODUCT_HANDLERS
from perfc.frontends.aten.op_map.recurrent import RECURRENT_HANDLERS
from perfc.frontends.aten.op_map.reduction import REDUCTION_HANDLERS
from perfc.frontends.aten.op_map.selection import SELECTION_HANDLERS
from perfc.frontends.aten.op_map.sparse import SPARSE_HANDLERS
from perfc.frontends.aten.op_map.spectral import SPECTRAL_HANDLERS
from perfc.frontends.aten.op_map.trilinear import TRILINEAR_HANDLERS
from perfc.frontends.aten.op_map.views import VIEW_HANDLERS

HANDLERS: Mapping[str, Handler] = {
    **ATTENTION_HANDLERS,
    **CELL_HANDLERS,
    **COMPOSITE_HANDLERS,
    **CONVOLUTION_HANDLERS,
    **CREATION_HANDLERS,
    **DISTANCE_HANDLERS,
    **ELEMENTWISE_HANDLERS,
    **EMBEDDING_HANDLERS,
    **HOST_HANDLERS,
    **IMAGE_HANDLERS,
    **INDEXING_HANDLERS,
    **LOSS_HANDLERS,
    **NORMALIZATION_HANDLERS,
    **OPTIMIZER_HANDLERS,
    **PRODUCT_HANDLERS,
    **RECURRENT_HANDLERS,
    **REDUCTION_HANDLERS,
    **SELECTION_HANDLERS,
    **VIEW_HANDLERS,
    **SPARSE_HANDLERS,
    **SPECTRAL_HANDLERS,
    **TRILINEAR_HANDLERS,
}
"""Namespace and name of an op (`aten.add`; all its overloads) to the function that
writes it. An op that works in place has the name of the one that does not."""


def find_handler(target: str) -> Handler | None:
    """Return the function that writes calls of *target*, or None."""
    namespace, _, rest = target.partition(".")
    name = f"{namespace}.{rest.split('.')[0]}"
    return HANDLERS.get(name) or HANDLERS.get(name.removesuffix("_"))
