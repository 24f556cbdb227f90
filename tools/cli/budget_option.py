"""The option `--budget` of every verb, and the clock that one of the budgets needs."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Sequence
from types import FrameType

import click

from perfc.ir import spend, support

_NAME = "--budget"


def budget_option() -> click.Option:
    """Return the option, for a verb of its own."""
    return click.Option(
        [_NAME, "budgets"],
        multiple=True,
        expose_value=False,
        callback=_raise_budgets,
        metavar="NAME=VALUE",
        help=f"How much the input may take: {', '.join(support.BUDGETS)}.",
    )


def _raise_budgets(
    ctx: click.Context, param: click.Parameter, texts: Sequence[str]
) -> None:
    support.raise_budgets(support.parse_budgets(texts, _NAME))
    seconds = support.budget("seconds")
    if math.isfinite(seconds) and _has_clock():
        signal.signal(signal.SIGALRM, _time_is_up)
        signal.setitimer(signal.ITIMER_REAL, seconds)


class TimeIsUpError(BaseException):
    """The seconds of a command are over: no search goes on with its next plan.

    Attributes:
        error: What the user is told.

    """

    def __init__(self, error: support.BudgetError) -> None:
        """Carry the error that is told."""
        super().__init__(str(error))
        self.error = error


def _time_is_up(number: int, frame: FrameType | None) -> None:
    try:
        spend("seconds", math.nextafter(support.budget("seconds"), math.inf))
    except support.BudgetError as error:
        raise TimeIsUpError(error) from None


def stop_clock() -> None:
    """Forget about the seconds: the command has ended."""
    if _has_clock() and signal.getsignal(signal.SIGALRM) is _time_is_up:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _has_clock() -> bool:
    """Whether the system can interrupt this thread; Windows has no such clock."""
    main = threading.current_thread() is threading.main_thread()
    return main and hasattr(signal, "setitimer")
