"""Tiers of sheets: drives and memories, what is refused, and how they are found."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import Target, load_target
from perfc.costmodels.machine import TargetError, Tier
from perfc.costmodels.sheets import (
    catalog,
    describe,
    find_tier,
    known_tiers,
    load_memory,
    memory_names,
)
from perfc.costmodels.sheets.sheet import build_target
from perfc.costmodels.sheets.sheet_lint import find_problems, memory_problems
from perfc.costmodels.sheets.tier_section import MEMORY_ALIASES, RESERVED, memory_sheet
from perfc.ir import UsageError

ROOT = Path(catalog.__file__).parents[1]
DRIVE = {
    "capacity_gb": 400,
    "granularity_b": 4096,
    "read_iops": 500_000,
    "read_latency_us": 80,
    "read_latency_p99_us": 120,
    "read_gb_per_s": 3,
    "knee": 1.5,
    "power_read_w": 9,
    "power_idle_w": 4,
    "dwpd": 3,
    "usd_per_gb": 0.5,
}


def _document(**changed: object) -> dict[str, Any]:
    """Return V100's sheet with a drive, of which fields are changed or left out."""
    text = ROOT.joinpath("targets", "v100-sxm2-16g.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    values = {k: v for k, v in {**DRIVE, **changed}.items() if v is not None}
    document["tiers"] = {
        "drive": {k: {"value": v, "source": "label"} for k, v in values.items()}
    }
    document["sources"]["label"] = "the label on the drive"
    return document


def _loaded(**changed: object) -> Target:
    return build_target(_document(**changed), "my.toml")


def test_a_tier_is_read_in_the_units_of_makers() -> None:
    """GB, microseconds and GB/s become bytes and seconds; sources stay."""
    (tier,) = _loaded(dwpd=None, usd_per_gb=None).tiers

    assert ("drive", 4096, 4096) == (
        tier.name,
        tier.granularity_bytes,
        tier.bus_granularity_bytes,
    )
    assert 400e9 == pytest.approx(tier.capacity_bytes)
    assert 8e-5 == pytest.approx(tier.read_latency_s)
    assert (3e9, 3e9) == pytest.approx((tier.read_bytes_per_s, tier.write_bytes_per_s))
    assert (500_000, 1.5) == (tier.reads_per_s, tier.knee)
    assert (None, None) == (tier.writes_per_day, tier.usd_per_byte)
    assert {"the label on the drive"} == set(tier.sources.values())


def test_several_drives_are_one_tier() -> None:
    """Rates, capacity and watts add up; a read takes what it takes on one."""
    (one,), (four,) = _loaded().tiers, _loaded(count=4).tiers

    assert 4 * one.capacity_bytes == four.capacity_bytes
    assert 4 * one.reads_per_s == four.reads_per_s
    assert 4 * one.read_bytes_per_s == four.read_bytes_per_s
    assert (36, 16) == (four.read_watts, four.idle_watts)
    assert one.read_latency_s == four.read_latency_s
    assert one.granularity_bytes == four.granularity_bytes
    assert one.usd_per_byte == four.usd_per_byte
    assert one.times(4) == four


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"capacity_gb": None}, "tiers.drive.capacity_gb: expected a value in GB"),
        ({"granularity_b": 0}, "granularity_b: expected a whole number from 1 to"),
        ({"granularity_b": 0.5}, "granularity_b: expected a whole number from 1 to"),
        ({"bus_granularity_b": 100}, "expected a divisor of granularity_b = 4096 B"),
        ({"bus_granularity_b": 8192}, "expected a divisor of granularity_b = 4096 B"),
        ({"knee": None}, "knee: expected a value beside read_iops"),
        ({"read_iops": None}, "read_iops: expected a value beside knee"),
        ({"read_iops": 1_000_000}, "expected at most 732422 (read_gb_per_s / gran"),
        ({"read_latency_p99_us": 70}, "expected at least read_latency_us = 80"),
        ({"power_read_w": 3}, "expected at least power_idle_w = 4"),
        ({"cache_gb": 16}, "expected a cache in host.dram_gb, found no such memory"),
        ({"capacity_tb": 4}, "expected a field of [tiers.drive], found an unknown"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(
    changed: dict[str, object], message: str
) -> None:
    """The line names the field, what was expected and what was found."""
    with pytest.raises(TargetError) as caught:
        _loaded(**changed)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [*RESERVED, "Drive", "a.b", ""])
def test_a_tier_cannot_be_called_anything(name: str) -> None:
    """HBM and DRAM follow from the device and the host; others are plain words."""
    document = _document()
    document["tiers"] = {name: document["tiers"]["drive"]}

    with pytest.raises(TargetError, match="tiers"):
        build_target(document, "my.toml")


def test_tiers_are_a_table() -> None:
    """Anything else is named."""
    document = {**_document(), "tiers": 3}

    assert "tiers: expected a table" in "\n".join(map(str, find_problems(document)))


def test_caches_share_the_hosts_memory() -> None:
    """Tiers may hold rows in DRAM, together no more than there is."""
    fits = load_target("1s-server", {"tiers.optane.cache_gb": "100"})

    assert 100e9 == fits.tiers[0].cache_bytes
    with pytest.raises(UsageError, match=r"at most host\.dram_gb = 103\.08 GB, found"):
        load_target("1s-server", {"tiers.optane.cache_gb": "104"})


