"""Rows that are scored together: how far off predictions are, and their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats, Indices
from perfc.fitting.scores import Z90

KINDS: Mapping[str, str] = {
    "size": "sizes that no fit has seen, of GPUs, sessions and nodes that fits have",
    "session": "a session of measuring that the fit lacks, on a board that it has",
    "board": "another board of a chip that fits have, in another session",
    "architecture": "a GPU, or a node, of which neither fit nor interval has a row",
    "model": "models or their sizes that the fit lacks, measured with those it has",
    "whole step": "whole steps that others published",
    "trace": "recordings of other people's steps, replayed and priced",
}
"""What is unseen, in the order of the table."""


@attrs.frozen(eq=False)
class Group:
    """Rows that are scored together.

    Attributes:
        kind: What of them is unseen, one of `KINDS`.
        name: What they are.
        logs: ln(predicted / measured), shape (rows,); so are the others.
        low: What of its interval is below a prediction, logarithms; None: no interval.
        high: What is above it.
        units: A number each, the same for rows that are off together; None: all apart.
        beside: What others say of the same rows, as `logs`, by their name.
        family: What it is listed under, together with groups of other machines.

    """

    kind: str
    name: str
    logs: Floats
    low: Floats | None = None
    high: Floats | None = None
    units: Indices | None = None
    beside: Mapping[str, Floats] = attrs.field(factory=dict[str, Floats])
    family: str = ""

    @classmethod
    def of(
        cls, kind: str, name: str, logs: Floats, sigma: Floats, **more: Any
    ) -> Group:
        """Return rows with a sigma each, by which intervals are symmetric."""
        return cls(kind, name, logs, Z90 * sigma, Z90 * sigma, **more)

    @classmethod
    def of_pairs(
        cls, kind: str, name: str, pairs: Iterable[Sequence[float]], **more: Any
    ) -> Group:
        """Return rows of (predicted, measured), in one unit, without intervals."""
        predicted, measured = np.array(list(pairs)).reshape(-1, 2).T
        return cls(kind, name, np.log(predicted / measured), **more)

    def __len__(self) -> int:
        return len(self.logs)

    @property
    def held(self) -> NDArray[np.bool_] | None:
        """Whether each row is in its interval; None where none is stated."""
        if self.low is None or self.high is None:
            return None
        return (self.logs <= self.low) & (-self.logs <= self.high)

    @property
    def widths(self) -> Floats | None:
        """Width of each interval over its prediction; None where none is stated."""
        if self.low is None or self.high is None:
            return None
        found: Floats = np.exp(self.high) - np.exp(-self.low)
        return found


def together(groups: Sequence[Group], name: str) -> Group:
    """Return the rows of several groups as one, each group off on its own.

    What only some of them have, as an interval, the whole has not.
    """
    first = groups[0]
    others = [
        who for who in first.beside if all(who in group.beside for group in groups)
    ]
    return Group(
        first.kind,
        name,
        np.concatenate([group.logs for group in groups]),
        _joined([group.low for group in groups]),
        _joined([group.high for group in groups]),
        np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        {who: np.concatenate([g.beside[who] for g in groups]) for who in others},
    )


def _joined(parts: Sequence[Floats | None]) -> Floats | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None
