"""Location of a node: the place that it comes from."""

from __future__ import annotations

import re

import attrs


@attrs.frozen
class Location:
    """Place that a node comes from.

    Attributes:
        name: What the frontend calls the node.
        module: Path of the module that contains it, as `top_l.0`.
        source: File and line of the model's code.
        phase: `forward`, `backward`, `optimizer` or `loss`.
        origin: The framework call it was exported from, as its exporter wrote
            it: `aten.embedding_bag.padding_idx(%w, %i, ...)`.

    """

    name: str = ""
    module: str = ""
    source: str = ""
    phase: str = "forward"
    origin: str = ""


ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"
"""Origin of what autograd runs to hand a parameter its gradient."""

_AUTOGRAD = re.compile(r"(\w+Backward\d|torch::autograd::CppNode<\w+>)\(%")


def autograd_call(origin: str) -> str:
    """Return the name of the node of autograd that an origin is of; "" for others."""
    match = _AUTOGRAD.match(origin)
    return "" if match is None else match[1]


NOWHERE = Location()
"""The location of a node of which nothing is known."""
LOCATION_FIELDS = tuple(field.name for field in attrs.fields(Location))
