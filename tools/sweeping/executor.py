"""Who prices the parts of a sweep."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence

from perfc.tools.sweeping.pricing import Priced
from perfc.tools.sweeping.space import Configuration, Space

Part = tuple[Configuration, ...]


class Executor(abc.ABC):
    """Prices the parts of a sweep, in any order."""

    @property
    @abc.abstractmethod
    def workers(self) -> int:
        """How many parts it may price at once."""

    @abc.abstractmethod
    def run(self, space: Space, parts: Sequence[Part]) -> Iterator[Priced]:
        """Yield the findings of each part, as they come."""
