"""Loaded models whose linear layers are to have fewer than 16 bits."""

from __future__ import annotations

import attrs

from perfc.tools.models.model import Model
from perfc.tools.models.pass_order import conversions, narrowings
from perfc.tools.request import TRAINING


def narrowed(model: Model, dtype: str) -> Model:
    """Return a copy of a model whose linear layers have one of `NARROW_DTYPES`.

    A training step is loaded once more.
    """
    if model.mode == TRAINING and model.again is not None:
        return model.again.converted(dtype, model.dims)
    made = model
    for conversion in conversions(dtype, narrow=True):
        if made.dtype != conversion.converts_to:
            made = made.converted(conversion)
    changed = made.rewritten(*narrowings(dtype, model.mode))
    return attrs.evolve(changed, dtype=dtype)
