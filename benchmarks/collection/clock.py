"""Ends that hold: of a part, of the whole run, and with the parent process.

All of it is on the monotonic clock: a clock that is set while measuring moves nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 15.0
"""A run that has not ended so long after its end is stuck in a call of the driver."""


class PartOver(KeyboardInterrupt):
    """A part's time is over: not an error, and nothing that code below catches."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end."""


@contextmanager
def hard_end(end: float) -> Generator[None]:
    """Raise `PartOver` in what runs inside when *end* is reached.

    Args:
        end: On the clock of `time.monotonic`.

    """

    def over(*_: object) -> None:
        raise PartOver

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end_when_asked() -> None:
    """Turn SIGTERM into `Terminated`, and the end of the parent process.

    SIGINT is taken, too: a process that is started in the background ignores it.
    """
    parent = os.getppid()

    def terminate(*_: object) -> None:
        raise Terminated

    def orphaned(*_: object) -> None:
        """The kernel also says so when a thread of the parent ends that started us."""
        if os.getppid() != parent:
            raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "linux":
        signal.signal(signal.SIGUSR1, orphaned)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        orphaned()  # it ended before it was watched


def watch(end: float, last_words: Callable[[], None]) -> None:
    """End the process some seconds after *end*, whatever it is doing then."""

    def kill() -> None:
        last_words()
        os._exit(1)  # no clean-up: a thread is stuck

    timer = threading.Timer(end - time.monotonic() + _GRACE_SECONDS, kill)
    timer.daemon = True
    timer.start()
