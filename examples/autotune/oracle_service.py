"""A service that says what a step would take, each answer within a bound.

    python examples/autotune/oracle_service.py [--model M] [--target T] [--port P]
    python examples/autotune/oracle_service.py --clients 8     # tries itself, and stops

One prepared `perfc.Oracle` answers many clients, in any language: JSON, a line a
request, over TCP or a Unix socket. `edits` are those of `perfc.edits`, by class:

    {"id": 7, "edits": [{"edit": "Bind", "batch": 4096}]}
    {"id": 7, "time_us": 3906.3}

A request may have a bound of its own (`"within_ms": 20`), no longer than the service's.
What cannot be said in time is answered at the bound with `"error": "late: ..."`; where
too many are waiting, at once with `"error": "busy: ..."`. The work goes on, its answer
is kept, and who asks again has it. Any other mistake is one line `{"id": ..., "error":
...}`, after which the connection goes on. SIGINT and SIGTERM stop the service: requests
that were read are answered first. It is for clients that are trusted: an edit may name
a sheet to read.

It saves what each client would spend on a process, a model and a first analysis of its
own. The last lines of `--clients` compare the two.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import perfc
from perfc import edits

LINE_BYTES = 65_536
"""The longest request."""

BOUND_S, WORKERS, WAITING, KEPT = 0.25, 2, 32, 10_000
"""Seconds until an answer, threads that ask, requests that wait for them at most, and
answers that are kept."""

_EDITS = dict(sorted((kind.__name__, kind) for kind in get_args(edits.Edit)))
"""The classes of edits, by name."""


class RequestError(Exception):
    """A request cannot be answered, and why, in one line."""


@dataclass
class Service:
    """Answers requests from one oracle.

    Attributes:
        oracle: The step; nobody else applies edits to it meanwhile.
        bound_s: Seconds after which a request is answered that it is late.
        workers: Threads that ask the oracle.
        waiting: Requests that may wait for them, beyond which the service is busy.

    """

    oracle: perfc.Oracle
    bound_s: float = BOUND_S
    workers: int = WORKERS
    waiting: int = WAITING
    _known: OrderedDict[Any, float | str] = field(default_factory=OrderedDict)
    _asked: dict[Any, asyncio.Future[float | str]] = field(default_factory=dict)
    _clients: set[asyncio.Task[Any]] = field(default_factory=set)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Make the threads."""
        self._threads = ThreadPoolExecutor(self.workers, "oracle")

    async def start(
        self, *, host: str = "127.0.0.1", port: int = 0, path: str = ""
    ) -> Any:
        """Listen; return the address: host and port, or the path.

        Args:
            host: Address to listen on.
            port: Its port; 0 for a free one.
            path: Of a Unix socket, instead.

        Raises:
            OSError: it cannot listen there.

        """
        make = asyncio.start_unix_server if path else asyncio.start_server
        where = (path,) if path else (host, port)
        self._server = await make(self._client, *where, limit=LINE_BYTES)
        return self._server.sockets[0].getsockname()

    async def serve(self) -> None:
        """Answer clients until `stop` is called."""
        await self._stopping.wait()
        self._server.close()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Take no more requests; those that were read are answered."""
        self._stopping.set()

    async def _client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer a client's requests, one after the other."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._clients.add(task)
        try:
            while (line := await self._line(reader)) is not None:
                answer = await self.answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ValueError:  # it does not end: what follows would be no request, either
            error = f"a request has at most {LINE_BYTES} bytes"
            writer.write(json.dumps({"id": None, "error": error}).encode() + b"\n")
        except OSError:  # the client has gone
            pass
        finally:
            self._clients.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _line(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return the next line; None at the end, or when the service stops."""
        reading = asyncio.ensure_future(reader.readline())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not reading.done():
            reading.cancel()
            return None
        return reading.result() or None

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to one request."""
        found: dict[str, Any] = {"id": None}
        try:
            request = _object_of(line)
            found["id"] = request.get("id")
            asked, bound_s = self._read(request)
            found["time_us"] = await self._time_us(asked, bound_s)
        except RequestError as error:
            found["error"] = str(error)
        return found

    def _read(self, request: dict[str, Any]) -> tuple[tuple[Any, ...], float]:
        unknown = request.keys() - {"id", "edits", "within_ms"}
        if unknown:
            msg = f"{min(unknown)!r} is none of id, edits, within_ms"
            raise RequestError(msg)
        listed = request.get("edits", [])
        if not isinstance(listed, list):
            msg = "edits: expected a list of objects"
            raise RequestError(msg)
        within = request.get("within_ms", self.bound_s * 1e3)
        if (
            isinstance(within, bool)
            or not isinstance(within, int | float)
            or not within > 0
        ):
            msg = f"within_ms={within!r}: expected milliseconds, more than 0"
            raise RequestError(msg)
        return tuple(map(_edit_of, listed)), min(within * 1e-3, self.bound_s)

    async def _time_us(self, asked: tuple[Any, ...], bound_s: float) -> float:
        """Return the microseconds of the step under edits, in time."""
        found = self._known.get(asked)
        if found is None:
            try:
                waiting = asyncio.shield(self._future(asked))
                found = await asyncio.wait_for(waiting, bound_s)
            except TimeoutError:
                msg = f"late: no answer within {bound_s * 1e3:g} ms; ask again"
                raise RequestError(msg) from None
        if isinstance(found, str):
            raise RequestError(found)
        return found

    def _future(self, asked: tuple[Any, ...]) -> asyncio.Future[float | str]:
        """Return the answer to come; who asks the same waits for the same."""
        if asked in self._asked:
            return self._asked[asked]
        if len(self._asked) >= self.workers + self.waiting:
            msg = f"busy: {len(self._asked)} requests are waiting; ask again"
            raise RequestError(msg)
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, _ask, self.oracle, asked)
        self._asked[asked] = future
        future.add_done_callback(lambda done: self._keep(asked, done))
        return future

    def _keep(self, asked: tuple[Any, ...], done: asyncio.Future[float | str]) -> None:
        del self._asked[asked]
        if done.cancelled() or done.exception():
            return
        self._known[asked] = done.result()
        if len(self._known) > KEPT:
            self._known.popitem(last=False)


def _ask(oracle: perfc.Oracle, asked: tuple[Any, ...]) -> float | str:
    """Return the microseconds, or what is wrong with the edits."""
    try:
        return oracle.ask(*asked)
    except perfc.PerfcError as error:
        return str(error)


def _object_of(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = 'a request is one line with a JSON object, as {"id": 1, "edits": []}'
        raise RequestError(msg)
    return found


def _edit_of(given: object) -> Any:
    """Return a value of `perfc.edits`; lists become tuples, so that it can be a key."""
    named = dict(given) if isinstance(given, dict) else {}
    kind = named.pop("edit", None)
    make = _EDITS.get(kind) if isinstance(kind, str) else None
    if make is None:
        msg = f"edit={kind!r}: expected one of {', '.join(_EDITS)}"
        raise RequestError(msg)
    first = (named.pop("name"),) if kind == "Target" and "name" in named else ()
    try:
        edit = make(*first, **named)
        hash(edit)
    except perfc.PerfcError as error:
        raise RequestError(str(error)) from None
    except TypeError:
        msg = f"{kind} does not take {named or first}; see perfc.edits.{kind}"
        raise RequestError(msg) from None
    return edit


async def ask(address: Any, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers of a service to requests over one connection.

    Args:
        address: Host and port, or the path of a Unix socket.
        requests: The requests, sent one after the other's answer.

    """
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address[:2])
    answers: list[dict[str, Any]] = []
    for request in requests:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        answers.append(json.loads(await reader.readline()))
    writer.close()
    await writer.wait_closed()
    return answers


