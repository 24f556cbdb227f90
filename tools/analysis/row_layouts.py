"""How rows of few bits lie in memory: on CPUs as Caffe2 has them, on GPUs as fbgemm."""

from __future__ import annotations

from perfc.costmodels import Target
from perfc.tools.models import Model


def laid_out(model: Model, target: Target) -> Model:
    """Return a model whose tables lie as on a target, where it was not said how.

    A model is loaded for any target, and its tables as they lie on a GPU.
    """
    names = {p.name for p in model.passes}
    if not target.device.synchronous or "quantize" not in names:
        return model
    from perfc.passes.precision import CAFFE2, Quantize

    asked = [p for p in model.passes if isinstance(p, Quantize)]
    stores = any(p.embeddings or p.keep for p in asked)
    if not stores or any(p.rows for p in asked):
        return model
    return model.rewritten(Quantize(rows=CAFFE2))
