"""The watts and joules in the sheet of an H100 are those of its rows."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from perfc.costmodels import load_target
from perfc.costmodels.machine import Power

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
fit_power: Any = importlib.import_module("fit_power")

ROWS = BENCHMARKS / "rows" / "h100-sxm-80g"
H100 = load_target("h100")


@pytest.fixture(scope="module", name="loads")
def _loads() -> dict[str, Any]:
    loads: dict[str, Any] = fit_power.loads_of(ROWS, H100)
    return loads


def test_the_sheet_has_what_the_rows_say(loads: dict[str, Any]) -> None:
    """To the digits that it gives."""
    assert H100.power is not None
    fitted: Power = fit_power.fitted(loads, H100.power)

    assert pytest.approx(fitted.busy_watts, rel=2e-3) == H100.power.busy_watts
    assert pytest.approx(fitted.joules_per_byte, rel=4e-3) == H100.power.joules_per_byte
    for mode, joules in fitted.joules_per_flop.items():
        assert pytest.approx(joules, rel=4e-3) == H100.power.joules_per_flop[mode]


def test_the_block_of_a_transformer_is_predicted_unseen(loads: dict[str, Any]) -> None:
    """Sustained, by kernels priced at their burst and loads of single kernels."""
    assert pytest.approx(
        loads["block-7b"].late_s * 1e6, rel=0.02
    ) == fit_power.block_us(H100)


def test_a_load_that_says_nothing_is_predicted_by_the_others(
    loads: dict[str, Any],
) -> None:
    """GEMMs of 8192 rows slow down as attention and smaller ones say."""
    others = {name: load for name, load in loads.items() if name != "gemm-randn"}
    power = fit_power.fitted(others, H100.power)
    load = loads["gemm-randn"]

    slower = fit_power.slowdown_of("gemm-randn", load, power)

    assert pytest.approx(load.late_s / load.first_s, rel=0.02) == slower
