"""What ops return on tensors without elements, as on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.torch.meta.autocast import autocast_on_cuda
    from perfc.frontends.torch.meta.counts import Counts, UnknownValueError, counting
    from perfc.frontends.torch.meta.kernels import (
        any_number,
        run_weightless,
        weightless,
    )
    from perfc.frontends.torch.meta.schema import (
        Schema,
        described,
        plain,
        schema_of,
        tensor_type,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "autocast": ("autocast_on_cuda",),
            "counts": ("Counts", "UnknownValueError", "counting"),
            "kernels": ("any_number", "run_weightless", "weightless"),
            "schema": ("Schema", "described", "plain", "schema_of", "tensor_type"),
        },
    )

__all__ = [
    "Counts",
    "Schema",
    "UnknownValueError",
    "any_number",
    "autocast_on_cuda",
    "counting",
    "described",
    "plain",
    "run_weightless",
    "schema_of",
    "tensor_type",
    "weightless",
]
