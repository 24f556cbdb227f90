"""Measured rows, whatever they say, are scored or skipped with a reason."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measurements.rows import MEASURED, measured

from perfc.costmodels import load_target
from perfc.costmodels.kernels import ColumnTable, KernelColumns
from perfc.costmodels.pricing import as_timed, call_names
from perfc.fitting.scores import score
from perfc.measurements import (
    KERNEL_OPS,
    MEASUREMENTS,
    Measurement,
    read_columns,
    write_rows,
)

SIZES = ("rows", "cols", "b", "m", "n", "k", "batch", "heads", "q_len", "bytes", "kind")
ODD = st.one_of(
    st.integers(-1, 70_000), st.text(max_size=2), st.booleans(), st.floats(0, 9)
)


@st.composite
def _rows(draw: st.DrawFn) -> Measurement:
    """Return a row that is nearly one of a kernel."""
    given_row = draw(MEASURED)
    params = {name: draw(ODD) for name in draw(st.sets(st.sampled_from(SIZES)))}
    return attrs.evolve(
        given_row,
        target=draw(st.sampled_from(("v100", "cpu", "h100", "../x.toml", "", "?"))),
        op=draw(st.sampled_from((*KERNEL_OPS, "all_reduce"))),
        dtype=draw(st.sampled_from(("fp32", "bf16", "w4a16", "?"))),
        params=given_row.params.updated(**params),
    )


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(_rows(), min_size=1, max_size=8))
def test_every_row_is_scored_or_skipped(
    rows: list[Measurement], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No row is lost, whatever its parameters are."""
    table = tmp_path_factory.mktemp("rows") / "rows.csv"
    write_rows(table, rows, MEASUREMENTS)

    groups = score([read_columns(table)])

    counted = sum(group.rows + sum(group.skipped.values()) for group in groups)
    assert len(rows) == counted


def test_rows_of_one_table_are_scored_one_by_one(tmp_path: Path) -> None:
    """Each row has the error that it has in a table of its own."""
    sizes = [(64, 64), (4096, 1024), (100_000, 512)]
    rows = [
        attrs.evolve(
            measured("layer_norm", rows=r, cols=c, **extra),
            target="a100",
            timing="graph",
        )
        for r, c in sizes
        for extra in ({}, {"kind": "x"}, {"phase": "backward"})
    ]
    for number, row in enumerate(rows):
        write_rows(tmp_path / f"{number}.csv", [row], MEASUREMENTS)
    write_rows(tmp_path / "all.csv", rows, MEASUREMENTS)

    (whole,) = score([read_columns(tmp_path / "all.csv")])
    single = [
        score([read_columns(tmp_path / f"{number}.csv")])[0].errors
        for number in range(len(rows))
    ]

    assert whole.errors is not None
    errors = [error.mape for error in single if error is not None]
    assert len(rows) == len(errors)
    assert whole.errors.mape == pytest.approx(np.mean(errors))


def _elementwise(elements: int) -> ColumnTable:
    count = np.array([float(elements)])
    params = {"kind": np.array(["add"]), "tensor_inputs": np.array([2])}
    return ColumnTable.of(
        KernelColumns(
            op="elementwise",
            dtype="fp32",
            math="fp32",
            params=params,
            flops=count,
            bytes_read=8 * count,
            bytes_written=4 * count,
        )
    )


def test_what_a_measurement_holds_besides_the_kernel() -> None:
    """Nothing, the gap of a graph, or the host's call, which hides short kernels."""
    table, target = _elementwise(1000), load_target("a100")
    sigma = np.array([0.1])

    def timed(kernel_us: float, timing: str) -> float:
        found = as_timed(np.array([kernel_us * 1e-6]), sigma, table, target, timing)
        return float(found.seconds[0]) * 1e6

    gap_us = target.device.graph_gap_s * 1e6
    assert [5.0, 5.0 + gap_us] == pytest.approx([timed(5, "kernel"), timed(5, "graph")])
    assert timed(1, "event") == timed(5, "event")
    assert 500 == pytest.approx(timed(1500, "event") - timed(1000, "event"))
    assert ["elementwise add"] == call_names(table).tolist()


def test_a_call_on_an_unknown_host_is_less_certain() -> None:
    """The floor of short kernels is known of the hosts that were measured only."""
    table, sigma = _elementwise(1000), np.array([0.1])
    seconds = np.array([1e-6])
    known, unknown = (
        as_timed(seconds, sigma, table, load_target(name), "event").sigma[0]
        for name in ("t4", "h100")
    )

    assert known < unknown


def test_a_kernel_on_the_hosts_processor_has_its_dispatch_before_it() -> None:
    """On a CPU a call is T2 and the kernel."""
    target = load_target("cpu")
    seconds = np.array([1e-3])
    found = as_timed(seconds, np.array([0.1]), _elementwise(10), target, "event")

    assert 1e-3 < found.seconds[0] < 1.1e-3
