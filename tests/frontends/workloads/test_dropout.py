"""Dropout of the workloads: what training runs of it, and what inference does not."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.tools.command import Command

import perfc
from perfc.passes.training import Training
from perfc.twins.bert import bert_base
from perfc.twins.gpt import gpt2
from perfc.twins.twin import Twin

SIZES = "layers=2,hidden=64,heads=4,seq=32,vocab=101"
DROPS = ("aten::native_dropout", "aten::native_dropout_backward")


@pytest.fixture(name="command")
def _command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def _launched(report: perfc.Report) -> Counter[str]:
    graph = report.results.hosted[0].graph
    return Counter(
        graph.ops[op].name
        for op, kernel in zip(graph.op, graph.kernel, strict=True)
        if kernel >= 0
    )


def _step(text: str) -> perfc.Report:
    step = [Training(loss="sum")]
    model = perfc.load(text, batch=4, mode="training", transforms=step)
    return perfc.analyze(model, "a100", inputs="device")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("twin", [bert_base, gpt2], ids=lambda twin: twin.name)
def test_a_step_drops_what_pytorch_drops(twin: Twin, attention: str) -> None:
    """Forward and backward launch as many kernels of dropout as a recording."""
    text = f"{SIZES},attention={attention},dropout=0.1"
    module, args = twin(batch=4, **dict(part.split("=") for part in text.split(",")))
    recorded = perfc.from_torch(
        module, args, mode="training", optimizer="sgd", loss="sum"
    )
    theirs = _launched(perfc.analyze(recorded, "a100", inputs="device"))
    ours = _launched(_step(f"{twin.name}:{text}"))

    assert ours[DROPS[0]] >= 5
    assert [theirs[name] for name in DROPS] == [ours[name] for name in DROPS]


def test_inference_drops_nothing() -> None:
    """What a model drops in training is nothing to an inference."""
    with_it = perfc.analyze(f"gpt2:{SIZES},dropout=0.1", "a100", batch=4)
    without = perfc.analyze(f"gpt2:{SIZES}", "a100", batch=4)

    assert without.time_us == with_it.time_us
    assert without.summary["launches"] == with_it.summary["launches"]


def test_what_one_kernel_drops_is_said() -> None:
    """The kernel of attention is priced without its random numbers."""
    (remark,) = (
        d
        for d in _step(f"gpt2:{SIZES},dropout=0.1").diagnostics
        if d.code == "attention-dropout"
    )

    assert remark.message.startswith("2 attentions drop weights within their kernel")


def test_seeds_of_a_compiled_step_compute_nothing() -> None:
    """One kernel a graph makes the seeds; what dropout computes is counted once."""
    eager = perfc.load(f"gpt2:{SIZES},dropout=0.1", batch=4, mode="training")
    compiled = perfc.analyze(eager, "a100", runtime="compiled")

    seeds = [node for node in compiled.nodes if "seeds" in str(node["op"])]
    assert [0] == [node["flops"] for node in seeds]
    assert perfc.analyze(eager, "a100").summary["flops"] == compiled.summary["flops"]


@pytest.mark.parametrize("share", ["1.1", "-0.1", "x", "", "1e-1", "nan"])
def test_no_share(command: Command, share: str) -> None:
    """A share lies between 0 and 1."""
    given = (
        "analyze",
        f"bert-base:dropout={share}",
        "--target",
        "a100",
        "--batch",
        "1",
    )
    error = command.refused(given, 2)

    assert f"parameter dropout='{share}' of 'bert-base': expected a number" in error
