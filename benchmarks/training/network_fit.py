"""How the networks of `costmodels/fitted_files/network.py` are trained, and written.

Adam on the mean error, smoothed at zero, with weights that decay: the same result every
time on the same machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.costmodels.fitted_files import Network
from perfc.costmodels.kernels import Floats

_Weights: TypeAlias = NDArray[np.float32]


_BATCH = 256
_RATE = 4e-3

_ALIKE, _NEVER = 0.05, 1e12
"""Features that spread less do not tell rows apart; what they are divided by."""

_FADE, _FADE_SQUARE = 0.9, 0.999
_TINY = 1e-8
"""Adam's constants."""


@attrs.frozen
class Training:
    """How a network is trained.

    Attributes:
        hidden: Units of the layers between.
        epochs: How often it sees each row.
        smooth: Errors smaller than this count by their square.
        decay: Of the weights, by step and rate.

    """

    hidden: tuple[int, ...] = (64, 48)
    epochs: int = 250
    smooth: float = 0.02
    decay: float = 5e-5


OF_ROWS = Training()
"""Training on measured rows, whose noise is not to be learned."""


def fit_network(
    features: Floats | _Weights,
    wanted: Floats,
    sizes: Floats,
    target: Target,
    training: Training = OF_ROWS,
) -> Network:
    """Return the network that says *wanted* of *features* best.

    Args:
        features: Shape (features, rows).
        wanted: Logarithms, shape (rows,).
        sizes: What the range of the rows is told by, shape (sizes, any rows).
        target: The GPU.
        training: How.

    """
    mean = features.mean(axis=1, keepdims=True)
    spread = features.std(axis=1, keepdims=True)
    scale = np.where(spread > _ALIKE, spread + 1e-6, _NEVER)
    scaled = ((features - mean) / scale).astype(np.float32)
    layers = _train(scaled.T.copy(), wanted.astype(np.float32), training)
    return Network(
        mean.astype(np.float32),
        scale.astype(np.float32),
        tuple((weights.T.copy(), bias[:, np.newaxis]) for weights, bias in layers),
        sizes.min(axis=1, keepdims=True),
        sizes.max(axis=1, keepdims=True),
        (float(wanted.min()), float(wanted.max())),
        (target.device.compute_capability, target.device.sm_count),
    )


def write_networks(networks: Mapping[tuple[str, str], Network], path: Path) -> None:
    """Write networks by target name and type."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for (target, dtype), network in sorted(networks.items()):
        key = f"{target}/{dtype}"
        arrays[f"{key}/mean"] = network.mean
        arrays[f"{key}/scale"] = network.scale
        arrays[f"{key}/sizes"] = np.stack([network.least, network.most])
        arrays[f"{key}/limits"] = np.array(network.limits)
        arrays[f"{key}/chip"] = np.array(network.chip)
        for index, (weights, bias) in enumerate(network.layers):
            arrays[f"{key}/weights{index}"] = weights
            arrays[f"{key}/bias{index}"] = bias
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _train(
    inputs: _Weights, wanted: _Weights, training: Training
) -> list[tuple[_Weights, _Weights]]:
    """Return layers trained by Adam, at a rate that falls to zero."""
    random = np.random.default_rng(0)
    layers = _first_layers(random, (inputs.shape[1], *training.hidden, 1))
    flat = [array for layer in layers for array in layer]
    means = [(np.zeros_like(array), np.zeros_like(array)) for array in flat]
    batches = len(inputs) // _BATCH
    steps = training.epochs * batches
    order = np.arange(0)
    for step in range(steps):
        if step % batches == 0:
            order = random.permutation(len(inputs))
        at = order[step % batches * _BATCH :][:_BATCH]
        slopes = _slopes(layers, inputs[at], wanted[at], training)
        rate = _RATE * (1 + np.cos(np.pi * step / steps)) / 2
        for array, slope, moments in zip(flat, slopes, means, strict=True):
            _move(array, slope, moments, rate, step + 1)
    return layers


def _first_layers(
    random: np.random.Generator, widths: tuple[int, ...]
) -> list[tuple[_Weights, _Weights]]:
    layers: list[tuple[_Weights, _Weights]] = []
    for before, after in itertools.pairwise(widths):
        spread = 1 / np.sqrt(before)
        weights = random.normal(0, spread, (before, after)).astype(np.float32)
        layers.append((weights, np.zeros(after, dtype=np.float32)))
    return layers


def _slopes(
    layers: list[tuple[_Weights, _Weights]],
    inputs: _Weights,
    wanted: _Weights,
    training: Training,
) -> list[_Weights]:
    """Return the slope of the loss along each weight and bias, in order."""
    values: list[_Weights] = [inputs]
    for weights, bias in layers[:-1]:
        values.append(np.tanh(values[-1] @ weights + bias))
    weights, bias = layers[-1]
    error = (values[-1] @ weights + bias)[:, 0] - wanted
    steep = error / np.sqrt(error * error + training.smooth**2) / len(wanted)
    slope: _Weights = steep[:, np.newaxis].astype(np.float32)
    found: list[_Weights] = []
    for index in range(len(layers) - 1, -1, -1):
        weights, _ = layers[index]
        along = values[index].T @ slope + training.decay * weights
        found.append(np.asarray(slope.sum(axis=0), dtype=np.float32))
        found.append(np.asarray(along, dtype=np.float32))
        slope = (slope @ weights.T) * (1 - np.square(values[index]))
    return found[::-1]


def _move(
    array: _Weights,
    slope: _Weights,
    means: tuple[_Weights, _Weights],
    rate: float,
    count: int,
) -> None:
    """Move *array* against its slope, and the means of slope and square, in place."""
    mean, square = means
    mean += (1 - _FADE) * (slope - mean)
    square += (1 - _FADE_SQUARE) * (slope * slope - square)
    size = np.sqrt(square / (1 - _FADE_SQUARE**count))
    moved = mean / (1 - _FADE**count)
    array -= (rate * moved / (size + _TINY)).astype(np.float32)
