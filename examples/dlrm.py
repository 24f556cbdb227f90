"""A small DLRM in PyTorch, and its three published configurations.

The model is the one of `facebookresearch/dlrm`: a bottom MLP over the dense
features, one embedding bag per table, the dot product of every pair of
vectors, and a top MLP.

The published tables are large (dlrm-mlperf has 96 GB of them): build such a
model under `torch.device("meta")`, or shrink its rows first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

Mode = Literal["sum", "mean", "max"]
Layout = Literal["offsets", "2d", "weighted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DlrmConfig:
    """Sizes and bag layout of one DLRM.

    `bottom` and `top` are output widths: the first input width of `bottom` is
    `dense_features`, that of `top` follows from the interaction. `pooling` is
    the number of indices per bag in sample inputs.
    """

    dense_features: int
    bottom: tuple[int, ...]
    rows: tuple[int, ...]
    dim: int
    top: tuple[int, ...]
    pooling: int = 1
    mode: Mode = "sum"
    layout: Layout = "offsets"
    include_last_offset: bool = False

    def __post_init__(self) -> None:
        """Refuse what `EmbeddingBag` or the interaction would refuse later."""
        if self.bottom[-1] != self.dim:
            msg = f"bottom ends in {self.bottom[-1]}, the tables have {self.dim}"
            raise ValueError(msg)
        if self.layout == "weighted" and self.mode != "sum":
            msg = f"weighted bags must be summed, not reduced by {self.mode}"
            raise ValueError(msg)
        if self.layout == "2d" and self.include_last_offset:
            msg = "2-D indices have no offsets"
            raise ValueError(msg)

    @property
    def interaction_width(self) -> int:
        """Width of the dense vector and the pairwise dots together."""
        vectors = len(self.rows) + 1
        return self.dim + vectors * (vectors - 1) // 2

    def with_rows_at_most(self, rows: int) -> DlrmConfig:
        """Return a copy with every table cut to at most `rows` rows."""
        return replace(self, rows=tuple(min(r, rows) for r in self.rows))


# fmt: off
_CRITEO_ROWS = (
    39_884_406, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63,
    38_532_951, 2_953_546, 403_346, 10, 2_208, 11_938, 155, 4, 976, 14,
    39_979_771, 25_641_295, 39_664_984, 585_935, 12_972, 108, 36,
)
# fmt: on

DLRM_DEFAULT = DlrmConfig(
    dense_features=512,
    bottom=(512, 64),
    rows=(1_000_000,) * 8,
    dim=64,
    top=(1024, 1024, 1024, 1),
    pooling=100,
)

DLRM_MLPERF = DlrmConfig(
    dense_features=13,
    bottom=(512, 256, 128),
    rows=_CRITEO_ROWS,
    dim=128,
    top=(1024, 1024, 512, 256, 1),
    pooling=1,
)

DLRM_DDP = DlrmConfig(
    dense_features=128,
    bottom=(128, 128, 128),
    rows=(80_000,) * 8,
    dim=128,
    top=(512, 512, 512, 256, 1),
    pooling=10,
)

PUBLISHED = {
    "dlrm-default": DLRM_DEFAULT,
    "dlrm-mlperf": DLRM_MLPERF,
    "dlrm-ddp": DLRM_DDP,
}


def mlp(widths: Sequence[int], *, last: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Stack linear layers with a ReLU after each, and `last` after the last."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    layers[-1] = last()
    return nn.Sequential(*layers)


def interact(dense: Tensor, pooled: Sequence[Tensor]) -> Tensor:
    """Dot every pair of vectors and put the dense one in front."""
    batch, dim = dense.shape
    vectors = torch.cat([dense, *pooled], dim=1).view((batch, -1, dim))
    dots = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
    pairs = [(i, j) for i in range(len(pooled) + 1) for j in range(i)]
    li = torch.tensor([i for i, _ in pairs])
    lj = torch.tensor([j for _, j in pairs])
    return torch.cat([dense, dots[:, li, lj]], dim=1)


class Dlrm(nn.Module):
    """Predict one probability per sample."""

    def __init__(self, config: DlrmConfig) -> None:
        """Make the layers; weights are PyTorch's defaults."""
        super().__init__()
        self.bottom = mlp((config.dense_features, *config.bottom))
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(
                rows,
                config.dim,
                mode=config.mode,
                include_last_offset=config.include_last_offset,
            )
            for rows in config.rows
        )
        self.top = mlp((config.interaction_width, *config.top), last=nn.Sigmoid)

    def forward(
        self,
        dense: Tensor,
        indices: Sequence[Tensor],
        offsets: Sequence[Tensor] | None = None,
        weights: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Run the model; `offsets` and `weights` are there as the layout says."""
        dense = self.bottom(dense)
        pooled: list[Tensor] = []
        for k, table in enumerate(self.tables):
            offset = None if offsets is None else offsets[k]
            weight = None if weights is None else weights[k]
            pooled.append(table(indices[k], offset, weight))
        out: Tensor = self.top(interact(dense, pooled))
        return out


def sample_sparse(
    config: DlrmConfig, batch: int, index_type: torch.dtype = torch.int64
) -> tuple[list[Tensor], ...]:
    """Make valid sparse inputs: indices, then offsets, then weights, as needed."""
    size = batch * config.pooling
    count = torch.arange(size, dtype=index_type)
    indices = [count % rows for rows in config.rows]
    if config.layout == "2d":
        return ([i.view(batch, config.pooling) for i in indices],)
    starts = torch.arange(batch + config.include_last_offset, dtype=index_type)
    offsets = [starts * config.pooling for _ in config.rows]
    if config.layout == "offsets":
        return indices, offsets
    return indices, offsets, [1.0 / (1 + count) for _ in config.rows]


def sample_inputs(config: DlrmConfig, batch: int) -> tuple[Tensor | list[Tensor], ...]:
    """Make valid arguments for `Dlrm.forward`."""
    dense = torch.linspace(-1.0, 1.0, batch * config.dense_features)
    dense = dense.view(batch, config.dense_features)
    return dense, *sample_sparse(config, batch)
