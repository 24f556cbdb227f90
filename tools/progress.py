"""How far a verb is, on stderr: in one line of a terminal, now and then in a log."""

from __future__ import annotations

import time

from perfc.tools.files import is_terminal, overwrite, tell, wipe

_SILENT_S = 2
"""What is done sooner says nothing on a terminal."""

_SOON_S, _EVERY_S = 0.1, 5
"""How often a terminal is told, and a log."""

_WHOLE = 10
"""Rates from here on are shown without a decimal."""


class Progress:
    """Tells the user how far a verb is; on a terminal nothing of it stays.

    Attributes:
        live: Whether somebody looks at a terminal.
        logged: Whether a log is told now and then what is counted. It is of verbs that
            usually take long; the others say nothing where nobody looks.

    """

    def __init__(self, *, quiet: bool = False) -> None:
        """Begin."""
        self._quiet = quiet
        self.live, self.logged = is_terminal() and not quiet, False
        self._begun_s = self._told_s = time.monotonic()
        self._what, self._first, self._since_s = "", 0, self._begun_s
        self._step = ""

    def count(self, what: str, done: int, total: int, note: str = "") -> None:
        """Say how many things are done, how many a second, and the time left.

        Args:
            what: The things, as `configurations`.
            done: How many are.
            total: Of how many.
            note: What else there is to say, after a comma.

        """
        now_s = time.monotonic()
        if what != self._what:
            self._what, self._first, self._since_s = what, done, now_s
        if self.live and done == total:
            wipe()
        elif total > 1 and self._is_due(now_s):
            text = self._counted(done, total, note, now_s)
            rate = self._rate(done, now_s)
            self._tell(f"{text}, {clock((total - done) / rate)} left" if rate else text)

    def share(self, what: str, part: float) -> None:
        """Say which part of a thing is done, 0 to 1, and the time left."""
        now_s = time.monotonic()
        if what != self._what:
            self._what, self._first, self._since_s = what, 0, now_s
        if self._is_due(now_s):
            left_s = (now_s - self._since_s) * (1 / part - 1) if part else 0
            self._tell(f"{what}: {part:.0%}{f', {clock(left_s)} left' if part else ''}")

    def step(self, text: str) -> None:
        """Say what begins now, and may take long: in a log, each time."""
        self._what, self._step, self._since_s = "", text, time.monotonic()
        if self.live:
            overwrite(f"perfc: {text}")
        else:
            self.line(text)

    def glance(self, text: str) -> None:
        """Say what begins now, and is short: a log hears of it now and then."""
        self._what, self._step, self._since_s = "", text, time.monotonic()
        if self.live or self._is_due(self._since_s):
            self._tell(text)

    def tick(self) -> None:
        """Say on a terminal for how long the last step has been going on."""
        now_s = time.monotonic()
        if self.live and self._step and now_s - self._told_s >= 1:
            self._tell(f"{self._step}, {clock(now_s - self._since_s)}")

    def line(self, text: str) -> None:
        """Say something that stays."""
        if not self._quiet:
            tell(f"perfc: {text}")

    def total(self, done: int, total: int, note: str = "") -> None:
        """Say in the end how many of what was counted last were done, and how fast."""
        now_s = time.monotonic()
        text = self._counted(done, total, note, now_s)
        self.line(f"{text}, {clock(now_s - self._since_s)} in all")

    def _counted(self, done: int, total: int, note: str, now_s: float) -> str:
        text = f"{done:,} of {total:,} {self._what}"
        text += f", {note}" if note else ""
        rate = self._rate(done, now_s)
        return f"{text}; {_rate_text(rate)}" if rate else text

    def _rate(self, done: int, now_s: float) -> float:
        passed_s = now_s - self._since_s
        return (done - self._first) / passed_s if passed_s else 0.0

    def _is_due(self, now_s: float) -> bool:
        if not self.logged and not self.live:
            return False
        if self.live and now_s - self._begun_s < _SILENT_S:
            return False
        return now_s - self._told_s >= (_SOON_S if self.live else _EVERY_S)

    def _tell(self, text: str) -> None:
        self._told_s = time.monotonic()
        if self.live:
            overwrite(f"perfc: {text}")
        else:
            self.line(text)


def _rate_text(rate: float) -> str:
    if rate < 1:
        return f"{1 / rate:,.3g} s each"
    return f"{rate:,.{0 if rate >= _WHOLE else 1}f} a second"


def clock(seconds: float) -> str:
    """Return a time as `1:05`, or `2:01:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
