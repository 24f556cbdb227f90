"""Models of which a whole step is known in several ways: recorded, `.pt2`, ONNX.

The files of `tests/fixtures/training` are these models, ONNX files packed by gzip;
`make fixtures` writes them. They have neither weights nor names of the machine's files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import onnx
import torch
from tests.frontends.write_pt2_fixtures import describe
from tests.models.language import bert
from torch import Tensor, nn
from torch.export.experimental import (
    _export_forward_backward,  # pyright: ignore[reportPrivateUsage]
)
from torch.export.graph_signature import InputKind
from torch.nn import functional

from perfc.frontends.torch import weightless_onnx
from perfc.twins import DlrmNet, ResNet50, bags_of

FILES = Path(__file__).parents[1] / "fixtures" / "training"
_TABLES, _BATCH = 26, 64
_TRACE = "pkg.torch.onnx.stack_trace"
Loss = Callable[[Tensor, Tensor], Tensor]


@attrs.frozen(eq=False)
class Step:
    """A step of training.

    Attributes:
        model: What is trained.
        args: What it is called with.
        loss: Of what it returns, and labels.
        labels: What its result is compared with.

    """

    model: nn.Module
    args: tuple[Any, ...]
    loss: Loss
    labels: Tensor

    @property
    def with_loss(self) -> nn.Module:
        """A module that returns the loss; it is called with labels first."""
        return _WithLoss(self.model, self.loss)


class _WithLoss(nn.Module):
    def __init__(self, net: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.net, self.compare = net, loss

    def forward(self, labels: Tensor, *args: Any) -> Tensor:
        return self.compare(self.net(*args), labels)


class PaddedWords(nn.Module):
    """BERT without dropout; scores of all words, a row for each token."""

    def __init__(self, batch: int, length: int, layers: int) -> None:
        """Make the model of the library."""
        super().__init__()
        self.model, _ = bert(batch, length, layers)
        for part in self.model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0

    def forward(self, tokens: Tensor, shown: Tensor) -> Tensor:
        """Score; *shown* has a 0 where there is no token."""
        scores: Tensor = self.model(tokens, attention_mask=shown).logits
        return scores.flatten(0, 1)


def dlrm(*, sparse: bool) -> Step:
    """Return DLRM with its loss of probabilities."""
    net = DlrmNet((13, 64, 16), (100,) * _TABLES, (32, 1), sparse=sparse)
    args = (torch.zeros(_BATCH, 13), *bags_of(_TABLES, _BATCH, 3))
    return Step(net, args, functional.binary_cross_entropy, torch.zeros(_BATCH, 1))


def padded_bert(batch: int = 2, length: int = 128, layers: int = 2) -> Step:
    """Return BERT-base with so many layers, and one token that is none."""
    shown = torch.ones(batch, length, dtype=torch.int64)
    shown[0, -1] = 0
    tokens = torch.zeros(batch, length, dtype=torch.int64)
    labels = torch.zeros(batch * length, dtype=torch.int64)
    model = PaddedWords(batch, length, layers)
    return Step(model, (tokens, shown), functional.cross_entropy, labels)


def resnet50(batch: int = 4) -> Step:
    """Return ResNet-50."""
    image = torch.zeros(batch, 3, 224, 224)
    labels = torch.zeros(batch, dtype=torch.int64)
    return Step(ResNet50(), (image,), functional.cross_entropy, labels)


STEPS: Mapping[str, Callable[[], Step]] = {
    "dlrm": partial(dlrm, sparse=False),
    "dlrm_sparse": partial(dlrm, sparse=True),
    "bert": padded_bert,
    "resnet50": resnet50,
}
"""Steps by the names of their files."""


def joint(step: Step) -> dict[str, Any]:
    """Return what torch.export saves of forward, loss and backward together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        forward = torch.export.export(step.with_loss, (step.labels, *step.args))
        _forget_ties(forward)
        return describe(_export_forward_backward(forward))


def _forget_ties(program: torch.export.ExportedProgram) -> None:
    """Drop second names of tied weights: nothing reads them, so they have no gradient.

    PyTorch refuses a joint graph with such parameters.
    """
    graph, specs = program.graph, program.graph_signature.input_specs
    places = [node for node in graph.nodes if node.op == "placeholder"]
    for spec, place in zip(tuple(specs), places, strict=True):
        if not place.users and spec.kind is InputKind.PARAMETER:
            graph.erase_node(place)
            specs.remove(spec)


def onnx_file(step: Step) -> bytes:
    """Return the forward pass as an ONNX file, without names of the machine's files."""
    model = onnx.load_from_string(weightless_onnx(step.model, step.args))
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key != _TRACE]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    data: bytes = model.SerializeToString(deterministic=True)
    return data
