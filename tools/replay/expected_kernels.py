"""The kernels that perfc launches for the calls of a trace, each on its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import attrs

from perfc import ir, passes
from perfc.costmodels import Estimate, Target
from perfc.passes.lowering import MEMSET


class ModelRow(NamedTuple):
    """What a model says of one kernel."""

    seconds: float
    sigma_shared: float
    sigma_own: float
    model: str


@attrs.frozen
class ExpectedKernel:
    """A kernel that perfc launches for an op."""

    kernel: ir.Kernel
    row: ModelRow


def expected_kernels(
    program: ir.Program | None, target: Target, modes: Iterable[bool]
) -> tuple[dict[tuple[str, bool], list[ExpectedKernel]], tuple[ir.Diagnostic, ...]]:
    """Return the kernels that perfc launches for each call, and what passes say.

    cuBLAS and cuDNN choose TF32 call by call, so calls are lowered both ways.

    Args:
        program: The calls, each with a name of its own; None for none.
        target: The machine.
        modes: The modes to lower in: True for TF32.

    """
    if program is None:
        return {}, ()
    found: dict[tuple[str, bool], list[ExpectedKernel]] = defaultdict(list)
    remarks: dict[ir.Diagnostic, None] = {}
    for tf32 in sorted(modes):
        lower = passes.LowerKernels(inputs="device", tf32=tf32, cudnn_tf32=tf32)
        manager = passes.PassManager(
            (passes.ShapeInference(), lower, passes.KernelCost())
        )
        analysis = manager.run(program, target)
        (graph,) = analysis.get(passes.LAUNCHES)
        (cost,) = analysis.get(passes.KERNEL_COST)
        for task, kernel in enumerate(graph.kernel):
            if kernel >= 0 and not _is_cleared_or_copied(graph, task):
                key = graph.ops[graph.op[task]].node.partition(".")[0]
                one = ExpectedKernel(graph.kernels[kernel], model_row(cost, kernel))
                found[key, tf32].append(one)
        remarks |= {d: None for d in analysis.diagnostics if d.code == "extrapolated"}
    return dict(found), tuple(remarks)


def _is_cleared_or_copied(graph: ir.LaunchGraph, task: int) -> bool:
    if graph.detail[graph.issue[task]] == MEMSET:
        return True
    return graph.kind[task] is ir.TaskKind.COPY and graph.detail[task] != "d2d"


def model_row(cost: Estimate, row: int) -> ModelRow:
    """Return a row of an estimate, as its model says it."""
    return ModelRow(
        float(cost.seconds[row]),
        float(cost.sigma_common[row]),
        float(cost.sigma_independent[row]),
        cost.model[row],
    )
