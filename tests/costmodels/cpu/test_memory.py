"""Where a CPU's kernels write, and which pages are new."""

from __future__ import annotations

import pytest

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.cpu.amounts import amounts_of
from perfc.ir import AttrValue, Kernel, Record, Work

TARGET = load_target("cpu")
PAGE_TERMS = ("page_us", "grown_us", "heap_page_us")


def _pages(op: str, written: int, **params: AttrValue) -> list[float]:
    """Return the pages of a result that are mapped, that the heap grew by, it has."""
    kernel = Kernel(op, "fp32", "fp32", Record(params), Work(0, written, written))
    found = amounts_of(KernelTable([kernel]), TARGET)
    return [found[name][0] * 1e6 for name in PAGE_TERMS]


@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("elementwise", {"kind": "add", "rows": 1, "cols": 1, "in_place": True}),
        ("elementwise", {"kind": "fill", "rows": 1, "cols": 1}),
        ("optimizer_step", {"kind": "sgd", "elements": 1}),
    ],
)
def test_what_is_written_over_has_its_pages(
    op: str, params: dict[str, AttrValue]
) -> None:
    """No result is made, however large it were."""
    assert [0.0, 0.0, 0.0] == _pages(op, 64 << 20, **params)


@pytest.mark.parametrize(
    ("mib", "mapped", "grown", "heap"),
    [(2, 0, 512, 0), (4, 0, 1024, 1024), (32, 8192, 0, 8192)],
)
def test_results_of_some_size_lie_in_new_pages(
    mib: int, mapped: int, grown: int, heap: int
) -> None:
    """New from 32 MiB on mapped for each call; others from 4 MiB on atop the heap."""
    sizes: dict[str, AttrValue] = {"kind": "relu", "rows": 1, "cols": mib << 18}
    new = _pages("elementwise", mib << 20, **sizes, new_pages=True)
    held = _pages("elementwise", mib << 20, **sizes)

    assert [mapped, grown, 0] == pytest.approx(new)
    assert [0, 0, heap] == pytest.approx(held)
