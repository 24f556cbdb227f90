"""A target is loaded once, until what its files say changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfc.costmodels import load_target
from perfc.costmodels.machine import Target, TargetError
from perfc.costmodels.sheets import kept

SHEETS = Path(kept.__file__).parents[1] / "targets"
FIELD = "gpu.memory_gb_per_s"
PROFILE = """
schema = "perfc.profile/1"
name = "mine"
source = "a test"
date = "2026-11-22"
software = "none"

[device]
target = "gpu.toml"
"""


def _sheet(path: Path, watts: int = 300) -> Path:
    """Write the sheet of a GPU of one's own."""
    text = (SHEETS / "v100-sxm2-16g.toml").read_text(encoding="utf-8")
    text = text.replace('"v100-sxm2-16g"', '"mine"', 1).replace(
        "tdp_w = { value = 300", f"tdp_w = {{ value = {watts}"
    )
    path.write_text(text, encoding="utf-8")
    return path


def _worked_out(_: Target) -> list[int]:
    return []


@pytest.mark.parametrize("name", ["v100", "dgx-v100"])
def test_a_name_is_the_same_target_each_time(name: str) -> None:
    """So what is worked out of it is kept, with fields set by hand or without."""
    assert load_target(name) is load_target(name)
    slower = load_target(name, {FIELD: "450"})
    assert load_target(name, {FIELD: "450"}) is slower
    assert slower.once(_worked_out) is load_target(name, {FIELD: "450"}).once(
        _worked_out
    )
    assert load_target(name, {FIELD: "451"}) is not slower


def test_a_sheet_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """And when it is gone, nothing is left of it."""
    path = _sheet(tmp_path / "gpu.toml")
    first = load_target(path)

    assert load_target(path) is first
    _sheet(path, 250)
    assert (load_target(path).watts, first.watts) == (250, 300)
    assert 250 == load_target(path, {FIELD: "450"}).watts
    path.unlink()
    with pytest.raises(TargetError, match=r"gpu\.toml"):
        load_target(path)


def test_a_profile_is_read_again_when_its_sheet_changes(tmp_path: Path) -> None:
    """It is found from the profile."""
    _sheet(tmp_path / "gpu.toml")
    profile = tmp_path / "mine.toml"
    profile.write_text(PROFILE, encoding="utf-8")
    first = load_target(profile)

    assert load_target(profile) is first
    _sheet(tmp_path / "gpu.toml", 250)
    assert 250 == load_target(profile).watts


def test_so_many_targets_are_kept() -> None:
    """A search over fields does not fill the memory; the last ones stay."""
    rates = [str(300 + step) for step in range(100)]
    found = [load_target("t4", {FIELD: rate}) for rate in rates]

    assert load_target("t4", {FIELD: rates[-1]}) is found[-1]
    assert load_target("t4", {FIELD: rates[0]}) is not found[0]
