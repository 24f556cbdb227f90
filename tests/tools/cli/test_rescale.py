"""`perfc rescale` as it is typed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command
from tests.tools.traced_ops import MIB, TracedOps
from tests.traces.executed import Executed

from perfc.costmodels import load_profile
from perfc.costmodels.machine import ANOTHER_DAY

Z = 1.6448536269514722
"""95th percentile of the standard normal distribution."""


def _trace(tmp_path: Path, **header: object) -> str:
    made = TracedOps()
    made.made.label("ProfilerStep#1", 0, 7500)
    made.gemm(2048, 4000)
    made.at_us += 4000
    made.op("mine::op", [[4]], [("mine", 300)])
    made.copy()
    made.collective()
    return str(made.write(tmp_path / "t.json", **header))


def test_gpus_are_targets_too(command: Command, tmp_path: Path) -> None:
    """`--target` is `--to`."""
    path = _trace(tmp_path)

    report = command(
        "rescale", path, "--to", "a100", "--target", "t4", "--format", "json"
    ).report

    assert ["a100-sxm-80g", "t4"] == [one["target"] for one in report["targets"]]


def test_a_trace_goes_to_several_gpus(command: Command, tmp_path: Path) -> None:
    """`perfc.rescale/1`: times, interval, what is known in which way, and steps."""
    path = _trace(tmp_path)

    report = command("rescale", path, "--to", "a100,t4", "--format", "json").report

    assert report["schema"] == "perfc.rescale/1"
    assert report["trace"]["target"] == "v100-sxm2-16g"
    faster, slower = report["targets"]
    assert ("a100-sxm-80g", "t4") == (faster["target"], slower["target"])
    for one in report["targets"]:
        methods = one["methods"]
        counts = {name: own["launches"] for name, own in methods.items()}
        assert counts == {
            "model": 1,
            "facts": 1,
            "wave": 1,
            "kept": 1,
            "collective": 0,
            "typical": 0,
        }
        assert sum(own["share"] for own in methods.values()) == pytest.approx(1)
        assert methods["kept"]["predicted_us"] == pytest.approx(500)
        ends = (one["predicted_us_p05"], one["predicted_us_p95"])
        assert ends[0] <= one["predicted_us"] <= ends[1]
        assert ["ProfilerStep#1"] == [step["name"] for step in one["steps"]]
    assert faster["methods"]["model"]["predicted_us"] < 4000
    assert slower["methods"]["model"]["predicted_us"] > 4000
    assert slower["predicted_us"] > faster["predicted_us"]
    assert slower["predicted_us_p95"] > slower["predicted_us_p05"]
    codes = {found["code"] for found in report["diagnostics"]}
    assert {"rescaled-wave", "rescaled-kept"} <= codes


@pytest.mark.parametrize("method", ["model", "wave"])
def test_the_gpu_it_was_measured_on(
    command: Command, tmp_path: Path, method: str
) -> None:
    """There it takes what it took, and another day may be otherwise."""
    path = _trace(tmp_path)
    replayed = command("replay", path, "--format", "json").report["traces"][0]
    options = ("--to", "v100", "--method", method, "--format", "json")

    (one,) = command("rescale", path, *options).report["targets"]

    assert one["predicted_us"] == pytest.approx(replayed["simulated_us"])
    unknown = one["uncertainty"]
    assert {"session": 0.1, "machine": 0, "device": ANOTHER_DAY} == {
        key: unknown[key] for key in ("session", "machine", "device")
    }
    assert one["predicted_us_p05"] < one["predicted_us"] < one["predicted_us_p95"]


def test_kernels_are_multiplied_by_the_ratio_of_prices(
    command: Command, tmp_path: Path
) -> None:
    """What is measured is multiplied: a kernel twice as slow stays twice as slow."""
    factors: list[float] = []
    for dur_us in (1000, 2000):
        made = TracedOps()
        made.gemm(2048, dur_us)
        path = str(made.write(tmp_path / f"{dur_us}.json"))
        options = ("--to", "t4", "--format", "json")
        (one,) = command("rescale", path, *options).report["targets"]
        factors.append(one["methods"]["model"]["predicted_us"] / dur_us)

    assert factors[0] == pytest.approx(factors[1])


def _bound(tmp_path: Path, host_us: float, kernel_us: float) -> str:
    """Return a trace of ops that take the host so long, and kernels the device."""
    made = TracedOps()
    for _ in range(10):
        made.gemm(512, kernel_us)
        made.at_us += host_us - 1000
    return str(made.write(tmp_path / "t.json"))


def test_a_host_that_decides_the_time_decides_the_interval(
    command: Command, tmp_path: Path
) -> None:
    """Another GPU may be in another machine; `--same-host` says that it is not."""
    path = _bound(tmp_path, 1000, 5)
    options = ("--to", "a100", "--format", "json")
    machine = load_profile("shared").sigma_shared

    (other,) = command("rescale", path, *options).report["targets"]
    (same,) = command("rescale", path, *options, "--same-host").report["targets"]

    for one, sigma in ((other, math.hypot(0.1, machine)), (same, 0.1)):
        slower = one["predicted_us_p95"] / one["predicted_us"]
        faster = one["predicted_us_p05"] / one["predicted_us"]
        assert slower == pytest.approx(math.exp(Z * sigma), rel=0.01)
        assert faster == pytest.approx(math.exp(-Z * sigma), rel=0.01)
        assert one["uncertainty"]["device_share"] < 0.05
    assert 0 == same["uncertainty"]["machine"]


def test_a_host_that_runs_ahead_adds_little(command: Command, tmp_path: Path) -> None:
    """Where the device decides the time, it decides the interval, too."""
    path = _bound(tmp_path, 200, 4000)
    options = ("--to", "t4", "--format", "json")

    (one,) = command("rescale", path, *options).report["targets"]

    assert one["uncertainty"]["device_share"] > 0.95
    assert one["predicted_us_p95"] / one["predicted_us"] == pytest.approx(
        math.exp(Z * one["uncertainty"]["device"]), rel=0.05
    )


def test_a_profile_brings_its_own_uncertainty(command: Command, tmp_path: Path) -> None:
    """Of a host that is named it is known how far its profile may be off."""
    path = _bound(tmp_path, 1000, 5)
    options = ("--to", "a100", "--format", "json", "--overheads", "lin-v100")

    (one,) = command("rescale", path, *options).report["targets"]

    assert {"session": 0, "machine": 0.1} == {
        key: one["uncertainty"][key] for key in ("session", "machine")
    }


def test_steps_have_intervals(command: Command, tmp_path: Path) -> None:
    """Each step lies within its own, which is as wide as that of them all."""
    made = TracedOps()
    for number in range(3):
        made.made.label(f"ProfilerStep#{number}", 1000 * number, 1000)
        made.gemm(512, 5)
    path = str(made.write(tmp_path / "t.json"))

    report = command("rescale", path, "--to", "a100", "--format", "json").report

    (one,) = report["targets"]
    widths = [
        time["predicted_us_p95"] / time["predicted_us_p05"]
        for time in (one, *one["steps"])
    ]
    assert 4 == len(widths)
    assert widths == pytest.approx([widths[0]] * 4, rel=0.02)


def test_another_host(command: Command, tmp_path: Path) -> None:
    """`--overheads` replaces what the host of the trace took."""
    path = _trace(tmp_path)
    options = ("--to", "v100", "--format", "json")

    (own,) = command("rescale", path, *options).report["targets"]
    (other,) = command("rescale", path, *options, "--overheads", "shared").report[
        "targets"
    ]

    assert other["predicted_us"] < own["predicted_us"]


def test_tables(command: Command, tmp_path: Path) -> None:
    """What people read says the same; `-q` leaves out the remarks."""
    path = _trace(tmp_path)

    said = command("rescale", path, "--to", "a100", "--to", "mi300x").out
    quiet = command("rescale", path, "--to", "a100", "-q").out

    assert "on v100-sxm2-16g" in said
    assert "measured x model there / model here" in said
    assert "no kernel of AMD GPUs was measured" in said
    assert "are rescaled by their blocks alone" in said
    assert "note: " not in quiet


def test_one_step(command: Command, tmp_path: Path) -> None:
    """`--steps` reports those steps; one that is not there is an error."""
    path = _trace(tmp_path)
    options = ("--to", "t4", "--steps")

    (one,) = command("rescale", path, *options, "1", "--format", "json").report[
        "targets"
    ]
    missing = command("rescale", path, *options, "7")

    assert one["predicted_us"] == one["steps"][0]["predicted_us"]
    assert missing.code == 1
    assert "no step 7; it has 1;" in missing.error


def test_arguments_of_an_execution_trace(command: Command, tmp_path: Path) -> None:
    """A trace without shapes is rescaled by models if an execution trace has them."""
    made, executed = TracedOps(), Executed()
    made.made.add("cpu_op", "aten::mm", 0, 100)
    made.made.launch(10, 5, 30, 700)
    executed.mm(2048, 2048, 2048)
    files = [str(made.write(tmp_path / "t.json"))]
    options = ("--to", "t4", "--format", "json")

    (before,) = command("rescale", *files, *options).report["targets"]
    files.append(str(executed.write(tmp_path / "et.json")))
    (after,) = command("rescale", *files, *options).report["targets"]

    assert before["methods"]["model"]["launches"] == 0
    assert after["methods"]["model"]["launches"] == 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "--to"),
        (("--to", "nothing"), 2, "unknown target nothing"),
        (("--to", "a100,"), 2, "--to a100,: an empty name"),
        (("--to", "t4", "--to", "t4"), 2, "--to t4 is given twice"),
        (("--to", "t4", "--from", "nothing"), 2, "unknown target nothing"),
        (("--to", "t4", "--overheads", "nothing"), 2, "nothing"),
    ],
)
def test_bad_options(
    command: Command, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    """Each is one line that says what is wrong."""
    outcome = command("rescale", _trace(tmp_path), *options)

    assert code == outcome.code
    assert message in outcome.err


def test_bad_traces(command: Command, tmp_path: Path) -> None:
    """A device without a target, a trace without device work, and two traces."""
    path = _trace(tmp_path, deviceProperties=[{"id": 0, "name": "Some GPU"}])
    empty = TracedOps()
    empty.made.call("cudaDeviceSynchronize", 0, 5)
    nothing = str(empty.write(tmp_path / "empty.json"))

    unknown = command("rescale", path, "--to", "t4")
    idle = command("rescale", nothing, "--to", "t4")
    both = command("rescale", path, path, "--to", "t4", "--from", "v100")
    known = command("rescale", path, "--to", "t4", "--from", "v100", "-q")

    assert "its device is 'Some GPU'" in unknown.error
    assert "--from T" in unknown.error
    assert "nothing to rescale" in idle.error
    assert (2, 0) == (both.code, known.code)


def test_a_gpu_without_the_types_of_the_trace(command: Command, tmp_path: Path) -> None:
    """A GPU that emulates a type has no price: the line names trace and GPU."""
    made = TracedOps()
    types = ["c10::BFloat16"] * 2
    made.op("aten::mm", [[512, 512]] * 2, [("gemm", 20)], types=types)
    properties = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    path = str(made.write(tmp_path / "t.json", deviceProperties=properties))

    outcome = command("rescale", path, "--to", "v100")

    assert outcome.code == 1
    assert outcome.error.startswith(f"{path} on v100-sxm2-16g: ")
    assert "no math mode 'bf16'" in outcome.error


@pytest.mark.parametrize(
    "words",
    [
        ("rescale", "--from", "v100", "--to", "h100"),
        ("replay", "--kernels", "predicted", "--target", "v100"),
    ],
)
def test_a_gpu_that_cannot_have_run_the_trace(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The line names trace and GPU, too, where the user says what it ran on."""
    made = TracedOps()
    types = ["c10::BFloat16"] * 2
    made.op("aten::mm", [[512, 512]] * 2, [("gemm", 20)], types=types)
    path = str(made.write(tmp_path / "t.json"))

    outcome = command(words[0], path, *words[1:])

    assert outcome.code == 1
    assert outcome.error.startswith(f"{path} on v100-sxm2-16g: target v100-sxm2-16g ")


