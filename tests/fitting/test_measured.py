"""Which rows decide a kernel, and which only correct models."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from tests.fitting.rows import gemms

from perfc.costmodels import KernelTable, cost_models, load_target, lower_bound, price
from perfc.costmodels.machine import MeasuredKernel
from perfc.fitting.measured import measured_table
from perfc.fitting.observations import observe
from perfc.ir import Kernel, Record
from perfc.measurements import Measurement, kernel_of

V100 = load_target("v100")


def _as_perfc(kernel: Kernel, seconds: float) -> float:
    return 1.5 * seconds


def _row(op: str, seconds: float | None = None, **params: int | str) -> Measurement:
    """Return a row of perfc's own; it takes what perfc says if nothing is said."""
    row = Measurement(
        target=V100.name,
        op=op,
        dtype="fp32",
        params=Record(params),
        latency_us=1.0,
        timing="kernel",
        source="perfc measure, made up",
        split="fit",
    )
    if seconds is None:
        seconds = float(price([kernel_of(row)], V100, cost_models()).seconds[0])
    return attrs.evolve(row, latency_us=seconds * 1e6)


def _table(*rows: Measurement) -> tuple[list[MeasuredKernel], Counter[str]]:
    seen, left_out = observe(rows, V100)
    table, decide_none = measured_table(seen, V100)
    return list(table.by_signature.values()), left_out + decide_none


def _gemm(seconds: float | None = None) -> Measurement:
    return _row("gemm", seconds, b=1, m=512, n=512, k=512)


def test_every_row_to_fit_and_none_that_is_held_out() -> None:
    """Rows marked `test` are in no profile; of unmarked ones a third is held out."""
    rows = gemms("v100", _as_perfc)
    unmarked = [attrs.evolve(row, split="") for row in rows]

    for those in (rows, unmarked):
        table, left_out = _table(*those)
        assert sum(row.split == "fit" for row in rows) == len(table)
        assert not left_out


def test_throttled_rows_decide_nothing() -> None:
    """A device that slowed down says nothing of one that does not."""
    table, left_out = _table(attrs.evolve(_gemm(), throttled=True))

    assert ([], {"throttled": 1}) == (table, left_out)


def test_several_rows_of_a_kernel_are_their_median() -> None:
    """All repetitions count; how the rows differ is part of the uncertainty."""
    times = (3e-3, 1e-3, 1.1e-3)
    rows = [attrs.evolve(_gemm(seconds), n=10) for seconds in times]
    (one,), _ = _table(rows[0])
    (three,), _ = _table(*rows)

    assert pytest.approx([3e-3, 10]) == [one.seconds, one.n]
    assert pytest.approx([1.1e-3, 30]) == [three.seconds, three.n]
    assert one.sigma < 0.01
    assert three.sigma > 0.3


def test_the_spread_of_a_row_is_in_its_uncertainty() -> None:
    """Wide percentiles of few repetitions are less sure than of many."""
    wide = attrs.evolve(_gemm(1e-3), p10_us=800.0, p90_us=1200.0)
    (few,), _ = _table(attrs.evolve(wide, n=4))
    (many,), _ = _table(attrs.evolve(wide, n=400))

    assert pytest.approx(0.156 / 2, rel=0.01) == few.sigma
    assert pytest.approx(0.156 / 20, rel=0.01) == many.sigma


def test_the_gap_of_a_graph_is_taken_off() -> None:
    """A row of a replayed graph holds the gap after the kernel."""
    (found,), _ = _table(attrs.evolve(_gemm(100e-6), timing="graph"))

    assert pytest.approx(100e-6 - V100.device.graph_gap_s) == found.seconds
    assert found.sigma > 0


def test_short_event_pairs_decide_nothing() -> None:
    """They hold the host's dispatch; of long ones it is taken off, as for the fit."""
    short, long = (
        attrs.evolve(_gemm(seconds), timing="event") for seconds in (50e-6, 5e-3)
    )
    (found,), left_out = _table(short, attrs.evolve(long, params=long.params))

    assert {"event pairs below 150 us": 1} == left_out
    assert pytest.approx(5e-3 - 0.55 * 50e-6) == found.seconds


def test_rows_of_the_host_decide_nothing() -> None:
    """Timing `host` is of no kernel."""
    _, left_out = _table(attrs.evolve(_gemm(), timing="host"))

    assert {"timing host": 1} == left_out


def test_rows_that_cannot_be_decide_nothing() -> None:
    """A row that beats the sheet's rates is of something else."""
    table, left_out = _table(_gemm(1e-9))

    assert not table
    assert {"decide no kernel: faster than the sheet's rates allow": 1} == left_out


def test_what_is_around_a_kernel_makes_no_row_impossible() -> None:
    """A row at a third of the sheet's rates, most of it a gap, is lost, not refused."""
    row = attrs.evolve(
        _row("elementwise", kind="relu", rows=64, cols=64), timing="graph"
    )
    gap_s = V100.device.graph_gap_s
    bound_s = float(lower_bound(KernelTable([kernel_of(row)]), V100)[0])
    short = attrs.evolve(row, latency_us=(gap_s + 0.5 * bound_s) * 1e6)
    longer = attrs.evolve(row, latency_us=(gap_s + 1.5e-6) * 1e6)

    assert _table(short) == (
        [],
        {"decide no kernel: its time is lost in the host's": 1},
    )
    (found,), left_out = _table(longer)
    assert pytest.approx(1.5e-6) == found.seconds
    assert not left_out


@pytest.mark.parametrize(("side", "decides"), [(700, False), (8192, True)])
def test_operands_that_l2_holds_decide_nothing(side: int, *, decides: bool) -> None:
    """Others time a kernel again and again on the same operands; a model does not.

    Where they are larger than L2 both take the same.
    """
    own = _row("elementwise", kind="add", rows=side, cols=side, tensor_inputs=2)
    theirs = attrs.evolve(own, source="a table")

    assert 1 == len(_table(own)[0])
    table, left_out = _table(theirs)
    assert decides == bool(table)
    assert [True] * decides == [kernel.repeated for kernel in table]
    assert decides != bool(left_out)


def test_own_rows_go_before_those_of_others() -> None:
    """A kernel on operands of a model is what a model runs."""
    theirs = attrs.evolve(_gemm(2e-3), source="a table")
    (found,), _ = _table(theirs, _gemm(1e-3), theirs)

    assert pytest.approx(1e-3) == found.seconds
    assert not found.repeated


def test_calls_whose_host_time_is_not_known_decide_nothing() -> None:
    """The rows of convolutions that others timed grow with every plan in a cache."""
    sizes = {"n": 32, "c_in": 256, "c_out": 256, "kernel": 3, "size": 56}
    own = _row("conv2d", 20e-3, stride=1, padding=1, **sizes)
    own = attrs.evolve(own, timing="event")

    assert 1 == len(_table(own)[0])
    _, left_out = _table(attrs.evolve(own, source="a table"))
    assert {"decide no kernel: what the host takes is not known": 1} == left_out


def test_a_row_that_is_lost_in_its_noise() -> None:
    """What may be twice as long, or nothing, decides no kernel; the model does."""
    sure = _gemm()
    lost = attrs.evolve(
        sure, p10_us=0.1 * sure.latency_us, p90_us=3 * sure.latency_us, n=1
    )

    assert len(_table(sure)[0]) == 1
    table, left_out = _table(lost)
    assert not table
    assert {"decide no kernel: its time is lost in the host's": 1} == left_out
