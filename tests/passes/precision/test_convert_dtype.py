"""Models in types of 16 bits."""

from __future__ import annotations

from collections import Counter

import pytest

import perfc
from perfc.ir import UsageError
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import Level, UnsupportedModelError
from perfc.passes.precision import ConvertDtype
from perfc.passes.precision.autocast import AUTOCAST
from perfc.passes.training import Training
from perfc.tools import Report


def _report(model: str, dtype: str, target: str = "a100") -> Report:
    return perfc.analyze(perfc.load(model, batch=8), target, dtype=dtype)


def test_lists_are_ops() -> None:
    """What autocast casts are ops that there are."""
    assert [] == [op for op in AUTOCAST if op not in BUILTIN_OPS]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("model", ["bert-base", "resnet50", "dlrm-ddp"])
def test_bytes_halve(model: str, dtype: str) -> None:
    """A model of floats moves about half the bytes, and does the same flops.

    Libraries take other kernels in other types; indices keep their size.
    """
    plain = "lower-kernels{cudnn-tf32=false}"
    loaded = perfc.load(model, batch=8)
    whole = perfc.analyze(loaded, "a100", passes=[plain])
    half = _report(model, dtype)

    flops = pytest.approx(whole.summary["flops"], rel=0.01)
    assert flops == half.summary["flops"]
    ratio = half.summary["bytes"] / whole.summary["bytes"]
    assert 0.45 < ratio < 0.8
    assert half.memory["parameters_bytes"] < 0.51 * whole.memory["parameters_bytes"]
    assert half.summary["gpu_active_us"] < whole.summary["gpu_active_us"]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "amp-bf16", "amp-fp16"])
def test_everything_is_priced(dtype: str) -> None:
    """No kernel becomes unknown, nothing is warned of, and the report says the type."""
    for model in ("bert-base", "resnet50", "dlrm-ddp", "gpt2"):
        report = _report(model, dtype)

        assert dtype == report.header["model"]["dtype"]
        assert {} == report.coverage["unknown_ops"]
        assert all(remark.level is Level.NOTE for remark in report.diagnostics)


def test_autocast_casts_each_weight_once() -> None:
    """Every weight of a GEMM is cast by one kernel, its bias by another."""
    model = perfc.load("bert-base", batch=8)
    counts = Counter(n["op"] for n in perfc.analyze(model, "a100").nodes)
    amp = perfc.analyze(model, "a100", dtype="amp-bf16")
    casts = [n["id"] for n in amp.nodes if n["op"] == "aten::to" and n["flops"] == 0]
    weights = [name for name in casts if name.endswith((".weight.bf16", ".bias.bf16"))]

    assert len(weights) == len(set(weights))
    assert 2 * counts["aten::linear"] == len(weights)


def test_the_loaded_model_stays_as_it_is() -> None:
    """Converting makes a copy: the next analysis is that of the source."""
    model = perfc.load("dlrm-ddp", batch=8)
    before = perfc.analyze(model, "a100").to_json()
    perfc.analyze(model, "a100", dtype="bf16")

    assert before == perfc.analyze(model, "a100").to_json()


def test_a_converted_model_can_be_bound_again() -> None:
    """Another batch of a converted model is converted, too."""
    model = perfc.load("dlrm-ddp", batch=8).converted(ConvertDtype("bf16"))
    again = perfc.analyze(model.bind(16), "a100")
    wanted = perfc.analyze(perfc.load("dlrm-ddp", batch=16), "a100", dtype="bf16")

    assert wanted.to_json() == again.to_json()


def test_a_transform_converts_when_the_model_is_loaded() -> None:
    """A transform given to `load` does what `dtype` does."""
    convert = ConvertDtype("fp16", autocast=True)
    model = perfc.load("dlrm-ddp", batch=8, transforms=[convert])
    report, wanted = perfc.analyze(model, "a100"), _report("dlrm-ddp", "amp-fp16")

    assert wanted.to_dict()["summary"] == report.to_dict()["summary"]
    assert "amp-fp16" == report.header["model"]["dtype"]


@pytest.mark.parametrize(
    ("target", "dtype", "message"),
    [
        ("v100", "bf16", "no bf16 tensor cores.* use --dtype fp16 or --dtype fp32"),
        ("t4", "amp-bf16", "no bf16 tensor cores.* use --dtype fp16 or --dtype fp32"),
        ("p100", "fp16", "no fp16 tensor cores.* use --dtype fp32"),
    ],
)
def test_a_device_without_the_type(target: str, dtype: str, message: str) -> None:
    """Emulated GEMMs have no price: the message says what has."""
    with pytest.raises(UnsupportedModelError, match=message):
        _report("dlrm-ddp", dtype, target)


def test_refused() -> None:
    """Another type, and converting twice, are mistakes."""
    with pytest.raises(UsageError, match="to='fp8' of convert-dtype: expected bf16 or"):
        ConvertDtype("fp8")
    model = perfc.load("dlrm-ddp", batch=8).converted(ConvertDtype("bf16"))
    with pytest.raises(UsageError, match="is converted to bf16 already"):
        perfc.analyze(model, "a100", dtype="fp16")


def test_autocast_comes_before_backward() -> None:
    """Backward is derived of the casts; a training step has it already."""
    convert = ConvertDtype("bf16", autocast=True)
    model = perfc.load("dlrm-ddp", batch=8, mode="training", transforms=[convert])
    phases = {
        n["phase"] for n in perfc.analyze(model, "a100").nodes if n["op"] == "aten::to"
    }

    assert phases >= {"forward", "backward"}
    late = [Training(), convert]
    with pytest.raises(UsageError, match="autocast comes before its backward pass"):
        perfc.load("dlrm-ddp", batch=8, mode="training", transforms=late)
