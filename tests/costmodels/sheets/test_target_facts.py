"""The built-in targets: what their makers print, and what people get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfc.costmodels import Target, load_target, target_names

ROOT = Path(__file__).parents[3]

# SMs, fp32 TFLOPS, GiB, GB/s, GB/s of the links between GPUs in one direction, W:
# the makers' sheets; of MI250 one of its two devices.
PRINTED = {
    "p100-pcie-16g": (56, 9.3, 16, 732, 0, 250),
    "titan-xp": (30, 12.15, 12, 547.7, 0, 250),
    "jetson-tx2": (2, 0.666, 8, 59.7, 0, 15),
    "jetson-xavier": (8, 1.41, 32, 136.5, 0, 30),
    "jetson-orin": (16, 5.32, 64, 204.8, 0, 60),
    "t4": (40, 8.1, 16, 320, 0, 70),
    "v100-pcie-32g": (80, 14, 32, 900, 0, 250),
    "v100-sxm2-16g": (80, 15.7, 16, 900, 150, 300),
    "v100-sxm2-32g": (80, 15.7, 32, 900, 150, 300),
    "a100-pcie-40g": (108, 19.5, 40, 1555, 0, 250),
    "a100-pcie-80g": (108, 19.5, 80, 1935, 0, 300),
    "a100-sxm-40g": (108, 19.5, 40, 1555, 300, 400),
    "a100-sxm-80g": (108, 19.5, 80, 2039, 300, 400),
    "l4": (58, 30.3, 24, 300, 0, 72),
    "l40s": (142, 91.6, 48, 864, 0, 350),
    "h100-sxm-80g": (132, 66.9, 80, 3350, 450, 700),
    "h200-sxm-141g": (132, 66.9, 141, 4800, 450, 700),
    "b200-sxm-180g": (148, 75, 180, 7700, 900, 1000),
    "gb200": (152, 80, 186, 8000, 900, 1200),
    "p4": (20, 5.5, 8, 192, 0, 75),
    "a10": (72, 31.2, 24, 600, 0, 150),
    "a30": (56, 10.3, 24, 933, 0, 165),
    "h100-pcie-80g": (114, 51.2, 80, 2039, 0, 350),
    "rtx-2080ti": (68, 13.4, 11, 616, 0, 250),
    "rtx-3080": (68, 29.8, 10, 760.3, 0, 320),
    "rtx-4090": (128, 82.6, 24, 1008, 0, 450),
    "rtx-pro-6000": (188, 125, 96, 1792, 0, 600),
    "cpu": (6, 0.883, 32, 51.2, 0, 65),
    "1s-server": (20, 2.43, 96, 128, 0, 125),
    "2s-skylake": (40, 4.86, 256, 256, 0, 250),
    "2s-icelake": (64, 9.42, 512, 409.6, 0, 410),
    "mi100": (120, 23.1, 32, 1228.8, 0, 300),
    "mi210": (104, 22.6, 64, 1638.4, 0, 300),
    "mi250": (208 / 2, 45.3 / 2, 128 / 2, 3276.8 / 2, 350, 560 / 2),
    "mi300x": (304, 163.4, 192, 5325, 448, 750),
}

DENSE_FP16_TFLOPS = {
    "t4": 65,
    "v100-pcie-32g": 112,
    "v100-sxm2-16g": 125,
    "a100-pcie-40g": 312,
    "a100-sxm-80g": 312,
    "l4": 121,
    "l40s": 362.05,
    "h100-sxm-80g": 989.4,
    "h200-sxm-141g": 989.4,
    "b200-sxm-180g": 2250,
    "gb200": 2500,
    "a10": 125,
    "a30": 165,
    "h100-pcie-80g": 756.5,
    "rtx-2080ti": 53.8,  # 107.6 with fp16 sums
    "rtx-3080": 59.5,  # 119 with fp16 sums
    "rtx-4090": 165.2,  # 330.3 with fp16 sums
    "rtx-pro-6000": 504,
    "mi100": 184.6,
    "mi210": 181,
    "mi250": 362.1 / 2,
    "mi300x": 1307.4,
}


def test_every_built_in_target_is_checked_against_its_makers_sheet() -> None:
    """The table of printed values covers every target that ships."""
    sheets = ROOT / "costmodels" / "targets"

    assert set(PRINTED) == {path.stem for path in sheets.glob("*.toml")}
    assert set(PRINTED) <= set(target_names())


@pytest.mark.parametrize("name", PRINTED)
def test_a_built_in_target_has_the_values_that_its_maker_prints(name: str) -> None:
    """SMs, fp32 peak, memory, bandwidth, NVLink and power are the datasheet's."""
    target = load_target(name)
    device = target.device

    assert name == target.name == device.name
    found = (
        device.sm_count,
        device.peak("fp32") / 1e12,
        device.memory.capacity_bytes / 2**30,
        device.memory.bytes_per_s / 1e9,
        sum(link.bytes_per_s for link in target.links) / 1e9,
        target.watts,
    )
    assert PRINTED[name] == pytest.approx(found, rel=3e-3)


