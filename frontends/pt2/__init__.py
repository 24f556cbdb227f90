"""`torch.export` archives, read without torch: a zip file with JSON in it."""

from __future__ import annotations

from perfc.frontends.pt2.frontend import Pt2Frontend, read_description

__all__ = ["Pt2Frontend", "read_description"]