async def try_clients(service: Service, clients: int, prepared_s: float) -> None:
    """Have some clients ask at once, and print how long they wait."""
    address = await service.start()
    waits_s: list[float] = []

    async def client(number: int) -> int:
        late = 0
        for at in range(50):
            edit = {"edit": "Bind", "batch": 64 * (1 + 50 * number + at)}
            started = time.perf_counter()
            (answer,) = await ask(address, [{"id": at, "edits": [edit]}])
            waits_s.append(time.perf_counter() - started)
            late += "error" in answer
        return late

    started = time.perf_counter()
    late = sum(await asyncio.gather(*map(client, range(clients))))
    took_s = time.perf_counter() - started
    service.stop()
    await service.serve()
    waits_s.sort()
    ninth = waits_s[len(waits_s) * 9 // 10]
    print(
        f"{len(waits_s)} requests of {clients} clients in {took_s:.2f} s, {late} late"
    )
    last_ms = waits_s[-1] * 1e3
    print(f"waits: 90 % within {ninth * 1e3:.1f} ms, all within {last_ms:.1f} ms")
    own_s = len(waits_s) * prepared_s
    print(
        f"a process for each would prepare {own_s:.0f} s "
        f"({prepared_s:.2f} s before its first answer, without Python's start)"
    )


async def run(service: Service, port: int, path: str) -> None:
    """Serve until a signal says stop."""
    address = await service.start(port=port, path=path)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    print(f"{service.oracle!r} answers at {address}", flush=True)
    await service.serve()


def main() -> None:
    """Prepare the oracle, then serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="dlrm-default")
    parser.add_argument("--target", default="a100")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--unix", default="", metavar="PATH")
    parser.add_argument("--within-ms", type=float, default=BOUND_S * 1e3)
    parser.add_argument("--clients", type=int, default=0, metavar="N")
    given = parser.parse_args()
    started = time.perf_counter()
    oracle = perfc.Oracle(given.model, given.target, batch=given.batch)
    prepared_s = time.perf_counter() - started
    service = Service(oracle, given.within_ms * 1e-3)
    if given.clients:
        asyncio.run(try_clients(service, given.clients, prepared_s))
        return
    try:
        asyncio.run(run(service, given.port, given.unix))
    except OSError as error:
        sys.exit(f"cannot listen: {error}")


if __name__ == "__main__":
    main()
