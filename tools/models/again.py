"""Models loaded once more, in another type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import attrs

from perfc.tools.request import Request

Loaded = TypeVar("Loaded")


@attrs.frozen(eq=False)
class Again(Generic[Loaded]):
    """A request by which a model was loaded, to load it once more in another type.

    It holds what the model was made from, which other processes have not: pickled, it
    is None.

    Attributes:
        load: What loaded it.
        request: The request.

    """

    load: Callable[[Request], Loaded]
    request: Request

    def converted(self, dtype: str, dims: Mapping[str, int]) -> Loaded:
        """Load the model in a type, at these dimensions."""
        asked = attrs.evolve(
            self.request, dtype=dtype, dims=dims, batch=None, pooling=None
        )
        return self.load(asked)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()
