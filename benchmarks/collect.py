"""Measure everything on this machine, in pieces that can be continued.

    python benchmarks/collect.py --device cuda --out FOLDER [--pieces N] [--only NAME]

FOLDER gets tables of kernels, host overheads and workloads, and `manifest.json`:
device, driver, PyTorch, date and clocks. A piece takes less than eight minutes; without
`--pieces` they follow each other until all is measured. What was cut off, by its piece
or by a kill, goes on with the same command. On a GPU all takes less than 25 minutes.

PyTorch and a checkout are enough, where attrs, click and numpy are there:
`PYTHONPATH=src python benchmarks/collect.py ...`. Tables are Parquet if pyarrow is.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from perfc.ir import PerfcError, write_file
from perfc.measurements import MEASUREMENTS, WORKLOADS, read_rows

SCHEMA = "perfc.collection/1"
PIECE_SECONDS = 7.5 * 60
LEAST_SECONDS = 30.0
"""A job is not begun with less left in the piece."""

STOP_SECONDS = 20.0
"""What a job gets to write its table in, once its time is over."""

MOST_TRIES = 4
"""Pieces that a job may be cut off by, or failures of the GPU that it may leave behind,
before it counts as failed."""

_GPU_FAILED = "the GPU failed at"
"""What a command says that can go on, without what it said this of."""

_INTERRUPTED = 130
_RUNTIMES = ("--runtime", "eager", "--runtime", "cudagraph")
_MODES = ("--mode", "training", "--mode", "inference")


@attrs.frozen
class Job:
    """One command of `perfc measure`.

    Attributes:
        name: Unique; part of the state.
        arguments: What follows `perfc measure`.
        table: Name of the table it fills, without its suffix.
        minutes: Given as `--minutes`, in parts if need be; 0 if it ends by itself.

    """

    name: str
    arguments: tuple[str, ...]
    table: str
    minutes: float = 0.0


def _workload(model: str, *batches: int, runtimes: Sequence[str] = _RUNTIMES) -> Job:
    listed = tuple(text for batch in batches for text in ("--batch", str(batch)))
    arguments = ("workload", model, *listed, *_MODES, *runtimes)
    return Job(f"workload {model}", arguments, "workloads")


_LARGE = ":max_rows=1000000"
"""Criteo's tables as they are take more than a GPU has."""

JOBS: Mapping[str, Sequence[Job]] = {
    "cuda": (
        Job("kernels", ("kernels", "--suite", "full"), "kernels", 10.0),
        Job("overheads", ("overheads",), "overheads"),
        _workload("dlrm-default", 512, 1024, 2048, 4096),
        _workload(f"dlrm-mlperf{_LARGE}", 512, 1024, 2048, 4096),
        _workload("dlrm-ddp", 512, 1024, 2048, 4096),
        _workload(f"dcnv2-mlperf{_LARGE}", 2048),
        _workload("resnet50", 32),
        _workload("bert-base", 16),
        _workload("gpt2", 4),
    ),
    "cpu": (
        Job("kernels", ("kernels", "--suite", "quick"), "kernels", 3.0),
        Job("overheads", ("overheads",), "overheads"),
        _workload("dlrm-ddp:rows=10000", 128, 512, runtimes=()),
        _workload("resnet50:image=64", 4, runtimes=()),
    ),
}
"""In their order, by device."""


@attrs.define
class Progress:
    """What was done of one job."""

    done: bool = False
    seconds: float = 0.0
    tries: int = 0
    failed: str = ""


