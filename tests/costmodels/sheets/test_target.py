"""Targets: the built-in sheets, lookup by name, file and plugin, overrides."""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path

import pytest

from perfc.costmodels import Target, load_target, target_names
from perfc.costmodels.machine import MATH_MODES, TargetError
from perfc.costmodels.sheets import catalog, describe
from perfc.costmodels.sheets.sheet import shipped_target
from perfc.costmodels.sheets.sheet_fields import FIELDS
from perfc.ir import PerfcError, UsageError

SHEETS = Path(catalog.__file__).parents[1].joinpath("targets")
A100 = (SHEETS / "a100-sxm-80g.toml").read_text(encoding="utf-8")


def test_units_are_si() -> None:
    """A sheet's MHz, GiB, GB/s, KiB and us arrive as Hz, bytes, bytes/s and s."""
    target = load_target("a100-sxm-80g")
    device = target.device

    assert 1.41e9 == device.sm_clock_hz == device.tensor_clock_hz
    assert 1.275e9 == device.base_clock_hz
    assert 80 * 2**30 == device.memory.capacity_bytes
    assert device.memory.usable_bytes < device.memory.capacity_bytes
    assert 40 * 2**20 == device.l2.capacity_bytes == device.l2.usable_bytes
    assert 5.43e12 == pytest.approx(device.l2.bytes_per_s)
    assert 164 * 2**10 == device.shared_memory_bytes_per_sm
    assert 65_536 == device.registers_per_sm
    assert 24.8e9 == pytest.approx(target.host_link.h2d_bytes_per_s)
    assert 31.504e9 == pytest.approx(target.host_link.peak_bytes_per_s)
    assert 1.7e-6 == pytest.approx(target.runtime.launch_latency_s)
    assert 2.5e-6 == pytest.approx(device.kernel_floor_s + device.stream_gap_s)
    assert "server-2020" == target.host.overheads


def test_aliases_are_those_of_the_sheets() -> None:
    """The alias table, which spares reading every sheet, agrees with the sheets."""
    in_sheets = {
        alias: path.stem
        for path in SHEETS.glob("*.toml")
        for alias in tomllib.loads(path.read_text(encoding="utf-8"))["aliases"]
    }

    assert in_sheets == catalog.BUILTIN_ALIASES
    assert not set(in_sheets) & set(target_names())


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("4090", "rtx-4090"),
        ("RTX4090", "rtx-4090"),
        ("2080ti", "rtx-2080ti"),
        ("h100-pcie", "h100-pcie-80g"),
        ("mi300", "mi300x"),
        ("mi250-gcd", "mi250"),
        ("GB200-NVL72", "gb200-nvl72"),
        ("gb200-186g", "gb200"),
        ("rtxpro6000", "rtx-pro-6000"),
    ],
)
def test_targets_are_found_as_users_type_them(typed: str, name: str) -> None:
    """Short names lead to the sheet."""
    assert name == load_target(typed).name


@pytest.mark.parametrize("alias", ["a100", "A100", " a100-sxm-80g "])
def test_a_target_is_found_by_alias_in_any_case(alias: str) -> None:
    """An alias gives the same target as the name, digest included."""
    assert load_target("a100-sxm-80g") == load_target(alias)


def test_one_target_reads_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading an alias opens that target's sheet and no other, the first time."""
    shipped_target.cache_clear()
    opened: list[str] = []
    really_open = Path.open

    def spy(path: Path, mode: str = "r") -> object:
        opened.append(path.name)
        return really_open(path, mode)

    monkeypatch.setattr(Path, "open", spy)
    load_target("h100")
    load_target("h100-sxm-80g")

    assert ["h100-sxm-80g.toml"] == opened


def test_an_absent_math_mode_is_an_error() -> None:
    """A mode that the GPU has not is refused with the modes it has."""
    with pytest.raises(
        PerfcError, match=r"v100-sxm2-16g has no math mode 'bf16'; .*fp16"
    ):
        load_target("v100").peak("bf16")


def test_every_target_computes_in_known_modes() -> None:
    """No target has a mode that the cost models have not."""
    for name in target_names():
        assert set(load_target(name).device.flops_per_s) <= set(MATH_MODES)


def test_a_target_can_be_a_key_and_cross_processes() -> None:
    """A target is hashable, and equal to itself after pickling."""
    target = load_target("l4")

    assert {target: 1} == {pickle.loads(pickle.dumps(target)): 1}  # noqa: S301 -- our own


