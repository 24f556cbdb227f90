"""The parts of a sweep on a Dask cluster."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from perfc.ir import PerfcError
from perfc.tools.sweeping.executor import Executor, Part
from perfc.tools.sweeping.pricing import Priced, price
from perfc.tools.sweeping.space import Space

_CONNECT_S = 10
"""How long a scheduler has for its first answer."""

_WORKER_S = 30
"""How long it has for its first worker."""

_LOGGERS = ("distributed", "distributed.client", "distributed.comm")


@attrs.frozen
class DaskExecutor(Executor):
    """Workers of a Dask cluster: those that come later work too.

    A part whose worker goes is priced by another one.

    Attributes:
        address: Of the scheduler, `HOST:PORT`.
        distributed: The module `dask.distributed`.

    """

    address: str
    distributed: Any = attrs.field(repr=False)

    @classmethod
    def of(cls, address: str) -> DaskExecutor:
        """Return the executor of a scheduler."""
        try:
            return cls(address, importlib.import_module("distributed"))
        except ImportError:
            msg = f"dask://{address} needs Dask: pip install 'perfc[dask]'"
            raise PerfcError(msg) from None

    @property
    def workers(self) -> int:
        """How many parts it may price at once: more than most clusters do."""
        return 64

    def run(self, space: Space, parts: Sequence[Part]) -> Iterator[Priced]:
        """Yield the findings of each part, as they come."""
        with _quiet(), self._client() as client:
            futures = [client.submit(price, space, part, pure=False) for part in parts]
            done = self.distributed.as_completed(futures, loop=client.loop)
            yield from map(self._result, done)

    @contextmanager
    def _client(self) -> Generator[Any]:
        address = f"tcp://{self.address}"
        try:
            client = self.distributed.Client(
                address, timeout=_CONNECT_S, set_as_default=False
            )
        except (OSError, ValueError):
            msg = f"no Dask scheduler answers at {self.address} in {_CONNECT_S} s"
            raise PerfcError(msg) from None
        try:
            client.wait_for_workers(1, timeout=_WORKER_S)
            yield client
        except TimeoutError:
            msg = f"the Dask scheduler at {self.address} has no worker in {_WORKER_S} s"
            raise PerfcError(msg) from None
        finally:
            client.close(timeout=1)

    def _result(self, future: Any) -> Priced:  # noqa: ANN401 - Dask has no types
        """Return the findings of a part."""
        if future.status in {"cancelled", "lost"}:
            msg = f"the Dask scheduler at {self.address} is gone"
            raise PerfcError(msg)
        try:
            result: Priced = future.result()
        except self.distributed.KilledWorker:
            msg = "Dask workers end while they price one part, one after another"
            raise PerfcError(msg) from None
        except (ImportError, RuntimeError) as error:
            msg = f"a Dask worker cannot price ({error}): it needs the same perfc"
            raise PerfcError(msg) from None
        return result


@contextmanager
def _quiet() -> Generator[None]:
    """Leave what Dask logs of a lost connection to the one line that is said of it."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
