"""`make fuzz`: many damaged inputs; none may end in anything but a clear line.

    python -m tests.fuzz.run --inputs 300000 [--seed S] [--jobs J] [--seconds T]

Input N of seed S is the same on every run of one revision. What fails is kept in
the folder `fuzz/` with the command to run it again. What was tried is kept there, too:
a run that was interrupted, or was given `--seconds`, goes on when it is started again
with the same sources.
"""

from __future__ import annotations

import argparse
import json
import selectors
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

import attrs
from tests.fuzz.corpus import ROOT, by_kind, project_files, write_node_models
from tests.fuzz.state import State, Tally
from tests.fuzz.trial import MAX_SECONDS
from tests.fuzz.worker import numbered_input

_FRESH_AFTER = 2_000
"""A worker is replaced after so many inputs: it may remember no more than that."""

WORKER = ("-m", "tests.fuzz.worker")
KEPT = ROOT / "fuzz"
"""Where inputs that failed are kept."""

GRACE_S = 600.0
"""What an input may wait for a busy processor before its worker is killed."""

_EVERY_S = 2.0


@attrs.define(eq=False)
class Worker:
    """A process that runs inputs; killed when one takes too long."""

    seed: int
    corpus: Path
    process: subprocess.Popen[str] | None = None
    ran: int = 0

    def ask(self, number: int) -> dict[str, Any]:
        """Return the verdict of input *number*."""
        if self.ran >= _FRESH_AFTER:
            self.stop()
        process = self.process or self._start()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError(process.args)
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
        self.ran += 1
        if not self._answers(process):
            self.stop()
            return _lost(f"no end after {MAX_SECONDS + GRACE_S:.0f} s")
        line = process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = process.wait()
        self.stop()
        return _lost(f"the process died ({code})")

    def _start(self) -> subprocess.Popen[str]:
        self.ran = 0
        self.process = subprocess.Popen(
            [sys.executable, *WORKER, str(self.seed), str(self.corpus)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self.process

    def _answers(self, process: subprocess.Popen[str]) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout or 0, selectors.EVENT_READ)
            return bool(selector.select(MAX_SECONDS + GRACE_S))

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


def _lost(problem: str) -> dict[str, Any]:
    return {"problem": problem, "code": -1, "seconds": MAX_SECONDS}


def main(argv: list[str] | None = None) -> int:
    """Run the inputs asked for that were not run before; 0 if none has failed."""
    options = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        files = [*project_files(), *write_node_models(Path(folder))]
        if options.keep is not None:
            print(_keep(options.seed, options.keep, by_kind(files)))
            return 0
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text("\n".join(map(str, files)), encoding="utf-8")
        state = State.of(KEPT, ROOT, options.seed)
        tally = Tally(options.inputs) if options.anew else state.load(options.inputs)
        _run_all(options, corpus, by_kind(files), (state, tally))
    print(tally.line())
    if tally.done < tally.total:
        print("interrupted; the same command goes on")
        return 130
    return 1 if tally.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Try odd inputs.")
    parser.add_argument("--inputs", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="Stop after so many seconds.")
    parser.add_argument("--anew", action="store_true", help="Forget what was tried.")
    parser.add_argument("--keep", type=int, help="Only write input KEEP into fuzz/.")
    return parser


def _run_all(
    options: argparse.Namespace,
    corpus: Path,
    kinds: Mapping[str, list[Path]],
    kept: tuple[State, Tally],
) -> None:
    state, tally = kept
    shown, begun_s = len(tally.failures), time.monotonic()
    numbers, stop = _Shared(tally.left()), Event()
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(_drain, Worker(options.seed, corpus), numbers, tally, stop)
            for _ in range(options.jobs)
        ]
        try:
            while not all(job.done() for job in jobs):
                time.sleep(_EVERY_S)
                shown = _show_failures(options.seed, kinds, tally, shown)
                state.save(tally)
                print(f"\r{tally.line()}", end="", file=sys.stderr, flush=True)
                if options.seconds and time.monotonic() - begun_s > options.seconds:
                    stop.set()
        except KeyboardInterrupt:
            stop.set()
    print(file=sys.stderr)
    _show_failures(options.seed, kinds, tally, shown)
    state.save(tally)
    for job in jobs:
        job.result()


@attrs.define(eq=False)
class _Shared:
    """Numbers that several threads take from."""

    numbers: Iterator[int]
    lock: Lock = attrs.field(factory=Lock, init=False)

    def take(self) -> int | None:
        with self.lock:
            return next(self.numbers, None)


def _drain(worker: Worker, numbers: _Shared, tally: Tally, stop: Event) -> None:
    try:
        while not stop.is_set() and (number := numbers.take()) is not None:
            tally.add(number, worker.ask(number))
    finally:
        worker.stop()


def _show_failures(
    seed: int, kinds: Mapping[str, list[Path]], tally: Tally, shown: int
) -> int:
    """Keep and print what failed since the first *shown*; return how many there are."""
    failures = tally.failures[shown:]
    for number, problem in failures:
        print(f"input {number} ({_keep(seed, number, kinds)}): {problem}", flush=True)
    return shown + len(failures)


def _keep(seed: int, number: int, kinds: Mapping[str, list[Path]]) -> Path:
    """Write input *number* into `fuzz/`, with the command that reads it."""
    item = numbered_input(seed, number, kinds)
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{seed}-{number}{item.suffix}"
    path.write_bytes(item.data)
    command = shlex.join(["perfc", *item.command(path), "--debug"])
    if item.relation:
        command += f"\n{shlex.join(['perfc', *item.other])} must not be {item.relation}"
    path.with_suffix(".txt").write_text(
        f"{command}\nmade from {item.source}\n", encoding="utf-8"
    )
    return path


if __name__ == "__main__":
    raise SystemExit(main())
