"""The twins of the built-in workloads compute what the workloads describe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import perfc
from perfc.frontends import WORKLOADS
from perfc.ir import UsageError
from perfc.passes.precision import ConvertDtype
from perfc.twins import TWINS

_BAGS = {"tables": 2, "rows": 100, "dim": 16}
_DECODER = {"layers": 2, "hidden": 64, "heads": 4, "seq": 16, "vocab": 100}
_SWITCH = {**_DECODER, "head_dim": 32, "ffn": 128, "experts": 3, "capacity": 4}
SMALL: Mapping[str, Mapping[str, int]] = {
    **{name: _BAGS for name in WORKLOADS if "tables" in WORKLOADS[name].parameters},
    **{name: _DECODER for name in WORKLOADS if "seq" in WORKLOADS[name].parameters},
    "resnet50": {"image": 32, "classes": 10},
    "resnet18": {"image": 32, "classes": 10},
    "resnet101": {"image": 32, "classes": 10},
    "inception-v3": {"image": 75, "classes": 10},
    "googlenet": {"image": 32, "classes": 10},
    "mobilenet-v2": {"image": 32, "classes": 10},
    "mnasnet": {"image": 32, "classes": 10},
    "squeezenet": {"image": 32, "classes": 10},
    "switch-xl-4": _SWITCH,
}
"""Parameters that make each workload small."""

GEMMS = frozenset(
    {"gemm", "conv2d", "conv2d_backward", "attention", "attention_backward"}
)
BATCH = 3


def _gemms(model: perfc.Model) -> Counter[tuple[str, float]]:
    """Count the GEMMs of an iteration by kind and flops."""
    launches = perfc.analyze(model, "a100").results.hosted[0].graph
    kernels = [launches.kernels[index] for index in launches.kernel if index >= 0]
    return Counter((k.op, float(k.work.flops)) for k in kernels if k.op in GEMMS)


def _dense(name: str) -> dict[str, int]:
    """Ask for dense gradients, where there are tables."""
    return {"sparse": 0} if TWINS[name].sparse else {}


def _workload(name: str, parameters: Mapping[str, Any]) -> str:
    """Write the workload that a twin of these parameters is the same as."""
    values = TWINS[name].values(",".join(f"{k}={v}" for k, v in parameters.items()))
    return f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}"


def test_every_workload_has_a_twin() -> None:
    """Names of workloads and of twins are the same."""
    assert list(WORKLOADS) == list(TWINS)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", TWINS)
def test_a_twin_launches_the_gemms_of_its_workload(name: str, mode: str) -> None:
    """Calls and flops of GEMMs, convolutions and attention are the same."""
    module, inputs = TWINS[name](batch=BATCH, **SMALL[name])
    optimizer = "sgd" if mode == "training" else None
    twin = perfc.from_torch(module, inputs, mode=mode, optimizer=optimizer)
    workload = perfc.load(_workload(name, SMALL[name]), batch=BATCH, mode=mode)

    assert _gemms(workload) == _gemms(twin)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", ["dlrm-default", "gpt2"])
def test_a_twin_launches_as_much_as_its_workload(name: str, mode: str) -> None:
    """What eager PyTorch calls is what the workload is lowered to, call for call."""
    module, inputs = TWINS[name](batch=BATCH, **SMALL[name])
    optimizer = "sgd" if mode == "training" else None
    twin = perfc.from_torch(module, inputs, mode=mode, optimizer=optimizer)
    workload = perfc.load(_workload(name, SMALL[name]), batch=BATCH, mode=mode)
    reports = [perfc.analyze(model, "a100") for model in (workload, twin)]

    assert reports[0].summary["launches"] == reports[1].summary["launches"]


def test_pairs_on_the_host_are_made_there_by_the_twin() -> None:
    """What PyTorch copies of them is what the workload is lowered to copy."""
    given: dict[str, Any] = {**SMALL["dlrm-default"], "places": "host"}
    module, inputs = TWINS["dlrm-default"](batch=BATCH, **given)
    twin = perfc.from_torch(module, inputs)
    workload = perfc.load(_workload("dlrm-default", given), batch=BATCH)
    reports = [perfc.analyze(model, "a100") for model in (workload, twin)]

    assert reports[0].summary["launches"] == reports[1].summary["launches"]


@pytest.mark.parametrize("dtype", ["amp-bf16", "amp-fp16"])
@pytest.mark.parametrize("name", ["gpt2", "gpt2:attention=eager"])
def test_autocast_means_the_same(name: str, dtype: str) -> None:
    """A step derived of casts has the kernels, by type and bytes, that PyTorch runs.

    GPT's activation raises to a power, which autocast computes in fp32, so its sum
    with the residual sends back fp32, which PyTorch narrows for the GEMM before.
    """
    name, _, word = name.partition(":attention=")
    given: dict[str, Any] = {**SMALL[name], **({"attention": word} if word else {})}
    module, inputs = TWINS[name](batch=BATCH, **given)
    twin = perfc.from_torch(
        module, inputs, mode="training", optimizer="adamw", dtype=dtype
    )
    workload = perfc.load(
        _workload(name, given),
        batch=BATCH,
        mode="training",
        optimizer="adamw",
        transforms=[ConvertDtype(dtype.removeprefix("amp-"), autocast=True)],
    )

    assert _typed_kernels(twin) == _typed_kernels(workload)


def _typed_kernels(model: perfc.Model) -> Counter[tuple[str, str, int]]:
    """Count kernels whose types autocast decides: by type of GEMMs, and bytes."""
    launches = perfc.analyze(model, "a100").results.hosted[0].graph
    kernels = [launches.kernels[index] for index in launches.kernel if index >= 0]
    return Counter(
        (k.op, k.math, round(k.work.bytes, -2))
        for k in kernels
        if k.op in ("gemm", "attention", "elementwise", "softmax")
    )


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *(("dlrm-ddp", name) for name in ("sgd", "adagrad", "rowwise_adagrad")),
        *(("gpt2", name) for name in ("sgd", "adagrad", "adam", "adamw")),
    ],
)
def test_an_optimizer_steps_as_in_pytorch(name: str, optimizer: str) -> None:
    """Every call is there, also those that count steps on the host, and no other.

    Beside sparse tables dense parameters are stepped one by one.
    """
    module, inputs = TWINS[name](batch=BATCH, **SMALL[name])
    twin = perfc.from_torch(module, inputs, mode="training", optimizer=optimizer)
    workload = perfc.load(
        _workload(name, SMALL[name]),
        batch=BATCH,
        mode="training",
        optimizer=optimizer,
    )
    calls = [
        Counter(
            str(node["op"])
            for node in perfc.analyze(model, "a100").nodes
            if node["phase"] == "optimizer"
        )
        for model in (twin, workload)
    ]

    assert calls[0] == calls[1]


def test_a_training_step_of_dlrm_is_captured_as_a_cuda_graph() -> None:
    """Its integer indices lie on the device, so that no op waits for the host."""
    step = perfc.load("dlrm-ddp", batch=64, mode="training")
    assert perfc.analyze(step, "a100", runtime="cudagraph").time_us > 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, {"attention": "eager"}) for name in ("bert-base", "gpt2", "opt-1.3b")),
        *(("bert-base", {"head": head}) for head in ("pooler", "classifier")),
        *((name, {"head": "none"}) for name in ("gpt2", "switch-xl-4")),
    ],
)
def test_words_mean_the_same(name: str, parameters: dict[str, str]) -> None:
    """Attention spelled out and other heads are as in the workload."""
    given: dict[str, Any] = {**SMALL[name], **parameters}
    twin = perfc.from_torch(*TWINS[name](batch=BATCH, **given))
    workload = perfc.load(_workload(name, given), batch=BATCH)

    assert _gemms(workload) == _gemms(twin)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_parameters_of_its_workload(name: str) -> None:
    """As published, its weights are as many."""
    with torch.device("meta"):
        module, _ = TWINS[name](batch=1)
    workload = perfc.load(_workload(name, {}), batch=1)
    graph = workload.program.classes[0].ops
    assert graph is not None
    weights = sum(
        p.type.numel for p in graph.parameters if p.type and "running" not in p.name
    )

    assert weights == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "inception-v3" else [])
        for name in TWINS
    ],
)
def test_a_twin_runs(name: str) -> None:
    """A forward and a backward pass on the CPU give finite numbers to all weights."""
    module, inputs = TWINS[name](batch=BATCH, **_dense(name), **SMALL[name])
    output: Tensor = module(*inputs)
    output.sum().backward()  # type: ignore[no-untyped-call]  # torch has no types here

    assert torch.isfinite(output).all()
    unused = [
        path for path, p in module.named_parameters() if p.grad is None and p.numel()
    ]
    assert [] == unused


def test_the_same_seed_makes_the_same_numbers() -> None:
    """Weights and inputs are those of the last time."""
    first, second = (
        tree_leaves(TWINS["dlrm-ddp"](batch=BATCH, **_BAGS)[1]) for _ in range(2)
    )

    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_max_rows_cuts_long_tables_only() -> None:
    """Tables of fewer rows stay as they are, in the twin as in the workload."""
    with torch.device("meta"):
        module, _ = TWINS["dlrm-mlperf"](batch=BATCH, max_rows=1000)
    rows = [p.shape[0] for n, p in module.named_parameters() if n.startswith("emb_l")]
    model = perfc.load("dlrm-mlperf:max_rows=1000", batch=BATCH)
    graph = model.program.classes[0].ops
    assert graph is not None
    tables = [p.type for p in graph.parameters if p.name.startswith("emb_l")]

    assert [t.shape[0] for t in tables if t] == rows
    assert (1000, 3) == (max(rows), min(rows))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("resnet50", {"batch_norm": "folded-bias"}, "twin has batch_norm=separate"),
        ("dlrm-ddp", {"embedding": "batched"}, "twin has embedding=bag only"),
        ("gpt2", {"tables": 3}, "has no parameter 'tables=3'"),
        ("gpt2", {"layers": 0}, "expected an integer from 1"),
    ],
)
def test_refuses(name: str, parameters: dict[str, int | str], message: str) -> None:
    """What PyTorch cannot be asked for is one line that says what it can."""
    with pytest.raises(UsageError, match=message):
        TWINS[name](batch=1, **parameters)


def test_a_file_of_twins_is_a_model() -> None:
    """`perfc analyze` records a twin that is named by its file."""
    report = perfc.analyze("examples/twins/dlrm.py:deeprecsys_rm1", "a100")

    assert report.time_us > 0