def test_what_collectives_send_is_rescaled(command: Command, tmp_path: Path) -> None:
    """How long they wait for other ranks stays as measured."""
    made = TracedOps()
    made.collective(9000, elements=MIB, ranks=8)
    made.collective(5, elements=MIB, ranks=8)
    path = str(made.write(tmp_path / "t.json"))

    report = command("rescale", path, "--to", "h100", "-v", "--format", "json").report

    (target,) = report["targets"]
    own = target["methods"]["collective"]
    assert (own["launches"], own["measured_us"]) == (2, pytest.approx(9005))
    here = _sent_us(command, path, "v100")
    there = _sent_us(command, path, "h100")
    assert there < here
    # the first waited for all that it did not send; the second cannot have waited
    waited_us = 9000 - here / 2
    moved_us = there / 2 + 5 * there / here
    assert own["predicted_us"] == pytest.approx(waited_us + moved_us)
    codes = {found["code"] for found in report["diagnostics"]}
    assert {"collectives-sent", "rescaled-collective"} <= codes
    (kernel,) = target["kernels"]
    assert ("collective", 2) == (kernel["method"], kernel["launches"])


def _sent_us(command: Command, path: str, target: str) -> float:
    options = ("--kernels", "predicted", "--target", target, "--format", "json")
    (trace,) = command("replay", path, *options).report["traces"]
    return float(trace["kernels"]["collective"]["predicted_us"])


