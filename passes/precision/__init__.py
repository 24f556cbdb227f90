"""The types that a model computes in: converted, and cast as autocast does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.precision.autocast import LOW_DTYPES, casts_first
    from perfc.passes.precision.convert_dtype import ConvertDtype, convert
    from perfc.passes.precision.convert_part import PLAIN_FLOATS
    from perfc.passes.precision.fuse_qdq import FuseQdq, unfused
    from perfc.passes.precision.keep_list import LINEAR, TABLE
    from perfc.passes.precision.own_weights import untransposed
    from perfc.passes.precision.quantize import (
        ACTIVATIONS,
        Candidate,
        Quantize,
        candidates,
    )
    from perfc.passes.precision.rates import check_rate
    from perfc.passes.precision.stored_types import (
        CAFFE2,
        FALLBACKS,
        LINEAR_TYPES,
        TABLE_TYPES,
        LinearType,
        linear_type,
        table_type,
    )
    from perfc.passes.precision.train_fp8 import TrainFp8
else:
    __getattr__ = door(
        __name__,
        {
            "autocast": ("LOW_DTYPES", "casts_first"),
            "convert_dtype": ("ConvertDtype", "convert"),
            "convert_part": ("PLAIN_FLOATS",),
            "fuse_qdq": ("FuseQdq", "unfused"),
            "keep_list": ("LINEAR", "TABLE"),
            "own_weights": ("untransposed",),
            "quantize": ("ACTIVATIONS", "Candidate", "Quantize", "candidates"),
            "rates": ("check_rate",),
            "stored_types": (
                "CAFFE2",
                "FALLBACKS",
                "LINEAR_TYPES",
                "LinearType",
                "TABLE_TYPES",
                "linear_type",
                "table_type",
            ),
            "train_fp8": ("TrainFp8",),
        },
    )

__all__ = [
    "ACTIVATIONS",
    "CAFFE2",
    "FALLBACKS",
    "LINEAR",
    "LINEAR_TYPES",
    "LOW_DTYPES",
    "PLAIN_FLOATS",
    "TABLE",
    "TABLE_TYPES",
    "Candidate",
    "ConvertDtype",
    "FuseQdq",
    "LinearType",
    "Quantize",
    "TrainFp8",
    "candidates",
    "casts_first",
    "check_rate",
    "convert",
    "linear_type",
    "table_type",
    "unfused",
    "untransposed",
]
