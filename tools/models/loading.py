"""How a model was loaded, to load it once more in another type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from perfc.passes.precision import ConvertDtype

Loaded = TypeVar("Loaded")


@attrs.frozen(eq=False)
class Again(Generic[Loaded]):
    """A call that loaded a model.

    It holds what the model was made from, which other processes have not: pickled, it
    is None.

    Attributes:
        load: What was called.
        options: Its arguments, but for sizes.
        convert: Puts a conversion among them.

    """

    load: Callable[..., Loaded]
    options: Mapping[str, Any]
    convert: Callable[[Mapping[str, Any], ConvertDtype], Mapping[str, Any]]

    def converted(self, conversion: ConvertDtype, dims: Mapping[str, int]) -> Loaded:
        """Load the model with a conversion, at these dimensions."""
        return self.load(**self.convert(self.options, conversion), dims=dims)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def by_pass(options: Mapping[str, Any], conversion: ConvertDtype) -> Mapping[str, Any]:
    """Convert by the first of the transforms."""
    return {**options, "transforms": [conversion, *options["transforms"]]}


def by_name(options: Mapping[str, Any], conversion: ConvertDtype) -> Mapping[str, Any]:
    """Convert by the name of the type."""
    return {**options, "dtype": conversion.dtype_name}
