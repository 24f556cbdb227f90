"""Every op really runs on the CPU, and does what its row says."""

from __future__ import annotations

import sys
from typing import cast

import pytest
import torch

from perfc.costmodels import NEW, NEW_BYTES
from perfc.ir import AttrValue, Record
from perfc.measure.case import Case, Family, Tensors
from perfc.measure.device import open_device
from perfc.measure.families import row_indices
from perfc.measure.suites import suite

DEVICE = open_device("cpu")
SUITE = suite("quick", DEVICE)
POPULARITIES = ("uniform", "zipf")
FAMILIES = sorted({type(family).__name__ for family, _ in SUITE})


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    """Make operands."""
    return Tensors(DEVICE)


def _cases(name: str) -> list[tuple[Family, Case]]:
    """Return some cases of a family, those that move the least."""
    mine = [(f, case) for f, case in SUITE if type(f).__name__ == name]
    return sorted(mine, key=lambda pair: pair[0].memory_bytes(pair[1]))[:16]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_runs(name: str, tensors: Tensors) -> None:
    """Small cases of every kind run, also a second time on the same operands."""
    with torch.no_grad():
        for family, case in _cases(name):
            call = family.prepare(case, tensors)
            call()
            call()


def _result(
    op: str, tensors: Tensors, index: int = 0, /, **params: AttrValue
) -> object:
    """Run one case of an op by the family that measures it."""
    families = [f for f, _ in SUITE if f.op == op]
    family = list(dict.fromkeys(families))[index]
    with torch.no_grad():
        return family.prepare(Case(op, "fp32", Record(params)), tensors)()


def _shapes(results: object) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors of a tuple, of those that have elements."""
    found = cast("tuple[torch.Tensor | None, ...]", results)
    return [tuple(t.shape) for t in found if t is not None and t.numel()]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_gemms_have_the_size_of_the_row(layout: str, tensors: Tensors) -> None:
    """C is m by n, whatever lies transposed; a batch of them is b by m by n."""
    sizes: dict[str, AttrValue] = {"m": 3, "n": 5, "k": 7, "layout": layout}
    plain = _result("gemm", tensors, b=1, **sizes, bias=True)
    batched = _result("gemm", tensors, 1, b=4, **sizes)

    assert isinstance(plain, torch.Tensor)
    assert isinstance(batched, torch.Tensor)
    assert ((3, 5), (4, 3, 5)) == (tuple(plain.shape), tuple(batched.shape))


def test_each_gradient_of_a_convolution(tensors: Tensors) -> None:
    """A phase computes its own gradient and nothing else."""
    sizes: dict[str, AttrValue] = {"n": 2, "c_in": 4, "c_out": 6, "kernel": 3}
    sizes |= {"size": 8, "stride": 1, "padding": 1}
    of_x, of_w = (
        _shapes(_result("conv2d", tensors, **sizes, phase=phase))
        for phase in ("backward_data", "backward_weight")
    )

    assert ([(2, 4, 8, 8)], [(6, 4, 3, 3)]) == (of_x, of_w)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_an_update_changes_the_rows_that_were_looked_up(
    optimizer: str, tensors: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer's step is inside the call, and leaves other rows alone."""
    tables: list[torch.Tensor] = []
    random = Tensors.random

    def kept(self: Tensors, dtype: str, *shape: int) -> torch.Tensor:
        result = random(self, dtype, *shape)
        if len(shape) == 2:
            tables.append(result)
        return result

    monkeypatch.setattr(Tensors, "random", kept)
    family = next(f for f, _ in SUITE if type(f).__name__ == "EmbeddingBagBackward")
    table = Record({"rows": 1000, "dim": 4, "pooling": 3})
    params: dict[str, AttrValue] = {"batch": 2, "tables": (table,)}
    params |= {"popularity": "uniform", "optimizer": optimizer, "phase": "backward"}
    with torch.no_grad():
        call = family.prepare(Case("embedding_bag", "fp32", Record(params)), tensors)
        before = tables[0].clone()
        call()

    changed = (tables[0] != before).any(dim=1).sum().item()
    assert 1 <= changed <= 6


def test_popular_rows(tensors: Tensors) -> None:
    """A Zipf distribution names few rows often; a uniform one does not."""
    rows, count = 100_000, 10_000
    drawn = {name: row_indices(name, tensors, rows, count) for name in POPULARITIES}
    most = {name: float(torch.bincount(d).max()) / count for name, d in drawn.items()}

    assert most["uniform"] < 0.01
    assert most["zipf"] > 0.05
    for indices in drawn.values():
        assert 0 <= int(indices.min()) <= int(indices.max()) < rows


def test_a_case_is_shown_short() -> None:
    """A line of progress or of an error stays a line."""
    table = Record({"rows": 1, "dim": 1, "pooling": 1})
    case = Case("embedding_bag", "fp32", Record({"tables": (table,) * 64}))

    assert len(str(case)) <= 160
    assert str(case).startswith("embedding_bag fp32 {tables = ")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems clear otherwise")
def test_a_copy_to_new_pages_has_them_cleared(tensors: Tensors) -> None:
    """Each time anew, by the system; Linux may clear 2 MiB of them in one fault."""
    import resource  # Windows has none

    sizes: dict[str, AttrValue] = {"kind": "copy", "rows": 2048, "cols": 4096}
    (family,) = {f for f, _ in SUITE if f.op == "elementwise"}
    case = Case("elementwise", "fp32", Record({**sizes, "tensor_inputs": 1, NEW: True}))
    call = family.prepare(case, tensors)

    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        call()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        assert before + NEW_BYTES // (2 * 2**20) <= after


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' heaps differ")
def test_only_large_copies_on_a_cpu_are_to_new_pages() -> None:
    """From 32 MiB on, however small the shape that was drawn."""
    cases = [case for _, case in suite("large", DEVICE, ["elementwise"])]
    new = [case for case in cases if case.params.flag(NEW)]

    assert new
    assert NEW_BYTES <= min(case.work.bytes_written for case in new)
    assert not any(
        c.params.flag(NEW) for _, c in suite("quick", DEVICE, ["elementwise"])
    )
