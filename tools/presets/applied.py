"""A request with its preset, where it has one: others load nothing of presets."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.passes import Pass
from perfc.tools.request import Request


def with_preset(
    request: Request, ran: Sequence[Pass] | None = None, loaded_by: str = ""
) -> Request:
    """Return a request with what its preset says besides.

    Args:
        request: What is asked for.
        ran: Passes that a model has been loaded by; None for one that is not loaded.
        loaded_by: The preset that a model has been loaded by.

    """
    if request.preset is None:
        return request
    from perfc.tools.presets.merge import merged

    return merged(request, ran, loaded_by)
