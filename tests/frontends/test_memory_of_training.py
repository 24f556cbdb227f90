"""Predicted memory of training steps against PyTorch's own."""

from __future__ import annotations

import pytest
from tests.frontends.training_memory import (
    OPTIMIZERS,
    Case,
    allocated_bytes,
    counted_bytes,
    predicted_bytes,
)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("case", [Case("resnet50", 64), Case("bert-base", 32, 12)])
def test_peak_is_what_the_step_holds(case: Case, optimizer: str) -> None:
    """At full size the peak is that of the real step's storages, within 10 %."""
    counted = counted_bytes(case, optimizer)

    assert pytest.approx(counted, rel=0.1) == predicted_bytes(case, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("case", [Case("resnet50", 2), Case("bert-base", 4, 2)])
def test_peak_is_what_a_run_allocates(case: Case, optimizer: str) -> None:
    """At a small size the peak is what the allocator hands out, within 10 %."""
    allocated = allocated_bytes(case, optimizer)

    assert pytest.approx(allocated, rel=0.1) == predicted_bytes(case, optimizer)
