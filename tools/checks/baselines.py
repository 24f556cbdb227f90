"""Whether a baseline is a report of what its budget asks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from perfc.ir import PerfcError
from perfc.tools.reports import Report

Json: TypeAlias = Any

_GZIP = b"\x1f\x8b"


def check_alike(path: Path, report: Report, option: str) -> None:
    """Refuse a baseline of another question: its time says nothing of a regression.

    Args:
        path: A file that holds one report, of this version.
        report: What is compared with it.
        option: What users update baselines by.

    """
    found, wanted = _question(_document(path)), _question(report.header)
    other = [key for key in wanted if found[key] != wanted[key]]
    if other:
        of = ", ".join(f"{key} {found[key]}" for key in other)
        asked = ", ".join(f"{key} {wanted[key]}" for key in other)
        msg = f"{path} is of {of}, and the budget of {asked}; write it with {option}"
        raise PerfcError(msg)


def _document(path: Path) -> Json:
    content = path.read_bytes()
    if content.startswith(_GZIP):
        content = gzip.decompress(content)
    found = json.loads(content)
    return found["reports"][0] if "reports" in found else found


def _question(document: Mapping[str, Json]) -> dict[str, Json]:
    """Return the question that a report answers: values by keys of budgets."""
    model = document["model"]
    return {
        "model": model["name"],
        **{key: model.get(key) for key in ("mode", "batch", "dtype")},
        "target": document["target"]["name"],
        "runtime": document["runtime"],
    }
