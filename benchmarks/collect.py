"""Measure this machine within a time: one process, tables that are whole at any moment.

    python benchmarks/collect.py --device cuda --out FOLDER --window --seconds 570
    python benchmarks/collect.py --device cuda --out FOLDER --probe --seconds 80
    python benchmarks/collect.py --dry-run --target h100-sxm-80g --seconds 570

FOLDER gets tables of kernels, host overheads, whole workloads, their launches and
sustained loads, `manifest.json`, and two archives: eight files. It ends by its own
clock; when it is interrupted, cut off or killed, the same command continues. `--probe`
runs one case of everything, and tells what fails; `--dry-run` says what a run would
measure.

PyTorch and a plain copy of the repository are enough, where attrs, click and numpy are
there: `PYTHONPATH=src python3 benchmarks/collect.py ...`. Without pyarrow tables are
CSV.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from collection import clock
from collection.output import Output

from perfc.ir import PerfcError
from perfc.tools.models.torch_source import start_torch

_DEVICES = ("cuda", "cpu")
_RESTARTS = "PERFC_COLLECT_RESTARTS"
_MOST_RESTARTS, _LEAST_SECONDS = 3, 20.0
_INTERRUPTED, _TERMINATED = 130, 143


def say(line: str) -> None:
    """Print one line at once."""
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code."""
    begin = time.monotonic()
    options = _options(arguments)
    try:
        if options.dry_run:
            from collection.estimate import print_estimate

            print_estimate(options.target, options.seconds)
            return 0
        clock.end_when_asked()
        return _collect(options, begin)
    except PerfcError as error:
        say(f"collect: error: {error}")
        return error.exit_code
    except clock.Terminated:
        say("collect: ended by SIGTERM; the same command continues")
        return _TERMINATED
    except KeyboardInterrupt:
        say("collect: interrupted; the same command continues")
        return _INTERRUPTED


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--window", action="store_true", help="measure all parts")
    what.add_argument("--probe", action="store_true", help="run one case of everything")
    what.add_argument(
        "--dry-run", action="store_true", help="say what would be measured"
    )
    parser.add_argument("--device", choices=_DEVICES)
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--seconds", type=_seconds, default=570.0, metavar="N")
    parser.add_argument("--target", default="h100-sxm-80g", help="of --dry-run")
    options = parser.parse_args(arguments)
    if not options.dry_run and (options.device is None or options.out is None):
        parser.error("--device and --out are needed to measure")
    return options


def _seconds(text: str) -> float:
    """Read a time; argparse says what is wrong with another."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _collect(options: argparse.Namespace, begin: float) -> int:
    """Measure until the time is over.

    Raises:
        PerfcError: there is no such device or no room, or another run is at work there.

    """
    output = Output(options.out, options.device)
    output.open()
    try:
        end = begin + options.seconds
        clock.watch(end, output.copy_as_it_is)
        start_torch()
        from collection.session import Session

        session = Session(output, options.device, begin, end)
        failed = session.probe() if options.probe else session.window()
    finally:
        output.close()
    if failed:
        _start_again(options, end - time.monotonic())
    return 0


def _start_again(options: argparse.Namespace, seconds: float) -> None:
    """Begin anew in the same process, whose context of the GPU is then another.

    Raises:
        SystemExit: that was tried often enough, or too little time is left.

    """
    restarts = int(os.environ.get(_RESTARTS, "0"))
    if restarts >= _MOST_RESTARTS or seconds < _LEAST_SECONDS:
        say("collect: the GPU failed again; the same command continues")
        raise SystemExit(1)
    os.environ[_RESTARTS] = str(restarts + 1)
    say(f"collect: beginning anew with {seconds:.0f} s left")
    command = [sys.executable, "-u", __file__, "--device", options.device]
    command += ["--probe" if options.probe else "--window"]
    command += ["--out", str(options.out), "--seconds", f"{seconds:.1f}"]
    for path in Path("/proc/self/fd").iterdir():
        descriptor = int(path.name)
        if descriptor > 2:  # the driver's go with the GPU that failed
            with contextlib.suppress(OSError):
                os.set_inheritable(descriptor, False)
    os.execv(sys.executable, command)  # noqa: S606 - our own arguments


if __name__ == "__main__":
    sys.exit(main())
