"""`prune-channels`: what is left is the network with fewer channels, everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfc
from perfc.ir import Graph, UsageError
from perfc.ir.text import parse_graph, print_graph
from perfc.passes.pruning import PruneChannels

NETWORKS = (
    *("resnet18", "resnet50", "inception-v3", "googlenet", "mobilenet-v2", "mnasnet"),
    "squeezenet",
)


def _graph(model: perfc.Model) -> Graph:
    graph = model.program.classes[0].ops
    assert graph is not None
    return graph


def _pruned(name: str, **options: Any) -> perfc.Model:
    return perfc.load(name, batch=4, transforms=[PruneChannels(**options)])


def _weights(model: perfc.Model) -> int:
    sizes = (p.type.numel for p in _graph(model).parameters if p.type)
    return sum(n for n in sizes if isinstance(n, int))


def _convolved(model: perfc.Model) -> list[tuple[Any, ...]]:
    """Return the shapes of the weights of all convolutions."""
    nodes = [node for node in _graph(model) if node.op == "conv"]
    return [node.operands[1].type.shape for node in nodes if node.operands[1].type]


@pytest.mark.parametrize("name", NETWORKS)
def test_no_share_is_the_same_model(name: str) -> None:
    """Text for text, and so to the last digit."""
    whole = perfc.load(name, batch=4)

    assert print_graph(_graph(whole)) == print_graph(_graph(_pruned(name, share=0.0)))


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=4, deadline=None)
@given(share=st.floats(0.01, 0.99), seed=st.none() | st.integers(0, 5))
def test_what_is_left_is_a_model(name: str, share: float, seed: int | None) -> None:
    """Its text is valid, every convolution has a channel, the logits are whole."""
    how: dict[str, Any] = {} if seed is None else {"criterion": "random", "seed": seed}
    model = _pruned(f"{name}:image=75", share=share, **how)
    graph = _graph(model)
    (logits,) = graph.outputs

    assert print_graph(graph) == print_graph(parse_graph(print_graph(graph)))
    assert all(min(shape) > 0 for shape in _convolved(model))
    assert logits.type is not None
    assert 1000 == logits.type.shape[1]
    assert 0 < perfc.analyze(model, "t4").time_us


@pytest.mark.parametrize("name", NETWORKS)
def test_a_larger_share_leaves_less(name: str) -> None:
    """Parameters, flops, bytes and memory fall with the share."""
    models = [_pruned(name, share=share) for share in (0.0, 0.3, 0.6)]
    reports = [perfc.analyze(model, "t4") for model in models]
    figures = [
        [_weights(model) for model in models],
        *([r.summary[key] for r in reports] for key in ("flops", "bytes")),
        [r.memory["peak_bytes"] for r in reports],
    ]

    for falling in figures:
        assert sorted(falling, reverse=True) == falling
        assert falling[-1] < falling[0]


def test_half_of_resnet18() -> None:
    """It has the weights of a ResNet-18 that is half as wide."""
    shapes = _convolved(perfc.load("resnet18", batch=4))
    halved = _convolved(_pruned("resnet18", share=0.5))

    for whole, half in zip(shapes, halved, strict=True):
        channels_in = whole[1] if whole[1] == 3 else whole[1] // 2
        assert (whole[0] // 2, channels_in, *whole[2:]) == half


@pytest.mark.parametrize("multiple", [8, 32])
def test_channels_that_fill_tiles(multiple: int) -> None:
    """What is left is a multiple, never more than there was; a share still tells."""
    shapes = _convolved(perfc.load("mnasnet", batch=4))
    times: list[float] = []
    for share in (0.1, 0.3, 0.5, 0.7):
        model = _pruned("mnasnet", share=share, multiple=multiple)
        for whole, left in zip(shapes, _convolved(model), strict=True):
            assert left[0] == whole[0] or left[0] % multiple == 0
            assert left[0] >= whole[0] * (1 - share) - 1
        times.append(perfc.analyze(model, "jetson-tx2").time_us)

    assert sorted(times, reverse=True) == times


def test_a_random_share_is_of_the_network() -> None:
    """So many channels are gone, from layers by chance, and by the seed alone."""
    first, again, other = (
        _convolved(_pruned("resnet18", share=0.5, criterion="random", seed=seed))
        for seed in (1, 1, 2)
    )

    assert first == again != other
    model = _pruned("resnet18", share=0.5, criterion="random", seed=1)
    (note,) = (d for d in model.program.diagnostics if d.code == "pruned")
    assert note.message.startswith("prune-channels: 1,440 of 2,880 channels in 12 grou")


UNKNOWN = """graph @unknown(%x: f32[2,3,8,8], param %a: f32[8,3,3,3]) {
  %y = conv(%x, %a) {stride = [1, 1], padding = [1, 1, 1, 1], groups = 1} : f32[2,8,8,8]
  %z = softmax(%y) {axis = 1} : f32[2,8,8,8]
  %sums = reduce(%z) {kind = "sum", axes = [1, 2, 3], keepdims = false} : f32[2]
  return %sums
}"""


def test_channels_that_an_op_needs_stay(tmp_path: Path) -> None:
    """An op that is not followed keeps its channels; if none are left, it is said."""
    path = tmp_path / "g.perfc"
    path.write_text(UNKNOWN, encoding="utf-8")

    with pytest.raises(UsageError, match="no convolution whose channels may go"):
        perfc.load(str(path), prune=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.0}, "share=1 of prune-channels: expected 0 or more, below 1"),
        ({"share": -0.1}, "expected 0 or more, below 1"),
        ({"share": float("nan")}, "expected 0 or more, below 1"),
        ({"criterion": "l1"}, "criterion='l1' .* expected uniform or random"),
        ({"multiple": 0}, "multiple=0 of prune-channels: expected 1 or more"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    """An option out of range is one line of usage."""
    with pytest.raises(UsageError, match=message):
        PruneChannels(**options)


def test_a_step_that_is_recorded_is_refused(tmp_path: Path) -> None:
    """Its backward pass would not know."""
    step = perfc.load("resnet18:image=32", batch=2, mode="training")
    path = tmp_path / "step.perfc"
    path.write_text(print_graph(_graph(step)), encoding="utf-8")
    with pytest.raises(UsageError, match="comes before its backward pass"):
        perfc.load(str(path), prune=0.5)


def test_a_loaded_model_is_not_pruned_later() -> None:
    """It says where the share belongs."""
    model = perfc.load("resnet18", batch=2)
    with pytest.raises(perfc.PerfcError, match=r"give prune to perfc\.load"):
        perfc.analyze(model, "t4", prune=0.5)
