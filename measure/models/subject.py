"""The model that is measured: the twin of a workload, or what a factory makes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from math import floor, log10

import attrs
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from perfc.frontends import WORKLOADS, find_workload
from perfc.frontends.torch import Made, run_factory
from perfc.ir import Record, UsageError
from perfc.ir.support import UnsupportedModelError
from perfc.measure.device import Device
from perfc.measure.models.inputs import Inputs
from perfc.measure.models.optimizers import TAKE_SPARSE
from perfc.measure.models.setting import ON_DEVICE, OWN, Setting
from perfc.twins import TWINS, Twin

_MAX_ROWS, _UNLIMITED = "max_rows", "none"
_UNIFORM = "uniform"
_TABLES_SHARE = 0.5
"""Share of the memory for tables, their gradients and the optimizer's states."""

_STATES = {"sgd": 0.0, "adagrad": 1.0, "rowwise_adagrad": 0.0, "adam": 2.0}
"""Numbers that an optimizer keeps for each weight, row-wise ones left out."""

_DENSE = 3.0
"""A dense gradient, and what `foreach` optimizers make on the way."""


@attrs.frozen(kw_only=True)
class Subject:
    """A model by name.

    Attributes:
        name: Of the workload, or the factory as the user names it.
        params: Parameters of the workload, all of them.
        twin: That of a workload.
        default_batch: Samples if nobody says how many.

    """

    name: str
    params: Record
    default_batch: int
    twin: Twin | None = None

    def settled(self, setting: Setting, device: Device) -> Setting:
        """Return the setting as it is run: its optimizer and inputs.

        A twin has no optimizer of its own. Inputs of a CPU are where they are.
        """
        own = setting.optimizer == OWN and self.twin is not None
        return attrs.evolve(
            setting,
            optimizer="sgd" if own else setting.optimizer,
            inputs=setting.inputs if device.is_cuda else ON_DEVICE,
        )

    def params_on(self, device: Device, setting: Setting) -> Record:
        """Return the parameters with `max_rows`, if tables do not fit without."""
        given = _plain(self.params)
        if self.twin is None or not self.twin.sparse or given[_MAX_ROWS] != _UNLIMITED:
            return self.params
        with torch.device("meta"):
            module, _ = self.twin(batch=1, **given)
        tables = [m for m in module.modules() if isinstance(m, nn.EmbeddingBag)]
        room = device.memory_bytes * _TABLES_SHARE / _copies(setting) / _FP32
        most = _most_rows(tables, room)
        longest = max(table.num_embeddings for table in tables)
        cut = {} if most >= longest else {_MAX_ROWS: most}
        return Record({**self.params, **cut})

    def make(self, device: Device, setting: Setting) -> Made:
        """Make the model, tables cut to the device."""
        if self.twin is None:
            return run_factory(self.name, setting.batch)
        popularity = self.params.get("popularity", _UNIFORM)
        if popularity != _UNIFORM:
            msg = (
                f"{self.name} looks up rows of popularity {popularity!r}; what runs "
                "here draws them uniform"
            )
            raise UnsupportedModelError(msg)
        given = _plain(self.params_on(device, setting))
        if self.twin.sparse:
            given["sparse"] = int(_sparse(setting))
        with torch.device(device.kind):
            return Made(*self.twin(batch=setting.batch, **given))


_FP32 = 4


def _plain(params: Record) -> dict[str, int | str]:
    return {key: v for key, v in params.items() if isinstance(v, int | str)}


def _sparse(setting: Setting) -> bool:
    return setting.training and setting.optimizer in TAKE_SPARSE


def _copies(setting: Setting) -> float:
    if not setting.training:
        return 1.0
    dense = 0.0 if _sparse(setting) else _DENSE
    return 1.0 + dense + _STATES.get(setting.optimizer, 2.0)


def _most_rows(tables: list[nn.EmbeddingBag], room: float) -> int:
    """Return how many rows a table may have, two digits, for *room* numbers in all."""
    low, high = 1, max(table.num_embeddings for table in tables)
    while low < high:
        middle = (low + high + 1) // 2
        needed = sum(min(t.num_embeddings, middle) * t.embedding_dim for t in tables)
        low, high = (middle, high) if needed <= room else (low, middle - 1)
    if low == max(table.num_embeddings for table in tables):
        return low
    unit = int(10 ** max(floor(log10(low)) - 1, 0))
    return low // unit * unit


def find_subject(text: str) -> Subject:
    """Return the model that `NAME:key=value,…` or `FILE.py:FACTORY` names."""
    workload = find_workload(text)
    if workload is not None:
        twin = TWINS[workload.name]
        params = Record(twin.values(text.partition(":")[2]))
        return Subject(
            name=workload.name, params=params, twin=twin, default_batch=twin.batch
        )
    if ":" not in text:
        close = difflib.get_close_matches(text, WORKLOADS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        msg = f"{text!r}: expected a workload of `perfc models` or FILE.py:FACTORY"
        raise UsageError(msg + hint)
    batch = batch_of(run_factory(text))
    return Subject(name=text, params=Record({}), default_batch=batch)


def batch_of(made: Made) -> int:
    """Return the samples of example arguments: the length of the first tensor."""
    return next(_lengths(made), 1)


def _lengths(made: Made) -> Iterator[int]:
    given = (made.args, dict(made.kwargs or {}))
    for leaf in tree_leaves(Inputs(given, "cpu", ON_DEVICE).copied()):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            yield int(leaf.shape[0])
