"""The parts of a sweep in processes of this machine."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress

import attrs

from perfc.ir import PerfcError
from perfc.tools.sweeping.executor import Executor, Part
from perfc.tools.sweeping.pricing import Priced, price
from perfc.tools.sweeping.space import Space

_FEW = 64
"""Configurations that take less time than to start processes."""

_ONE_THREAD = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""What says how many threads multiply matrices: several processes would fight for the
processors, and the matrices are small."""


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@attrs.frozen
class LocalExecutor(Executor):
    """Processes of this machine; for one, or for few configurations, this process.

    Attributes:
        count: How many.

    """

    count: int

    @property
    def workers(self) -> int:
        """How many parts it may price at once."""
        return self.count

    def run(self, space: Space, parts: Sequence[Part]) -> Iterator[Priced]:
        """Yield the findings of each part, as they come."""
        if self.count == 1 or sum(map(len, parts)) <= _FEW:
            yield from (price(space, part) for part in parts)
            return
        left = list(parts)
        while left:
            before = len(left)
            for part, priced in self._priced(space, left):
                left.remove(part)
                yield priced
            if left and len(left) == before:
                msg = (
                    "the worker processes end before they price anything (killed, or "
                    "out of memory): take fewer, as --executor local:1"
                )
                raise PerfcError(msg)

    def _priced(
        self, space: Space, parts: Sequence[Part]
    ) -> Iterator[tuple[Part, Priced]]:
        with _one_thread(), _pool(min(self.count, len(parts))) as pool:
            futures = {pool.submit(price, space, part): part for part in parts}
            with suppress(BrokenProcessPool):
                for future in as_completed(futures):
                    yield futures[future], future.result()


@contextmanager
def _pool(count: int) -> Generator[ProcessPoolExecutor]:
    """Start processes, which end with this one; parts that wait are given up."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread() -> Generator[None]:
    """Let processes that are started meanwhile multiply matrices by one thread each."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin() -> None:
    """Prepare a worker: an interrupt is its parent's, and it ends where that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        watch = threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True)
        watch.start()


def _end_with(sentinel: int) -> None:
    """End this process when its parent has: nobody would read what it finds."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
