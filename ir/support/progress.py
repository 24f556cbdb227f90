"""How far long work is, told to whoever listens: the command line does.

Nobody has to: a library that is used from Python says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

_Thing = TypeVar("_Thing")


class Listener(Protocol):
    """Is told how far work is."""

    @property
    def live(self) -> bool:
        """Whether somebody looks at it while it goes on, at a terminal."""
        ...

    def count(self, what: str, done: int, total: int) -> None:
        """Hear how many things are done, as `120 of 500 rows`."""
        ...

    def share(self, what: str, part: float) -> None:
        """Hear which part of one thing is done, 0 to 1."""
        ...


_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Listener) -> Generator[None]:
    """Tell somebody how far work is that is done inside."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def count_done(what: str, done: int, total: int) -> None:
    """Tell how many things are done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener.count(what, done, total)


def counted(things: Sequence[_Thing], what: str) -> Iterator[_Thing]:
    """Yield things, telling how many of them are done."""
    for number, thing in enumerate(things):
        count_done(what, number, len(things))
        yield thing
    count_done(what, len(things), len(things))


def share_of(what: str) -> Callable[[float], None] | None:
    """Return a function to call with the share of a thing that is done.

    Returns:
        None where nobody looks, so that nothing has to be found out.

    """
    listener = _LISTENER.get()
    if listener is None or not listener.live:
        return None

    def told(part: float) -> None:
        listener.share(what, part)

    return told
