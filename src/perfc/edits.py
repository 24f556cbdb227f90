"""Edits of a step, as values that `perfc.Oracle` is asked about.

    from perfc import edits
    oracle.ask(edits.Duration("gemm", factor=0.5))

The module is loaded when first used, so that `import perfc` is cheap.
"""

from __future__ import annotations

from perfc.tools.edits import *  # noqa: F403 - its names, listed there
from perfc.tools.edits import __all__ as __all__  # noqa: PLC0414 - one list