def test_verbose_says_by_what(command: Command, tmp_path: Path) -> None:
    """Each kernel with its op, its models or its method, and the ratio."""
    path = _trace(tmp_path)

    table = command("rescale", path, "--to", "a100", "-v").out
    silent = command("rescale", path, "--to", "a100").out

    (gemm,) = [line for line in table.splitlines() if "volta_sgemm" in line]
    assert "gemm/gemm" in gemm
    assert "aten::mm" in gemm
    (other,) = [line for line in table.splitlines() if "mine::op" in line][:1]
    assert "wave" in other
    assert "volta_sgemm" not in silent


def test_a_cpu_runs_other_kernels(command: Command, tmp_path: Path) -> None:
    """A trace of a GPU says nothing of a CPU: the model itself is to be predicted."""
    outcome = command("rescale", _trace(tmp_path), "--to", "cpu")

    assert 2 == outcome.code
    assert "perfc analyze --target cpu" in outcome.error


def _convolution(tmp_path: Path, dtype: str = "float") -> str:
    """Write a trace of a V100 with a convolution, and a GEMM, which stays fp32."""
    made = TracedOps()
    none: list[object] = [[], [], [], [], [], [], []]
    values = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"]
    made.op(
        "aten::cudnn_convolution",
        [[32, 256, 28, 28], [256, 256, 3, 3], *none],
        [("volta_scudnn_128x128_relu_interior_nn_v1", 3000)],
        types=[dtype, dtype, *["ScalarList"] * 3, "Scalar", *["Scalar"] * 3],
        values=values,
    )
    made.at_us += 4000
    made.gemm(2048, 1500)
    return str(made.write(tmp_path / f"{dtype}.json"))


