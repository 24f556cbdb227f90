"""The built-in workloads against PyTorch, exported files and published figures."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import perfc
from perfc.costmodels import target_names
from perfc.frontends import WORKLOADS
from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, UsageError
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.text import parse_graph, print_graph
from perfc.ir.verification import verify
from perfc.twins import TWINS, Dcnv2, DeepFm, WideAndDeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

SHARED = Path(__file__).parents[4] / "shared" / "data"

SMALL_DLRM = "tables=2,rows=100,dim=16"
SMALL_DECODER = "layers=2,hidden=64,heads=4,seq=16,vocab=100"
SMALL = {
    **{
        name: SMALL_DLRM for name in WORKLOADS if "tables" in WORKLOADS[name].parameters
    },
    **{
        name: SMALL_DECODER for name in WORKLOADS if "seq" in WORKLOADS[name].parameters
    },
    "resnet50": "image=32,classes=10",
    "resnet18": "image=32,classes=10",
    "resnet101": "image=32,classes=10",
    "inception-v3": "image=75,classes=10",
    "googlenet": "image=32,classes=10",
    "mobilenet-v2": "image=32,classes=10",
    "mnasnet": "image=32,classes=10",
    "squeezenet": "image=32,classes=10",
    "switch-xl-4": f"{SMALL_DECODER},head_dim=32,ffn=128,experts=3,capacity=4",
}
"""Parameters that make each workload small."""

MAJOR = [
    "dcnv2-mlperf",
    "criteo-terabyte-small",
    *(f"deeprecsys-rm{number}" for number in (1, 2, 3)),
    "wide-and-deep",
    "deepfm",
    *("resnet18", "resnet50", "resnet101", "inception-v3", "googlenet"),
    *("mobilenet-v2", "mnasnet", "squeezenet"),
    *("bert-base", "bert-large", "gpt2", "gpt2-large", "gpt3-xl", "gpt3-2.7b"),
    *("opt-1.3b", "switch-xl-4"),
]

PARAMETERS = {
    "resnet50:batch_norm=separate": 25_557_032,
    "resnet50": 25_557_032 - 2 * 26_560,
    "resnet50:batch_norm=folded-bias": 25_557_032 - 26_560,
    "inception-v3:batch_norm=separate": 23_834_568,
    "inception-v3:batch_norm=separate,aux=on": 27_161_264,
    "resnet18:batch_norm=separate": 11_689_512,
    "resnet101:batch_norm=separate": 44_549_160,
    "googlenet:batch_norm=separate": 6_624_904,
    "mobilenet-v2:batch_norm=separate": 3_504_872,
    "mnasnet:batch_norm=separate": 4_383_312,
    "squeezenet": 1_248_424,
    "squeezenet:version=1.1": 1_235_496,
    "bert-base:head=pooler": 109_482_240,
    "bert-base": 109_514_298,
    "bert-large:head=pooler": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "opt-1.3b": 1_315_758_080,
    "gpt3-xl": 1_315_723_264,
    "gpt3-2.7b": 2_651_553_280,
    "switch-xl-4": 5_267_615_744,
}
"""As torchvision's and Hugging Face's models count them; 26,560 channels of ResNet-50
are normalised. The last three are the sizes' own arithmetic."""

MFLOP_PER_SAMPLE = {
    "criteo-terabyte-small": 1.61,
    "deeprecsys-rm1": 0.20,
    "deeprecsys-rm2": 0.64,
    "deeprecsys-rm3": 6.41,
    "dcnv2-mlperf": 32.06,
    "inception-v3": 2 * 5713,
    "resnet50": 2 * 4089,
    "resnet18": 2 * 1814,
    "resnet101": 2 * 7801,
    "googlenet": 2 * 1498,
    "mobilenet-v2": 2 * 300.8,
    "mnasnet": 2 * 314.4,
    "squeezenet": 2 * 820,
    "squeezenet:version=1.1": 2 * 350,
}
"""Matmuls and convolutions: torchvision's tables for those over images, two flops per
multiplication and addition; for the others their layers' own arithmetic."""


def summary(model: str, batch: int | None = None) -> dict[str, Any]:
    """Analyze on an A100."""
    found: dict[str, Any] = perfc.analyze(
        perfc.load(model, batch=batch), "a100"
    ).summary
    return found


def _graph(model: str) -> Graph:
    """Build it, and no more."""
    graph = build_workload(model).classes[0].ops
    assert graph is not None
    return graph


