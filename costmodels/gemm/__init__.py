"""GEMMs: tiles, the machine they run on, what measured rows say besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.gemm.companion_kernels import (
        BESIDE,
        without_beside,
        without_beside_one,
    )
    from perfc.costmodels.gemm.formula import (
        Gemms,
        simt_second,
        simt_seconds,
        tensor_seconds,
        tile_spread,
    )
    from perfc.costmodels.gemm.gemm import (
        GEMM,
        gemms_of,
        math_second,
        math_seconds,
        sized,
        times_computed,
    )
    from perfc.costmodels.gemm.layouts import tensor_kernels_of_one
    from perfc.costmodels.gemm.machine import Size
    from perfc.costmodels.gemm.one_tile import Tile, tile_second
    from perfc.costmodels.gemm.parameters import (
        EIGHT_BITS,
        QUANTISED,
        SIMT_MODES,
        TENSOR_KERNELS,
        TF32,
        GemmParameters,
        is_wide,
        kernels_of,
        simt_parameters,
        tensor_parameters,
    )
    from perfc.costmodels.gemm.residual import (
        LONGER,
        REACH,
        RESIDUAL_FILE,
        Known,
        features_of,
        has_network,
        ranged,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "companion_kernels": ("BESIDE", "without_beside", "without_beside_one"),
            "gemm": (
                "GEMM",
                "gemms_of",
                "math_second",
                "math_seconds",
                "sized",
                "times_computed",
            ),
            "layouts": ("tensor_kernels_of_one",),
            "machine": ("Size",),
            "one_tile": ("Tile", "tile_second"),
            "parameters": (
                "EIGHT_BITS",
                "GemmParameters",
                "QUANTISED",
                "SIMT_MODES",
                "TENSOR_KERNELS",
                "TF32",
                "is_wide",
                "kernels_of",
                "simt_parameters",
                "tensor_parameters",
            ),
            "formula": (
                "Gemms",
                "simt_second",
                "simt_seconds",
                "tensor_seconds",
                "tile_spread",
            ),
            "residual": (
                "Known",
                "LONGER",
                "REACH",
                "RESIDUAL_FILE",
                "features_of",
                "has_network",
                "ranged",
            ),
        },
    )

__all__ = [
    "BESIDE",
    "EIGHT_BITS",
    "GEMM",
    "LONGER",
    "QUANTISED",
    "REACH",
    "RESIDUAL_FILE",
    "SIMT_MODES",
    "TENSOR_KERNELS",
    "TF32",
    "GemmParameters",
    "Gemms",
    "Known",
    "Size",
    "Tile",
    "features_of",
    "gemms_of",
    "has_network",
    "is_wide",
    "kernels_of",
    "math_second",
    "math_seconds",
    "ranged",
    "simt_parameters",
    "simt_second",
    "simt_seconds",
    "sized",
    "tensor_kernels_of_one",
    "tensor_parameters",
    "tensor_seconds",
    "tile_second",
    "tile_spread",
    "times_computed",
    "without_beside",
    "without_beside_one",
]
