"""Speed of captures: `python benchmarks/speed/capture.py [NAME]`.

Each is measured in a process of its own, with PyTorch imported before: a training
step recorded and analyzed. Prints seconds and peak memory, with the bars they have to
stay under; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH = 2048
# Criteo Terabyte's categories in MLPerf's DLRM, at most 40 million rows a table.
MLPERF = (
    *(39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546),
    *(403346, 10, 2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984),
    *(585935, 12972, 108, 36),
)


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(widths):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """Tables, two MLPs, and the products of all pairs between them, as `DLRM_Net`."""

    def __init__(self, rows: Sequence[int], dim: int) -> None:
        """Make the tables and the MLPs."""
        super().__init__()
        self.bottom = _mlp(13, 512, 256, dim)
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows
        )
        pairs = len(rows) * (len(rows) + 1) // 2
        self.top = _mlp(dim + pairs, 1024, 1024, 512, 256, 1)

    def forward(self, dense: Tensor, offsets: Tensor, *indices: Tensor) -> Tensor:
        """Return one number a sample."""
        x = self.bottom(dense)
        pooled = [t(i, offsets) for t, i in zip(self.tables, indices, strict=True)]
        vectors = torch.cat([x, *pooled], dim=1).view(len(x), -1, x.shape[1])
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        count = len(pooled) + 1
        low = torch.tensor([i for i in range(count) for _ in range(i)])
        high = torch.tensor([j for i in range(count) for j in range(i)])
        out: Tensor = self.top(torch.cat([x, products[:, low, high]], dim=1))
        return out


def dlrm(rows: Sequence[int], dim: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """Make a DLRM and its arguments, one lookup a table."""
    indices = [torch.zeros(BATCH, dtype=torch.int64) for _ in rows]
    return Dlrm(rows, dim), (torch.zeros(BATCH, 13), torch.arange(BATCH), *indices)


class Block(nn.Module):
    """A layer of GPT."""

    def __init__(self, width: int, heads: int) -> None:
        """Make the layer."""
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend, then transform."""
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).split(width, dim=2)
        heads = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(heads).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        out: Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return out


def gpt(layers: int, width: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """Make a GPT and one sequence."""
    blocks = [Block(width, width // 128) for _ in range(layers)]
    table, head = nn.Embedding(50257, width), nn.Linear(width, 50257)
    ids = torch.zeros((1, 2048), dtype=torch.int64)
    return nn.Sequential(table, *blocks, nn.LayerNorm(width), head), (ids,)


def dlrm_mlperf() -> tuple[nn.Module, tuple[Any, ...]]:
    """Make DLRM as in MLPerf: 104 GB of tables."""
    return dlrm(MLPERF, 128)


def dlrm_1000_tables() -> tuple[nn.Module, tuple[Any, ...]]:
    """Make a DLRM of a thousand tables: 2.6 TB."""
    return dlrm([10_000_000] * 1000, 64)


def gpt_96_12288() -> dict[str, Any]:
    """Make a GPT of 175 billion parameters, to be trained with fused AdamW."""
    module, args = gpt(96, 12288)
    optimizer = partial(torch.optim.AdamW, fused=True)
    return {"module": module, "args": args, "optimizer": optimizer}


BARS = {
    "dlrm_mlperf": (0.8, 1.0),
    "dlrm_1000_tables": (3.0, 1.5),
    "gpt_96_12288": (6.0, 1.5),
}
"""Factories, seconds, and gigabytes."""


def measure(name: str) -> bool:
    """Record and analyze one model in this process; print a row."""
    seconds, gigabytes = BARS[name]
    started = time.perf_counter()
    import perfc

    model = perfc.load(f"{__file__}:{name}", mode="training")
    report = perfc.analyze(model, "h100")
    spent = time.perf_counter() - started if report.time_us else 0.0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    ok = spent <= seconds and used <= gigabytes
    print(
        f"{name:<18} {spent:6.2f} s  bar {seconds:4.1f}   {used:5.2f} GB  "
        f"bar {gigabytes:4.1f}   {'ok' if ok else 'MISSED'}",
        flush=True,
    )
    return ok


def main() -> int:
    """Measure one model, or each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="?", choices=BARS)
    name: str | None = parser.parse_args().name
    if name is not None:
        return 0 if measure(name) else 1
    command = [sys.executable, __file__]
    codes = [subprocess.run([*command, each], check=False).returncode for each in BARS]
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
