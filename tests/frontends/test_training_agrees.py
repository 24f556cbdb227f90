"""A step derived from a forward graph is the step that PyTorch runs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frontends.training_memory import MaskedWords
from tests.models.language import bert
from torch import nn

import perfc
from perfc.twins import DlrmNet, ResNet50, bags_of

_CAPTURE = "from_torch"
_TABLES, _BATCH = 26, 64

pytestmark = pytest.mark.skipif(
    not hasattr(perfc, _CAPTURE), reason="this perfc does not record PyTorch modules"
)


def _captured(module: nn.Module, args: Any, optimizer: str) -> perfc.Report:  # noqa: ANN401 - whatever `forward` takes
    record: Callable[..., Any] = getattr(perfc, _CAPTURE)
    model = record(module, args, mode="training", optimizer=optimizer)
    return perfc.analyze(model, "a100", inputs="device")


def _derived(source: str, optimizer: str, batch: int | None = None) -> perfc.Report:
    model = perfc.load(source, batch=batch, mode="training", optimizer=optimizer)
    return perfc.analyze(model, "a100", inputs="device")


def _products(report: perfc.Report) -> Counter[tuple[object, ...]]:
    """Count products and convolutions by size; C = AB is as good as its transpose."""
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
    graph = report.results.hosted[0].graph
    phases = {str(node["id"]): str(node["phase"]) for node in report.nodes}
    return Counter(
        phases.get(graph.ops[op].node, "")
        for op, kernel in zip(graph.op, graph.kernel, strict=True)
        if kernel >= 0
    )


def _flops(report: perfc.Report) -> float:
    steps = ("forward", "loss", "backward")
    return sum(float(n["flops"]) for n in report.nodes if n["phase"] in steps)


def check(derived: perfc.Report, captured: perfc.Report) -> None:
    """Compare products, flops, and launches of forward and backward."""
    assert _products(captured) == _products(derived)
    assert pytest.approx(_flops(captured), rel=1e-3) == _flops(derived)
    ours, theirs = _launches(derived), _launches(captured)
    for phase in ("forward", "backward"):
        assert pytest.approx(theirs[phase], rel=0.03) == ours[phase], phase


def test_resnet50_with_batch_norms() -> None:
    """ResNet-50 with its batch norms: the same kernels, the optimizer's too.

    An exported file has them folded: there only convolutions and products agree.
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

    assert _products(captured) == _products(derived)
    assert pytest.approx(_flops(captured), rel=1e-3) == _flops(derived)
    # The mask is made in other ways: the workload has one to look at.
    ours, theirs = _launches(derived), _launches(captured)
    assert ours["backward"] == theirs["backward"]
    assert abs(ours["forward"] - theirs["forward"]) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_dlrm_as_onnx(tmp_path: Path, sparse: bool) -> None:  # noqa: FBT001 - a case
    """DLRM, exported by PyTorch, and recorded; the file notes `sparse`."""
    net = DlrmNet((13, 64, 16), (100,) * _TABLES, (32, 1), sparse=sparse)
    args = (torch.zeros(_BATCH, 13), *bags_of(_TABLES, _BATCH, 3))
    path = tmp_path / "dlrm.onnx"
    exporter: Any = torch.onnx
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        exporter.export(net.eval(), args, path, dynamo=True, verbose=False)

    check(_derived(str(path), "sgd"), _captured(net, args, "sgd"))
