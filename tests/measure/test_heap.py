"""Where operands and results lie while a CPU is measured."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from perfc.measure.heap import heap_results, mapped_operands

ROOT = Path(__file__).parents[2]


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33; `hblks` is how many blocks are mapped."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]
    hblks: int


def _mapped_blocks() -> int:
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if sys.platform != "linux" or mallinfo is None:
        pytest.skip("needs glibc 2.33 or newer")
    mallinfo.restype = _Mallinfo
    found: _Mallinfo = mallinfo()
    return found.hblks


def _block(mib: int) -> torch.Tensor:
    return torch.empty(mib * 2**20, dtype=torch.uint8)


def test_operands_are_mapped_and_leave_no_holes() -> None:
    """Each for itself, so that it goes back to the system; some fill room there was."""
    before = _mapped_blocks()

    with mapped_operands():
        operands = [_block(1) for _ in range(400)]
        assert before + 200 <= _mapped_blocks()
    del operands

    assert before >= _mapped_blocks()


@pytest.mark.parametrize(("mib", "mapped"), [(16, 0), (1024, 1)])
def test_large_results_alone_are_mapped(mib: int, mapped: int) -> None:
    """As in a model that has run for a while; no heap has room for a gibibyte."""
    with mapped_operands():
        operands = [_block(1) for _ in range(50)]
    del operands
    before = _mapped_blocks()

    result = _block(mib)

    assert before + mapped == _mapped_blocks()
    assert mib * 2**20 == result.numel()


def mapped_for(mib: int) -> int:
    """Return how many blocks are mapped for a result of so many MiB."""
    before = _mapped_blocks()
    with heap_results():
        result = _block(mib)
        mapped = _mapped_blocks()
    assert mib * 2**20 == result.numel()
    return mapped - before


@pytest.mark.parametrize("mib", [16, 256])
def test_measured_results_lie_in_the_heap(mib: int) -> None:
    """Whatever their size, in a process of their own.

    In one that has run a while, something may lie where the heap would grow.
    """
    _mapped_blocks()  # skips where nobody tells
    code = f"from tests.measure.test_heap import mapped_for; print(mapped_for({mib}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )

    assert b"0\n" == done.stdout
