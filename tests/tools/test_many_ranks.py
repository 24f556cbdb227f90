"""Many GPUs, as typed: `--ranks`, programs of several rank classes, their reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

import perfc
from perfc.ir import UsageError

STEP = ("dlrm-ddp:tables=2,rows=1000,embedding=bag", "--batch", "64", "--mode")
TRAINING = (*STEP, "training", "--pass", "training{sparse-gradients=never}")
DGX = ("--target", "dgx-a100")

UNEVEN = """
program @uneven {
  ranks [0, 1, 2] {
    graph @light(%x: f32[2048,1024], param %w: f32[1024,1024]) {
      %y = linear(%x, %w) : ?
      %sum = all_reduce(%y) {group = "dp", ranks = 4} : ?
      %z = relu(%sum) : ?
      return %z
    }
  }
  ranks [3] {
    graph @heavy(%x: f32[2048,1024], param %w: f32[1024,1024]) {
      %a = linear(%x, %w) : ?
      %b = linear(%a, %w) : ?
      %y = linear(%b, %w) : ?
      %sum = all_reduce(%y) {group = "dp", ranks = 4} : ?
      %z = relu(%sum) : ?
      return %z
    }
  }
}
"""


@pytest.fixture
def uneven(tmp_path: Path) -> str:
    """Four ranks, one of which computes more."""
    path = tmp_path / "uneven.perfc"
    path.write_text(UNEVEN)
    return str(path)


def _ranks(report: Any) -> list[Any]:
    found: list[Any] = report["ranks"]
    return found


def test_training_on_many_ranks_reduces_its_gradients(command: Command) -> None:
    """All ranks are one class; communication is in the report and on its stream."""
    report = command(
        "analyze", *TRAINING, *DGX, "--ranks", "8", "--format", "json"
    ).report

    (entry,) = _ranks(report)
    assert list(range(8)) == entry["ranks"]
    reduced = [n for n in report["nodes"] if n["op"] == "c10d::allreduce_"]
    assert reduced
    assert {"comm"} == {node["stream"] for node in reduced}
    total_us = sum(node["duration_us"] for node in reduced)
    assert total_us == pytest.approx(report["summary"]["comm_us"])
    assert 0 <= report["summary"]["exposed_comm_us"] <= total_us * (1 + 1e-9)
    assert 0 == entry["waiting_us"] == entry["late_us"] == entry["imbalance"]


def test_contention_slows_what_runs_side_by_side(command: Command) -> None:
    """All-reduces take longer beside kernels; on one GPU nothing changes."""
    large = ("analyze", *TRAINING, "--batch", "65536", *DGX)
    for ranks, slower in (("8", True), ("1", False)):
        arguments = (*large, "--ranks", ranks, "--format", "json")
        option = ("--pass", "stream-schedule{contention=false}")
        alone, beside = command(*arguments, *option).report, command(*arguments).report

        assert slower == (beside["summary"]["comm_us"] > alone["summary"]["comm_us"])
        assert beside["summary"]["time_us"] >= alone["summary"]["time_us"]


def test_buffers_are_sent_before_forward(command: Command) -> None:
    """ResNet-50 has 53 norms: two types, three buffers each, all copied back.

    A public trace of it on two A100 has as many: two broadcasts, and with the 161
    gradients 320 copies on the device a step.
    """
    model = ("analyze", "resnet50:batch_norm=separate", "--batch", "2")
    arguments = (*model, "--mode", "training", *DGX, "--ranks=2", "--format", "json")
    told: dict[str, list[dict[str, Any]]] = {}
    for node in command(*arguments).report["nodes"]:
        told.setdefault(node["op"], []).append(node)

    assert 2 == len(told["c10d::broadcast_"])
    assert 161 + 3 * 53 == len(told["aten::copy_"])
    first = min(node["start_us"] for node in told["aten::conv2d"])
    assert max(node["start_us"] for node in told["c10d::broadcast_"]) < first
    off = "data-parallel{broadcast-buffers=false}"
    nodes = command(*arguments, "--pass", off).report["nodes"]
    assert not [node for node in nodes if node["op"] == "c10d::broadcast_"]


@pytest.mark.parametrize("views", ["false", "true"])
def test_buckets_are_memory_of_gradients(command: Command, views: str) -> None:
    """SGD has no state, on many ranks either; buckets stay beside the parameters."""
    ddp = f"data-parallel{{gradient-as-bucket-view={views}}}"
    arguments = (*TRAINING, *DGX, "--ranks", "8", "--pass", ddp, "--format", "json")
    memory = command("analyze", *arguments).report["memory"]

    assert 0 == memory["by_kind"]["optimizer_state"] == memory["optimizer_bytes"]
    assert memory["by_kind"]["gradients"] > 0.9 * memory["by_kind"]["parameters"]


def test_one_rank_is_one_gpu(command: Command) -> None:
    """`--ranks 1` changes nothing."""
    alone = command("analyze", *TRAINING, *DGX, "--format", "json")
    one = command("analyze", *TRAINING, *DGX, "--ranks", "1", "--format", "json")

    assert alone.report == one.report


def test_an_inference_is_replicated(command: Command) -> None:
    """Replicas take as long as one of them, and the report says what they are."""
    run = command("analyze", *STEP, "inference", *DGX, "--format", "json")
    many = command(
        "analyze", *STEP, "inference", *DGX, "--ranks", "16", "--format", "json"
    ).report

    assert run.report["summary"]["time_us"] == many["summary"]["time_us"]
    assert "replicas" in {d["code"] for d in many["diagnostics"]}
    assert 16 == len(_ranks(many)[0]["ranks"])


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--target", "a100", "--ranks", "16"), 1, "16 ranks need 2 nodes"),
        (("--target", "cpu", "--ranks", "2"), 1, "only GPUs that NCCL joins"),
        ((*DGX, "--ranks", "12"), 1, "12 ranks do not fill nodes of 8 GPUs"),
        ((*DGX, "--ranks", "12"), 1, "take 6 of each node: --set node.gpus=6"),
        ((*DGX, "--ranks", "13"), 1, "has; choose 8 or 16"),
        ((*DGX, "--ranks", "x"), 2, "'x' is not a valid integer"),
        ((*DGX, "--ranks", "0"), 2, "0 is not in the range"),
        ((*DGX, "--ranks", "2000000"), 2, "2000000 is not in the range"),
        (
            (*DGX, "--ranks", "6", "--pass", "data-parallel{ranks=4}"),
            2,
            "6 ranks are asked for (--ranks), but the passes run the model on 4",
        ),
        ((*DGX, "--pass", "data-parallel"), 2, "needs a number of replicas"),
        ((*DGX, "--pass", "data-parallel{ranks=-1}"), 2, "expected 1 to 1,000,000"),
        (
            (*DGX, "--pass", "data-parallel{ranks=2,bucket-mb=0}"),
            2,
            "expected more than 0 MiB",
        ),
        (
            (*DGX, "--pass", "data-parallel{ranks=2,world=2}"),
            2,
            "ranks=N replicas or world=N ranks, not both",
        ),
    ],
)
def test_bad_ranks(
    command: Command, options: tuple[str, ...], code: int, message: str
) -> None:
    """One clear line and the right exit code."""
    outcome = command("analyze", *TRAINING, *options)

    assert code == outcome.code
    assert message in outcome.err
    assert "" == outcome.out


def test_ranks_that_do_not_divide(command: Command, uneven: str) -> None:
    """Replicas of several ranks must fill the world."""
    outcome = command("analyze", uneven, *DGX, "--ranks", "6")

    assert (2, "") == (outcome.code, outcome.out)
    assert "6 ranks do not divide into replicas of 4" in outcome.err


def test_the_others_wait_for_a_straggler(command: Command, uneven: str) -> None:
    """The slow rank is late by what the others wait, and its kernels are critical."""
    report = command("analyze", uneven, *DGX, "--format", "json").report
    light, heavy = _ranks(report)

    assert 0 == heavy["waiting_us"] == light["late_us"]
    assert light["waiting_us"] == pytest.approx(heavy["late_us"])
    assert heavy["imbalance"] > 0 > light["imbalance"]
    weighted = 3 * light["imbalance"] + heavy["imbalance"]
    assert weighted == pytest.approx(0, abs=1e-9)
    on_path = {s["rank"] for s in report["critical_path"] if s["kind"] == "kernel"}
    assert 3 in on_path
    assert {0, 3} == {node["rank"] for node in report["nodes"]}


def test_a_table_of_ranks(command: Command, uneven: str) -> None:
    """People see how many ranks there are, and a row per class."""
    text = command("analyze", uneven, *DGX).out

    assert "· 4 ranks ·" in text
    assert "Ranks\n" in text
    assert "  0, 1, 2  " in text
    assert "imbalance" in text
    assert max(map(len, text.splitlines())) <= 96


@pytest.mark.parametrize("runtime", ["cudagraph", "compiled"])
def test_other_runtimes(command: Command, uneven: str, runtime: str) -> None:
    """Collectives are captured with the rest, and stay calls when it is compiled."""
    report = command(
        "analyze", uneven, *DGX, "--runtime", runtime, "--format", "json"
    ).report

    reduced = [n for n in report["nodes"] if n["op"] == "c10d::allreduce_"]
    assert [0, 3] == [node["rank"] for node in reduced]
    (after,) = (n for n in report["nodes"] if (n["id"], n["rank"]) == ("z", 0))
    end_us = reduced[0]["start_us"] + reduced[0]["duration_us"]
    assert after["start_us"] >= end_us - 1e-9


def test_a_trace_of_ranks(command: Command, uneven: str) -> None:
    """Every class has processes of its own."""
    trace = json.loads(command("analyze", uneven, *DGX, "--format", "trace").out)

    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
    reduced = [e for e in kernels if "AllReduce" in e["name"]]
    assert 2 == len({event["pid"] for event in reduced}) == len(reduced)
    assert 4 == trace["distributedInfo"]["world_size"]
    assert 1 == len({event["ts"] for event in reduced})


def test_a_rank_that_does_not_fit(command: Command, tmp_path: Path) -> None:
    """`--strict` exits 5, and names the rank that needs most."""
    big, end = "%big: f32[8192,1048576,4], %x", "\n    }\n  }\n}\n"
    text = UNEVEN.replace("@heavy(%x", f"@heavy({big}")
    text = text.replace("%a = linear", "%c = relu(%big) : ?\n      %a = linear")
    path = tmp_path / "large.perfc"
    path.write_text(text.replace(f"return %z{end}", f"return %z, %c{end}"))

    outcome = command("analyze", str(path), *DGX, "--strict")

    assert 5 == outcome.code
    assert "rank 3 needs" in outcome.out


def test_from_python() -> None:
    """`ranks` is an argument of `load` and of `analyze`."""
    name = "dlrm-ddp:tables=2,rows=1000,embedding=bag"
    model = perfc.load(name, batch=64, mode="training", ranks=4)

    assert 4 == model.ranks
    assert 4 == len(perfc.analyze(model, "dgx-a100").ranks[0]["ranks"])
    with pytest.raises(UsageError, match="is loaded for 4 ranks"):
        perfc.analyze(model, "dgx-a100", ranks=8)
    with pytest.raises(UsageError, match="expected at least 1"):
        perfc.load(name, batch=64, ranks=0)
