"""The intermediate representation: the only layer that everything imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.ir.annotations import AnnotationKey, AnyKey
    from perfc.ir.choices import OPTIMIZER_STATES
    from perfc.ir.core import Graph, Node, Value
    from perfc.ir.launch import NO_WORK, Kernel, LaunchGraph, LaunchOp, TaskKind, Work
    from perfc.ir.program import Program, single
    from perfc.ir.record import AttrValue, Record
    from perfc.ir.support import (
        COST_MODELS,
        EXPORTERS,
        PASSES,
        Diagnostic,
        ParseError,
        PerfcError,
        UsageError,
        parse_json,
        register_plugin,
        spend,
    )
    from perfc.ir.text import record_of
    from perfc.ir.types import DTYPES, DType, TensorType
else:
    __getattr__ = door(
        __name__,
        {
            "annotations": ("AnnotationKey", "AnyKey"),
            "core": ("Graph", "Node", "Value"),
            "launch": (
                "Kernel",
                "LaunchGraph",
                "LaunchOp",
                "NO_WORK",
                "TaskKind",
                "Work",
            ),
            "choices": ("OPTIMIZER_STATES",),
            "program": ("Program", "single"),
            "record": ("AttrValue", "Record"),
            "support": (
                "COST_MODELS",
                "Diagnostic",
                "EXPORTERS",
                "PASSES",
                "ParseError",
                "PerfcError",
                "UsageError",
                "parse_json",
                "register_plugin",
                "spend",
            ),
            "text": ("record_of",),
            "types": ("DTYPES", "DType", "TensorType"),
        },
    )

__all__ = [
    "COST_MODELS",
    "DTYPES",
    "EXPORTERS",
    "NO_WORK",
    "OPTIMIZER_STATES",
    "PASSES",
    "AnnotationKey",
    "AnyKey",
    "AttrValue",
    "DType",
    "Diagnostic",
    "Graph",
    "Kernel",
    "LaunchGraph",
    "LaunchOp",
    "Node",
    "ParseError",
    "PerfcError",
    "Program",
    "Record",
    "TaskKind",
    "TensorType",
    "UsageError",
    "Value",
    "Work",
    "parse_json",
    "record_of",
    "register_plugin",
    "single",
    "spend",
]
