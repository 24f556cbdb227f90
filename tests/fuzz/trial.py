"""One damaged input, run in this process as its user would, and judged."""

from __future__ import annotations

import contextlib
import io
import resource
import time
from pathlib import Path

import attrs
from tests.fuzz.corpus import Input

from perfc.tools.cli import main

MAX_SECONDS = 10.0
"""Of wall time less the wait for a processor: what else runs is no fault of an input,
but what it sleeps and reads is."""

SCHEDSTAT = Path("/proc/self/schedstat")
"""Linux only: nanoseconds that the main thread ran, nanoseconds that it was ready and
waited for a processor, and time slices
(https://docs.kernel.org/scheduler/sched-stats.html)."""

MAX_BYTES = 10**9
_CODES = frozenset({0, 1, 2})
_PREFIX = "perfc: error: "


@attrs.frozen
class Verdict:
    """What is wrong with a run, "" if nothing is, and what it took."""

    problem: str
    code: int
    seconds: float


def limit_memory() -> None:
    """Let this process have 1 GB more than it has now.

    Going beyond it is a MemoryError, which perfc must not have to report.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    limit = pages * resource.getpagesize() + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def run(item: Input, folder: Path) -> Verdict:
    """Write *item* into *folder*, run its command, and judge what comes back."""
    path = folder / f"input{item.suffix}"
    path.write_bytes(item.data)
    out, err = io.StringIO(), io.StringIO()
    started_s = _own_time_s()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(item.command(path))
    seconds = _own_time_s() - started_s
    problem = judge(code, out.getvalue(), err.getvalue())
    if not problem and seconds > MAX_SECONDS:
        problem = f"took {seconds:.1f} s"
    return Verdict(problem, code, seconds)


def _own_time_s() -> float:
    """Return the clock's time less the wait for a processor, where that is known."""
    waited_ns = 0
    if SCHEDSTAT.exists():
        waited_ns = int(SCHEDSTAT.read_text(encoding="ascii").split()[1])
    return time.perf_counter() - waited_ns * 1e-9


def judge(code: int, out: str, err: str) -> str:
    """Say what a user could complain of: anything but a result or one clear line."""
    if code not in _CODES:
        return f"exit code {code}"
    if "Traceback" in err or "bug of perfc" in err:
        return err.strip()
    if code == 0:
        return "" if out else "exit code 0, and nothing printed"
    if out:
        return f"exit code {code}, and a result of {len(out)} characters"
    lines = err.splitlines()
    if len(lines) != 1 or not lines[0].startswith(_PREFIX):
        return f"{len(lines)} lines on stderr: {err[:200]!r}"
    return "" if lines[0] != _PREFIX else "an empty message"
