"""Ops without sizes, as `perfc rescale` carries them to another GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command
from tests.tools.traced_ops import TracedOps

from perfc.costmodels.machine import ANOTHER_DAY


def _without_sizes(path: Path, name: str, kernel: str, dur_us: float) -> str:
    """Write a trace of a V100 whose one op tells nothing of its arguments."""
    made = TracedOps()
    made.op(name, [], [(kernel, dur_us)])
    made.at_us += dur_us
    return str(made.write(path / f"{kernel}{dur_us}.json"))


@pytest.mark.parametrize(
    ("name", "kernel", "ends"),
    [
        # An A100 has 1.24 times the rate of a V100 in fp32, and 2.5 times in fp16.
        ("aten::mm", "volta_sgemm_128x64_nn", (0.7, 0.95)),
        ("aten::bmm", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", (0.3, 0.65)),
        ("aten::cudnn_convolution", "volta_scudnn_128x128_relu_nn_v1", (0.1, 0.5)),
        ("aten::convolution_backward", "volta_scudnn_128x64_stridedB", (0.1, 0.5)),
    ],
)
def test_ops_without_sizes_go_as_typical_ones(
    command: Command, tmp_path: Path, name: str, kernel: str, ends: tuple[float, float]
) -> None:
    """GEMMs by arithmetic, convolutions in TF32; not by waves of blocks."""
    path = _without_sizes(tmp_path, name, kernel, 3000)

    report = command("rescale", path, "--to", "a100", "--format", "json").report
    waves = command(
        "rescale", path, "--to", "a100", "--method", "wave", "--format", "json"
    ).report

    (one,) = report["targets"]
    assert one["methods"]["typical"]["launches"] == 1
    least, most = ends
    assert least < one["methods"]["typical"]["predicted_us"] / 3000 < most
    codes = {found["code"] for found in report["diagnostics"]}
    assert "rescaled-typical" in codes
    assert ("conv" in name) == ("convolutions-tf32" in codes)
    assert waves["targets"][0]["methods"]["wave"]["launches"] == 1


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("aten::relu", "vectorized_elementwise_kernel"),
        ("aten::conv2d", "conv_depthwise2d_forward_kernel"),
        ("aten::mm", "nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT"),
        ("aten::mm", "volta_dgemm_128x64_nn"),
        ("triton_poi_fused_convolution_relu_3", "triton_poi_fused_convolution_relu_3"),
        ("aten::_convert_indices_from_coo_to_csr", "convert_indices_float"),
    ],
)
def test_other_ops_without_sizes_go_by_waves(
    command: Command, tmp_path: Path, name: str, kernel: str
) -> None:
    """What waits for memory, convolutions that are no GEMMs, types like fp8."""
    path = _without_sizes(tmp_path, name, kernel, 300)

    (one,) = command("rescale", path, "--to", "a100", "--format", "json").report[
        "targets"
    ]

    assert one["methods"]["wave"]["launches"] == 1


def test_typical_ones_keep_the_time_on_the_same_gpu(
    command: Command, tmp_path: Path
) -> None:
    """And of the device no more is uncertain than another day."""
    path = _without_sizes(tmp_path, "aten::mm", "volta_sgemm_128x64_nn", 3000)

    (one,) = command("rescale", path, "--to", "v100", "--format", "json").report[
        "targets"
    ]

    assert one["predicted_us"] == pytest.approx(one["measured_us"], rel=0.01)
    assert ANOTHER_DAY == one["uncertainty"]["device"]


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64",
    ],
)
def test_a_mode_that_the_other_gpu_has_not(
    command: Command, tmp_path: Path, kernel: str
) -> None:
    """Kernels that say bf16 are no kernels of a V100's."""
    path = _without_sizes(tmp_path, "aten::mm", kernel, 3000)

    outcome = command("rescale", path, "--from", "a100", "--to", "v100")

    assert outcome.code == 1
    assert "no math mode 'bf16'" in outcome.err


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn",
        "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8",
        "turing_h1688gemm_128x128_ldg8_nn",
    ],
)
def test_types_are_known_by_the_names_of_kernels(
    command: Command, tmp_path: Path, kernel: str
) -> None:
    """An L40S has far more fp32 than an A100, and no more of fp16."""
    path = _without_sizes(tmp_path, "aten::mm", kernel, 3000)
    options = ("--from", "a100", "--to", "l40s", "--format", "json")

    (one,) = command("rescale", path, *options).report["targets"]

    assert one["methods"]["typical"]["predicted_us"] > 2500


def test_equal_ops_are_off_together(command: Command, tmp_path: Path) -> None:
    """Ten of them are as uncertain as one."""
    widths: list[float] = []
    for count in (1, 10):
        made = TracedOps()
        for _ in range(count):
            made.op("aten::mm", [], [("volta_sgemm_128x64_nn", 3000)])
            made.at_us += 3000
        path = str(made.write(tmp_path / f"{count}.json"))
        options = ("rescale", path, "--to", "t4", "--format", "json")
        (one,) = command(*options).report["targets"]
        ends = one["predicted_us_p05"], one["predicted_us_p95"]
        widths.append((ends[1] - ends[0]) / one["predicted_us"])

    assert widths[1] > 0.9 * widths[0]


def test_one_remark_says_what_turns_to_tf32(command: Command, tmp_path: Path) -> None:
    """Of convolutions with sizes and without."""
    none: list[object] = [[], [], [], [], [], [], []]
    made = TracedOps()
    kernel = [("volta_scudnn_128x128_relu_interior_nn_v1", 3000.0)]
    made.op(
        "aten::cudnn_convolution",
        [[32, 256, 28, 28], [256, 256, 3, 3], *none],
        kernel,
        types=["float", "float", *["ScalarList"] * 3, *["Scalar"] * 4],
        values=["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
    )
    made.at_us += 4000
    made.op("aten::cudnn_convolution", [], kernel)
    made.at_us += 4000
    path = str(made.write(tmp_path / "t.json"))

    report = command("rescale", path, "--to", "a100", "--format", "json").report

    (said,) = (d for d in report["diagnostics"] if d["code"] == "convolutions-tf32")
    assert said["message"].startswith("2 launches of fp32 convolutions")
