"""Predicted memory against what PyTorch allocates when it runs the same model."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import perfc


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types
    """Adds up the storages that ops make, as long as Python or ATen holds them.

    Attributes:
        live: Bytes that are allocated now.
        peak: The most there were.

    """

    def __init__(self, known: Sequence[Tensor]) -> None:
        """Leave out the storages of *known*: inputs and parameters."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types
        self.live = self.peak = 0
        self.seen = {id(t.untyped_storage()): t.untyped_storage() for t in known}
        self.sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the op and note what it made."""
        results = func(*args, **(kwargs or {}))
        for leaf in tree_iter(results):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage())
        return results

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key in self.seen or key in self.sizes:
            return
        self.sizes[key] = storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.live -= self.sizes.pop(key)


class Convolutions(nn.Module):
    """A small residual network with pooling."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.one = nn.Conv2d(32, 32, 3, padding=1)
        self.two = nn.Conv2d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images."""
        x = self.pool(torch.relu(self.stem(x)))
        x = torch.relu(x + self.two(torch.relu(self.one(x))))
        y: Tensor = self.head(x.mean(dim=(2, 3)))
        return y


class Perceptron(nn.Module):
    """Layers of unlike widths."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        widths = (64, 1024, 256, 2048, 16)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """Apply them."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Encoder(nn.Module):
    """Two layers as BERT has them, attention spelled out."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        """Make the layers, once."""
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both layers, which share their weights."""
        for _ in range(2):
            x = self.norm(x + self.attend(x))
            x = self.norm(x + self.down(nn.functional.gelu(self.up(x))))
        return x

    def attend(self, x: Tensor) -> Tensor:
        """Multi-head attention."""
        b, n, c = x.shape
        q, k, v = (
            project(x).reshape(b, n, self.heads, c // self.heads).transpose(1, 2)
            for project in self.qkv
        )
        scores = torch.softmax(q @ k.transpose(-2, -1) * 0.17, dim=-1)
        y: Tensor = self.out((scores @ v).transpose(1, 2).reshape(b, n, c))
        return y


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Convolutions(), (8, 3, 32, 32)),
        (Perceptron(), (128, 64)),
        (Encoder(), (4, 64, 128)),
    ],
    ids=["cnn", "mlp", "bert"],
)
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "legacy"])
@pytest.mark.filterwarnings("ignore")
def test_peak_of_activations_is_what_torch_allocates(
    module: nn.Module, shape: tuple[int, ...], tmp_path: Path, *, dynamo: bool
) -> None:
    """Within 10 %, results and dropped outputs of ops alike; inputs apart."""
    module.eval()
    x = torch.randn(shape)
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (x,), str(path), dynamo=dynamo, verbose=False)
    with torch.no_grad(), Storages([x, *module.parameters()]) as measured:
        module(x)
    report = perfc.analyze(str(path), "a100")
    predicted = report.memory["activations_bytes"] - x.untyped_storage().nbytes()

    assert pytest.approx(measured.peak, rel=0.1) == predicted
    parameters = sum(p.untyped_storage().nbytes() for p in module.parameters())
    assert pytest.approx(parameters, rel=0.05) == report.memory["parameters_bytes"]
