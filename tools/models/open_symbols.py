"""Dimensions that a model leaves open, before it is bound."""

from __future__ import annotations

from perfc.tools.models.binding import classify_program
from perfc.tools.models.model import Model
from perfc.tools.models.program import is_factory, read_program


def input_symbols(model: object) -> frozenset[str] | None:
    """Return the dimensions that a model leaves open, as its inputs have them.

    Args:
        model: A loaded model, or the text of one.

    Returns:
        Their names; None of what only PyTorch can say them of.

    """
    if isinstance(model, Model):
        program = model.unbound
    elif isinstance(model, str) and not is_factory(model):
        program = read_program(model)
    else:
        return None
    classified = classify_program(program, inputs_only=True)
    return frozenset(name for found in classified if found for name in found.every)
