"""Steps that have a loss and gradients, but no optimizer: joint graphs.

A source returns the gradient of a parameter `w` as `w.grad`; a sparse one as two
values, indices and rows, whose names begin with that.
"""

from __future__ import annotations

import re

from perfc.ir import Graph, Value
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.autodiff import Rows
from perfc.passes.training.optimizer import Parameters

_GRADIENT = re.compile(r"(.+)\.grad(\..+)?")
_PARTS_OF_ROWS = 2


def take_gradients(graph: Graph) -> Parameters:
    """Return the gradients of parameters; the graph returns them no longer."""
    if graphs.has_optimizer(graph):
        msg = f"{graph}: is a training step already, and has its optimizer"
        raise UnsupportedModelError(msg)
    returned: dict[str, list[Value]] = {}
    for value in graph.outputs:
        match = _GRADIENT.fullmatch(value.name)
        if match is not None:
            returned.setdefault(match[1], []).append(value)
    found = {p: returned[p.name] for p in graph.parameters if p.name in returned}
    if not found:
        msg = (
            f"{graph}: is a training step already, and returns no gradients for an "
            "optimizer: they are outputs w.grad of a parameter w"
        )
        raise UnsupportedModelError(msg)
    taken = {value for values in found.values() for value in values}
    graph.outputs = [value for value in graph.outputs if value not in taken]
    return Parameters(
        {p: values[0] for p, values in found.items() if len(values) == 1},
        {p: Rows(*v) for p, v in found.items() if len(v) == _PARTS_OF_ROWS},
    )
