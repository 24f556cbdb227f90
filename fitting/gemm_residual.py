"""The networks of `costmodels/gemm_residual.py`, from measured rows of one GPU each.

Adam on the mean of |ln(measured / predicted)|, smoothed at zero, with weights that
decay: the same result every time on the same machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Network, features_of, ranged
from perfc.fitting.gemm import ProductRows

Floats: TypeAlias = NDArray[np.float64]
_Weights: TypeAlias = NDArray[np.float32]

HIDDEN = (64, 48)
"""Units of the layers between."""

EPOCHS = 250
_BATCH = 256
_RATE = 4e-3
_DECAY = 5e-5
_SMOOTH = 0.02
"""Errors smaller than this count by their square."""

_SEEN = 1.5
"""Kernels longer than so many times what the host takes beside them are seen in rows of
event pairs."""

_LEAST_SHARE = 0.1
"""Of the model's time, at which a row counts that says less."""

_EVER_S = 1e9
"""More than any kernel takes."""

_ALIKE, _NEVER = 0.05, 1e12
"""Features that spread less do not tell rows apart; what they are divided by."""

_FADE, _FADE_SQUARE = 0.9, 0.999
_TINY = 1e-8
"""Adam's constants."""


def fit_residual(rows: ProductRows, modelled_s: Floats) -> Network:
    """Return the network that corrects *modelled_s*, the kernels' times, best.

    Of event pairs those kernels count that the host's call does not hide; the network
    is then of kernels that long.
    """
    seen = np.flatnonzero(modelled_s > _SEEN * rows.beside_s)
    rows, modelled_s = rows.take(seen), modelled_s[seen]
    features = features_of(modelled_s, rows.products, rows.target)
    least_s = _LEAST_SHARE * modelled_s
    wanted = np.log(np.maximum(rows.measured_s - rows.before_s, least_s) / modelled_s)
    network = fit_network(features, wanted, ranged(modelled_s, rows.products))
    if rows.simt:
        return network
    # CUDA graphs hide no kernel, and the layout is not said of rows on tensor cores.
    least, most = network.least.copy(), network.most.copy()
    least[5:], most[5:] = 0.0, [[_EVER_S], [1.0]]
    return attrs.evolve(network, least=least, most=most)


def fit_network(features: Floats | _Weights, wanted: Floats, sizes: Floats) -> Network:
    """Return the network that says *wanted* of *features* best.

    Args:
        features: Shape (features, rows).
        wanted: Logarithms, shape (rows,).
        sizes: What the range of the rows is told by, shape (sizes, rows).

    """
    mean = features.mean(axis=1, keepdims=True)
    spread = features.std(axis=1, keepdims=True)
    scale = np.where(spread > _ALIKE, spread + 1e-6, _NEVER)
    scaled = ((features - mean) / scale).astype(np.float32)
    layers = _train(scaled.T, wanted.astype(np.float32))
    return Network(
        mean.astype(np.float32),
        scale.astype(np.float32),
        tuple((weights.T.copy(), bias[:, np.newaxis]) for weights, bias in layers),
        sizes.min(axis=1, keepdims=True),
        sizes.max(axis=1, keepdims=True),
        (float(wanted.min()), float(wanted.max())),
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
        for index, (weights, bias) in enumerate(network.layers):
            arrays[f"{key}/weights{index}"] = weights
            arrays[f"{key}/bias{index}"] = bias
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _train(inputs: _Weights, wanted: _Weights) -> list[tuple[_Weights, _Weights]]:
    """Return layers trained by Adam, at a rate that falls to zero."""
    random = np.random.default_rng(0)
    layers = _first_layers(random, inputs.shape[1])
    flat = [array for layer in layers for array in layer]
    means = [(np.zeros_like(array), np.zeros_like(array)) for array in flat]
    batches = len(inputs) // _BATCH
    order = np.arange(0)
    for step in range(EPOCHS * batches):
        if step % batches == 0:
            order = random.permutation(len(inputs))
        at = order[step % batches * _BATCH :][:_BATCH]
        slopes = _slopes(layers, inputs[at], wanted[at])
        share = step / (EPOCHS * batches)
        rate = _RATE * (1 + np.cos(np.pi * share)) / 2
        for array, slope, moments in zip(flat, slopes, means, strict=True):
            _move(array, slope, moments, rate, step + 1)
    return layers


def _first_layers(
    random: np.random.Generator, inputs: int
) -> list[tuple[_Weights, _Weights]]:
    widths = (inputs, *HIDDEN, 1)
    layers: list[tuple[_Weights, _Weights]] = []
    for before, after in itertools.pairwise(widths):
        spread = 1 / np.sqrt(before)
        weights = random.normal(0, spread, (before, after)).astype(np.float32)
        layers.append((weights, np.zeros(after, dtype=np.float32)))
    return layers


def _slopes(
    layers: list[tuple[_Weights, _Weights]], inputs: _Weights, wanted: _Weights
) -> list[_Weights]:
    """Return the slope of the loss along each weight and bias, in order."""
    values: list[_Weights] = [inputs]
    for weights, bias in layers[:-1]:
        values.append(np.tanh(values[-1] @ weights + bias))
    weights, bias = layers[-1]
    error = (values[-1] @ weights + bias)[:, 0] - wanted
    steep = error / np.sqrt(error * error + _SMOOTH**2) / len(wanted)
    slope: _Weights = steep[:, np.newaxis].astype(np.float32)
    found: list[_Weights] = []
    for index in range(len(layers) - 1, -1, -1):
        weights, _ = layers[index]
        along = values[index].T @ slope + _DECAY * weights
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
