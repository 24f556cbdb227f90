"""What optimizers launch for sparse gradients, and what PyTorch itself calls."""

from __future__ import annotations

import pytest
from tests.passes.lowered import kernels, launched, lower, names

from perfc.ir import DTYPES, OPTIMIZER_STATES, LaunchGraph, TensorType
from perfc.ir.ops.optimizer import state_types

TABLE = TensorType(DTYPES["f32"], (1000, 8))


def step(kind: str, lookups: int = 5000, more: str = "") -> LaunchGraph:
    """Lower one step on a table of 1000 x 8."""
    states = {f"%m{i}": type_ for i, type_ in enumerate(state_types(kind, TABLE))}
    declared = "".join(f", state {name}: {type_}" for name, type_ in states.items())
    operands = ", ".join(["%w", "%i", "%r", *states])
    return lower(f"""graph @g(
        %i: i64[{lookups}], %r: f32[{lookups},8], param %w: {TABLE}{declared}) {{
      sparse_optimizer_step({operands}) {{kind = "{kind}"{more}}}
      return %r }}""")


def test_sgd_adds_rows_as_they_are() -> None:
    """`add_` of a gradient that is not coalesced is one kernel of atomic additions."""
    graph = step("sgd")

    (kernel,) = kernels(graph)
    assert (["aten::add_"], "atomic") == (names(graph), kernel.params["algorithm"])
    assert 5000 * 8 == kernel.work.flops


def test_adagrad_coalesces_first() -> None:
    """Equal indices are sorted and summed: merges of 3 tiles, 4 waits of the host."""
    graph = step("adagrad")

    found = launched(graph)["aten::coalesce"]
    assert (3, 2) == (found.count("radix_sort"), found.count("elementwise"))
    assert 4 == graph.detail.count("cudaStreamSynchronize")


def test_known_numbers_of_rows_are_taken() -> None:
    """`unique` says how many rows differ; what follows the sum is as large."""
    few, many = (step("adagrad", more=f", unique = {n}") for n in (10, 900))

    def summed(graph: LaunchGraph) -> int:
        return next(
            k.work.flops for k in kernels(graph) if k.params.get("kind") == "pow"
        )

    assert (10 * 8, 900 * 8) == (summed(few), summed(many))


def test_nothing_looked_up() -> None:
    """A gradient without rows launches nothing."""
    assert [] == kernels(step("adam", lookups=0))


@pytest.mark.parametrize("kind", sorted(OPTIMIZER_STATES))
def test_one_lookup(kind: str) -> None:
    """A single row is not sorted."""
    assert [] == [k for k in kernels(step(kind, 1)) if k.op == "radix_sort"]


SILENT = {
    "aten::_indices",
    "aten::_values",
    "aten::item",
    "aten::sparse_coo_tensor",
    "aten::to",
    "aten::view",
}
"""Calls that launch nothing."""


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adam"])
def test_calls_of_pytorch(kind: str) -> None:
    """A step of `torch.optim` makes the calls that the rule launches, in order."""
    torch = pytest.importorskip("torch")
    optimizers = {
        "sgd": torch.optim.SGD,
        "adagrad": torch.optim.Adagrad,
        "adam": torch.optim.SparseAdam,
    }
    weight = torch.nn.Parameter(torch.zeros(1000, 8))
    indices, rows = torch.arange(5000)[None] % 1000, torch.ones(5000, 8)
    optimizer = optimizers[kind]([weight], lr=0.1)

    with torch.sparse.check_sparse_tensor_invariants(enable=True):
        weight.grad = torch.sparse_coo_tensor(indices, rows, (1000, 8))
        optimizer.step()  # the first one makes the states
        with torch.profiler.profile() as profile:
            optimizer.step()

    (whole,) = [e for e in profile.events() if e.name.startswith("Optimizer.step")]
    made = [e.name for e in whole.cpu_children if e.name not in SILENT]
    counted = 1 if kind == "adagrad" else 0  # the number of the step, on the host
    assert names(step(kind)) == made[counted:]
