"""Errors of kernels' times as named factors: who shares each, and how large it is.

The logarithm of a kernel's time is off by a sum of independent normal terms, one for
each factor that it has; all kernels of a factor have one draw of it. Columns are of
distinct kernels, so that what durations of a step are off by is one product with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels import COLLECTIVES, Estimate
from perfc.costmodels.kernels import OF_TARGET, Floats
from perfc.ir import Kernel

FORMULA, COLLECTIVE = "formula", "collective"
"""What kernels of one cost model share, and what collectives do."""

Factor = tuple[str, str]
"""Why times are off, and what is off alike."""


@attrs.frozen(eq=False)
class ErrorFactors:
    """Shared errors of distinct kernels.

    Attributes:
        names: The factors.
        sigma: Of each factor and kernel, a standard deviation of the logarithm of its
            time; shape (factors, kernels).

    """

    names: tuple[Factor, ...]
    sigma: Floats

    @classmethod
    def of(
        cls, costs: Sequence[Estimate], kernels: Sequence[Sequence[Kernel]], where: str
    ) -> ErrorFactors:
        """Return the factors of some tables of kernels, one table after the other.

        Args:
            costs: Estimate of each table.
            kernels: The kernels of each table.
            where: The target.

        """
        kinds: dict[tuple[str, str], int] = {}
        models: dict[Factor, int] = {}
        kind: list[int] = []
        model: list[int] = []
        for cost, table in zip(costs, kernels, strict=True):
            for kernel, name in zip(table, cost.model, strict=True):
                op = kernel.op
                key = op, kernel.math or kernel.dtype
                kind.append(kinds.setdefault(key, len(kinds)))
                said = COLLECTIVE if op in COLLECTIVES else FORMULA
                model.append(models.setdefault((said, name), len(models)))
        parts = [(list(models), model, [cost.sigma_shared for cost in costs])]
        for number, name in enumerate(OF_TARGET):
            each = [cost.sigma_target[number] for cost in costs]
            parts.append(([(name, " ".join(key)) for key in kinds], kind, each))
        names: list[Factor] = []
        rows = [np.empty((0, len(kind)))]
        for factors, at, columns in parts:
            column = np.concatenate(columns)
            if not column.any():  # as of most steps the clock's, and the chip's
                continue
            sigma = np.zeros((len(factors), len(at)))
            sigma[at, np.arange(len(at))] = column
            some = np.flatnonzero(sigma.any(axis=1))
            rows.append(sigma[some])
            found = [factors[number] for number in some.tolist()]
            names += [(factor, f"{what} on {where}") for factor, what in found]
        return cls(tuple(names), np.concatenate(rows))

    def weights(self, seconds: Floats) -> Floats:
        """Return the seconds by which one sigma of each factor moves a sum of kernels.

        Args:
            seconds: What all launches of each kernel take, shape (..., kernels).

        Returns:
            Shape (..., factors).

        """
        found: Floats = seconds @ self.sigma.T
        return found

    def moves(self, seconds: Floats) -> Floats:
        """Return how far each kernel moves where the sum of all moves by one sigma.

        Each factor is moved by its part in the uncertainty of the sum (the design point
        of a first-order reliability analysis), which is quadrature for that sum.

        Args:
            seconds: What all launches of each kernel take, shape (..., kernels).

        Returns:
            Logarithms, shape (..., kernels).

        """
        weights = self.weights(seconds)
        whole = np.sqrt(np.square(weights).sum(axis=-1, keepdims=True))
        parts = np.divide(weights, whole, out=np.zeros_like(weights), where=whole > 0)
        found: Floats = parts @ self.sigma
        return found

    def shares(self, seconds: Floats) -> Mapping[Factor, float]:
        """Return the share of each factor in the variance of the sum of kernels.

        Args:
            seconds: What all launches of each kernel take, shape (kernels,).

        """
        squares = np.square(self.weights(seconds))
        whole = math.fsum(squares.tolist())
        if not whole:
            return {}
        return dict(zip(self.names, (squares / whole).tolist(), strict=True))