def test_the_models_people_try_first_are_there() -> None:
    """Every name of the list is a workload."""
    assert [] == [name for name in MAJOR if name not in WORKLOADS]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_on_every_target(name: str) -> None:
    """A small one takes a positive time on every target; no op is unknown."""
    model = perfc.load(f"{name}:{SMALL[name]}", batch=3)
    reports = [perfc.analyze(model, target) for target in target_names()]

    assert [] == [r for r in reports if r.time_us <= 0]
    assert {} == reports[0].coverage["unknown_ops"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_valid_and_reads_back(name: str) -> None:
    """What is built obeys the ops' definitions, and its text is the same graph."""
    graph = _graph(f"{name}:{SMALL[name]}")
    text = print_graph(graph)

    verify(graph, BUILTIN_OPS)
    assert text == print_graph(parse_graph(text))


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_as_published(name: str) -> None:
    """The default parameters are analyzed as well."""
    report = perfc.analyze(perfc.load(name, batch=1), "a100")

    assert report.summary["flops"] > 0
    assert {} == report.coverage["unknown_ops"]


@pytest.mark.parametrize("model", PARAMETERS)
def test_number_of_parameters(model: str) -> None:
    """Weights add up to the published number of parameters."""
    weights = [p for p in _graph(model).parameters if "running" not in p.name]

    assert PARAMETERS[model] == sum(p.type.numel for p in weights if p.type)


@pytest.mark.parametrize("model", MFLOP_PER_SAMPLE)
def test_flops_of_matmuls(model: str) -> None:
    """Matmuls and convolutions of one sample are as published."""
    report = perfc.analyze(perfc.load(model, batch=64), "a100")
    matmuls = {"aten::linear", "aten::matmul", "aten::bmm", "aten::conv2d"}
    flops = sum(n["flops"] for n in report.nodes if n["op"] in matmuls)

    expected = MFLOP_PER_SAMPLE[model]
    assert pytest.approx(expected, rel=0.003, abs=0.01) == flops / 64 / 1e6


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50", {}),
        ("bert-base", {"seq": 128}),
        ("bert-base", {"seq": 512}),
        ("bert-large", {"seq": 512}),
        ("gpt2", {}),
        ("gpt2-large", {"seq": 256}),
    ],
)
def test_flops_are_what_torch_counts(name: str, parameters: dict[str, int]) -> None:
    """All flops of a batch are within 0.5 % of `torch.utils.flop_counter`."""
    batch = 2
    with torch.device("meta"), torch.no_grad():
        twin, inputs = TWINS[name](batch=batch, **parameters)
        with FlopCounterMode(display=False) as counter:
            twin.eval()(*inputs)
    options = ",".join(f"{key}={value}" for key, value in parameters.items())
    flops = summary(f"{name}:{options}", batch=batch)["flops"]

    assert pytest.approx(counter.get_total_flops(), rel=0.005) == flops


_DCN = "dcnv2-mlperf:tables=3,rows=50,dim=16,pooling=2,layers=2,rank=8"
_WIDE = "wide-and-deep:tables=3,rows=50,dim=16,pooling=2"
_DEEPFM = "deepfm:tables=3,rows=50,dim=16,pooling=2"


@pytest.mark.parametrize(
    ("model", "make", "dense", "dynamo"),
    [
        # The legacy exporter does not tell the bias of a cross layer, which its
        # source adds itself, from that of a linear layer.
        (_DCN, lambda: Dcnv2((50,) * 3, 16, layers=2, rank=8), 13, True),
        (_WIDE, lambda: WideAndDeep((50,) * 3, 16), 512, False),
        (_DEEPFM, lambda: DeepFm((50,) * 3, 16), 13, False),
    ],
)
def test_recommenders_are_their_exported_twins(
    tmp_path: Path,
    model: str,
    make: Callable[[], nn.Module],
    dense: int,
    *,
    dynamo: bool,
) -> None:
    """A file that PyTorch exports has the same flops, bytes and launches."""
    path = tmp_path / "twin.onnx"
    batch = 8
    bags = (torch.zeros(2 * batch, dtype=torch.int64), torch.arange(0, 2 * batch, 2))
    inputs = (torch.rand(batch, dense), *bags * 3)
    _export(make().eval(), inputs, path, dynamo=dynamo)

    exported, built = summary(str(path)), summary(model, batch=batch)

    compared = ("flops", "bytes", "launches")
    assert {k: exported[k] for k in compared} == {k: built[k] for k in compared}


