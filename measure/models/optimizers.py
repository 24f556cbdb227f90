"""Optimizers that step a model for real, by the names of `perfc analyze`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from perfc.frontends import Optimizer
from perfc.frontends.torch import make_optimizer

TAKE_SPARSE = frozenset({"sgd", "adagrad", "rowwise_adagrad"})
"""Optimizers that take sparse gradients, as in PyTorch."""

_CAPTURABLE: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, capturable=True),
    "adamw": partial(torch.optim.AdamW, capturable=True),
}
"""A CUDA graph can hold these only if their count of steps is on the device."""


class RowwiseAdagrad(torch.optim.Optimizer):
    """Adagrad with one sum for each row of a table, for sparse gradients.

    The sum of a row grows by the mean square of the row's gradient; the row moves by
    its gradient over the root of the sum (as FBGEMM's EXACT_ROWWISE_ADAGRAD).
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float = 0.01, eps: float = 1e-10
    ) -> None:
        """Take tables; sums start from zero."""
        super().__init__(params, {"lr": lr, "eps": eps})
        for group in self.param_groups:
            for table in group["params"]:
                self.state[table]["sum"] = torch.zeros(
                    table.shape[0], dtype=table.dtype, device=table.device
                )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the rows that have gradients."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, table.grad, group["lr"], group["eps"])

    def _update(self, table: Tensor, gradient: Tensor, lr: float, eps: float) -> None:
        gradient = gradient.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        sums: Tensor = self.state[table]["sum"]
        sums.index_add_(0, rows, values.square().mean(1))
        roots = sums.index_select(0, rows).sqrt_().add_(eps).unsqueeze(1)
        table.index_add_(0, rows, values / roots, alpha=-lr)


def optimizers_of(
    what: Optimizer, model: nn.Module, *, capturable: bool = False
) -> list[torch.optim.Optimizer]:
    """Return the optimizers that update all parameters of *model* that are trained."""
    if what == "rowwise_adagrad":
        return _rowwise(model)
    if capturable and isinstance(what, str):
        what = _CAPTURABLE.get(what, what)
    made = make_optimizer(what, model)
    return [] if made is None else [made]


def _rowwise(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Take tables with sparse gradients apart; the rest is stepped by Adagrad."""
    lookups = [
        m for m in model.modules() if isinstance(m, nn.EmbeddingBag | nn.Embedding)
    ]
    names = {id(m.weight) for m in lookups if m.sparse}
    tables = {id(p): p for p in model.parameters() if id(p) in names}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in tables]
    made: list[torch.optim.Optimizer] = []
    if tables:
        made.append(RowwiseAdagrad(list(tables.values())))
    if others:
        made.append(torch.optim.Adagrad(others))
    return made
