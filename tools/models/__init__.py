"""Models as users name them, and what is done to them before an analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.models.again import Again
    from perfc.tools.models.binding import Dimensions, bind_dimensions
    from perfc.tools.models.model import (
        Change,
        Model,
        load,
        load_request,
        prepare,
    )
    from perfc.tools.models.module_names import common_name, common_place
    from perfc.tools.models.narrow_layers import narrowed
    from perfc.tools.models.onnx_export import export_onnx
    from perfc.tools.models.open_symbols import input_symbols
    from perfc.tools.models.pass_order import (
        NARROW_BASES,
        check_mode,
        check_ranks,
        check_recorded,
        conversions,
        narrowings,
        parallel_passes,
        split_passes,
        training_passes,
    )
    from perfc.tools.models.program import OnnxModel, is_factory, read_program
    from perfc.tools.models.table_list import (
        ListedTable,
        TableList,
        is_table_list,
        read_table_list,
    )
    from perfc.tools.models.tokens import goes_along, tokens_per_sample
    from perfc.tools.models.torch_source import (
        read_torch,
        require_torch,
        start_torch,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "again": ("Again",),
            "binding": ("Dimensions", "bind_dimensions"),
            "model": ("Change", "Model", "load", "load_request", "prepare"),
            "module_names": ("common_name", "common_place"),
            "narrow_layers": ("narrowed",),
            "onnx_export": ("export_onnx",),
            "open_symbols": ("input_symbols",),
            "pass_order": (
                "NARROW_BASES",
                "check_mode",
                "check_ranks",
                "check_recorded",
                "conversions",
                "narrowings",
                "parallel_passes",
                "split_passes",
                "training_passes",
            ),
            "program": ("OnnxModel", "is_factory", "read_program"),
            "table_list": (
                "ListedTable",
                "TableList",
                "is_table_list",
                "read_table_list",
            ),
            "tokens": ("goes_along", "tokens_per_sample"),
            "torch_source": (
                "read_torch",
                "require_torch",
                "start_torch",
            ),
        },
    )

__all__ = [
    "NARROW_BASES",
    "Again",
    "Change",
    "Dimensions",
    "ListedTable",
    "Model",
    "OnnxModel",
    "TableList",
    "bind_dimensions",
    "check_mode",
    "check_ranks",
    "check_recorded",
    "common_name",
    "common_place",
    "conversions",
    "export_onnx",
    "goes_along",
    "input_symbols",
    "is_factory",
    "is_table_list",
    "load",
    "load_request",
    "narrowed",
    "narrowings",
    "parallel_passes",
    "prepare",
    "read_program",
    "read_table_list",
    "read_torch",
    "require_torch",
    "split_passes",
    "start_torch",
    "tokens_per_sample",
    "training_passes",
]
