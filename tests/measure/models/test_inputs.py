"""How inputs reach the device in each iteration."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfc.ir.choices import INPUTS
from perfc.measure.models.inputs import Inputs
from perfc.measure.models.setting import INPUTS as MEASURED


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("host-pinned", (True, True)),
        ("host-pinned-blocking", (True, False)),
        ("host-pageable", (False, False)),
    ],
)
def test_pinned_and_asynchronous(
    where: str, expected: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies block unless they are from pinned memory and may go on."""
    pinned: list[Any] = []
    asynchronous: list[bool] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor)
        return tensor

    def move(tensor: torch.Tensor, _: str, *, non_blocking: bool) -> torch.Tensor:
        asynchronous.append(non_blocking)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    inputs = Inputs([torch.zeros(2)], "cpu", where)
    monkeypatch.setattr(torch.Tensor, "to", move)
    inputs.copied()

    assert expected == (bool(pinned), *asynchronous)


def test_what_is_measured_can_be_predicted() -> None:
    """Both have the same names."""
    assert INPUTS == MEASURED
