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
"""Of the processor's time: what else runs on the machine is no fault of an input."""

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
    started_s = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(item.command(path))
    seconds = time.process_time() - started_s
    problem = judge(code, out.getvalue(), err.getvalue())
    if not problem and seconds > MAX_SECONDS:
        problem = f"took {seconds:.1f} s"
    return Verdict(problem, code, seconds)


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
