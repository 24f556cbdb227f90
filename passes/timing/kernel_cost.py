"""What each kernel costs: the cost models, asked once for all signatures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc.costmodels import Estimate, Target, find_cost_models, price
from perfc.costmodels.kernels import CostModel, extrapolation_remark
from perfc.ir import AnyKey, Kernel, Program
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import KERNEL_COST, LAUNCHES


@attrs.frozen
class KernelCost(Pass):
    """Price the kernel signatures of every rank class with the installed models."""

    name: ClassVar[str] = "kernel-cost"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({KERNEL_COST})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Write one estimate per rank class; say what is extrapolated or unknown."""
        models, left_out = find_cost_models()
        for why in left_out:
            ctx.warn("plugin-left-out", f"{why}; it prices nothing")
        graphs = ctx.get(LAUNCHES, program)
        estimates: list[Estimate] = [
            self.prices(graph.kernels, ctx.target, models) for graph in graphs
        ]
        ctx.set(KERNEL_COST, program, tuple(estimates))
        if unused := ctx.target.measured_unused:
            ctx.note(
                "measured-unused",
                f"{unused} kernels that profile {ctx.target.profile} has measured are "
                "priced by models: --set describes another machine",
                ctx.target.name,
            )
        if remark := extrapolation_remark(ctx.target):
            ctx.note("extrapolated", remark, ctx.target.name)
        # Count the tasks of unknown kernels, by op.
        found: Counter[str] = Counter()
        for graph in graphs:
            unknown = {i: k.op for i, k in enumerate(graph.kernels) if not k.known}
            if unknown:
                found.update(unknown[i] for i in graph.kernel if i in unknown)
        for op, count in sorted(found.items()):
            times = "once" if count == 1 else f"{count} times"
            ctx.warn(
                "unknown-op",
                f"no model for op {op} (launched {times}); "
                "its time is assumed from the bytes of its tensors",
                op,
            )

    def prices(
        self, kernels: Sequence[Kernel], target: Target, models: Sequence[CostModel]
    ) -> Estimate:
        """Return the costs of kernels."""
        return price(kernels, target, models)
