"""Errors of kernels as named factors: one matrix for any durations."""

from __future__ import annotations

import json
import math

import attrs
import numpy as np
import pytest
from tests.passes.launch_graphs import estimate, kernel

import perfc
from perfc.costmodels.kernels import OF_TARGET
from perfc.ir import NO_WORK, Kernel, Record
from perfc.passes.timing import ErrorFactors

Z = 1.6448536269514722


def _factors() -> ErrorFactors:
    """Return two GEMMs of one board, and a softmax."""
    softmax = Kernel("softmax", "fp32", "fp32", Record({"rows": 1, "cols": 1}), NO_WORK)
    cost = estimate([1.0, 1.0, 1.0], models=["gemm", "gemm", "streaming"])
    of_target = np.zeros((len(OF_TARGET), 3))
    of_target[OF_TARGET.index("board")] = (0.1, 0.1, 0.2)
    shared = np.array([0.3, 0.0, 0.0])
    cost = attrs.evolve(cost, sigma_shared=shared, sigma_target=of_target)
    return ErrorFactors.of([cost], [[kernel(0), kernel(1), softmax]], "t4")


def test_kernels_of_one_op_and_mode_share_a_board() -> None:
    """Those of another op have their own; a model's error is its kernels' alone."""
    found = _factors()

    assert (
        ("formula", "gemm on t4"),
        ("board", "gemm fp32 on t4"),
        ("board", "softmax fp32 on t4"),
    ) == found.names
    assert [[0.3, 0, 0], [0.1, 0.1, 0], [0, 0, 0.2]] == found.sigma.tolist()


def test_shared_errors_do_not_average_out() -> None:
    """Two GEMMs of one board are as unsure as one of their length."""
    found = _factors()
    seconds = np.array([2.0, 4.0, 1.0])

    assert pytest.approx([0.6, 0.6, 0.2]) == found.weights(seconds).tolist()
    whole = math.hypot(0.6, 0.6, 0.2)
    assert pytest.approx(0.36 / whole**2) == found.shares(seconds)[found.names[0]]
    assert 1.0 == pytest.approx(sum(found.shares(seconds).values()))
    moved_s = float(found.moves(seconds) @ seconds)
    assert pytest.approx(whole) == moved_s


def test_many_steps_at_once_are_as_one_by_one() -> None:
    """Durations may have any number of axes before that of kernels."""
    found = _factors()
    steps = np.array([[1.0, 2.0, 3.0], [0.5, 0.0, 4.0], [0.0, 0.0, 0.0]])

    assert [found.moves(row).tolist() for row in steps] == found.moves(steps).tolist()
    assert {} == found.shares(steps[2])


@pytest.mark.parametrize("runtime", ["eager", "cudagraph"])
@pytest.mark.parametrize("target", ["t4", "h200", "b200", "mi300x"])
def test_a_report_lists_what_its_interval_is_made_of(target: str, runtime: str) -> None:
    """Factors add up, in quadrature of logarithms, to both ends."""
    report = perfc.analyze("dlrm-default", target=target, batch=512, runtime=runtime)
    document = json.loads(report.to_json())
    factors, summary = document["uncertainty"], document["summary"]
    late = math.hypot(*(each["sigma"] for each in factors))
    early = math.hypot(*(each["sigma_low"] for each in factors))

    time_us = summary["time_us"]
    assert summary["time_us_p95"] == pytest.approx(time_us * math.exp(Z * late))
    assert summary["time_us_p05"] == pytest.approx(time_us * math.exp(-Z * early))
    assert late > early > 0
    decisive = "kernel" if runtime == "cudagraph" else "host"
    assert decisive in {each["factor"] for each in factors}
    keys = [(each["factor"], each["shared_with"]) for each in factors]
    assert len(keys) == len(set(keys))
