"""What measured rows say of sizes near theirs, beyond a model's terms.

Gaussian process regression, or kriging (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, eq. 2.25), of ln(measured / modelled): two kernels differ from
the model alike by

    exp(-(distance / octaves)^2 / 2) * unlike ^ (words that differ)

where the distance is that of the logarithms of their sizes, to base 2. Far from all
rows nothing is said: the factor is 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.machine.gemm_sizes import sizes_of_gemm
from perfc.ir import AttrValue, Kernel, PerfcError, Record

Floats: TypeAlias = NDArray[np.float64]

MOST = constants("kernels").number("near_rows_most")
"""Logarithm of the largest factor."""


_NEAR = 0.5
"""Likeness from which on a kernel is said to lie near a row."""

_NAMED = 2
"""Rows that are named."""

_AT_A_TIME = 1 << 20
"""Pairs of a kernel and a row whose likeness is held at a time."""

NO_WORD = "-"
"""What a profile has for an empty word."""


@attrs.frozen(eq=False)
class Place:
    """Places of kernels of one op.

    Attributes:
        sizes: Logarithms to base 2 of what they are sized by, shape (kernels, sizes).
        words: How they are computed, shape (kernels, words).

    """

    sizes: Floats
    words: NDArray[np.str_]

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Place:
        """Return where *kernels*, all of one op, lie."""
        found = [_sizes(kernel) for kernel in kernels]
        sizes = np.log2(1 + np.array(found, dtype=np.float64).reshape(len(found), -1))
        names = _WORDS.get(kernels[0].op, _KIND) if kernels else ()
        words = [[_word(k.params.get(name)) for name in names] for k in kernels]
        return cls(sizes, np.array(words, dtype=np.str_).reshape(len(words), -1))

    def parts(self, others: int) -> Iterator[Place]:
        """Yield kernels so few at a time that their likeness to *others* is small."""
        count = max(_AT_A_TIME // others, 1)
        for start in range(0, len(self.sizes), count):
            rows = slice(start, start + count)
            yield Place(self.sizes[rows], self.words[rows])

    def likeness(self, other: Place, octaves: float, unlike: float) -> Floats:
        """Return how alike kernels and others are, shape (kernels, others)."""
        logs = np.zeros((len(self.sizes), len(other.sizes)))
        for own, others in zip(self.sizes.T, other.sizes.T, strict=True):
            apart = np.subtract.outer(own / octaves, others / octaves)
            logs -= np.square(apart, out=apart) / 2
        found: Floats = np.exp(logs, out=logs)
        for words, those in zip(self.words.T, other.words.T, strict=True):
            found[words[:, np.newaxis] != those] *= unlike
        return found


@attrs.frozen
class NearRows:
    """The rows of one family.

    Attributes:
        octaves: How far a row tells of others.
        unlike: How much less it does for each word that differs, 0 to 1.
        weights: Of each row; shape (rows,).
        sizes: Of each row, logarithms to base 2; shape (rows, sizes).
        words: Of each row; shape (rows, words).

    """

    octaves: float
    unlike: float
    weights: tuple[float, ...]
    sizes: tuple[tuple[float, ...], ...]
    words: tuple[tuple[str, ...], ...]

    def log_factor(self, kernels: Sequence[Kernel]) -> Floats:
        """Return ln(measured / modelled) of a family's *kernels*, shape (kernels,)."""
        place, rows = Place.of(kernels), self.place
        found = tuple(part.shape[1] for part in (rows.sizes, rows.words))
        expected = tuple(part.shape[1] for part in (place.sizes, place.words))
        if found != expected:
            msg = (
                f"profile: near.rows of op {kernels[0].op!r} have {found[0]} sizes and "
                f"{found[1]} words, expected {expected[0]} and {expected[1]}; "
                "calibrate again"
            )
            raise PerfcError(msg)
        weights = np.array(self.weights)
        logs = [
            part.likeness(rows, self.octaves, self.unlike) @ weights
            for part in place.parts(len(weights))
        ]
        factor: Floats = np.clip(np.concatenate(logs), -MOST, MOST)
        return factor

    def names(self, kernels: Sequence[Kernel]) -> list[str]:
        """Return the rows that *kernels* lie nearest to; nothing far from all."""
        place, rows = Place.of(kernels), self.place
        found: list[str] = []
        for part in place.parts(len(self.weights)):
            likeness = part.likeness(rows, self.octaves, self.unlike)
            nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :_NAMED]
            for number, listed in enumerate(nearest.tolist()):
                near = [row for row in listed if likeness[number, row] >= _NEAR]
                found.append(" and ".join(map(self._name, near)))
        return found

    def _name(self, row: int) -> str:
        sizes = (round(2**size - 1) for size in self.sizes[row])
        words = [word for word in self.words[row] if word not in {"", "True"}]
        return " ".join(("x".join(str(size) for size in sizes if size), *words))

    @functools.cached_property
    def place(self) -> Place:
        """Places of the rows."""
        count = len(self.weights)
        return Place(
            np.array(self.sizes, dtype=np.float64).reshape(count, -1),
            np.array(self.words, dtype=np.str_).reshape(count, -1),
        )


