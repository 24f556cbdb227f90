"""`perfc analyze --runtime` and `--dtype`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.command import Command, Outcome

FULL = (
    "lower-kernels,kernel-cost,overhead,sustained-clock,stream-schedule,critical-path,"
    "time-interval"
)


def _json(outcome: Outcome) -> Any:
    assert (0, "") == (outcome.code, outcome.err)
    return outcome.report


def test_cudagraph_runtime(command: Command) -> None:
    """Same kernels, less host; every op that launches is still listed."""
    eager = _json(command.analyze("--format", "json"))
    replay = _json(command.analyze("--format", "json", "--runtime", "cudagraph"))

    def kernels(report: Any) -> list[tuple[str, float]]:
        return [(n["id"], n["duration_us"]) for n in report["nodes"] if n["stream"]]

    assert ("eager", "cudagraph") == (eager["runtime"], replay["runtime"])
    assert kernels(eager) == kernels(replay)
    assert eager["summary"]["launches"] == replay["summary"]["launches"]
    assert replay["summary"]["host_us"] < eager["summary"]["host_us"] / 2
    assert replay["summary"]["time_us"] < eager["summary"]["time_us"]
    summary = replay["summary"]
    assert summary["time_us_p05"] < summary["time_us"] < summary["time_us_p95"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "amp-bf16", "amp-fp16"])
def test_types_of_16_bits(command: Command, dtype: str) -> None:
    """The whole model, or its GEMMs, in 16 bits; `--pass` converts as well."""
    autocast = str(dtype.startswith("amp-")).lower()
    option = f"convert-dtype{{to={dtype.removeprefix('amp-')},autocast={autocast}}}"
    report = _json(command.analyze("--format", "json", "--dtype", dtype, target="a100"))
    passed = _json(command.analyze("--format", "json", "--pass", option, target="a100"))

    assert dtype == report["model"]["dtype"]
    assert report == passed


def test_a_type_that_the_device_lacks(command: Command) -> None:
    """One line says what the device lacks, and what to use."""
    outcome = command.analyze("--dtype", "bf16", target="v100")

    assert 1 == outcome.code
    assert (
        "v100-sxm2-16g has no bf16 tensor cores: PyTorch would emulate bf16 GEMMs "
        "there, which perfc does not price; use --dtype fp16 or --dtype fp32"
        == outcome.error
    )


def test_compiled_runtime(command: Command) -> None:
    """Fewer kernels and less host, the same flops; a kernel lists its nodes."""
    eager = _json(command.analyze("--format", "json"))
    compiled = _json(command.analyze("--format", "json", "--runtime", "compiled"))
    generated = [n for n in compiled["nodes"] if n["op"].startswith("triton_")]

    assert "compiled" == compiled["runtime"]
    for key in ("launches", "host_us", "bytes", "time_us"):
        assert compiled["summary"][key] < eager["summary"][key], key
    assert eager["summary"]["flops"] == compiled["summary"]["flops"]
    assert generated
    assert all(n["fuses"] for n in generated)
    known = {node["id"] for node in eager["nodes"]}
    assert known >= {name for node in generated for name in node["fuses"]}
    assert not any(node["fuses"] for node in eager["nodes"])
    assert compiled["what_if"]["cuda_graph"]["saved_us"] > 0


def test_compiled_and_captured(command: Command) -> None:
    """A compiled model in a CUDA graph launches the compiled kernels by one call."""
    options = ("--runtime", "compiled", "--format", "json")
    compiled = _json(command.analyze(*options))
    captured = _json(command.analyze(*options, "--pass", "capture-graph"))

    def generated(report: Any) -> list[str]:
        return [n["op"] for n in report["nodes"] if n["op"].startswith("triton_")]

    assert generated(compiled) == generated(captured)
    assert captured["summary"]["host_us"] < compiled["summary"]["host_us"]


@pytest.mark.parametrize(
    ("runtime", "name"), [("cudagraph", "capture-graph"), ("compiled", "fuse-kernels")]
)
def test_the_pass_makes_the_runtime(command: Command, runtime: str, name: str) -> None:
    """`--pass capture-graph`, or a pipeline with it, is `--runtime cudagraph`."""
    whole = FULL.replace("lower-kernels", f"lower-kernels,{name}")
    wanted = command.analyze("--format", "json", "--runtime", runtime).out

    assert wanted == command.analyze("--format", "json", "--pass", name).out
    assert wanted == command.analyze("--format", "json", "--pipeline", whole).out


def test_runtime_and_pipeline_must_agree(command: Command) -> None:
    """A pipeline says what runs; one without the capture is no replay."""
    outcome = command.analyze("--runtime", "cudagraph", "--pipeline", FULL)

    assert 2 == outcome.code
    assert (
        "--runtime cudagraph needs the pass capture-graph in --pipeline"
        == outcome.error
    )
