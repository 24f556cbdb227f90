"""The pass `checkpoint-activations` against `torch.utils.checkpoint`."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
import torch
from tests.frontends.training_memory import MaskedWords
from tests.models.language import bert
from tests.tools.command import Command
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing

import perfc

Json: TypeAlias = Any
_CHECKPOINT: Any = vars(checkpointing)["checkpoint"]
_LENGTH = 128


class Checkpointed(nn.Module):
    """A layer that keeps its inputs only."""

    def __init__(self, layer: nn.Module, *, reentrant: bool) -> None:
        """Wrap *layer*."""
        super().__init__()
        self.layer, self.reentrant = layer, reentrant

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run it, and again in backward."""

        def forward(x: Tensor) -> Any:
            return self.layer(x, *args, **kwargs)

        return _CHECKPOINT(forward, x, use_reentrant=self.reentrant)


def _captured(batch: int, layers: int, *, reentrant: bool | None) -> Json:
    """Record a step of BERT with PyTorch's checkpointing; None for without."""

    def make() -> nn.Module:
        model: Any = bert(batch, _LENGTH, layers)[0]
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        if reentrant is not None:
            stack = model.bert.encoder
            wrapped = [Checkpointed(x, reentrant=reentrant) for x in stack.layer]
            stack.layer = nn.ModuleList(wrapped)
        return MaskedWords(model)

    tokens = torch.zeros((batch, _LENGTH), dtype=torch.int64)
    model = perfc.from_torch(
        make, (tokens,), mode="training", optimizer="sgd", loss="cross_entropy"
    )
    return perfc.analyze(model, "a100").to_dict()


def _matmuls(report: Json) -> int:
    return sum(node["cost_model"] == "gemm" for node in report["nodes"])


@pytest.mark.parametrize(
    ("batch", "layers"),
    [(4, 2), pytest.param(32, 24, marks=pytest.mark.slow)],
    ids=["small", "large"],
)
@pytest.mark.parametrize("reentrant", [False, True])
def test_the_pass_is_what_pytorch_does(
    capsys: pytest.CaptureFixture[str],
    batch: int,
    layers: int,
    reentrant: bool,
) -> None:
    """As many matmuls and launches more, the same flops and the same peak."""

    def typed(*options: str) -> Json:
        workload = f"bert-base:layers={layers}"
        step = ("--batch", str(batch), "--mode", "training", "--target", "a100")
        chosen = (workload, *step, "--format", "json", *options)
        outcome = Command(capsys)("analyze", *chosen)
        assert 0 == outcome.code
        return outcome.report

    kept = _captured(batch, layers, reentrant=None)
    theirs = _captured(batch, layers, reentrant=reentrant)
    plain = typed()
    ours = typed("--pass", "checkpoint-activations{modules=bert.encoder.layer.*}")

    assert _matmuls(theirs) == _matmuls(ours)
    more = theirs["summary"]["launches"] - kept["summary"]["launches"]
    assert more == ours["summary"]["launches"] - plain["summary"]["launches"]
    assert pytest.approx(theirs["summary"]["flops"], 1e-3) == ours["summary"]["flops"]
    peak = theirs["memory"]["peak_bytes"]
    assert pytest.approx(peak, rel=0.01) == ours["memory"]["peak_bytes"]
    saved = theirs["memory"]["by_kind"]["saved_for_backward"]
    assert (
        pytest.approx(saved, rel=0.02)
        == (ours["memory"]["by_kind"]["saved_for_backward"])
    )
