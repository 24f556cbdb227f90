"""`perfc calibrate`: measure this machine, or take rows, and write its profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfc.costmodels.sheets import profile_problems
from perfc.ir import PerfcError, UsageError
from perfc.ir.support import write_file
from perfc.tools.cli import arguments, output_options
from perfc.tools.cli.verb import Verb, current_progress
from perfc.tools.files import print_line
from perfc.tools.models import start_torch

if TYPE_CHECKING:
    from perfc.measurements import Measurement

_SUFFIX = ".toml"


@click.command(
    cls=Verb,
    epilog="Example: perfc calibrate --device cpu --minutes 0.05 -o cpu.toml",
)
@output_options.device_option(
    "What to measure, or whose rows --from has; without --from: cpu."
)
@click.option(
    "--from",
    "tables",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="TABLE|TRACE|LOG",
    help="Rows that were measured, .parquet or .csv, logs of nccl-tests, .log or .txt, "
    "or Kineto traces of one host, .json or .json.gz; repeat for several. Nothing is "
    "measured then.",
)
@arguments.request_option(
    "target",
    metavar="NAME",
    help="What the logs of nccl-tests ran on, as dgx-h100; by their GPUs if not given.",
    required=False,
    multiple=False,
)
@output_options.steps_option("Learn from these profiler steps of the traces only.")
@output_options.max_events_option
@output_options.minutes_option(1.8, "How long to measure.")
@arguments.output_option(
    "The profile, for --target and --overheads.", "PROFILE.toml", required=True
)
@click.option(
    "--rows",
    "keep",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="TABLE",
    help="Keep the rows that were measured, .parquet or .csv.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Measure other shapes than those of every calibration, to check one with.",
)
@arguments.quiet_option("No progress on stderr, no errors of the fit on stdout.")
@arguments.debug_option
def calibrate(
    *,
    device: str | None,
    tables: Sequence[Path],
    target: str | None,
    steps: range | None,
    max_events: int,
    minutes: float,
    output: Path,
    keep: Path | None,
    seed: int | None,
    quiet: bool,
) -> int:
    """Fit a profile of this machine, and print how far off it is.

    Rows are measured now, or come from tables of `perfc measure`. A third of them is
    never fitted: the errors printed are those, before and after. From traces a host is
    learnt: what PyTorch and the runtime took between and in their calls. From logs of
    nccl-tests collectives are. From whole networks (perfc.workloads/1) come a factor
    for each op and the memory that libraries hold.
    """
    from perfc.measurements import WORKLOADS, is_nccl_log
    from perfc.measurements.table import holds
    from perfc.tools.calibration import calibrate_rows, profile_of, summary

    _check_options(output, tables, keep, seed)
    traces = _all_or_none(tables, "traces", lambda path: ".json" in path.suffixes)
    networks = _all_or_none(
        tables, "whole networks", lambda path: holds(path, WORKLOADS)
    )
    if steps is not None and not traces:
        msg = "--steps chooses steps of traces; give traces with --from"
        raise UsageError(msg)
    if target is not None and not any(map(is_nccl_log, tables)):
        msg = "--target says what logs of nccl-tests ran on; give logs with --from"
        raise UsageError(msg)
    if traces:
        text, lines = _from_traces(tables, steps, max_events, output.stem)
    elif networks:
        text, lines = _from_networks(tables, output)
    else:
        rows, unread = _rows(tables, target, device, (minutes * 60, keep, seed))
        found = calibrate_rows(rows, unread)
        text, lines = profile_of(found, output, rows), list(summary(found))
    _write(output, text)
    for line in lines if not quiet else ():
        print_line(line)
    return 0


def _all_or_none(
    paths: Sequence[Path], what: str, is_such: Callable[[Path], bool]
) -> bool:
    """Whether all files are of a kind that is calibrated by itself."""
    such = [path for path in paths if is_such(path)]
    if such and len(such) < len(paths):
        msg = (
            f"--from: {what} and other tables at once; calibrate from one, then from "
            "the other"
        )
        raise UsageError(msg)
    return bool(such)


def _rows(
    tables: Sequence[Path],
    target: str | None,
    device: str | None,
    measuring: tuple[float, Path | None, int | None],
) -> tuple[list[Measurement], Counter[str]]:
    """Return the rows of tables, or those that are measured now; and faulty ones."""
    if not tables:
        return _measured(device or "cpu", *measuring), Counter[str]()
    # The rows of all files, and how many cannot be read, by reason.
    from perfc import measurements

    rows: list[Measurement] = []
    unread: Counter[str] = Counter()
    for path in tables:
        if measurements.is_nccl_log(path):
            rows += measurements.read_nccl_log(path, target)
            continue
        usable, faulty = measurements.read_usable_rows(path, measurements.MEASUREMENTS)
        rows += usable
        unread += faulty
    # Refuse rows of a CPU where a GPU's were announced, and the other way round.
    others = sorted(
        {row.target for row in rows if (row.target == "cpu") is (device == "cuda")}
    )
    if device is not None and others:
        msg = f"--device {device}: the rows are of {', '.join(others)}"
        raise PerfcError(msg)
    return rows, unread


def _check_options(
    output: Path, tables: Sequence[Path], keep: Path | None, seed: int | None
) -> None:
    """Refuse a name that is no profile's, and options of measuring without any."""
    if output.suffix != _SUFFIX:
        msg = f"-o {output}: expected a name that ends in {_SUFFIX}"
        raise UsageError(msg)
    for option, given in (("--rows", keep), ("--seed", seed)):
        if tables and given is not None:
            msg = f"{option} is of what is measured; with --from nothing is"
            raise UsageError(msg)


def _write(path: Path, profile: str) -> None:
    """Write a profile that can be read again."""
    if problems := profile_problems(profile):
        msg = (
            f"what was measured makes no profile: {problems[0]}; are its times in "
            "microseconds, and of this device?"
        )
        raise PerfcError(msg)
    write_file(path, profile.encode())


def _from_traces(
    paths: Sequence[Path], steps: range | None, max_events: int, name: str
) -> tuple[str, list[str]]:
    from perfc.tools.calibration import calibrate_traces
    from perfc.tools.replay import read_traces
    from perfc.traces.recording import record

    traces = read_traces(paths, steps, max_events)
    return calibrate_traces([record(trace) for trace in traces], steps, name)


def _from_networks(paths: Sequence[Path], output: Path) -> tuple[str, list[str]]:
    """Return the profile that measured networks say, and what to print."""
    from perfc.fitting.profile_file import profile_text
    from perfc.measurements import TEST, WORKLOADS, read_rows
    from perfc.tools.calibration import calibrate_networks, head_of, network_summary

    rows = [row for path in paths for row in read_rows(path, WORKLOADS)]
    found = calibrate_networks(rows)
    head = head_of(output, [row.source for row in rows if row.split != TEST])
    text = profile_text(head, target=found.target, fields=found.fields, fits=found.fits)
    return text, list(network_summary(found))


def _measured(
    device: str, seconds: float, keep: Path | None, seed: int | None
) -> list[Measurement]:
    start_torch()
    from perfc.measure.design import SEED
    from perfc.measure.for_fit import measure_for_fit

    chosen = SEED if seed is None else seed
    return measure_for_fit(
        device, seconds, keep, say=current_progress().line, seed=chosen
    )