@attrs.define
class Collection:
    """A folder that is being filled.

    Attributes:
        folder: The folder.
        device: cuda or cpu.
        jobs: What there is to do.
        progress: What was done, by job.

    """

    folder: Path
    device: str
    jobs: Sequence[Job]
    progress: dict[str, Progress] = attrs.field(factory=dict[str, Progress])

    @property
    def state(self) -> Path:
        """Where the progress is kept."""
        return self.folder / "state.json"

    def load(self) -> None:
        """Read the progress; what failed is tried again.

        Raises:
            PerfcError: the folder is of another device, or cannot be read.

        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = self.state.read_text(encoding="utf-8")
            found = json.loads(text)
            device, kept = found["device"], found["jobs"]
            self.progress = {name: Progress(**kept[name]) for name in kept}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"cannot read {self.state}: {error}"
            raise PerfcError(msg) from None
        if device != self.device:
            msg = f"{self.folder} is a collection of {device}: name another folder"
            raise PerfcError(msg)
        for progress in self.progress.values():
            progress.failed, progress.tries = "", 0

    def save(self) -> None:
        """Write the progress."""
        jobs = {name: attrs.asdict(made) for name, made in self.progress.items()}
        content = {"schema": SCHEMA, "device": self.device, "jobs": jobs}
        write_file(self.state, json.dumps(content, indent=1) + "\n")

    def next_job(self) -> Job | None:
        """Return the first job that is neither done nor failed."""
        for job in self.jobs:
            made = self.progress.setdefault(job.name, Progress())
            if not made.done and not made.failed:
                return job
        return None

    def table(self, job: Job) -> Path:
        """Return the table that a job fills; one that is there keeps its kind."""
        plain = self.folder / f"{job.table}.csv"
        packed = self.folder / f"{job.table}.parquet"
        if plain.exists() or find_spec("pyarrow") is None:
            return plain
        return packed

    def run_piece(self) -> None:
        """Run jobs as long as the piece lasts."""
        end = time.monotonic() + PIECE_SECONDS
        while (job := self.next_job()) is not None:
            left = end - time.monotonic() - STOP_SECONDS
            if left < LEAST_SECONDS:
                return
            try:
                self._run(job, left)
            finally:  # an interrupted job has had its time
                self.save()

    def _run(self, job: Job, left: float) -> None:
        made = self.progress[job.name]
        arguments = [*job.arguments, "--device", self.device]
        wanted = job.minutes * 60 - made.seconds
        share = max(min(wanted, left - LEAST_SECONDS), 1.0)
        if job.minutes:
            arguments += ["--minutes", f"{share / 60:.3f}"]
        begin, before = time.monotonic(), made.seconds
        try:
            command = [*arguments, "-o", str(self.table(job))]
            code, last, cut = run_command(command, left)
        finally:
            made.seconds += time.monotonic() - begin
        seconds = made.seconds - before
        again = cut or _GPU_FAILED in last
        made.tries += again
        if again:
            why = "takes too long" if cut else last
            made.failed = why if made.tries >= MOST_TRIES else ""
        elif code != 0:
            made.failed = last or f"exit code {code}"
        else:
            # It ended by itself, or it has had all of its time.
            made.done = seconds < share or share >= wanted


def run_command(arguments: Sequence[str], seconds: float) -> tuple[int, str, bool]:
    """Run `perfc measure`, and interrupt it when its time is over.

    Returns:
        The exit code, the last line on stderr, and whether it was interrupted.

    """
    command = [sys.executable, "-m", "perfc", "measure", *arguments]
    say("$ perfc measure " + " ".join(arguments))
    last, cut = "", False
    with subprocess.Popen(  # noqa: S603 - our own arguments
        # Ctrl-C is for this process, which hands it on, once.
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:

        def stop() -> None:
            nonlocal cut
            cut = True
            process.send_signal(signal.SIGINT)

        timers = [
            threading.Timer(seconds, stop),
            threading.Timer(seconds + STOP_SECONDS, process.kill),
        ]
        for timer in timers:
            timer.start()
        try:
            for line in process.stderr or ():
                say(line.rstrip())
                last = line.strip() or last
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=STOP_SECONDS)
            raise
        finally:
            for timer in timers:
                timer.cancel()
    return process.returncode, last, cut


def manifest(collection: Collection) -> dict[str, Any]:
    """Describe the machine, and what was measured on it."""
    from perfc.measure import open_device  # noqa: PLC0415 - imports PyTorch

    device = open_device(collection.device)
    tables: dict[str, Any] = {}
    clocks: list[float] = []
    throttled = 0
    for name in sorted({job.table for job in collection.jobs}):
        job = next(job for job in collection.jobs if job.table == name)
        path = collection.table(job)
        if not path.exists():
            continue
        schema = WORKLOADS if name == "workloads" else MEASUREMENTS
        rows = read_rows(path, schema)
        tables[path.name] = len(rows)
        clocks += [row.sm_clock_mhz for row in rows if row.sm_clock_mhz]
        throttled += sum(row.throttled is True for row in rows)
    return {
        "schema": SCHEMA,
        "target": device.target,
        "device": device.name,
        "driver": device.driver,
        "memory_bytes": device.memory_bytes if device.is_cuda else None,
        "source": device.source,
        "torch": importlib.metadata.version("torch"),
        "python": platform.python_version(),
        "perfc_commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "sm_clock_mhz": _spread(clocks),
        "throttled_rows": throttled,
        "rows": tables,
        "failed": {n: p.failed for n, p in collection.progress.items() if p.failed},
        "left_out": sorted(p.name for p in collection.folder.glob("*.failed.txt")),
        "seconds": round(sum(p.seconds for p in collection.progress.values())),
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "least": min(values),
        "median": statistics.median(values),
        "most": max(values),
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        cwd=Path(__file__).parent,
        capture_output=True,
        check=False,
        text=True,
    )
    return done.stdout.strip()


def say(line: str) -> None:
    """Print one line at once."""
    print(line, flush=True)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=sorted(JOBS), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pieces", type=int, default=sys.maxsize)
    parser.add_argument("--only", action="append", help="names of jobs or verbs")
    options = parser.parse_args()
    jobs = [
        job
        for job in JOBS[options.device]
        if not options.only or {job.name, job.arguments[0]} & {*options.only}
    ]
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job's time is over
    try:
        return collect(Collection(options.out, options.device, jobs), options.pieces)
    except PerfcError as error:
        say(f"collect: error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("collect: interrupted; the same command goes on")
        return _INTERRUPTED


def collect(collection: Collection, pieces: int) -> int:
    """Run some pieces; return 0 unless a job failed.

    Raises:
        PerfcError: the folder is of another device, or cannot be written.

    """
    collection.load()
    for _ in range(pieces):
        if collection.next_job() is None:
            break
        collection.run_piece()
    left = [name for name, p in collection.progress.items() if not p.done]
    content = json.dumps(manifest(collection), indent=1) + "\n"
    write_file(collection.folder / "manifest.json", content)
    for name, progress in collection.progress.items():
        if progress.failed:
            say(f"failed: {name}: {progress.failed}")
    say(f"left: {', '.join(left)}; the same command goes on" if left else "complete")
    return int(any(progress.failed for progress in collection.progress.values()))


if __name__ == "__main__":
    sys.exit(main())
