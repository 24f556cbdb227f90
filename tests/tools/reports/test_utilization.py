"""Tokens a second, and model FLOPs utilization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import perfc

LAYERS, WIDTH, HEADS, SEQ, WORDS = 2, 768, 12, 128, 50257
GPT = f"gpt2:layers={LAYERS},seq={SEQ}"
BATCH = 8
FORWARD = (
    BATCH * SEQ * (LAYERS * (2 * 12 * WIDTH**2 + 4 * SEQ * WIDTH) + 2 * WIDTH * WORDS)
)
"""Flops of a decoder: PaLM's appendix B, two for each weight of a matrix and token, and
four for each pair of tokens and element of a head, in heads as wide as the model."""

BIASES = 1e-3
"""Share of the flops of biases, which the formula leaves out."""


def _report(
    model: Any = GPT, *, target: str = "dgx-h100", batch: int = BATCH, **options: Any
) -> perfc.Report:
    return perfc.analyze(model, target=target, batch=batch, **options)


@pytest.mark.parametrize(
    ("options", "ranks", "replicas"),
    [
        ({}, 1, 1),
        ({"runtime": "compiled"}, 1, 1),
        ({"runtime": "cudagraph"}, 1, 1),
        ({"accumulate": 4}, 1, 1),
        ({"passes": ["checkpoint-activations{modules=transformer.h.*}"]}, 1, 1),
        ({"ranks": 16}, 16, 16),
        ({"passes": ["fsdp{ranks=8}"]}, 8, 8),
        ({"passes": ["pipeline-parallel{stages=2,microbatches=4}"]}, 2, 1),
    ],
)
def test_a_step_of_training(options: Any, ranks: int, replicas: int) -> None:
    """Three times forward, however it is run, over the time and the peak of all GPUs.

    What is computed again, for memory or in the kernel of attention's gradient, is not
    the model's.
    """
    report = _report(mode="training", dtype="bf16", **options)
    summary, time_s = report.summary, report.time_us / 1e6
    peak = ranks * report.target.peak("bf16")

    tokens, least = replicas * BATCH * SEQ, replicas * 3 * FORWARD / time_s / peak
    assert pytest.approx(tokens / time_s) == summary["tokens_per_s"]
    assert pytest.approx(least, rel=BIASES) == summary["mfu"]


def test_ranks_that_share_a_replica() -> None:
    """They repeat the whole head each, as its 50,257 words do not divide by 4."""
    shared = ["tensor-parallel{ranks=4}"]
    report = _report(mode="training", passes=shared)
    tokens_per_s = BATCH * SEQ / report.time_us * 1e6

    assert pytest.approx(tokens_per_s) == report.summary["tokens_per_s"]
    assert report.summary["mfu"] is None
    assert "of all ranks; MFU unknown" in str(report)


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16", "amp-fp16"])
def test_a_forward_pass(dtype: str) -> None:
    """It is that of the type whose peak is reached."""
    report = _report(dtype=dtype)
    peak = report.target.peak(dtype.removeprefix("amp-"))

    ideal_s = FORWARD / peak
    share = ideal_s / report.time_us * 1e6
    assert pytest.approx(share, rel=BIASES) == report.summary["mfu"]


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("bert-base:layers=1,seq=64", 64),
        ("switch-xl-4:layers=2,seq=64", 2 * 64),
        ("opt-1.3b:layers=1,seq=32", 32),
        ("resnet18", None),
        ("dlrm-ddp", None),
        ("deepfm", None),
    ],
)
def test_tokens_of_workloads(model: str, tokens: int | None) -> None:
    """Of models of sequences alone, as are flops of a model: neither of images."""
    report = _report(model, target="h100", batch=2)
    rate = None if tokens is None else 2 * tokens / report.time_us * 1e6

    assert rate == (rate and pytest.approx(report.summary["tokens_per_s"]))
    assert (tokens is None) == (report.summary["tokens_per_s"] is None)
    assert (tokens is None) == (report.summary["mfu"] is None)
    assert (tokens is not None) == ("tokens a second" in str(report))


LAUNCHES = """launches @t {
  thread "main"
  stream "s"
  op "aten::mm" node "y"
  signature "gemm" {dtype = "fp32", math = "fp32", flops = 16, bytes_read = 8,
    bytes_written = 4, params = {b = 1, m = 2, n = 2, k = 2}}
  kernel {on = 1, op = 0, signature = 0}
}
"""


def test_launches_have_no_flops_of_a_model(tmp_path: Path) -> None:
    """Nobody knows what of a launch graph is computed again."""
    file = tmp_path / "launches.perfc"
    file.write_text(LAUNCHES, encoding="utf-8")
    report = perfc.analyze(file, target="a100")

    assert 16 == report.summary["flops"]
    assert (None, None) == tuple(report.summary[k] for k in ("tokens_per_s", "mfu"))


class _Decoder(torch.nn.Module):
    """Attention over tokens, and scores of the last."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = (torch.nn.Embedding(n, 64) for n in (100, 512))
        self.layer = torch.nn.Linear(64, 100)

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = (self.words(ids) + self.places(places)).unsqueeze(1)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        found: torch.Tensor = self.layer(x[:, 0, -1])
        return found


def _inputs(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids, places = (torch.zeros((n, length), dtype=torch.int64) for n in (4, 1))
    return ids, places


@pytest.mark.parametrize("length", [2, 48])
@pytest.mark.parametrize("how", ["captured", "onnx"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_models_of_others(how: str, length: int, tmp_path: Path) -> None:
    """Recorded modules, and files whose sequence is a symbol, have tokens too."""
    module, file = _Decoder().eval(), tmp_path / "decoder.onnx"
    if how == "onnx":
        names = ["ids", "places"]
        torch.onnx.export(
            module,
            _inputs(32),
            file,
            dynamo=False,
            input_names=names,
            dynamic_axes={name: {1: "length"} for name in names},
        )
        model = perfc.load(file, dims={"length": length})
    else:
        model = perfc.from_torch(module, _inputs(length))
    report = perfc.analyze(model, target="h100")
    rate = 4 * length / report.time_us * 1e6

    assert pytest.approx(rate) == report.summary["tokens_per_s"]
    assert 0 < report.summary["mfu"] < 1
