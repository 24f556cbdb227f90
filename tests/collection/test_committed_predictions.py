"""The predictions that are committed: a record, which is checked and not made again.

Today's models may say something else. What stands there was said before anything was
measured.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections import Counter
from typing import Any

import pytest
from tests.collection.made_up import predicted

from perfc.measure.models import find_subject

plan: Any = importlib.import_module("collection.plan")
predictions: Any = importlib.import_module("collection.predictions")

_GIVEN = ("batch", "mode", "runtime", "dtype", "optimizer", "attention")

_LEFT_OUT = ("max_rows", "dropout")


@pytest.fixture(name="made", scope="module")
def _made() -> Any:
    return predicted.read_predictions(predicted.FOLDER)


@functools.cache
def _params(model: str) -> tuple[tuple[str, object], ...]:
    return _kept(find_subject(model).params)


def _kept(params: Any) -> tuple[tuple[str, object], ...]:
    """Return parameters that every record has, and that all GPUs share.

    How large tables may be depends on the GPU; `dropout` came after the record.
    """
    return tuple(item for item in params.items() if item[0] not in _LEFT_OUT)


def test_every_planned_setting(made: Any) -> None:
    """Each has one row on each target, and nothing else has any."""
    planned = [
        (s.name, _params(s.model), *(getattr(s, name) for name in _GIVEN))
        for s in plan.planned()
    ]

    for target in predictions.TARGETS:
        rows = [row for row in made.workloads if row.target == target]
        found = [
            (row.model, _kept(row.params), *(getattr(row, name) for name in _GIVEN))
            for row in rows
        ]
        assert Counter(planned) == Counter(found)
    assert {*predictions.TARGETS} == {row.target for row in made.workloads}


def test_numbers(made: Any) -> None:
    """Times are above zero and inside their intervals."""
    for row in made.workloads:
        assert 0 < row.time_us_p05 <= row.time_us <= row.time_us_p95, row
        active = (row.gpu_active_us_p05, row.gpu_active_us, row.gpu_active_us_p95)
        assert 0 < active[0] <= active[1] <= active[2], row
        assert row.gpu_active_us <= row.time_us, row
        assert min(row.peak_memory_bytes, row.launches) > 0, row
        assert row.bound in {"host", "compute", "memory"}, row
    for row in made.kernels:
        assert 0 < row.kernel_us_p05 <= row.kernel_us <= row.kernel_us_p95, row
        assert row.graph_us_p05 <= row.graph_us <= row.graph_us_p95, row
        assert row.kernel_us <= row.graph_us, row


def test_calls_make_up_the_gpus_time(made: Any) -> None:
    """Each setting has calls of its own target, which take up its GPU-active time."""
    sums = [0.0] * len(made.workloads)
    for row in made.counts:
        kernel = made.kernels[row.kernel]
        assert kernel.target == made.workloads[row.workload].target
        sums[row.workload] += row.count * kernel.kernel_us
    assert sums == pytest.approx(
        [row.gpu_active_us for row in made.workloads], rel=0.05
    )


def test_what_made_them(made: Any) -> None:
    """A commit, without changes beside it, and a day."""
    assert re.fullmatch(r"[0-9a-f]{40}", made.manifest["perfc_commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made.manifest["date"])
