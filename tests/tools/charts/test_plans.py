"""What pages show of plans: bars with intervals, and time against memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from perfc.tools.charts import Box, box_timeline, plan_bars, time_and_memory
from perfc.tools.reports import PricedPlan


def _plans(count: int, **more: float) -> Sequence[PricedPlan]:
    return [
        PricedPlan(
            name=f"p{n}", time_us=100.0 + n, peak_memory_bytes=1e9 * (n + 1), **more
        )
        for n in range(count)
    ]


def test_bars() -> None:
    """The first plans have a bar; the interval where somebody knows it."""
    known = plan_bars(_plans(20, time_us_p05=90.0, time_us_p95=130.0), "plans")
    unknown = plan_bars(_plans(2), "plans")

    assert [f"p{n}" for n in range(12)] == [bar.label for bar in known.bars]
    assert {(90.0, 130.0)} == {(bar.low, bar.high) for bar in known.bars}
    assert all(math.isnan(bar.low) for bar in unknown.bars)


def test_chances_have_a_heading() -> None:
    """If nobody knows which plan is best, no column says so."""
    told = plan_bars(_plans(2, probability_best=0.5), "plans")

    assert "P(fastest)" == told.heading[-1]
    assert ["50 %", "50 %"] == [bar.note for bar in told.bars]
    assert "" == plan_bars(_plans(2), "plans").heading[-1]


def test_time_and_memory() -> None:
    """A point a plan, and a line at what a device has if that is near."""
    near, far = time_and_memory(_plans(3), 5e9), time_and_memory(_plans(3), 80e9)

    assert near is not None
    assert far is not None
    plans, limit = near.series
    assert ([1e9, 2e9, 3e9], [100.0, 101.0, 102.0]) == (plans.x, plans.y)
    assert [5e9, 5e9] == limit.x
    assert 1 == len(far.series)


@pytest.mark.parametrize(
    "plans",
    [_plans(1), [PricedPlan(name="a", time_us=math.inf, peak_memory_bytes=1.0)] * 3],
)
def test_one_plan_is_not_drawn(plans: Sequence[PricedPlan]) -> None:
    """What has no other beside it, or no time, makes no chart."""
    assert time_and_memory(plans) is None


def test_boxes_are_in_order_in_lanes() -> None:
    """Lanes come as they are first told of; boxes of a lane by time."""
    boxes = [
        Box("b", "late", "x", 2.0, 3.0),
        Box("a", "other", "y", 0.0, 1.0),
        Box("b", "early", "x", 0.0, 1.0),
    ]

    timeline = box_timeline(boxes, {"y": 3}, "")

    assert ["b", "a"] == [lane.label for lane in timeline.lanes]
    first = timeline.lanes[0].slices
    assert ["early", "late"] == [timeline.names[n] for n in first.name]
    assert [0, 2_000_000_000] == first.start_ns.tolist()
    colors = dict(zip(timeline.kinds, timeline.colors, strict=True))
    assert {"y": 3, "x": 8} == colors
