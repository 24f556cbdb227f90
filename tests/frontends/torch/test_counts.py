"""Numbers that data decide: assumed with a remark, or as the user says them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import perfc
from perfc.ir import PerfcError

X = torch.zeros(4, 8, device="meta")


class Finds(nn.Module):
    """Does what it is told."""

    def __init__(self, act: Callable[[Tensor], Any]) -> None:
        """Remember what."""
        super().__init__()
        self.act = act

    def forward(self, x: Tensor) -> Any:
        """Do it."""
        return self.act(x)


def _recorded(act: Callable[[Tensor], Any], **dims: int) -> perfc.Model:
    return perfc.from_torch(Finds(act), (X,), dims=dims)


def _shapes(model: perfc.Model) -> list[tuple[object, ...]]:
    graph = model.program.classes[0].ops
    assert graph is not None
    return [value.type.shape for value in graph.outputs if value.type is not None]


@torch.library.custom_op("perfc_test::suppress", mutates_args=())
def suppress(boxes: Tensor, least: float) -> Tensor:
    """Keep some boxes."""
    return boxes.sum(1).nonzero().flatten()


@suppress.register_fake
def _(boxes: Tensor, least: float) -> Tensor:
    context = cast("Any", torch.library.get_ctx())
    return boxes.new_empty(context.new_dynamic_size(), dtype=torch.int64)


_FINDS: list[tuple[str, Callable[[Tensor], Any], int, Callable[[int], Any]]] = [
    ("nonzero", lambda x: (x > 0).nonzero(), 32, lambda n: (n, 2)),
    ("nonzero", lambda x: torch.where(x > 0)[1], 32, lambda n: (n,)),
    ("index", lambda x: x[x[:, 0] > 0], 4, lambda n: (n, 8)),
    ("index", lambda x: x[:, x[0] > 0], 8, lambda n: (4, n)),
    ("masked_select", lambda x: x.masked_select(x > 0), 32, lambda n: (n,)),
    ("unique2", torch.unique, 32, lambda n: (n,)),
    ("unique_dim", functools.partial(torch.unique, dim=0), 4, lambda n: (n, 8)),
    ("unique_consecutive", torch.unique_consecutive, 32, lambda n: (n,)),
    ("suppress", lambda x: suppress(x, 0.5), 4, lambda n: (n,)),
]


@pytest.mark.parametrize(
    ("name", "act", "most", "shape"), _FINDS, ids=map(str, range(len(_FINDS)))
)
def test_as_many_are_found_as_there_can_be(
    name: str, act: Callable[[Tensor], Any], most: int, shape: Callable[[int], Any]
) -> None:
    """Unless the user says how many; what was assumed is a remark with its line."""
    assumed, told = _recorded(act), _recorded(act, **{name: 3})

    assert [shape(most)] == _shapes(assumed)
    assert [shape(3)] == _shapes(told)
    (note,) = [d for d in assumed.program.diagnostics if d.code == "count-assumed"]
    assert f"as many as there can be, {most}" in note.message
    assert f"--dim {name}=N" in note.message
    assert "test_counts.py:" in note.where
    assert "count-assumed" not in {d.code for d in told.program.diagnostics}
    assert perfc.analyze(told, target="a100").time_us > 0


def test_numbers_agree() -> None:
    """What follows from a mask that has been counted follows from that count."""

    def act(x: Tensor) -> Any:
        mask = x > 0
        kept = x[mask]
        found, others = mask.nonzero(), x[~mask]
        return kept, found, others, kept[: int(mask.sum())]

    assert [(5,), (5, 2), (27,), (5,)] == _shapes(_recorded(act, index=5))


def test_every_line_has_a_number_of_its_own() -> None:
    """A line that runs repeatedly has one, of which as much is taken as there is."""

    def act(x: Tensor) -> Any:
        parts = [(part > 0).nonzero() for part in (x[:1], x)]
        return [*parts, (x < 0).nonzero()]

    shapes = _shapes(_recorded(act, nonzero=10, nonzero_1=7))
    assert [(8, 2), (10, 2), (7, 2)] == shapes


_READS: list[tuple[Callable[[Tensor], Any], int, Any]] = [
    (lambda x: x[: int(x.sum())], 3, (3, 8)),
    (lambda x: x if x.sum() > 0 else x[0], 1, (4, 8)),
    (lambda x: x if x.sum() > 0 else x[0], 0, (8,)),
]


@pytest.mark.parametrize(("act", "number", "shape"), _READS)
def test_elements_that_are_read_can_be_said(
    act: Callable[[Tensor], Any], number: int, shape: Any
) -> None:
    """The error names the option; 0 and 1 are false and true."""
    with pytest.raises(PerfcError, match="--dim item="):
        _recorded(act)
    assert [shape] == _shapes(_recorded(act, item=number))


def test_lists_of_any_length_have_to_be_said() -> None:
    """There is no largest number to take."""

    def act(x: Tensor) -> Any:
        return torch.repeat_interleave(x[0].long())

    with pytest.raises(PerfcError, match="--dim repeat_interleave=N"):
        _recorded(act)
    assert [(40,)] == _shapes(_recorded(act, repeat_interleave=40))


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"nonzer": 3}, "has no such dimension; it has nonzero"),
        ({"nonzero": 33}, "--dim nonzero=33: at most 32 can be found"),
        ({"nonzero": -1}, "expected at least 0"),
    ],
)
def test_wrong_numbers_are_refused(dims: dict[str, int], said: str) -> None:
    """The names there are, and the largest number, are told."""
    with pytest.raises(PerfcError, match=said):
        _recorded(lambda x: (x > 0).nonzero(), **dims)


FACTORY = """
import torch

class Staged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        depths = torch.diff(torch.tensor([0, 1, 4])).int().tolist()
        layers = [torch.nn.Linear(8, 8) for _ in range(sum(depths))]
        self.layers = torch.nn.Sequential(*layers)
        self.shift = torch.log(torch.tensor(2.0)).item()
        self.scale = torch.nn.Parameter(torch.FloatTensor(8))

    def forward(self, x):
        kept = self.layers(x * self.scale - self.shift)[x[:, 0] > 0]
        return kept * torch.tensor([1.0] * 8, device=x.device)

def make():
    return Staged(), (torch.rand(4, 8),)
"""


def test_constants_of_constructors_are_known(tmp_path: Path) -> None:
    """Lists become tensors with elements; what heeds no device is on the GPU too."""
    (tmp_path / "staged.py").write_text(FACTORY)
    model = perfc.load(f"{tmp_path}/staged.py:make", dims={"index": 2})
    graph = model.program.classes[0].ops

    assert graph is not None
    assert 4 == sum(node.op == "linear" for node in graph)
    assert [(2, 8)] == _shapes(model)
    assert {"index": 2} == model.dims
