"""What eager PyTorch launches for each op: one table of rules.

The rules describe PyTorch 2.x on CUDA, read from ATen's sources and from public
traces. An op that only views costs the host time and launches nothing; an op
without a rule launches one kernel that is costed by its bytes and marked so.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import Kernel
from perfc.ir.ops.collective import COLLECTIVES
from perfc.ir.record import EMPTY
from perfc.passes import (
    eager_attention,
    eager_attention_backward,
    eager_backward,
    eager_bags,
    eager_cell,
    eager_collective,
    eager_convolution,
    eager_ctc,
    eager_distance,
    eager_einsum,
    eager_elementwise,
    eager_embedding,
    eager_loss,
    eager_movement,
    eager_norm_backward,
    eager_normalization,
    eager_optimizer,
    eager_product,
    eager_quantization,
    eager_recurrent,
    eager_reduction,
    eager_selection,
    eager_sparse,
    eager_storage,
)
from perfc.passes.eager import (
    Eager,
    Launch,
    Rule,
    Site,
    dtype_name,
    unmodelled_launch,
)
from perfc.passes.eager_cpu import on_cpu

FREE = frozenset({"constant", "shape", "size"})
"""Ops that do not exist in eager PyTorch: Python's own integers."""


def _test_op(site: Site) -> Eager:
    """Launch a kernel that takes the microseconds that the op states."""
    dtype = site.results[0].dtype if site.results else None
    name = "fp32" if dtype is None else dtype_name(dtype)
    launch = Launch(Kernel("test.op", name, "fp32", EMPTY, site.work))
    us = site.attributes.get("us")
    if isinstance(us, int | float):
        launch = attrs.evolve(launch, stated_s=us * 1e-6)
    return Eager("test.op", (launch,))


def _unmodelled(site: Site) -> Eager:
    name = site.attributes.text("op", site.op)
    return Eager(name, (unmodelled_launch(name, site),))


RULES: Mapping[str, Rule] = {
    **eager_attention.RULES,
    **eager_attention_backward.RULES,
    **eager_backward.RULES,
    **eager_bags.RULES,
    **eager_cell.RULES,
    **eager_collective.RULES,
    **eager_convolution.RULES,
    **eager_ctc.RULES,
    **eager_distance.RULES,
    **eager_einsum.RULES,
    **eager_elementwise.RULES,
    **eager_loss.RULES,
    **eager_embedding.RULES,
    **eager_movement.RULES,
    **eager_norm_backward.RULES,
    **eager_normalization.RULES,
    **eager_optimizer.RULES,
    **eager_product.RULES,
    **eager_quantization.RULES,
    **eager_recurrent.RULES,
    **eager_reduction.RULES,
    **eager_selection.RULES,
    **eager_storage.RULES,
    **eager_sparse.RULES,
    "test.op": _test_op,
}
"""Rules by op name."""


def eager_launches(site: Site) -> Eager:
    """Return what eager PyTorch does at *site*."""
    eager = RULES.get(site.op, _unmodelled)(site)
    if site.settings.on_cpu:
        eager = on_cpu(eager, training=site.settings.training)
    if site.op in COLLECTIVES:
        return eager  # the others wait for this rank, whatever it has to say
    if eager.launches and site.results and not any(_numels(site)):
        return attrs.evolve(eager, launches=())  # empty tensors launch nothing
    return eager


def _numels(site: Site) -> list[int]:
    return [int(result.numel) for result in site.results]