def test_describe_shows_every_field_with_its_source() -> None:
    """Each row has the sheet's value and unit and a citation."""
    rows = {row[0]: row[1:] for row in describe(load_target("h100"))}

    assert (1980, "MHz") == rows["gpu.sm_clock_mhz"][:2]
    assert (1978.9, "TOPS") == rows["gpu.rates_tflops.int8"][:2]
    assert "whitepaper" in rows["gpu.sm_clock_mhz"][2]
    assert all(source for _, _, source in rows.values())


# Overrides


def _with(**overrides: str) -> Target:
    dotted = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_target("h100", dotted)


def test_an_override_changes_its_field_source_and_digest() -> None:
    """`--set` gives the field's value and is named as its source."""
    plain, fast = _with(), _with(gpu__memory_gb_per_s="4000")

    assert 4e12 == fast.device.memory.bytes_per_s
    assert "--set" == fast.sources["gpu.memory_gb_per_s"]
    assert plain.spec_sha256 != fast.spec_sha256
    assert plain.spec_sha256 == _with(gpu__memory_gb_per_s="3350").spec_sha256


def test_rates_scale_with_the_clock() -> None:
    """At half the SM clock every rate, the tensor clock and L2 are halved."""
    plain, slow = _with(), _with(gpu__sm_clock_mhz="990")

    assert slow.device.flops_per_s == {
        mode: pytest.approx(rate / 2) for mode, rate in plain.device.flops_per_s.items()
    }
    assert plain.device.tensor_clock_hz / 2 == slow.device.tensor_clock_hz
    assert plain.device.l2.bytes_per_s / 2 == pytest.approx(slow.device.l2.bytes_per_s)
    assert plain.device.memory == slow.device.memory
    assert slow.sources["gpu.rates_tflops.fp16"].endswith("; scaled by --set")


def test_the_tensor_clock_scales_tensor_rates_only() -> None:
    """`gpu.tensor_clock_mhz` moves bf16 and leaves fp32, whatever the SM clock."""
    plain = _with()
    set_both = _with(gpu__sm_clock_mhz="1980", gpu__tensor_clock_mhz="915")

    assert plain.peak("bf16") / 2 == pytest.approx(set_both.peak("bf16"))
    assert plain.peak("fp32") == set_both.peak("fp32")


def test_an_overridden_rate_does_not_follow_the_clock() -> None:
    """What the caller sets is taken as it is."""
    target = _with(gpu__sm_clock_mhz="990", gpu__rates_tflops__fp16="700")

    assert 700e12 == target.peak("fp16")


@pytest.mark.parametrize(
    ("field", "value", "follower", "expected"),
    [
        ("gpu.sm_count", "66", "gpu.rates_tflops.bf16", 494.7),
        ("gpu.lanes_per_sm", "64", "gpu.rates_tflops.fp32", 33.45),
        ("gpu.memory_bus_bits", "2560", "gpu.memory_gb_per_s", 1675),
        ("gpu.memory_data_rate_gt_per_s", "10.476", "gpu.memory_gb_per_s", 6700),
        ("gpu.memory_gib", "160", "gpu.memory_usable_gib", 158.2),
        ("host_link.pcie_lanes", "8", "host_link.h2d_gb_per_s", 27.8),
        ("host_link.pcie_generation", "4", "host_link.d2h_gb_per_s", 27.8),
        ("nvlink.links", "9", "nvlink.gb_per_s_per_direction", 225),
        ("nvlink.generation", "5", "nvlink.gb_per_s_per_direction", 900),
        ("host_link.c2c_gb_per_s", "450.08", "host_link.h2d_gb_per_s", 397.2),
        ("gpu.fp32_sum_share", "0.5", "gpu.rates_tflops.bf16", 494.7),
    ],
)
def test_what_a_sheet_gives_per_count_follows_the_count(
    field: str, value: str, follower: str, expected: float
) -> None:
    """No field can be set without effect on what depends on it."""
    assert expected == pytest.approx(
        load_target("h100", {field: value}).fields[follower], rel=1e-3
    )