def test_fields_of_tiers_can_be_set() -> None:
    """`--set tiers.NAME.field` changes one, and may make a tier of its own."""
    fewer = load_target("1s-server", {"tiers.optane.read_iops": "1000"}).tiers[0]
    made = {"capacity_gb": "1", "granularity_b": "64", "read_latency_us": "1"}
    made = {f"tiers.new.{key}": v for key, v in {**made, "read_gb_per_s": "9"}.items()}

    assert 2000 == fewer.reads_per_s
    assert ["new"] == [tier.name for tier in load_target("v100", made).tiers]
    assert {"--set"} == set(load_target("v100", made).tiers[0].sources.values())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tiers.optane.granularity_b", "0", "a whole number from 1 to"),
        ("tiers.optane.read_iop", "1", "no such field of a target; close: tiers.opt"),
        ("tiers.dram.count", "1", "it follows from the device and the host"),
        ("tiers.other.count", "1", "this target has no [tiers.other]; set tiers.oth"),
        ("tiers.optane.device", "1", "expected a field with a number"),
        ("tiers.optane.read_iops", "9e9", "(read_gb_per_s / granularity_b)"),
    ],
)
def test_a_field_that_cannot_be_set_is_refused(
    field: str, value: str, message: str
) -> None:
    """A line says what the field may be."""
    with pytest.raises(UsageError) as caught:
        load_target("1s-server", {field: value})

    assert message in str(caught.value)


def test_a_tier_of_a_memory_has_its_numbers_and_sources() -> None:
    """What the sheet says itself goes before; each field cites where it is from."""
    target = load_target("1s-server")
    (tier,) = target.tiers
    alone = load_memory("optane-p4800x")

    assert ("optane", "optane-p4800x", 2) == (tier.name, tier.device, tier.count)
    assert alone.times(2).reads_per_s == tier.reads_per_s
    shown = {name: source for name, _, _, source in describe(target)}
    assert alone.sources["read_iops"] == shown["tiers.optane.read_iops"]
    assert "assumed: two drives" in shown["tiers.optane.count"]


def test_a_memory_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """The line says which are known."""
    text = ROOT.joinpath("targets", "v100-sxm2-16g.toml").read_text(encoding="utf-8")
    tier = '[tiers.x]\ndevice = { value = "optan", source = "datasheet" }\n'
    path = tmp_path / "mine.toml"
    path.write_text(text + tier, encoding="utf-8")

    with pytest.raises(TargetError, match=r"tiers\.x\.device: .* did you mean optane"):
        load_target(str(path))


@pytest.mark.parametrize("name", memory_names())
def test_a_shipped_memory_is_sound(name: str) -> None:
    """Its sheet passes the linter, is named like its file, and cites what it lists."""
    text = ROOT.joinpath("memories", f"{name}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)

    assert name == document["name"]
    assert [] == [str(problem) for problem in memory_problems(document)]
    unused = [key for key in document["sources"] if f'source = "{key}"' not in text]
    assert [] == unused


def test_memory_aliases_are_those_of_the_sheets() -> None:
    """The alias table agrees with the sheets, and no name stands for two things."""
    found = {a: name for name in memory_names() for a in _aliases(name)}

    assert found == MEMORY_ALIASES
    assert not {*found, *memory_names()} & set(RESERVED)


def _aliases(name: str) -> list[str]:
    return cast("list[str]", memory_sheet(name)["aliases"])


def test_what_is_only_recalled_says_so() -> None:
    """A number that nobody has printed or measured is assumed, by its source."""
    assert ("capacity_gb", "read_latency_us") == load_memory("cxl").assumed[:2]
    assert "read_iops" in load_memory("nand").assumed
    assert "read_iops" not in load_memory("optane").assumed


def test_tiers_are_found_by_name() -> None:
    """Device memory, DRAM, the sheet's own, and memories that ship with perfc."""
    server, gpu = load_target("1s-server"), load_target("v100")

    assert ["dram", "optane"] == [*known_tiers(server)]
    assert ["hbm"] == [*known_tiers(gpu)]
    assert ["hbm", "dram"] == [*known_tiers(load_target("zion"))]
    assert 4 == find_tier(server, "optane", 2).count
    assert 3 == find_tier(gpu, "optane", 3).count
    dram = find_tier(server, "dram")
    assert server.resources is not None
    assert server.resources.dram_bytes == dram.capacity_bytes
    assert math.isclose(dram.reads_per_s * 64, server.resources.dram_bytes_per_s)


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("optan", 1, "unknown tier optan; did you mean optane? v100-sxm2-16g has hbm"),
        ("dram", 1, "v100-sxm2-16g has no tier dram: its sheet has no [host]"),
        ("optane", 0, "expected at least one of it, found 0"),
    ],
)
def test_a_tier_that_is_not_there_is_refused(
    name: str, count: int, message: str
) -> None:
    """A line says which tiers there are."""
    with pytest.raises(UsageError) as caught:
        find_tier(load_target("v100"), name, count)

    assert message in str(caught.value)


def test_tiers_are_listed_fastest_first() -> None:
    """Whatever their order in the sheet."""
    document = _document()
    document["tiers"]["a"] = {**document["tiers"]["drive"]}
    document["tiers"]["a"]["read_latency_us"] = {"value": 9, "source": "label"}

    tiers = build_target(document, "my.toml").tiers
    assert ["a", "drive"] == [tier.name for tier in tiers]


@given(
    place=st.sampled_from([*DRIVE, "x"]),
    entry=st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.dictionaries(st.sampled_from(["value", "source", "y"]), st.integers()),
)
def test_no_entry_of_a_tier_escapes_the_linter(place: str, entry: object) -> None:
    """A sheet is a target, or one line says why it is none."""
    document = _document()
    document["tiers"]["drive"][place] = entry
    problems = [str(problem) for problem in find_problems(document)]
    if not problems:
        tiers = build_target(document, "my.toml").tiers
        assert all(isinstance(tier, Tier) for tier in tiers)
        return
    assert not any("\n" in problem for problem in problems)
    with pytest.raises(TargetError):
        build_target(document, "my.toml")
