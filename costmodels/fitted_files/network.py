"""Small networks that say by which factor measured rows differ from a model."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import le
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import Target

_AT_ONCE = 256
"""Rows at a time, which stay in a CPU's cache."""

Weights = NDArray[np.float32]

_SINGLE = np.dtype(np.float32)


@attrs.frozen(eq=False)
class Network:
    """The correction of one type on one GPU: layers of tanh.

    Attributes:
        mean: Of each feature; shape (features, 1), as `scale`.
        scale: What its deviation is divided by.
        layers: Weights and biases of each layer, shapes (out, in) and (out, 1).
        least: Sizes below which nothing was measured, shape (sizes, 1).
        most: The same above.
        limits: Least and most logarithm that measured rows asked for.
        chip: Compute capability and number of SMs of the GPU.

    """

    mean: Weights
    scale: Weights
    layers: tuple[tuple[Weights, Weights], ...]
    least: Floats
    most: Floats
    limits: tuple[float, float]
    chip: tuple[str, int]

    @functools.cached_property
    def _rows(self) -> tuple[list[tuple[Weights, Weights]], Weights, float]:
        """The layers for rows, the first of which scales the features; and the last.

        Weights of shape (in, out), biases (out,); of the last (in,), and its bias.
        """
        weights, bias = (part.astype(np.float64) for part in self.layers[0])
        weights /= self.scale[:, 0]
        bias -= weights @ self.mean
        first = (weights.astype(np.float32), bias.astype(np.float32))
        *layers, (last, last_bias) = (first, *self.layers[1:])
        turned = [(np.ascontiguousarray(each.T), own[:, 0]) for each, own in layers]
        return turned, last[0], float(last_bias[0, 0])

    def __call__(self, features: Floats | Weights) -> Floats:
        """Return the logarithm of measured / modelled, shape (rows,).

        That of a row is the same, to the last bit, whatever the others are: BLAS sums
        in another order when a matrix has other sides, so each row is a product of its
        own, of a vector and a matrix. Those are so small that they start no threads.
        """
        rows = np.ascontiguousarray(features.T, np.float32)[:, np.newaxis]
        found = np.empty(len(rows))
        layers, last, last_bias = self._rows
        for at in range(0, len(rows), _AT_ONCE):
            values = rows[at : at + _AT_ONCE]
            for weights, bias in layers:
                values = values @ weights
                values += bias
                np.tanh(values, out=values)
            found[at : at + _AT_ONCE] = (values @ last)[:, 0]
        found += last_bias
        limited: Floats = np.clip(found, *self.limits)
        return limited

    def of_one(self, features: Sequence[float]) -> float:
        """Return the network's output for one row."""
        # Half the time that `np.array` takes.
        values: Weights = np.frombuffer(self._pack(*features), _SINGLE)
        layers, last, last_bias = self._rows
        for weights, bias in layers:
            values = values.dot(weights)
            values += bias
            np.tanh(values, values)
        low, high = self.limits
        return min(max(float(values.dot(last)) + last_bias, low), high)

    @functools.cached_property
    def _pack(self) -> Callable[..., bytes]:
        """What writes features in single precision."""
        return struct.Struct(f"{len(self.mean)}f").pack

    def covers(self, sizes: tuple[float, ...]) -> bool:
        """Whether sizes, as `least` has them, were measured."""
        low, high = self._range
        return all(map(le, low, sizes)) and all(map(le, sizes, high))

    @functools.cached_property
    def _range(self) -> tuple[list[float], list[float]]:
        return self.least[:, 0].tolist(), self.most[:, 0].tolist()


class _Networks(Mapping[tuple[str, str], Network]):
    """The networks of a file, each of which is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, dict[tuple[str, str], Network]()
        self._parts: dict[tuple[str, str], list[str]] = {}
        with np.load(path) as stored:
            for part in sorted(stored.files):
                name, dtype, _ = part.split("/")
                self._parts.setdefault((name, dtype), []).append(part)

    def __getitem__(self, key: tuple[str, str]) -> Network:
        if key not in self._read:
            parts = self._parts[key]
            with np.load(self._path) as stored:
                arrays = {part: stored[part] for part in parts}
            self._read[key] = _network("/".join(key), arrays)
        return self._read[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


@functools.cache
def networks(path: Path) -> Mapping[tuple[str, str], Network]:
    """Return the networks of a file by target name and type."""
    return _Networks(path)


def _network(key: str, arrays: Mapping[str, NDArray[np.generic]]) -> Network:
    def part(name: str) -> Weights:
        return np.asarray(arrays[f"{key}/{name}"], dtype=np.float32)

    count = sum(name.startswith(f"{key}/weights") for name in arrays)
    layers = tuple((part(f"weights{i}"), part(f"bias{i}")) for i in range(count))
    ends = part("sizes").astype(np.float64)
    low, high = part("limits").tolist()
    capability, sm_count = arrays[f"{key}/chip"].tolist()
    chip = str(capability), int(sm_count)
    return Network(
        part("mean"), part("scale"), layers, ends[0], ends[1], (low, high), chip
    )


def network_of(path: Path, target: Target, dtype: str) -> tuple[str, Network] | None:
    """Return the network of a type that holds on a GPU, and which GPU was measured.

    That GPU, or else one of the same chip, with as many SMs: it takes the same kernels
    in as many waves, and differs in clocks and memory, which the model knows.
    """
    device = target.device
    known = networks(path)
    if (own := known.get((device.name, dtype))) is not None:
        return device.name, own
    chip = device.compute_capability, device.sm_count
    alike = (
        (name, known[name, stored])
        for name, stored in known
        if stored == dtype and known[name, stored].chip == chip
    )
    return next(alike, None)