def _export(
    model: nn.Module, inputs: tuple[Tensor, ...], path: Path, *, dynamo: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own deprecations
        if dynamo:
            torch.onnx.export(model, inputs, path, verbose=False)
        else:
            torch.onnx.export(model, inputs, path, dynamo=False, opset_version=17)


@pytest.mark.parametrize(
    ("file", "model", "batch"),
    [
        ("resnet50_dynamo.onnx", "resnet50", 64),
        ("bert_base_dynamo.onnx", "bert-base:seq=128", 16),
        ("dlrm_mlperf_dynamo.onnx", "dlrm-mlperf", 2048),
        ("dlrm_mlperf_dynbatch_dynamo.onnx", "dlrm-mlperf", 2048),
        ("dlrm_mlperf_legacy.onnx", "dlrm-mlperf", 2048),
    ],
)
def test_files_of_the_same_model(file: str, model: str, batch: int) -> None:
    """The exported file and the workload have the same flops and bytes."""
    path = SHARED / "models" / file
    if not path.exists():
        pytest.skip(f"{file} is not there: it is no part of the repository")
    static = file.startswith(("resnet50", "bert"))
    exported = summary(str(path), None if static else batch)
    built = summary(model, batch=batch)

    compared = ("flops", "bytes")
    assert {k: exported[k] for k in compared} == {k: built[k] for k in compared}


def test_a_separate_batch_norm_is_a_kernel_of_its_own() -> None:
    """ResNet-50 has 53 of them; folded, they cost nothing but the weights' bias."""
    folded = summary("resnet50", batch=1)["launches"]
    biased = summary("resnet50:batch_norm=folded-bias", batch=1)["launches"]
    separate = summary("resnet50:batch_norm=separate", batch=1)["launches"]

    assert (53, 53) == (separate - folded, biased - folded)


@pytest.mark.parametrize("model", ["bert-base", "gpt2", "opt-1.3b"])
def test_spelled_out_attention_is_slower(model: str) -> None:
    """`attention=eager` has more kernels and moves more bytes; the matmuls stay."""
    name = f"{model}:layers=2,seq=256"
    fused, eager = summary(name, batch=4), summary(f"{name},attention=eager", batch=4)

    assert eager["launches"] > fused["launches"]
    assert eager["bytes"] > fused["bytes"]
    assert pytest.approx(fused["flops"], rel=0.01) == eager["flops"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_halves_the_weights(dtype: str) -> None:
    """A transformer in 16 bits needs half the memory for its parameters."""
    full, half = (
        perfc.analyze(perfc.load(model, batch=1), "a100").memory["parameters_bytes"]
        for model in ("gpt2:layers=2", f"gpt2:layers=2,dtype={dtype}")
    )

    assert pytest.approx(full / 2, rel=0.001) == half


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "bert-base:seq=513",
            "parameter seq='513' of 'bert-base': expected an integer",
        ),
        ("gpt2:heads=7", "parameter heads=7 of 'gpt2' does not divide hidden=768"),
        ("gpt2:layers=1001", "expected an integer from 1 to 1000"),
        ("inception-v3:image=74", "expected an integer from 75 to"),
        ("resnet50:batch_norm=fused", "expected folded or folded-bias or separate"),
        (
            "opt-1.3b:head=mlm",
            "parameter head='mlm' of 'opt-1.3b': expected lm or none",
        ),
        ("switch-xl-4:experts=0", "expected an integer from 1 to"),
        ("switch-xl-4:experts=200", "layers x experts is more than 4000"),
        ("gpt2:tables=3", "workload 'gpt2' has no parameter 'tables=3'"),
    ],
)
def test_refuses(model: str, message: str) -> None:
    """A parameter that is unknown or out of range is one line, of usage."""
    with pytest.raises(UsageError, match=message):
        perfc.load(model, batch=1)


def test_an_expert_takes_no_more_than_the_sequence_has() -> None:
    """The capacity ends at the length of the sequence."""
    small = f"switch-xl-4:{SMALL_DECODER},head_dim=32,ffn=128"
    beyond, whole = (
        summary(f"{small},capacity={capacity}", batch=2)["flops"]
        for capacity in (1_000, 16)
    )

    assert whole == beyond


def test_paths_are_those_of_the_published_modules() -> None:
    """Nodes say which module of the PyTorch model they belong to."""
    modules = {
        node.location.module
        for name in ("bert-base", "gpt2", "resnet50")
        for node in _graph(name)
    }

    assert {
        "bert.encoder.layer.11.attention.self.query",
        "transformer.h.0.attn.c_attn",
        "layer4.2.conv3",
    } <= modules


def test_published_tables() -> None:
    """The tables of each workload are those that were collected."""
    path = SHARED / "dlrm_tables" / "workloads.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: it is no part of the repository")
    published = json.loads(path.read_text(encoding="utf-8"))

    assert _listed(published["mlperf_dcnv2"]) == _tables("dcnv2-mlperf")
    for table in published["criteo_kaggle"]["tables"]:
        table["dim"] = 10  # the data set has its own
    weights = 10
    found = [table for table in _tables("deepfm") if table[1] == weights]
    assert _listed(published["criteo_kaggle"]) == found


def _listed(published: dict[str, Any]) -> list[list[int]]:
    return [
        [table["rows"], table["dim"], table["hotness"]]
        for table in published["tables"]
        for _ in range(table["count"])
    ]


def _tables(name: str) -> list[list[int]]:
    return [
        [table.integer(key) for key in ("rows", "dim", "pooling")]
        for node in _graph(name)
        if node.op == "embedding_bag"
        for table in node.attributes.records("tables")
    ]
