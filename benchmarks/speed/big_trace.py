"""Read and replay a trace that is made as long as one likes, from a real one.

    python benchmarks/speed/big_trace.py TRACE.json.gz [MEGABYTES] [--steps A:B]
        [--threads N]

The events of TRACE are written again and again, each time later, with correlations,
numbers and steps of their own, until the file has so many megabytes (300 if not said).
With `--threads` every copy of the autograd thread is another thread, until there are N.
Prints wall seconds and the largest memory of `perfc replay`, run on its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]

_STEP = re.compile(r"(ProfilerStep\s*#)(\d+)")
_NUMBERS = ("correlation", "External id", "Ev Idx", "Sequence number")
_GAP_US = 100.0


def main() -> int:
    """Write the trace, and replay it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("megabytes", type=float, nargs="?", default=300.0)
    parser.add_argument("--steps")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "big.json")
        count = write(given.trace, path, given.megabytes * 1e6, given.threads)
        print(f"{path.stat().st_size / 1e6:,.0f} MB, {count:,} events")
        command = [sys.executable, "-m", "perfc", "replay", str(path)]
        command += ["--steps", given.steps] if given.steps else []
        begun_s = time.perf_counter()
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        wall_s = time.perf_counter() - begun_s
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print("\n".join(done.stdout.splitlines()[:8]))
    print(f"perfc replay: {wall_s:.1f} s, {most / 2**20:.2f} GiB at most")
    return done.returncode


def write(source: Path, path: Path, size_bytes: float, threads: int = 0) -> int:
    """Write copies of a trace until they take so many bytes; return how many events."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        document = json.load(file)
    events: list[Event] = document.pop("traceEvents")
    timed = [e for e in events if isinstance(e.get("dur"), int | float)]
    begin_us = min(float(e["ts"]) for e in timed)
    length_us = max(float(e["ts"]) + float(e["dur"]) for e in timed) - begin_us
    steps = sum(_STEP.match(str(e.get("name"))) is not None for e in timed)
    most = 1 + max(_most(e) for e in timed)
    written, count, copy = 0, 0, 0
    with path.open("w", encoding="utf-8") as file:
        head = json.dumps(document)[:-1]
        file.write(f'{head}, "traceEvents": [\n')
        while written < size_bytes:
            shift_us = copy * (length_us + _GAP_US)
            moved = _moved(timed, shift_us, copy * most, copy * steps)
            if threads:
                moved = (_on_thread(event, copy % threads) for event in moved)
            text = ",\n".join(map(json.dumps, moved))
            file.write(f"{',' if copy else ''}{text}\n")
            written, count, copy = written + len(text), count + len(timed), copy + 1
        file.write("]}\n")
    return count


def _most(event: Event) -> int:
    args: Event = event.get("args") or {}
    return max(
        (args[key] for key in _NUMBERS if isinstance(args.get(key), int)), default=0
    )


def _moved(
    events: list[Event], by_us: float, numbers: int, steps: int
) -> Iterator[Event]:
    """Yield events of a later copy."""
    for event in events:
        args = dict(event.get("args") or {})
        for key in _NUMBERS:
            if isinstance(args.get(key), int):
                args[key] += numbers
        name = _STEP.sub(
            lambda found: f"{found[1]}{int(found[2]) + steps}", str(event.get("name"))
        )
        yield event | {"ts": float(event["ts"]) + by_us, "name": name, "args": args}


def _on_thread(event: Event, number: int) -> Event:
    """Let another thread do what the host does besides the steps."""
    if str(event.get("cat")) in ("kernel", "gpu_memcpy", "gpu_memset"):
        return event
    if _STEP.match(str(event["name"])):
        return event
    return event | {"tid": f"{event.get('tid')}{number:05}"}


if __name__ == "__main__":
    raise SystemExit(main())
