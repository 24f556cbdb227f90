"""Points and roofs of a roofline are numbers of the report and of its target."""

from __future__ import annotations

import math

import pytest

import perfc
from perfc.tools.charts import roofline_points


def _report(target: str = "a100", dtype: str = "fp32") -> perfc.Report:
    model = perfc.load("dlrm-ddp", batch=256, mode="training")
    return perfc.analyze(model, target, dtype=dtype)


def test_points_are_nodes() -> None:
    """A node without copies has the report's work, time, price and provenance."""
    report = _report()
    nodes = {(node["id"], node["op"]): node for node in report.nodes}

    for point in roofline_points(report).points:
        node = nodes[point.node, point.op]
        if all("memcpy" not in kernel for kernel in node["kernels"]):
            assert (node["flops"], node["bytes"]) == (point.flops, point.bytes)
            assert pytest.approx(node["duration_us"]) == point.time_us
            assert node["cost_model"] == point.cost_model
            assert node["provenance"] == point.provenance


def test_every_kernel_has_a_place() -> None:
    """Of the nodes on the device all are there, but those that only copy."""
    report = _report()
    on_device = {
        node["id"]
        for node in report.nodes
        if any("memcpy" not in kernel for kernel in node["kernels"])
    }

    assert on_device == {point.node for point in roofline_points(report).points}


def test_shares_and_order() -> None:
    """Shares are of all kernels, and the longest come first."""
    points = roofline_points(_report()).points
    total_us = math.fsum(point.time_us for point in points)

    assert 1.0 == pytest.approx(sum(point.share for point in points))
    assert sorted(points, key=lambda point: -point.time_us) == points
    assert points[0].time_us / total_us == pytest.approx(points[0].share)


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "amp-bf16"])
def test_roofs_are_the_target_s(dtype: str) -> None:
    """Each mode that a kernel computes in has its rate, and each memory its own."""
    report = _report(dtype=dtype)
    device = report.target.device

    found = roofline_points(report)

    assert {point.math for point in found.points} == set(found.flop_per_s)
    for mode, rate in found.flop_per_s.items():
        assert device.peak(mode) == rate
    assert device.memory.bytes_per_s == [*found.bytes_per_s.values()][-1]
    for point in found.points:
        if point.flops:
            assert point.flop_per_s is not None
            assert point.flop_per_s <= 1.001 * found.flop_per_s[point.math]


def test_overridden_roofs() -> None:
    """A target that is set by hand has the roof that it was given."""
    model = perfc.load("dlrm-ddp", batch=256)
    report = perfc.analyze(model, "a100", overrides={"gpu.memory_gb_per_s": 1000})

    assert pytest.approx(1e12) == roofline_points(report).bytes_per_s["memory"]


def test_intensity() -> None:
    """FLOP over bytes and over seconds; None where there is nothing to divide by."""
    (point, *_) = (p for p in roofline_points(_report()).points if p.flops)

    assert point.flops / point.bytes == point.flop_per_byte
    assert point.flops / point.time_us * 1e6 == point.flop_per_s
    from attrs import evolve

    still = evolve(point, bytes=0, time_us=0.0)
    assert (None, None) == (still.flop_per_byte, still.flop_per_s)


def test_a_processor_has_roofs_too() -> None:
    """On a CPU the kernels run in the calls, and have the same places."""
    found = roofline_points(_report("cpu"))

    assert found.points
    assert {"fp32"} <= set(found.flop_per_s)
