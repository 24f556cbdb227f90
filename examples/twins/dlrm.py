"""Recommendation models that interact by dot products or side by side: DLRM."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from perfc.frontends import widths_of
from perfc.twins.lookups import ONE_BAG_A_TABLE, bag_inputs, tables_of
from perfc.twins.twin import Made, Twin, Values


class DlrmNet(nn.Module):
    """`DLRM_Net` of facebookresearch/dlrm: its forward, written anew.

    One list of indices and one of offsets, a tensor per table, as `lS_i` and `lS_o`.
    """

    def __init__(
        self,
        bottom: Sequence[int],
        rows: Sequence[int],
        top: Sequence[int],
        *,
        dot: bool = True,
        sparse: bool = False,
    ) -> None:
        """Make the layers: widths of the MLPs from the first input on.

        Vectors interact by the dot products of all pairs, or lie side by side.
        """
        super().__init__()
        self.dot, dim, vectors = dot, bottom[-1], len(rows) + 1
        self.bot_l = mlp(bottom, last=nn.ReLU)
        self.emb_l = nn.ModuleList(
            nn.EmbeddingBag(count, dim, mode="sum", sparse=sparse) for count in rows
        )
        pairs = dim + vectors * (vectors - 1) // 2
        self.top_l = mlp((pairs if dot else vectors * dim, *top), last=nn.Sigmoid)

    def forward(
        self, dense: Tensor, offsets: Sequence[Tensor], indices: Sequence[Tensor]
    ) -> Tensor:
        """Return probabilities [batch, 1]."""
        x = self.bot_l(dense)
        bags = zip(self.emb_l, indices, offsets, strict=True)
        pooled = [table(index, offset) for table, index, offset in bags]
        out: Tensor = self.top_l(self.interact(x, pooled))
        return out

    def interact(self, x: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        """Put the products of every pair of vectors, or the vectors, behind x."""
        batch, dim = x.shape
        joined = torch.cat([x, *pooled], dim=1)
        if not self.dot:
            return joined
        vectors = joined.view((batch, -1, dim))
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        li, lj = self.places()
        return torch.cat([x, products[:, li, lj]], dim=1)

    def places(self) -> tuple[Tensor, Tensor]:
        """Return rows and columns of the lower triangle, made on the host."""
        count = len(self.emb_l) + 1
        li = torch.tensor([i for i in range(count) for _ in range(i)])
        lj = torch.tensor([j for i in range(count) for j in range(i)])
        return li, lj


class CapturableDlrm(DlrmNet):
    """A `DlrmNet` that keeps its `places` on the device, as a CUDA graph needs them.

    DLRM_Net makes and copies them in every iteration, and the host waits.
    """

    def __init__(
        self,
        bottom: Sequence[int],
        rows: Sequence[int],
        top: Sequence[int],
        *,
        dot: bool = True,
        sparse: bool = False,
    ) -> None:
        """Make the layers, and the places."""
        super().__init__(bottom, rows, top, dot=dot, sparse=sparse)
        for name, places in zip(("li", "lj"), super().places(), strict=True):
            self.register_buffer(name, places, persistent=False)

    def places(self) -> tuple[Tensor, Tensor]:
        """Return rows and columns of the lower triangle, made once."""
        return self.get_buffer("li"), self.get_buffer("lj")


def mlp(widths: Sequence[int], last: type[nn.Module] | None = None) -> nn.Sequential:
    """Stack linear layers with a ReLU after each but the last, which has *last*."""
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(widths):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    layers.pop()
    return nn.Sequential(*layers, *([] if last is None else [last()]))


def _twin(name: str, *, dot: bool = True, batch: int = 2048) -> Twin:
    def make(values: Values, batch: int) -> Made:
        tables = tables_of(name, values)
        on_host = values.get("places") == "host"
        mlp_widths = values.get("mlp")
        bottom = (*_bottom(values), int(values["dim"]))
        top = (*widths_of(mlp_widths), 1) if mlp_widths else widths_of(values["top"])
        model = (DlrmNet if on_host else CapturableDlrm)(
            bottom,
            [table.rows for table in tables],
            top,
            dot=dot,
            sparse=bool(values["sparse"]),
        )
        indices, offsets = bag_inputs(tables, batch)
        return model, (torch.rand(batch, bottom[0]), offsets, indices)

    return Twin(name=name, batch=batch, make=make, fixed=ONE_BAG_A_TABLE, sparse=True)


def _bottom(values: Values) -> tuple[int, ...]:
    """Return the widths of the bottom MLP but for its last, dense features first."""
    if "mlp" in values:
        return (int(values["dense"]), *widths_of(values["mlp"]))
    return widths_of(values["bottom"])


dlrm_default = _twin("dlrm-default")
dlrm_mlperf = _twin("dlrm-mlperf")
dlrm_ddp = _twin("dlrm-ddp")
criteo_terabyte_small = _twin("criteo-terabyte-small")
deeprecsys_rm1 = _twin("deeprecsys-rm1", dot=False)
deeprecsys_rm2 = _twin("deeprecsys-rm2", dot=False)
deeprecsys_rm3 = _twin("deeprecsys-rm3", dot=False)
dlrm_zion = _twin("dlrm-zion")

DLRM_TWINS = (
    *(dlrm_default, dlrm_mlperf, dlrm_ddp, criteo_terabyte_small),
    *(deeprecsys_rm1, deeprecsys_rm2, deeprecsys_rm3),
    dlrm_zion,
)