@pytest.mark.parametrize("name", DENSE_FP16_TFLOPS)
def test_a_tensor_core_peak_is_the_dense_one(name: str) -> None:
    """The fp16 peak is the datasheet's rate without sparsity."""
    assert DENSE_FP16_TFLOPS[name] == pytest.approx(
        load_target(name).peak("fp16") / 1e12, rel=3e-3
    )


@pytest.mark.parametrize(
    ("name", "vector", "matrix"),
    [("mi100", 23.1, 46.1), ("mi210", 22.6, 45.3), ("mi300x", 163.4, 163.4)],
)
def test_amd_has_a_vector_and_a_matrix_rate_of_fp32(
    name: str, vector: float, matrix: float
) -> None:
    """Both are AMD's; NVIDIA's GPUs have no fp32 on tensor cores."""
    target = load_target(name)

    assert (vector, matrix) == (
        target.peak("fp32") / 1e12,
        target.peak("fp32_tensor") / 1e12,
    )
    assert 64 == target.device.warp_size
    assert "fp32_tensor" not in load_target("h100").device.flops_per_s
    assert 32 == load_target("h100").device.warp_size


def test_a_geforce_sums_in_fp32_at_half_the_rate() -> None:
    """RTX 4090 has half the fp16 and bf16 per SM and clock of L40S; int8 is whole."""
    geforce, pro = (load_target(name) for name in ("rtx-4090", "l40s"))

    def per_clock(target: Target, mode: str) -> float:
        device = target.device
        return target.peak(mode) / device.sm_count / device.tensor_clock_hz

    for mode, share in (("fp16", 0.5), ("bf16", 0.5), ("fp8", 0.5), ("int8", 1.0)):
        ratio = per_clock(geforce, mode) / per_clock(pro, mode)
        assert share == pytest.approx(ratio, rel=0.02)


def test_mi250_is_one_of_two_devices() -> None:
    """The target is a GCD: MI210's figures, with links to the other one."""
    gcd, card = load_target("mi250"), load_target("mi210")

    assert card.device.flops_per_s == gcd.device.flops_per_s
    assert card.device.memories == gcd.device.memories
    assert ["Infinity Fabric"] == [link.name for link in gcd.links]
    assert () == card.links


def test_the_host_of_gb200_is_reached_over_c2c() -> None:
    """The nominal rate is half of one Grace's 900 GB/s, in one direction."""
    link = load_target("gb200").host_link

    assert ("NVLink-C2C", 225e9) == (link.name, link.peak_bytes_per_s)
    assert load_target("b200").host_link.h2d_bytes_per_s < link.h2d_bytes_per_s


def test_the_last_cache_of_mi300x_is_its_infinity_cache() -> None:
    """256 MiB, which all XCDs share, and not the 4 MiB of one of them."""
    assert 256 * 2**20 == load_target("mi300x").device.l2.capacity_bytes


def test_the_documentation_lists_every_target() -> None:
    """docs/targets.md has the name of each built-in target in its table."""
    text = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    cells = {
        name
        for line in text.splitlines()
        if line.startswith("| ")
        for name in line.split("|")[2].replace(",", " ").split()
    }

    assert set(PRINTED) <= cells
