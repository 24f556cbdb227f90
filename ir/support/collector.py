"""Building big graphs without the cyclic garbage collector in the way."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def paused_collector() -> Generator[None]:
    """Pause cyclic collection while many objects are made and none are dropped.

    Graphs are built of objects that live on; looking through them again and
    again for garbage takes as long as making them. Reference counting goes on.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
