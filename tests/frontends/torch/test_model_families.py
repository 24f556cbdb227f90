"""Models of the `transformers` library, recorded forward and in training."""

from __future__ import annotations

import warnings

import pytest
from tests.models.families import FAMILIES

import perfc
from perfc.ir import Graph

LOOKS_AT_ITS_DATA = {"Detr"}
"""Models that read results back in training, to see whether they are finite."""

_QUICK = {"Roberta", "Mistral", "Mixtral", "Mamba", "Whisper", "ConvNext", "Wav2Vec2"}
_NAMES = [
    pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow)
    for name in FAMILIES
]


def _recorded(name: str, mode: str) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        module, inputs = FAMILIES[name].made(name)
        program = perfc.from_torch(module, (), inputs, mode=mode).program
    graph = program.classes[0].ops
    assert graph is not None
    return graph


@pytest.mark.parametrize("name", _NAMES)
def test_forward(name: str) -> None:
    """Every op of a forward pass is known."""
    graph = _recorded(name, "inference")

    assert any(node.op in {"linear", "matmul"} for node in graph)
    assert "unknown" not in {node.op for node in graph}


@pytest.mark.parametrize("name", [n for n in _NAMES if n.values[0] != "Detr"])
def test_training(name: str) -> None:
    """So is every op of a training step."""
    graph = _recorded(name, "training")

    assert "backward" in {node.location.phase for node in graph}
    assert "unknown" not in {node.op for node in graph}


@pytest.mark.parametrize("name", LOOKS_AT_ITS_DATA)
def test_what_depends_on_data(name: str) -> None:
    """A model that looks at its own results is refused in a line with its module."""
    with pytest.raises(perfc.PerfcError, match="reads elements of a tensor") as failure:
        _recorded(name, "training")

    assert "model.encoder.layers.0" in str(failure.value)
    assert "\n" not in str(failure.value)
