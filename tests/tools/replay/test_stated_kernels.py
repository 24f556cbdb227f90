"""Traces that perfc wrote itself say what it has priced, and are priced as that."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import SMALL, Command

import perfc
from perfc.costmodels import load_target
from perfc.ir.launch import BUSY_KINDS
from perfc.tools.replay.kernel_prices import By, TracePrices, trace_prices
from perfc.tools.replay.recorded_ops import trace_ops
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

ROUNDING_S = 2e-9
"""Beginning and end of a kernel are whole nanoseconds."""

WORKLOADS = {
    "dlrm-ddp:tables=2,rows=1000": 64,
    "dcnv2-mlperf:rows=1000": 16,
    "deepfm:rows=1000": 64,
    "resnet50": 2,
    "bert-base:layers=1": 2,
    "gpt2:layers=1": 1,
    "opt-1.3b:layers=1": 1,
}
MODES = ("inference", "training")
RUNTIMES = ("eager", "cudagraph", "compiled")
TARGETS = ("v100", "a100", "h100")


def _path(tmp_path: Path, name: str, **options: Any) -> Path:
    """Write the prediction of a workload as a trace."""
    target = options.pop("target", "dgx-a100")
    runtime = options.pop("runtime", "eager")
    report = perfc.analyze(perfc.load(name, **options), target, runtime=runtime)
    report.to_trace(path := tmp_path / "own.json.gz")
    return path


def _prices(path: Path, target: str) -> TracePrices:
    recorded = record(read_trace(path))
    return trace_prices(trace_ops(recorded), load_target(target))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_kernel_has_the_price_of_the_prediction(
    tmp_path: Path, name: str, mode: str, runtime: str
) -> None:
    """Whatever op it is of, forward or backward, launched alone or in a CUDA graph."""
    number = [*WORKLOADS].index(name) + MODES.index(mode) + RUNTIMES.index(runtime)
    target = TARGETS[number % len(TARGETS)]
    options = {"mode": mode, "runtime": runtime, "target": target}
    path = _path(tmp_path, name, batch=WORKLOADS[name], **options)

    prices = _prices(path, target)

    graph = prices.ops.recorded.graph
    measured = {
        t: graph.stated_s[t] for t, k in enumerate(graph.kind) if k in BUSY_KINDS
    }
    assert measured == pytest.approx(prices.seconds, rel=1e-6, abs=ROUNDING_S)
    assert {By.MODEL} == {price.by for price in prices.prices.values()}
    assert not prices.diagnostics


def test_collectives_have_the_price_of_the_prediction(tmp_path: Path) -> None:
    """What they send, and among whom, is told as NCCL's kernels are."""
    path = _path(tmp_path, "dlrm-ddp:tables=2", batch=64, mode="training", ranks=8)

    prices = _prices(path, "dgx-a100")

    recorded = prices.ops.recorded
    sent = {t: one.seconds for t, one in prices.collectives.sent.items()}
    measured = {t: recorded.graph.stated_s[t] for t in recorded.collectives}
    assert len(sent) > 1
    assert measured == pytest.approx(sent, rel=1e-6, abs=ROUNDING_S)


@pytest.mark.parametrize("there", ["v100", "h100"])
def test_another_gpu_is_predicted_as_from_the_model(
    command: Command, tmp_path: Path, there: str
) -> None:
    """A prediction that was rescaled is the prediction of the other GPU."""
    path = tmp_path / "own.json.gz"
    options = ("gpt2:layers=2", "--batch", "2", "--mode", "training")
    written = ("--format", "trace", "-o", str(path))
    command("analyze", *options, "--target", "a100", *written)
    on = ("--target", there, "--overheads", "shared")  # the host of the trace
    direct = command("analyze", *options, *on, "--format", "json").report

    report = command("rescale", str(path), "--to", there, "--format", "json").report

    # The gap between kernels of a busy stream is the trace's.
    (found,) = report["targets"]
    assert found["predicted_us"] == pytest.approx(
        direct["summary"]["time_us"], rel=0.005
    )


def _damaged(path: Path, changes: dict[str, Any]) -> int:
    """Change the signatures of a trace; return of how many kernels."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    arguments = [event.get("args", {}) for event in document["traceEvents"]]
    stated = [args for args in arguments if "perfc kernel" in args]
    for args in stated:
        args["perfc kernel"] = {**args["perfc kernel"], **changes} if changes else 7
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return len(stated)


@pytest.fixture
def own(command: Command, tmp_path: Path) -> Path:
    """A prediction of a small model, as a trace."""
    path = tmp_path / "own.json.gz"
    written = ("--format", "trace", "-o", str(path))
    command("analyze", *SMALL, "--target", "v100", *written)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"flops": -1},
        {"bytes_read": 10**40},
        {"params": {"n": 10**400}},
        {"params": None},
        {"dtype": None},
        {"op": "softmax", "params": {"rows": 1, "cols": 1, "colls": 1}},
        {"op": "nobodys.kernel"},
    ],
    ids=[
        *("number", "negative", "huge", "huge-size", "no-sizes", "no-type"),
        *("undeclared-size", "undeclared-kernel"),
    ],
)
def test_damaged_signatures_are_left_out(
    command: Command, own: Path, changes: dict[str, Any]
) -> None:
    """Their kernels are priced as those of any trace, and a remark says so."""
    changed = _damaged(own, changes)

    out = command("replay", str(own), "--kernels", "predicted").out

    assert f"{changed} events whose signature cannot be read" in out


def test_a_signature_that_no_model_can_price(command: Command, own: Path) -> None:
    """One line says which file has it."""
    sizes = {"m": 8, "n": 8, "k": 8}
    _damaged(own, {"op": "gemm", "math": "bf16", "flops": 1, "params": sizes})

    outcome = command("replay", str(own), "--kernels", "predicted")

    assert (1, "") == (outcome.code, outcome.out)
    assert outcome.error.startswith(
        f"{own} on v100-sxm2-16g: a kernel that the trace states: "
    )
