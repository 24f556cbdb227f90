"""The seed's own configuration: host time of one DLRM iteration on a V100 host."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks" / "published" / "seed_host_time.py"
DATA = ROOT.parent / "shared" / "data" / "dlrm_v100"

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the public measurements are not in {DATA}"
)


@pytest.fixture(scope="module")
def seed() -> dict[str, Any]:
    """Run the script's definitions."""
    return runpy.run_path(str(SCRIPT))


def _time_ms(seed: dict[str, Any], rules: str, unlisted: str) -> float:
    ops = seed["read_ops"](DATA)
    launches = seed["read_launches"](DATA)
    overheads = seed["read_overheads"](DATA)
    return float(seed["host_time_ms"](ops, launches, overheads, rules, unlisted))


def test_iteration_is_pruned_as_theirs(seed: dict[str, Any]) -> None:
    """Their 110 top-level ops are left, of which they skip one SliceBackward."""
    ops = seed["read_ops"](DATA)

    assert 109 == len(ops)
    assert "SliceBackward" not in {op.name for op in ops}


def test_launches_of_an_unlisted_op_are_its_children_s(seed: dict[str, Any]) -> None:
    """TransposeBackward adds a gradient, which is a launch; CatBackward does not."""
    ops = seed["read_ops"](DATA)
    launches = seed["read_launches"](DATA)
    counts = {op.name: seed["launch_count"](op, launches, "hipc") for op in ops}

    assert 1 == counts["TransposeBackward"]
    assert 0 == counts["CatBackward"]
    assert 11 == counts["IndexBackward"]
    assert 1 == counts["aten::add_"]


def test_host_time_of_their_rules(seed: dict[str, Any]) -> None:
    """By their rules the host takes 3.6 to 4.0 ms, counting what is listed only."""
    assert 3.6 <= _time_ms(seed, "head", "zero") <= 4.0


def test_unlisted_values_can_add_a_quarter_millisecond(seed: dict[str, Any]) -> None:
    """The ten largest are listed: what is not listed is less than the smallest."""
    least = _time_ms(seed, "head", "zero")
    most = _time_ms(seed, "head", "bound")

    assert 0 < most - least < 0.3


def test_mean_of_the_ten_largest_is_no_estimate(seed: dict[str, Any]) -> None:
    """The mean of a type lies above what an op that is not listed can take."""
    most = _time_ms(seed, "head", "bound")

    assert 4.0 < most < _time_ms(seed, "head", "mean")


def test_every_launch_counts_by_the_rules_of_the_paper(seed: dict[str, Any]) -> None:
    """Launches that HEAD drops take about 0.2 ms (IndexBackward's ten, above all)."""
    dropped = _time_ms(seed, "hipc", "zero") - _time_ms(seed, "head", "zero")

    assert 0.15 < dropped < 0.25


def test_command_prints_every_reading(
    seed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints the host time by both rules and three readings."""
    seed["main"](DATA)

    printed = capsys.readouterr().out.splitlines()
    assert "DLRM_default, batch 1024: 109 top-level ops" == printed[0]
    assert 7 == len(printed)


def test_fitted_profile_is_the_one_shipped() -> None:
    """The profile `lin-v100` is what `make fit` makes of the tables."""
    fit = runpy.run_path(str(ROOT / "benchmarks" / "fits" / "host_profile.py"))

    shipped = ROOT / "costmodels" / "profiles" / "lin-v100.toml"
    assert shipped.read_text() == "\n".join(fit["profile_lines"](DATA)) + "\n"