def test_convolutions_go_to_tf32(command: Command, tmp_path: Path) -> None:
    """Those of fp32 use TF32 where there is any, unless told not to."""
    path = _convolution(tmp_path)
    options = ("rescale", path, "-v", "--format", "json", "--to")

    found = command(*options, "a100").report
    without = command(*options, "a100", "--no-tf32").report
    no_tf32_there = command(*options, "t4").report

    convolved, gemm = _by_op(found)
    slower, same_gemm = _by_op(without)
    assert convolved < 0.75 * slower
    assert gemm == pytest.approx(same_gemm)
    assert "convolutions-tf32" in {one["code"] for one in found["diagnostics"]}
    for other in (without, no_tf32_there):
        assert "convolutions-tf32" not in {one["code"] for one in other["diagnostics"]}


def test_convolutions_of_16_bits_stay(command: Command, tmp_path: Path) -> None:
    """TF32 is for fp32 alone."""
    path = _convolution(tmp_path, "c10::Half")
    options = ("rescale", path, "--to", "a100", "-v", "--format", "json")

    found = command(*options).report

    assert _by_op(found) == _by_op(command(*options, "--no-tf32").report)
    assert "convolutions-tf32" not in {one["code"] for one in found["diagnostics"]}


def _by_op(report: dict[str, Any]) -> tuple[float, float]:
    """Return microseconds of the convolution and of the GEMM."""
    (target,) = report["targets"]
    times = {one["op"]: one["predicted_us"] for one in target["kernels"]}
    return times["aten::cudnn_convolution"], times["aten::mm"]
