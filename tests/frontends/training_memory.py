"""What a training step allocates: in PyTorch's own allocator, and as perfc says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import torch
from tests.frontends.test_memory_of_models import Storages
from tests.models.language import bert
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import perfc
from perfc.twins import ResNet50

OPTIMIZERS: Mapping[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, foreach=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, foreach=True),
}
"""Set up as PyTorch does on a GPU, where `foreach` is the default."""

_SEQ, _VOCAB = 128, 30522


@attrs.frozen
class Case:
    """A step of one model at one size.

    Attributes:
        name: `resnet50`, or `bert-base`.
        batch: Samples.
        layers: Of BERT.

    """

    name: str
    batch: int
    layers: int = 0

    @property
    def workload(self) -> str:
        """The built-in workload that is the same model."""
        if self.name == "resnet50":
            return "resnet50:batch_norm=separate"
        return f"{self.name}:layers={self.layers}"

    def make(self) -> tuple[nn.Module, Tensor, Tensor]:
        """Return the model, its input and labels; as in inference, without dropout."""
        if self.name == "resnet50":
            image = torch.zeros(self.batch, 3, 224, 224)
            return ResNet50(), image, torch.zeros(self.batch, dtype=torch.int64)
        model, (tokens,) = bert(self.batch, _SEQ, self.layers)
        labels = torch.zeros(self.batch * _SEQ, dtype=torch.int64)
        return MaskedWords(model.eval()), tokens, labels


class MaskedWords(nn.Module):
    """BERT with all tokens shown; one row of scores a token."""

    def __init__(self, model: nn.Module) -> None:
        """Wrap the model of the library."""
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Score every word."""
        shown = torch.ones_like(tokens)
        scores: Tensor = self.model(tokens, attention_mask=shown).logits
        return scores.view(-1, _VOCAB)


def predicted_bytes(case: Case, optimizer: str) -> int:
    """Return the peak that perfc predicts on a CPU: no library has a workspace."""
    model = perfc.load(
        case.workload, batch=case.batch, mode="training", optimizer=optimizer
    )
    return int(perfc.analyze(model, "cpu").memory["peak_bytes"])


def allocated_bytes(case: Case, optimizer: str) -> int:
    """Run a step and return the peak that the hooks of the CPU's allocator see."""
    step, standing = _prepared(case, optimizer)
    activities = [torch.profiler.ProfilerActivity.CPU]
    profiler: Any = torch.profiler.profile(activities=activities, profile_memory=True)
    with profiler:
        kept = step()
    del kept
    raw: Any = profiler.profiler.kineto_results.events()
    events = sorted(
        (event.start_ns(), event.nbytes())
        for event in raw
        if event.name() == "[memory]"
    )
    live = peak = 0
    for _, nbytes in events:
        live += nbytes
        peak = max(peak, live)
    return standing + peak


def counted_bytes(case: Case, optimizer: str) -> int:
    """Return the peak of storages of the real step at any size, on fake tensors."""
    with FakeTensorMode():
        step, standing = _prepared(case, optimizer)
        with Storages(step.standing()) as storages:
            kept = step()
    del kept
    peak: int = storages.peak
    return standing + peak


@attrs.frozen
class _Step:
    """One step of training, as a user's loop has it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    x: Tensor
    labels: Tensor

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Run it; the caller holds what a loop's variables hold."""
        self.optimizer.zero_grad()
        scores = self.model(self.x)
        loss = nn.functional.cross_entropy(scores, self.labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types
        self.optimizer.step()
        return scores, loss

    def standing(self) -> list[Tensor]:
        """Return what is there before the step and after it."""
        states: list[Any] = [
            v for state in self.optimizer.state.values() for v in state.values()
        ]
        tensors = [v for v in states if isinstance(v, Tensor)]
        weights = [*self.model.parameters(), *self.model.buffers()]
        return [*weights, self.x, self.labels, *tensors]


def _prepared(case: Case, optimizer: str) -> tuple[_Step, int]:
    """Return a step whose optimizer has its states, and the bytes that stand."""
    model, x, labels = case.make()
    step = _Step(model, OPTIMIZERS[optimizer](model.parameters()), x, labels)
    step()
    step.optimizer.zero_grad()
    storages = {id(t.untyped_storage()): t.untyped_storage() for t in step.standing()}
    return step, sum(storage.nbytes() for storage in storages.values())
