"""What holds of every diff: tried on 200 random pairs of reports, by every name."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perfc
from perfc.ir import PerfcError

BY = ("op", "module", "phase", "kernel", "overhead")
PARTS = (("host", "T1"), ("host", "T4"), ("launch", "gemm"), ("kernel", "gemm"))
ENDS = (("idle", "gemm"), ("copy", "h2d"), ("sync", "cudaDeviceSynchronize"))

Json = dict[str, Any]


@st.composite
def reports(draw: st.DrawFn) -> Json:
    """Return a report of up to 60 ops, in any order, most of them on the path."""
    count = draw(st.integers(1, 60))
    number = random.Random(draw(st.integers(0, 2**32)))
    nodes = [_node(number, place) for place in range(count)]
    number.shuffle(nodes)
    path: list[Json] = [
        {
            "rank": 0,
            "node": node["id"],
            "kind": kind,
            "detail": detail,
            "duration_us": 10 ** number.uniform(-3, 3),
            "start_us": 0.0,
        }
        for node in nodes
        for kind, detail in (*PARTS, number.choice(ENDS))
        if number.random() < 0.7
    ]
    return {
        "schema": "perfc.report/1",
        "model": {"name": "m"},
        "target": {"name": "t", "profile": number.choice("pq")},
        "runtime": "eager",
        "summary": {"time_us": math.fsum(one["duration_us"] for one in path)},
        "nodes": nodes,
        "critical_path": path,
        "uncertainty": [
            {"factor": "host", "shared_with": "p", "sigma": 0.1, "sigma_low": 0.1},
            {
                "factor": "kernel",
                "shared_with": "launches of one kernel",
                "sigma": 0.1,
                "sigma_low": 0.1,
            },
        ],
    }


def _node(number: random.Random, place: int) -> Json:
    return {
        "rank": 0,
        "id": f"n{place}",
        "op": f"aten::op{number.randrange(4)}",
        "module": f"m.{place // 10}",
        "phase": number.choice(("forward", "backward")),
        "operands": [f"{number.choice(('f32', 'bf16'))}[{number.choice((64, 128))},8]"],
        "kernels": [f"{number.choice(('gemm', 'conv2d'))} fp32 fp32"],
        "duration_us": number.random() * 100,
        "fuses": number.choice(([], [], ["n1"])),
    }


PAIRS = settings(
    max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None
)


@PAIRS
@given(base=reports(), head=reports())
def test_steps_are_all_of_the_difference(base: Json, head: Json) -> None:
    """They sum to it, and turn round with the question."""
    difference_us = head["summary"]["time_us"] - base["summary"]["time_us"]
    for by in BY:
        try:
            there, back = perfc.diff(base, head, by), perfc.diff(head, base, by)
        except PerfcError as error:
            assert "none is of an op that" in str(error)  # noqa: PT017 - or it is equal
            return
        total_us = math.fsum(step.delta_us for step in there.steps)

        assert difference_us == there.difference_us == -back.difference_us
        assert total_us == pytest.approx(difference_us, rel=1e-9, abs=1e-12)
        assert {s.name: s.delta_us for s in there.steps} == {
            s.name: -s.delta_us for s in back.steps
        }
        assert 1 == pytest.approx(
            (there.probability_slower or 0) + (back.probability_slower or 0)
        )


@PAIRS
@given(report=reports(), seed=st.integers(0, 99))
def test_nothing_differs_from_itself(report: Json, seed: int) -> None:
    """Whatever the order of its ops."""
    nodes = random.Random(seed).sample(report["nodes"], len(report["nodes"]))
    for by in BY:
        found = perfc.diff(report, {**report, "nodes": nodes}, by)

        assert ([], [], 0.5) == (found.steps, found.changes, found.probability_slower)
