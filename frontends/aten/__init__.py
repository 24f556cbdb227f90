"""Calls of ATen ops, as recorded or read from an archive, to op graphs. No torch."""

from __future__ import annotations

from perfc.frontends.aten.builder import AtenBuilder
from perfc.frontends.aten.call import Argument, AtenCall, AtenTensor, Ref

__all__ = [
    "Argument",
    "AtenBuilder",
    "AtenCall",
    "AtenTensor",
    "Ref",
]
