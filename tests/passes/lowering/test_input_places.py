"""Inputs by place: what is copied from the host, and what is a cache on the device."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import perfc
from perfc.ir import UsageError
from perfc.ir.text import parse_graph
from perfc.passes.lowering.input_places import InputPlaces, state_of

BATCH, HEADS, PAST, DIM = 2, 4, 32, 8
CACHE = ["past_k", "past_v"]


class _Decode(nn.Module):
    """One token of attention; the cache grows, or is written where *at* says."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HEADS * DIM, 3 * HEADS * DIM)

    def forward(
        self, x: Tensor, past_k: Tensor, past_v: Tensor, at: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        parts = self.qkv(x).view(len(x), 1, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if at is not None:
            keys, values = past_k.index_copy_(2, at, k), past_v.index_copy_(2, at, v)
            return (scaled_dot_product_attention(q, keys, values),)
        keys, values = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        return scaled_dot_product_attention(q, keys, values), keys, values


def _model(*, grows: bool) -> perfc.Model:
    cache = torch.zeros(BATCH, HEADS, PAST, DIM)
    args = [torch.zeros(BATCH, HEADS * DIM), cache, cache.clone()]
    if not grows:
        args.append(torch.zeros(1, dtype=torch.int64))
    return perfc.from_torch(_Decode(), tuple(args))


def _copied(model: perfc.Model, inputs: str) -> list[str]:
    report = perfc.analyze(model, target="a100", inputs=inputs).to_dict()
    return [node["id"] for node in report["nodes"] if node["op"] == "aten::to"]


@pytest.mark.parametrize("grows", [True, False])
def test_a_cache_stays_on_the_device(*, grows: bool) -> None:
    """What a step appends to, or writes rows of, is not copied; the rest is."""
    model = _model(grows=grows)
    report = perfc.analyze(model, target="a100").to_dict()
    notes = [d for d in report["diagnostics"] if d["code"] == "state-on-device"]

    assert ["x"] if grows else ["x", "at"] == _copied(model, "host-pinned")
    assert [grows] == ["copies each" in note["message"] for note in notes]
    assert all("past_k, past_v stay" in note["message"] for note in notes)


def test_places_by_name() -> None:
    """A pattern puts inputs on the host or the device; the last that fits holds."""
    model = _model(grows=True)

    assert ["x", *CACHE] == _copied(model, "host-pinned,past_*=host-pinned")
    assert ["x", "past_k"] == _copied(
        model, "host-pinned,past_*=host-pinned,*_v=device"
    )
    assert ["x"] == _copied(model, "device,x=host-pageable")
    assert not _copied(model, "host-pinned,x=device")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("host", "expected host-pinned"),
        ("x=device", "expected host-pinned"),
        ("device,x", "expected host-pinned"),
        ("device,=device", "expected host-pinned"),
        ("host-pinned,x=host-pageable", "expected one place of the host"),
    ],
)
def test_places_that_cannot_be(inputs: str, message: str) -> None:
    """A place is one of four, behind a name of the input, and one of the host's."""
    with pytest.raises(UsageError, match=message):
        InputPlaces.of(inputs)


def test_a_name_of_no_input() -> None:
    """A pattern that fits nothing names the inputs that there are."""
    with pytest.raises(UsageError, match=r"pats_\*=device: no input .* x, past_k, p"):
        perfc.analyze(
            _model(grows=True), target="a100", inputs="host-pinned,pats_*=device"
        )


def test_inputs_that_are_no_state() -> None:
    """What is joined and returned unread, or read and not returned, is a batch's."""
    text = """
    graph @g(%x: f32[2,4], %y: f32[2,4], %z: f32[2,4], %w: f32[2,4]) {
      %unread = concat(%x, %y) {axis = 0} : f32[4,4]
      %kept = concat(%z, %w) {axis = 0} : f32[4,4]
      %read = relu(%kept) : f32[4,4]
      return %unread, %read
    }
    """

    assert not state_of(parse_graph(text))
