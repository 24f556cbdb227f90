"""Rows of a group, as fits of the shipped parameters see them."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from tests.measurements.rows import measured
from training.samples import samples_of

from perfc.costmodels import cost_models
from perfc.costmodels.fitted_files.fitted_file import fitted
from perfc.measurements import MEASUREMENTS, read_columns, write_rows


@pytest.mark.parametrize(
    ("timing", "source", "rises"),
    [
        ("event", "neusight", 1.0),
        ("event", "perfc measure", 0.0),
        ("graph", "neusight", 0.0),
    ],
)
def test_calls_take_longer_the_more_convolutions_were_met(
    timing: str, source: str, rises: float, tmp_path: Path
) -> None:
    """The n-th eager convolution of a foreign table waits for a cache of n plans."""
    row = attrs.evolve(
        measured(
            "conv2d", n=8, c_in=64, c_out=64, kernel=3, size=28, stride=1, padding=1
        ),
        target="t4",
        dtype="fp32",
        timing=timing,
        source=source,
        latency_us=100.0,
    )
    table = tmp_path / "rows.csv"
    write_rows(table, [row] * 1001, MEASUREMENTS)

    (sample,) = samples_of(read_columns(table))
    predicted_us = sample.predicted_s(cost_models()) * 1e6

    met_us = 1000 * fitted("conv")["met_s"]["t4"] * 1e6
    assert rises * met_us == pytest.approx(predicted_us[-1] - predicted_us[0])