def _sizes(kernel: Kernel) -> Sequence[float]:
    sizes_of = _SIZES.get(kernel.op)
    return (
        (kernel.work.bytes_read, kernel.work.bytes_written)
        if sizes_of is None
        else sizes_of(kernel)
    )


def _of_matrix(kernel: Kernel) -> Sequence[float]:
    return _number(kernel.params, "rows"), _number(kernel.params, "cols")


def _of_conv(kernel: Kernel) -> Sequence[float]:
    groups = kernel.params.integer("groups", 1)
    _, rows, columns, depth = sizes_of_gemm(kernel)
    return rows, max(columns // groups, 1), depth, groups


def _of_bags(kernel: Kernel) -> Sequence[float]:
    """Return bags, what a table has, and all lookups."""
    if "tables" not in kernel.params:
        return 0.0, 0.0, 0.0, 0.0
    tables = kernel.params.records("tables")
    batch = kernel.params.integer("batch")
    first = tables[0]
    pooling = sum(table.integer("pooling") for table in tables)
    rows, dim = first.integer("rows"), first.integer("dim")
    return batch * len(tables), rows, dim, batch * pooling


def _of_gather(kernel: Kernel) -> Sequence[float]:
    """Return rows that are looked up, the bytes of one, and all that there are."""
    params = kernel.params
    count = math.prod(params.integers("indices")) if "indices" in params else 0
    held = math.prod(params.integers("shape")) if "shape" in params else 0
    return count, kernel.work.bytes_written / max(count, 1), held


def _of_concat(kernel: Kernel) -> Sequence[float]:
    shapes = kernel.params.get("shapes")
    count = len(shapes) if isinstance(shapes, tuple) else 0
    return count, kernel.work.bytes_written / max(count, 1)


def _of_transpose(kernel: Kernel) -> Sequence[float]:
    shape = kernel.params.integers("shape") if "shape" in kernel.params else (1,)
    return math.prod(shape), shape[-1]


def _of_step(kernel: Kernel) -> Sequence[float]:
    return _number(kernel.params, "tensors"), _number(kernel.params, "elements")


def _word(value: AttrValue | None) -> str:
    """Return a parameter as one word; one that is not given says no."""
    said = "" if value is None or value is False else str(value)
    return "".join(said.split())


def _number(params: Record, name: str, default: float = 0.0) -> float:
    value: AttrValue | None = params.get(name)
    return float(value) if isinstance(value, int | float) else default


_SIZES: Mapping[str, Callable[[Kernel], Sequence[float]]] = {
    "gemm": sizes_of_gemm,
    "attention": sizes_of_gemm,
    "conv2d": _of_conv,
    "conv3d": _of_conv,
    "softmax": _of_matrix,
    "layer_norm": _of_matrix,
    "batch_norm": _of_matrix,
    "reduction": _of_matrix,
    "embedding_bag": _of_bags,
    "gather": _of_gather,
    "concat": _of_concat,
    "transpose": _of_transpose,
    "optimizer_step": _of_step,
}
"""Functions for sizes of kernels by op; others by the bytes that they move."""

_KIND = ("kind",)

_WORDS: Mapping[str, Sequence[str]] = {
    "gemm": ("layout", "bias"),
    "conv2d": ("kernel", "stride"),
    "conv3d": ("kernel", "stride"),
    "attention": ("algorithm", "causal"),
    "reduction": ("kind", "axis"),
    "embedding_bag": ("optimizer", "weighted"),
    "gather": (),
    "concat": ("axis",),
    "transpose": ("perm",),
    "optimizer_step": ("kind", "algorithm"),
}
"""Parameters that say how a kernel is computed, by op; `kind` of others."""
