"""The pass `kernel-cost`."""

from __future__ import annotations

import pytest
from tests.costmodels.signatures import ALL_MODELS, gemm, unknown

from perfc.costmodels import load_target
from perfc.costmodels.kernels import CostModel
from perfc.ir import Kernel, LaunchGraph, Program, TaskKind, single
from perfc.ir.annotations import Annotations
from perfc.ir.support import PassContractError
from perfc.passes import KERNEL_COST, LAUNCHES, KernelCost
from perfc.passes.base import PassContext
from perfc.passes.manager import Analysis, PassManager
from perfc.passes.timing import kernel_cost


@pytest.fixture(autouse=True)
def _built_in_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the built-in models, installed or not."""

    def built_in() -> tuple[tuple[CostModel, ...], tuple[str, ...]]:
        return ALL_MODELS, ()

    monkeypatch.setattr(kernel_cost, "find_cost_models", built_in)


def _graph(*kernels: Kernel) -> LaunchGraph:
    graph = LaunchGraph("g")
    stream = graph.stream()
    for kernel in kernels:
        graph.task(TaskKind.KERNEL, stream, kernel=graph.intern(kernel))
    return graph


def _run(*graphs: LaunchGraph, target: str = "a100") -> Analysis:
    program = single(graphs[0])
    facts = Annotations()
    facts.set(LAUNCHES, program, graphs, None)
    manager = PassManager([KernelCost()], given=frozenset({LAUNCHES}))
    return manager.run(program, load_target(target), annotations=facts)


def test_one_estimate_per_class() -> None:
    """Every rank class gets one row per distinct kernel signature."""
    analysis = _run(_graph(gemm(8, 8, 8), gemm(8, 8, 8)), _graph(unknown(8)))

    costs = analysis.annotations.get(KERNEL_COST, analysis.program, None)

    assert [["gemm"], ["roofline"]] == [list(cost.model) for cost in costs]


@pytest.mark.parametrize(("target", "notes"), [("a100", 0), ("b200", 0), ("mi210", 1)])
def test_another_makers_gpu_is_noted_once(target: str, notes: int) -> None:
    """The models were fitted on NVIDIA's GPUs, and the report says so of AMD's."""
    analysis = _run(_graph(gemm(8, 8, 8)), _graph(gemm(4, 4, 4)), target=target)

    found = [d for d in analysis.diagnostics if d.code == "extrapolated"]
    assert [target] * notes == [d.where for d in found]
    assert all("no kernel of AMD GPUs was measured" in d.message for d in found)


def test_unknown_ops_are_named_once() -> None:
    """One warning per unknown op says how often it is launched."""
    analysis = _run(
        _graph(unknown(8, "acme::a"), unknown(16, "acme::a"), unknown(8, "acme::b")),
        _graph(unknown(8, "acme::a"), gemm(8, 8, 8)),
    )

    assert [
        ("unknown-op", "acme::a", True),
        ("unknown-op", "acme::b", True),
    ] == [
        (
            d.code,
            d.where,
            {"acme::a": "3 times", "acme::b": "once"}[d.where] in d.message,
        )
        for d in analysis.diagnostics
    ]


def test_an_empty_graph_costs_nothing() -> None:
    """A launch graph without kernels has an empty estimate and no warning."""
    analysis = _run(LaunchGraph("empty"))

    (cost,) = analysis.annotations.get(KERNEL_COST, analysis.program, None)

    assert (0, ()) == (len(cost), analysis.diagnostics)


def test_a_target_is_needed() -> None:
    """Without a target there is nothing to price for."""
    program: Program = single(_graph(gemm(8, 8, 8)))
    facts = Annotations()
    facts.set(LAUNCHES, program, (_graph(gemm(8, 8, 8)),), None)
    owner = KernelCost()

    with pytest.raises(PassContractError, match="--target"):
        owner.run(program, PassContext(owner, facts, None, None, []))