def test_a_mode_can_be_added_by_override() -> None:
    """A what-if GPU may have a mode that the real one lacks."""
    target = load_target("a100", {"gpu.rates_tflops.fp8": "624"})

    assert 624e12 == target.peak("fp8")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("gpu.sm_clok_mhz", "1", "close: gpu.sm_clock_mhz"),
        ("sm_clock_mhz", "1", "close: gpu.sm_clock_mhz"),
        ("zzz", "1", "fields: gpu.vendor"),
        ("a\nb", "1", "no such field"),
        ("gpu.sm_clock_mhz", "fast", "expected a number of MHz, found 'fast'"),
        ("gpu.sm_clock_mhz", "", "expected a number"),
        ("gpu.sm_clock_mhz", "nan", "expected a number from 50"),
        ("gpu.sm_clock_mhz", "inf", "expected a number from 50"),
        ("gpu.memory_gb_per_s", "0", "expected a number from 1"),
        ("gpu.memory_gb_per_s", "-2039", "found -2039"),
        ("gpu.sm_count", "108.5", "a whole number"),
        ("gpu.vendor", "AMD", "found one with a text"),
        ("gpu.memory_usable_gib", "90", "at most gpu.memory_gib"),
        ("gpu.memory_data_rate_gt_per_s", "1e-9", "expected a number from"),
    ],
)
def test_a_bad_override_is_a_usage_error(field: str, value: str, message: str) -> None:
    """An unknown field or an impossible number exits 2 with one line."""
    with pytest.raises(UsageError) as caught:
        load_target("a100", {field: value})

    assert 2 == caught.value.exit_code
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_link_cannot_be_added() -> None:
    """A section that the sheet has not needs all its fields."""
    with pytest.raises(UsageError, match=r"no \[nvlink\]; set nvlink.generation too"):
        load_target("l4", {"nvlink.links": "4"})


# Lookup


def test_an_unknown_target_is_a_usage_error_with_a_guess() -> None:
    """The message has the closest name, or every known one if none is close."""
    with pytest.raises(UsageError, match=r"did you mean a100-sxm-80g\? see") as caught:
        load_target("a100-smx-80g")

    assert 2 == caught.value.exit_code
    with pytest.raises(UsageError, match=r"^unknown target abacus; known t") as caught:
        load_target("abacus")

    assert all(name in str(caught.value) for name in target_names())


@pytest.mark.parametrize("name", ["", "..", "a b", "a\nb", "\0"])
def test_a_strange_name_is_a_usage_error(name: str) -> None:
    """No text makes the lookup fail in another way, or print two lines."""
    with pytest.raises(UsageError, match=r"^unknown target .*$"):
        load_target(name)


def test_a_users_sheet_is_loaded_by_path(tmp_path: Path) -> None:
    """A file in the same format is a target; a byte-order mark does not matter."""
    sheet = tmp_path / "mine.toml"
    sheet.write_text("\ufeff" + A100.replace('"a100-sxm-80g"', '"mine"'), "utf-8")

    assert "mine" == load_target(str(sheet)).name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name = ", "not valid TOML"),
        (b"[" * 5000, "not valid TOML"),
        (b"name = 1" + b"0" * 5000, "not valid TOML"),
        (b'name = "\xff"', "not UTF-8 text, at byte 8"),
        (b"", 'begin with name = "my-gpu"'),
        (b"#" * 1_000_001, "larger than a target sheet"),
    ],
)
def test_a_file_that_is_no_sheet_is_a_target_error(
    content: bytes, message: str, tmp_path: Path
) -> None:
    """Damaged files are refused with exit code 1 and one line that names them."""
    sheet = tmp_path / "mine.toml"
    sheet.write_bytes(content)

    with pytest.raises(TargetError) as caught:
        load_target(str(sheet))

    assert 1 == caught.value.exit_code
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{sheet}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_a_target_error(tmp_path: Path) -> None:
    """A path that leads nowhere, to a folder or to no path at all is named."""
    (tmp_path / "folder.toml").mkdir()
    for path in (tmp_path / "none.toml", tmp_path / "folder.toml"):
        with pytest.raises(TargetError, match="cannot read the target sheet"):
            load_target(str(path))
    with pytest.raises(TargetError, match=r"'\\x00\.toml': not a path"):
        load_target("\0.toml")


def test_a_gap_in_a_graph_that_no_sheet_gives_is_assumed() -> None:
    """It is that of a stream, follows it, and says so; V100's is measured."""
    a100 = load_target("a100")
    slower = load_target("a100", {"runtime.stream_gap_us": "3"})

    assert a100.device.stream_gap_s == a100.device.graph_gap_s
    assert a100.sources["runtime.graph_gap_us"].startswith("assumed: ")
    assert pytest.approx(3e-6) == slower.device.graph_gap_s
    assert pytest.approx(0.5e-6) == load_target("v100").device.graph_gap_s


@pytest.mark.parametrize("target", ["cpu", "1s-server", "2s-skylake"])
def test_any_field_of_a_cpu_is_set_or_refused(target: str) -> None:
    """Also one of a part that it does not have, of which the rest is missing."""
    refused: dict[str, str] = {}
    for name in FIELDS:
        try:
            load_target(target, {name: "3"})
        except UsageError as error:
            refused[name] = str(error)

    assert "has no [host_link]" in refused["host_link.pcie_generation"]
    assert all(text.startswith("--set ") for text in refused.values())
