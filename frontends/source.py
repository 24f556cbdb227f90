"""Lines of the model's own code, in what exporters note of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LINE = re.compile(r'File "([^"]+)", line (\d+)')

_PYTORCH = re.compile(r"-packages/|(?:^|/)torch/(?:_|nn/|fx/|export/|utils/|autograd/)")
"""Installed files, and PyTorch's own where it was built; `torch/` may hold a model."""


def source_line(trace: str) -> str:
    """Return file and line of the innermost frame outside of PyTorch, or ""."""
    lines: Iterable[tuple[str, str]] = _LINE.findall(trace)
    own = [(f, n) for f, n in lines if not _PYTORCH.search(f)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""
