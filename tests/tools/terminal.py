"""Running the command line where a terminal is: a pseudo-terminal of its own."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
import pytest
from tests.interrupts import heed_interrupts

_SECONDS = 300
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OWN = ("PYTEST_CURRENT_TEST", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS")


@attrs.frozen
class Seen:
    """What a terminal has got.

    Attributes:
        code: Exit code.
        text: All that was written, escapes and returns too.

    """

    code: int
    text: str

    @property
    def plain(self) -> str:
        """The text without escapes."""
        return _ESCAPE.sub("", self.text)

    @property
    def lines(self) -> list[str]:
        """What stands there in the end: the rest of a line that was written over."""
        shown = self.text.replace("\r\n", "\n").split("\n")
        return [_ESCAPE.sub("", line.rpartition("\r")[2]) for line in shown]


def run_at_terminal(
    *arguments: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    interrupt: str | None = None,
    command: Sequence[str] = (sys.executable, "-m", "perfc"),
) -> Seen:
    """Run a command whose stdout and stderr are a terminal.

    Args:
        arguments: Of the command.
        environment: Variables besides; those that decide about colours are not handed
            on from this process.
        interrupt: What has to be seen before Ctrl-C is pressed; None for never.
        command: What is run.

    """
    pty = pytest.importorskip("pty", reason="the system has no pseudo-terminals")
    here, there = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k not in _OWN}
    process = subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=there,
        stderr=there,
        env={**inherited, "TERM": "xterm", **environment},
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - no threads are running
    )
    os.close(there)
    try:
        text, ends = "", time.monotonic() + _SECONDS
        while (piece := _read(here, ends)) != "":
            text += piece
            if interrupt is not None and interrupt in text:
                process.send_signal(signal.SIGINT)
                interrupt = None
        return Seen(process.wait(timeout=_SECONDS), text)
    finally:
        process.kill()
        process.wait()
        os.close(here)


def _read(here: int, ends: float) -> str:
    """Return what comes next; nothing once nobody writes there any more."""
    ready, _, _ = select.select([here], [], [], max(0.0, ends - time.monotonic()))
    assert ready, "nothing came in time"
    try:
        return os.read(here, 65536).decode("utf-8", "replace")
    except OSError:  # Linux says so where the other end is closed
        return ""
