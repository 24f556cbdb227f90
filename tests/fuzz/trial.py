"""One damaged input, run in this process as its user would, and judged."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import attrs
from tests.fuzz.generate import Input

from perfc.tools.cli.command_line import main

MAX_SECONDS = 10.0
"""Of wall time less the wait for a processor: what else runs is no fault of an input,
but what it sleeps and reads is."""

SCHEDSTAT = Path("/proc/self/schedstat")
"""Linux only: nanoseconds that the main thread ran, nanoseconds that it was ready and
waited for a processor, and time slices
(https://docs.kernel.org/scheduler/sched-stats.html)."""

MAX_BYTES = 10**9
_CODES = frozenset({0, 1, 2})
_OVER = frozenset({3, 5})
"""A budget of `perfc check` does not hold, or a model does not fit: a result."""

_PREFIX = "perfc: error: "
_PROGRESS = re.compile(r"perfc: (?!error: )")
"""Long work says how far it is before it fails, where `-q` became another option's."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")
_SIGNED = frozenset({"error", "bias", "saved_us", "imbalance", "saving"})
"""Numbers of JSON that may be negative: differences."""

TOLERANCE = {"slower": 0.01, "faster": 0.015}
"""Of relations between two commands, as a share of the time: larger batches may do with
fewer launches."""


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
    started_s = _own_time_s()
    code, out, err = _ran(item.command(path))
    problem = judge(code, out, err)
    if not problem and code == 0 and item.relation:
        other, other_out, other_err = _ran([*item.other])
        problem = judge(other, other_out, other_err)
        if not problem and other == 0:
            problem = compare(out, other_out, item.relation)
    seconds = _own_time_s() - started_s
    if not problem and seconds > MAX_SECONDS:
        problem = f"took {seconds:.1f} s"
    return Verdict(problem, code, seconds)


def _ran(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def _own_time_s() -> float:
    """Return the clock's time less the wait for a processor, where that is known."""
    waited_ns = 0
    if SCHEDSTAT.exists():
        waited_ns = int(SCHEDSTAT.read_text(encoding="ascii").split()[1])
    return time.perf_counter() - waited_ns * 1e-9


def judge(code: int, out: str, err: str) -> str:
    """Say what a user could complain of: anything but a result or one clear line."""
    if any(word in err for word in ("Traceback", "bug of perfc", "RuntimeWarning")):
        return err.strip()
    if control := _CONTROL.search(out + err):
        return f"the control character {control[0]!r} in the output"
    if code == 0 or (code in _OVER and out):
        return _judge_result(out)
    return f"exit code {code}" if code not in _CODES else _judge_error(code, out, err)


def _judge_error(code: int, out: str, err: str) -> str:
    if out:
        return f"exit code {code}, and a result of {len(out)} characters"
    lines = [line for line in err.splitlines() if not _PROGRESS.match(line)]
    if len(lines) != 1 or not lines[0].startswith(_PREFIX):
        return f"{len(lines)} lines on stderr: {err[:200]!r}"
    return "" if lines[0] != _PREFIX else "an empty message"


def _judge_result(out: str) -> str:
    if not out:
        return "exit code 0, and nothing printed"
    if not out.startswith("{"):
        return ""
    try:
        document: object = json.loads(out)
    except ValueError:
        return ""  # perfc assembly begins so, too
    return next(_odd_numbers(document), "")


def _odd_numbers(value: object, key: str = "") -> Iterator[str]:
    """Yield what is wrong with the numbers of a document."""
    if isinstance(value, dict):
        for name, inner in cast("dict[str, object]", value).items():
            yield from _odd_numbers(inner, name)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _odd_numbers(inner, key)
    elif isinstance(value, int | float) and _is_odd(value, key):
        yield f"{key} is {value}"


def _is_odd(value: float, key: str) -> bool:
    return not math.isfinite(value) or (value < 0 and key not in _SIGNED)


def compare(base: str, other: str, relation: str) -> str:
    """Say how the second command breaks the relation to the first."""
    first_us, second_us = (json.loads(t)["summary"]["time_us"] for t in (base, other))
    ratio = second_us / first_us
    if relation == "slower" and ratio > 1 + TOLERANCE[relation]:
        return f"takes {ratio:.4f} times what it took before, expected no more"
    if relation == "faster" and ratio < 1 - TOLERANCE[relation]:
        return f"takes {ratio:.4f} times what it took before, expected no less"
    return ""
