"""`perfc measure`: run for real, and write measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from perfc.tools.torch_source import require_torch

_HELP = {"help_option_names": ["-h", "--help"]}
_EXAMPLE = "perfc measure kernels --device cpu --suite quick --minutes 1 -o rows.csv"


@click.group(context_settings=_HELP, epilog=f"Example: {_EXAMPLE}")
def measure() -> None:
    """Run for real on this machine, and write rows that perfc can be checked with."""


@measure.command("kernels", context_settings=_HELP, epilog=f"Example: {_EXAMPLE}")
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    required=True,
    help="What to measure: the first GPU that PyTorch sees, or the CPU.",
)
@click.option(
    "--suite",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="How many shapes of each op, and how large.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="N",
    help="Stop then; any beginning of a suite has all ops.",
)
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="NAME",
    help="Only this op; repeat for several.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Rows, .parquet or .csv; what is there already is continued.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def kernels(  # noqa: PLR0913 - one argument per option
    *,
    device: str,
    suite: str,
    minutes: float,
    ops: Sequence[str],
    output: Path,
    quiet: bool,
    debug: bool,
) -> int:
    """Time single ops over a range of shapes, and write the rows to FILE.

    A run that was interrupted continues with the same command. A random third of the
    shapes is marked `split=test`: nothing is fitted to those.
    """
    require_torch("measuring needs PyTorch")
    from perfc.measure import KernelRun, open_device  # noqa: PLC0415 - imports PyTorch

    run = KernelRun(open_device(device), suite, output, ops=ops)
    run.measure(minutes * 60, say=_silent if quiet else _say)
    return 0


def _say(line: str) -> None:
    click.echo(f"perfc: {line}", err=True)


def _silent(line: str) -> None:
    pass
