"""Frontends lower models of other formats to programs."""

from __future__ import annotations

from perfc.frontends.protocol import Frontend
from perfc.frontends.text import TextFrontend
from perfc.frontends.workloads import (
    WORKLOADS,
    Workload,
    build_workload,
    find_workload,
)

__all__ = [
    "WORKLOADS",
    "Frontend",
    "TextFrontend",
    "Workload",
    "build_workload",
    "find_workload",
]
