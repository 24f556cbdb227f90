"""Processes that tests interrupt."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """Undo what a shell does to commands in the background: they ignore Ctrl-C.

    It is what a process runs before the command, `preexec_fn`.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
