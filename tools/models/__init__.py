"""Models as users name them, and what is done to them before an analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.models.binding import Dimensions
    from perfc.tools.models.loading import Again, by_name
    from perfc.tools.models.model import Model, load, prepare
    from perfc.tools.models.module_names import common_name, common_place
    from perfc.tools.models.onnx_export import export_onnx
    from perfc.tools.models.pass_order import (
        INFERENCE,
        MODES,
        TRAINING,
        check_mode,
        check_ranks,
        check_recorded,
        parallel_passes,
        training_passes,
    )
    from perfc.tools.models.program import read_program
    from perfc.tools.models.rank_options import made_passes
    from perfc.tools.models.table_list import is_table_list, read_table_list
    from perfc.tools.models.torch_source import (
        is_factory,
        read_torch,
        require_torch,
        start_torch,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "binding": ("Dimensions",),
            "loading": ("Again", "by_name"),
            "model": ("Model", "load", "prepare"),
            "module_names": ("common_name", "common_place"),
            "onnx_export": ("export_onnx",),
            "pass_order": (
                "INFERENCE",
                "MODES",
                "TRAINING",
                "check_mode",
                "check_ranks",
                "check_recorded",
                "parallel_passes",
                "training_passes",
            ),
            "program": ("read_program",),
            "rank_options": ("made_passes",),
            "table_list": ("is_table_list", "read_table_list"),
            "torch_source": (
                "is_factory",
                "read_torch",
                "require_torch",
                "start_torch",
            ),
        },
    )

__all__ = [
    "INFERENCE",
    "MODES",
    "TRAINING",
    "Again",
    "Dimensions",
    "Model",
    "by_name",
    "check_mode",
    "check_ranks",
    "check_recorded",
    "common_name",
    "common_place",
    "export_onnx",
    "is_factory",
    "is_table_list",
    "load",
    "made_passes",
    "parallel_passes",
    "prepare",
    "read_program",
    "read_table_list",
    "read_torch",
    "require_torch",
    "start_torch",
    "training_passes",
]
