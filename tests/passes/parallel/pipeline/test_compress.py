"""`compress`: fewer bytes between stages, by kernels that the schedule sees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import perfc
from perfc.ir import Graph, UsageError
from perfc.passes import PipelineParallel
from perfc.passes.parallel import Compress

_STAGES = PipelineParallel(2, 2)


def _graphs(*more: Compress) -> list[Graph]:
    model = perfc.load(
        "gpt2:layers=2", batch=2, mode="training", transforms=[_STAGES, *more]
    )
    return [rank.ops for rank in model.program.classes if rank.ops is not None]


def _sent_bytes(graph: Graph) -> float:
    sends = [node for node in graph if node.op == "send"]
    types = [node.operands[0].type for node in sends]
    return sum(float(t.bind({"batch": 2}).nbytes) for t in types if t is not None)


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"kind": "topk", "ratio": 100}, 0.02),
        ({"kind": "topk", "ratio": 100, "half": True}, 0.015),
        ({"kind": "fp16"}, 0.5),
        ({"kind": "int8"}, 0.25),
        ({"kind": "topk", "ratio": 1}, 1.0),
        ({"kind": "topk", "ratio": 2}, 1.0),
    ],
)
def test_bytes_that_are_sent(options: dict[str, Any], share: float) -> None:
    """Both ways, by the share that the formula has."""
    for plain, made in zip(_graphs(), _graphs(Compress(**options)), strict=True):
        assert _sent_bytes(made) == pytest.approx(_sent_bytes(plain) * share, rel=1e-4)


def test_both_ends_work() -> None:
    """The first stage selects activations and restores gradients, the second too."""
    for plain, made in zip(_graphs(), _graphs(Compress()), strict=True):
        before, after = (Counter(node.op for node in g) for g in (plain, made))
        assert after["topk"] == before["send"]
        assert after["scatter_elements"] - before["scatter_elements"] == before["recv"]
        assert after["send"] == before["send"]
        assert after["recv"] == before["recv"]


def test_int8_finds_its_scale_and_sends_it_along() -> None:
    """The largest magnitude is looked for, and 4 bytes follow each tensor's values."""
    for plain, made in zip(_graphs(), _graphs(Compress(kind="int8")), strict=True):
        before, after = (Counter(node.op for node in g) for g in (plain, made))
        ways = before["send"], before["recv"]
        assert (after["amax"], after["quantize"], after["dequantize"]) == (
            ways[0],
            ways[0],
            ways[1],
        )
        more_bytes = _sent_bytes(made) - _sent_bytes(plain) / 4
        assert more_bytes == 4 * before["send"]


@pytest.mark.parametrize("kind", ["topk", "fp16", "int8"])
def test_what_is_received_has_the_types_of_before(kind: str) -> None:
    """Also compiled, where views of messages lie between kernels that are fused."""
    report = perfc.analyze(
        "gpt2:layers=2",
        target="a100",
        batch=2,
        mode="training",
        runtime="compiled",
        transforms=[_STAGES, Compress(kind=kind, half=True)],
    )

    assert report.time_us > 0


def test_a_ratio_of_one_is_the_analysis_without_it() -> None:
    """To the last bit."""
    times = []
    for more in ([], [Compress(ratio=1)]):
        report = perfc.analyze(
            "gpt2:layers=2",
            target="a100",
            batch=2,
            mode="training",
            transforms=[_STAGES, *more],
        )
        times.append((report.time_us, report.summary, report.diagnostics))

    assert times[0] == times[1]


def test_a_model_without_stages_is_left_alone() -> None:
    """A remark says so."""
    model = perfc.load("gpt2:layers=2", batch=2, transforms=[Compress()])
    report = perfc.analyze(model, target="a100")

    assert any(d.code == "compressed" for d in report.analysis.diagnostics)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "zip"}, "kind='zip' of compress: expected topk, fp16, int8"),
        ({"ratio": 0}, "ratio=0 of compress: expected 1 or more"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    """It is one line."""
    with pytest.raises(UsageError, match=problem):
        Compress(**options)
