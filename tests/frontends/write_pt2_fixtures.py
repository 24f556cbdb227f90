"""Writes the archives of tests/fixtures/pt2 into a folder; see `make fixtures`.

The traces of calls, which name files of the machine that exports, are left out.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from tests.frontends.pt2_models import joint_model, small_model, write
from torch import nn
from torch.export.experimental import (
    _export_forward_backward,  # pyright: ignore[reportPrivateUsage]
)
from torch.nn import functional


class Block(nn.Module):
    """A block of a transformer that classifies, with its loss."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        """Make the layers."""
        super().__init__()
        self.heads = heads
        self.words, self.norm = nn.Embedding(50, width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width, 2)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        x = self.norm(self.words(words))
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (
            part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(x.shape)))
        x = x + self.down(functional.gelu(self.up(x)))
        return functional.cross_entropy(self.head(x)[:, 0], labels)


def describe(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """Return the description that torch.export saves, without traces of calls."""
    file = io.BytesIO()
    torch.export.save(program, file)
    with zipfile.ZipFile(file) as packed:
        name = next(n for n in packed.namelist() if n.endswith("models/model.json"))
        model: dict[str, Any] = json.loads(packed.read(name))
    for node in model["graph_module"]["graph"]["nodes"]:
        node["metadata"].pop("stack_trace", None)
    return model


def main(folder: Path) -> None:
    """Write all of them."""
    warnings.simplefilter("ignore")  # torch's own deprecations
    words, labels = torch.randint(0, 50, (2, 6)), torch.randint(0, 2, (2,))
    forward = torch.export.export(Block(), (words, labels))
    joint = _export_forward_backward(forward)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "small.pt2", small_model())
    write(folder / "joint.pt2", joint_model())
    write(folder / "block.pt2", describe(forward))
    write(folder / "block_joint.pt2", describe(joint))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
