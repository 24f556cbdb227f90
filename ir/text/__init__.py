"""Perfc assembly: read and printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.ir.text.dim_parser import parse_dim
    from perfc.ir.text.launch_printer import print_launches, print_program
    from perfc.ir.text.parser import parse_graph, parse_program, parse_type
    from perfc.ir.text.printer import print_graph, print_window
    from perfc.ir.text.record_json import json_of, record_of
else:
    __getattr__ = door(
        __name__,
        {
            "dim_parser": ("parse_dim",),
            "launch_printer": ("print_launches", "print_program"),
            "parser": ("parse_graph", "parse_program", "parse_type"),
            "printer": ("print_graph", "print_window"),
            "record_json": ("json_of", "record_of"),
        },
    )

__all__ = [
    "json_of",
    "parse_dim",
    "parse_graph",
    "parse_program",
    "parse_type",
    "print_graph",
    "print_launches",
    "print_program",
    "print_window",
    "record_of",
]
