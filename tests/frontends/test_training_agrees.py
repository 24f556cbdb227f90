"""A step is the one that PyTorch runs, whichever way it comes in.

Recorded, read from a joint `.pt2` file, or derived from an ONNX file or a built-in
workload: matmuls and convolutions are the same calls, flops agree within 0.1 %,
launches of forward and backward within 3 %. Where a file is another model than what
eager PyTorch runs, the test lists the difference.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frontends.pt2_models import write
from tests.frontends.training_memory import MaskedWords
from tests.frontends.ways_in import FILES, STEPS, Step, joint, onnx_file, padded_bert
from tests.models.language import bert
from torch import nn

import perfc
from perfc.twins import ResNet50

_CAPTURE = "from_torch"

pytestmark = pytest.mark.skipif(
    not hasattr(perfc, _CAPTURE), reason="this perfc does not record PyTorch modules"
)


def _captured(module: nn.Module, args: Any, optimizer: str) -> perfc.Report:
    record: Callable[..., Any] = getattr(perfc, _CAPTURE)
    model = record(module, args, mode="training", optimizer=optimizer)
    return perfc.analyze(model, "a100", inputs="device")


def _derived(source: str, optimizer: str, batch: int | None = None) -> perfc.Report:
    model = perfc.load(source, batch=batch, mode="training", optimizer=optimizer)
    return perfc.analyze(model, "a100", inputs="device")


def _recorded(step: Step) -> perfc.Report:
    return _captured(step.with_loss, (step.labels, *step.args), "sgd")


@cache
def _known(name: str) -> perfc.Report:
    return _recorded(STEPS[name]())


def _from_onnx(data: bytes, folder: Path) -> perfc.Report:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return _derived(str(path), "sgd")


def _packed(name: str) -> bytes:
    return gzip.decompress((FILES / f"{name}.onnx.gz").read_bytes())


def _matmuls(report: perfc.Report) -> Counter[tuple[object, ...]]:
    """Count matmuls and convolutions by size; C = AB is as good as its transpose."""
    found: Counter[tuple[object, ...]] = Counter()
    graph = report.results.hosted[0].graph
    for number in graph.kernel:
        if number < 0 or graph.kernels[number].op not in ("gemm", "conv2d"):
            continue
        params = dict(graph.kernels[number].params)
        if graph.kernels[number].op == "gemm":
            sizes = sorted((int(str(params["m"])), int(str(params["n"]))))
            found["gemm", params["b"], *sizes, params["k"]] += 1
        else:
            found["conv2d", str(sorted(params.items()))] += 1
    return found


def _launches(report: perfc.Report) -> Counter[str]:
    """Count kernels and copies by phase."""
    counts: Counter[str] = Counter()
    for (phase, _), count in _launched(report).items():
        counts[phase] += count
    return counts


def _launched(report: perfc.Report) -> Counter[tuple[str, str]]:
    """Count kernels and copies by phase and op; in place or not is the same.

    The loss of a module that returns it is part of its forward.
    """
    graph = report.results.hosted[0].graph
    nodes = {
        str(n["id"]): (
            str(n["phase"]).replace("loss", "forward"),
            str(n["op"]).rstrip("_"),
        )
        for n in report.nodes
    }
    return Counter(
        nodes.get(graph.ops[op].node, ("", ""))
        for op, kernel in zip(graph.op, graph.kernel, strict=True)
        if kernel >= 0
    )


def _only_in(one: perfc.Report, other: perfc.Report, phase: str) -> Counter[str]:
    """Count what *one* launches and *other* does not, by op."""
    more = _launched(one) - _launched(other)
    found = {op: n for (where, op), n in more.items() if where == phase}
    return Counter(found)


def _flops(report: perfc.Report) -> float:
    steps = ("forward", "loss", "backward")
    return sum(float(n["flops"]) for n in report.nodes if n["phase"] in steps)


def check(derived: perfc.Report, captured: perfc.Report) -> None:
    """Compare matmuls, flops, and launches of forward and backward."""
    assert _matmuls(captured) == _matmuls(derived)
    assert pytest.approx(_flops(captured), rel=1e-3) == _flops(derived)
    ours, theirs = _launches(derived), _launches(captured)
    for phase in ("forward", "backward"):
        assert pytest.approx(theirs[phase], rel=0.03) == ours[phase], phase


def test_resnet50_with_batch_norms() -> None:
    """ResNet-50 with its batch norms: the same kernels, the optimizer's too.

    An exported file has them folded: there only convolutions and matmuls agree.
    """
    module, image = ResNet50(), torch.zeros(4, 3, 224, 224)
    captured = _captured(module, (image,), "adam")
    derived = _derived("resnet50:batch_norm=separate", "adam", 4)

    check(derived, captured)
    assert _launches(captured) == _launches(derived)


def test_bert() -> None:
    """BERT without dropout, which no file has."""
    module, (tokens,) = bert(2, 128, 2)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    captured = _captured(MaskedWords(module), (tokens,), "sgd")
    derived = _derived("bert-base:layers=2", "sgd", 2)

    assert _matmuls(captured) == _matmuls(derived)
    assert pytest.approx(_flops(captured), rel=1e-3) == _flops(derived)
    # The mask is made in other ways: the workload has one to look at.
    ours, theirs = _launches(derived), _launches(captured)
    assert ours["backward"] == theirs["backward"]
    assert abs(ours["forward"] - theirs["forward"]) <= 3


@pytest.mark.parametrize("name", [name for name in STEPS if name != "bert"])
def test_joint_files(name: str) -> None:
    """A `.pt2` file with forward and backward is the step that was recorded."""
    check(_derived(str(FILES / f"{name}_joint.pt2"), "sgd"), _known(name))


ASKED = Counter({"aten::all": 1, "aten::item": 1, "aten::arange": 1})
"""How `transformers` asks whether the mask of BERT hides anything; not on export."""
MASK = ASKED + Counter(
    {
        "aten::add": 2,
        "aten::arange": 3,
        "aten::bitwise_and": 2,
        "aten::full": 1,
        "aten::ge": 1,
    }
)
"""What it makes the mask with, every time. The ONNX exporter has worked it out, but for
what depends on the input: `MASK_IN_FILE`."""
MASK_IN_FILE = Counter({"aten::logical_and": 1, "aten::where": 1})


def _check_joint_bert(derived: perfc.Report, recorded: perfc.Report) -> None:
    assert _matmuls(recorded) == _matmuls(derived)
    assert pytest.approx(_flops(recorded), rel=1e-3) == _flops(derived)
    assert ASKED == _only_in(recorded, derived, "forward")
    assert Counter() == _only_in(derived, recorded, "forward")
    assert _launches(recorded)["backward"] == _launches(derived)["backward"]


def test_joint_bert() -> None:
    """So it is for BERT, but for a question that its library asks when it runs."""
    derived = _derived(str(FILES / "bert_joint.pt2"), "sgd")

    _check_joint_bert(derived, _known("bert"))


@pytest.mark.parametrize("name", ["dlrm", "dlrm_sparse"])
def test_dlrm_as_onnx(name: str, tmp_path: Path) -> None:
    """So is what is derived from an ONNX file of DLRM, which notes `sparse`.

    The module keeps the pairs that interact on the host and copies them at each call; a
    file does not say where its constants are.
    """
    derived, recorded = _from_onnx(_packed(name), tmp_path), _known(name)

    assert _matmuls(recorded) == _matmuls(derived)
    assert pytest.approx(_flops(recorded), rel=1e-3) == _flops(derived)
    assert Counter({"aten::index": 2}) == _only_in(recorded, derived, "forward")
    assert Counter() == _only_in(derived, recorded, "forward")
    assert _launches(recorded)["backward"] == _launches(derived)["backward"]


def _check_bert_as_onnx(derived: perfc.Report, recorded: perfc.Report) -> None:
    assert _matmuls(recorded) == _matmuls(derived)
    assert pytest.approx(_flops(recorded), rel=1e-3) == _flops(derived)
    assert MASK == _only_in(recorded, derived, "forward")
    assert MASK_IN_FILE == _only_in(derived, recorded, "forward")
    ours, theirs = _launches(derived), _launches(recorded)
    assert pytest.approx(theirs["backward"], rel=0.03) == ours["backward"]


def test_bert_as_onnx(tmp_path: Path) -> None:
    """BERT derived from an ONNX file launches the same, but for its mask."""
    _check_bert_as_onnx(_from_onnx(_packed("bert"), tmp_path), _known("bert"))


def test_resnet50_as_onnx(tmp_path: Path) -> None:
    """ResNet-50 derived from an ONNX file has its batch norms folded, nothing else.

    The convolutions have a bias instead, whose sum and gradient are launches, too; so
    were the counters of the norms.
    """
    derived, recorded = _from_onnx(_packed("resnet50"), tmp_path), _known("resnet50")

    assert _matmuls(recorded) == _matmuls(derived)
    assert {"aten::batch_norm": 53, "aten::add": 53} == _only_in(
        recorded, derived, "forward"
    )
    assert {"aten::conv2d": 53} == _only_in(derived, recorded, "forward")
    assert {"aten::cudnn_batch_norm_backward": 53} == _only_in(
        recorded, derived, "backward"
    )
    assert {"aten::convolution_backward": 53} == _only_in(derived, recorded, "backward")


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_files_are_up_to_date(name: str, tmp_path: Path) -> None:
    """What this PyTorch exports is what the files of the tests say."""
    step = STEPS[name]()
    path = write(tmp_path / "joint.pt2", joint(step))
    pairs = (
        (_derived(str(path), "sgd"), _derived(str(FILES / f"{name}_joint.pt2"), "sgd")),
        (_from_onnx(onnx_file(step), tmp_path), _from_onnx(_packed(name), tmp_path)),
    )

    for exported, stored in pairs:
        assert _launched(stored) == _launched(exported)
        assert _matmuls(stored) == _matmuls(exported)


@pytest.mark.slow
def test_bert_base(tmp_path: Path) -> None:
    """All of BERT-base: by every way, forward and backward together within 3 %."""
    step = padded_bert(16, 128, 12)
    recorded = _recorded(step)
    path = write(tmp_path / "joint.pt2", joint(step))
    from_joint = _derived(str(path), "sgd")
    from_onnx = _from_onnx(onnx_file(step), tmp_path)

    _check_joint_bert(from_joint, recorded)
    _check_bert_as_onnx(from_onnx, recorded)
    totals = [
        _launches(report)["forward"] + _launches(report)["backward"]
        for report in (recorded, from_joint, from_onnx)
    ]
    assert pytest.approx([totals[0]] * 2, rel=0.03) == totals[1:]
