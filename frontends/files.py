"""Reading model files, with errors a user can act on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from perfc.ir.support import UnsupportedModelError, read_whole


def read_file(path: Path) -> bytes:
    """Return the bytes of *path*."""
    return read_whole(path, UnsupportedModelError)


def digest(data: bytes) -> str:
    """Return the SHA-256 of *data*, in hex."""
    return hashlib.sha256(data).hexdigest()
