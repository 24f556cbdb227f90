"""Laws of training on boards whose host and GPU share a memory."""

from __future__ import annotations

from itertools import pairwise

import pytest

import perfc
from perfc.passes.pruning import PruneChannels

BOARDS = ("jetson-tx2", "jetson-xavier", "jetson-orin")
NETWORKS = ("resnet18", "mobilenet-v2", "squeezenet", "googlenet", "mnasnet")
_BLOCK = 2 * 2**20
"""Bytes that the allocator takes at once for small tensors."""


def _step(network: str, board: str, batch: int, share: float = 0.0) -> perfc.Report:
    pruned = [PruneChannels(share=share, multiple=32)] if share else []
    model = perfc.load(
        f"{network}:image=96", batch=batch, mode="training", transforms=pruned
    )
    return perfc.analyze(model, board)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("network", NETWORKS)
def test_more_images_take_longer_and_more_memory(network: str, board: str) -> None:
    """A step of a larger batch takes no less time, and more memory."""
    steps = [_step(network, board, batch) for batch in (1, 4, 32)]

    for less, more in pairwise(steps):
        assert less.time_us <= more.time_us * (1 + 1e-9)
        assert less.memory["peak_bytes"] < more.memory["peak_bytes"]


@pytest.mark.parametrize("network", NETWORKS)
def test_channels_that_are_kept_take_longer(network: str) -> None:
    """In steps of the 32 channels that tiles have."""
    shares = (0.0, 0.25, 0.5, 0.75)
    steps = [_step(network, "jetson-tx2", 16, share) for share in shares]

    for more, less in pairwise(steps):
        assert less.time_us <= more.time_us * (1 + 1e-9)
        assert less.memory["peak_bytes"] <= more.memory["peak_bytes"]


@pytest.mark.parametrize("network", NETWORKS)
def test_memory_is_a_line_between_steps_of_the_allocator(network: str) -> None:
    """Eight images more always take as much more, but for blocks that fill up."""
    peaks = [
        float(_step(network, "jetson-tx2", batch).memory["peak_bytes"])
        for batch in (16, 24, 32, 40)
    ]
    grown = [more - less for less, more in pairwise(peaks)]

    assert max(grown) - min(grown) <= max(0.03 * max(grown), 4 * _BLOCK)
