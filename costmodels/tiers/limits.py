"""Resources that work at the same time: the slowest says how long, or how many."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs


def _copied(values: Mapping[str, float]) -> Mapping[str, float]:
    return dict(values)


@attrs.frozen
class Busy:
    """How long each of several resources works on something, side by side.

    Attributes:
        parts: Seconds by resource.

    """

    parts: Mapping[str, float] = attrs.field(converter=_copied, hash=False)

    @property
    def seconds(self) -> float:
        """Until the last of them is done; 0 without any."""
        return max(self.parts.values(), default=0.0)

    @property
    def bound(self) -> str:
        """The resource that takes longest, the first of equals."""
        return max(self.parts, key=lambda name: self.parts[name], default="")


@attrs.frozen
class Rates:
    """How many a second each of several resources allows.

    Attributes:
        parts: Things a second by resource.

    """

    parts: Mapping[str, float] = attrs.field(converter=_copied, hash=False)

    @property
    def per_s(self) -> float:
        """What all of them allow; without end without any."""
        return min(self.parts.values(), default=math.inf)

    @property
    def bound(self) -> str:
        """The resource that allows fewest, the first of equals."""
        return min(self.parts, key=lambda name: self.parts[name], default="")
