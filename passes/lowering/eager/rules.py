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
from perfc.passes.lowering.eager import backward as eager_backward
from perfc.passes.lowering.eager import collective as eager_collective
from perfc.passes.lowering.eager import distance as eager_distance
from perfc.passes.lowering.eager import elementwise as eager_elementwise
from perfc.passes.lowering.eager import loss as eager_loss
from perfc.passes.lowering.eager import movement as eager_movement
from perfc.passes.lowering.eager import optimizer as eager_optimizer
from perfc.passes.lowering.eager import quantization as eager_quantization
from perfc.passes.lowering.eager import storage as eager_storage
from perfc.passes.lowering.eager.attention import backward as eager_attention_backward
from perfc.passes.lowering.eager.attention import forward as eager_attention
from perfc.passes.lowering.eager.convolution import convolution as eager_convolution
from perfc.passes.lowering.eager.cpu import on_cpu
from perfc.passes.lowering.eager.embedding import bags as eager_bags
from perfc.passes.lowering.eager.embedding import sparse as eager_sparse
from perfc.passes.lowering.eager.embedding import tables as eager_embedding
from perfc.passes.lowering.eager.gemm import einsum as eager_einsum
from perfc.passes.lowering.eager.gemm import product as eager_product
from perfc.passes.lowering.eager.recurrent import cell as eager_cell
from perfc.passes.lowering.eager.recurrent import ctc as eager_ctc
from perfc.passes.lowering.eager.recurrent import layers as eager_recurrent
from perfc.passes.lowering.eager.reductions import norm_backward as eager_norm_backward
from perfc.passes.lowering.eager.reductions import normalization as eager_normalization
from perfc.passes.lowering.eager.reductions import reduction as eager_reduction
from perfc.passes.lowering.eager.reductions import selection as eager_selection
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    dtype_name,
    unmodelled_launch,
)

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
