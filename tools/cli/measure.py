"""`perfc measure`: run for real, and write measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfc.ir.support import write_file
from perfc.tools.cli import arguments
from perfc.tools.cli.output_options import device_option, minutes_option
from perfc.tools.cli.verb import VerbGroup, current_progress
from perfc.tools.models import start_torch
from perfc.tools.request import INFERENCE, TRAINING

if TYPE_CHECKING:
    from perfc.measure.models import Keep
    from perfc.measure.profiled import Trace
    from perfc.measurements import WorkloadMeasurement

ATTENTION = ("auto", "flash", "efficient", "cudnn", "math")

_EXAMPLE = "perfc measure kernels --device cpu --minutes 0.05 -o rows.csv"

_DEVICE = device_option(
    "What to run on: the first GPU that PyTorch sees, or the CPU.", required=True
)
_OUTPUT = arguments.output_option(
    "Rows, .parquet or .csv; what is there already is continued.", required=True
)


@click.group(cls=VerbGroup, epilog=f"Example: {_EXAMPLE}")
def measure() -> None:
    """Run for real on this machine, and write rows that perfc can be checked with."""


@measure.command("kernels", epilog=f"Example: {_EXAMPLE}")
@_DEVICE
@click.option(
    "--suite",
    type=click.Choice(["quick", "full", "workloads"]),
    default="quick",
    show_default=True,
    help="How many shapes of each op, and how large.",
)
@minutes_option(5.0, "Stop then; any beginning of a suite has all ops.")
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="NAME",
    help="Only this op; repeat for several.",
)
@_OUTPUT
@arguments.quiet_option()
@arguments.debug_option
def kernels(
    *,
    device: str,
    suite: str,
    minutes: float,
    ops: Sequence[str],
    output: Path,
    quiet: bool,
) -> int:
    """Time single ops over a range of shapes, and write the rows to FILE.

    A run that was interrupted continues with the same command. A random third of the
    shapes is marked `split=test`: nothing is fitted to those.
    """
    start_torch()
    from perfc.measure.device import open_device
    from perfc.measure.kernel_run import KernelRun

    run = KernelRun(open_device(device), suite, output, ops=ops)
    run.measure(minutes * 60, say=current_progress().line)
    return 0


@measure.command(
    "overheads",
    epilog="Example: perfc measure overheads --device cpu -o host.csv",
)
@_DEVICE
@_OUTPUT
@arguments.quiet_option()
@arguments.debug_option
def overheads(*, device: str, output: Path, quiet: bool) -> int:
    """Measure what the host takes around kernels, and write the rows to FILE.

    T1 to T5 by op and by call, from training steps of three small models under
    PyTorch's profiler, whose own time is taken out; on a GPU also the floors of
    launches, waits, copies and CUDA graphs. About a minute.
    """
    start_torch()
    from perfc.measure.device import open_device
    from perfc.measure.host import OverheadRun

    OverheadRun(open_device(device), output).measure(current_progress().line)
    return 0


@measure.command(
    "workload",
    epilog="Example: perfc measure workload dlrm-ddp:rows=1000 --device cpu "
    "--batch 128 --mode training -o rows.csv",
)
@click.argument("model")
@_DEVICE
@arguments.request_option(
    "mode",
    multiple=True,
    default=(INFERENCE,),
    help="training: forward, loss, backward and optimizer. Repeat for both.",
)
@arguments.request_option(
    "optimizer", help="Of --mode training; the factory's own, or sgd, if not given."
)
@arguments.request_option(
    "batch", multiple=True, help="Samples in the batch; repeat for several."
)
@arguments.request_option(
    "dtype",
    help="What the model computes in: bf16 and fp16 throughout, amp-… by autocast.",
)
@arguments.request_option(
    "runtime",
    multiple=True,
    default=("eager",),
    help="cudagraph: captured once and replayed; compiled: by torch.compile. "
    "Repeat for several.",
)
@arguments.request_option(
    "inputs",
    help="Where inputs are when an iteration starts; on a CPU always there.",
)
@click.option(
    "--attention",
    type=click.Choice(ATTENTION),
    default=ATTENTION[0],
    show_default=True,
    help="What scaled dot-product attention takes where it can; auto: as PyTorch does.",
)
@click.option(
    "--iterations",
    type=click.IntRange(3),
    default=50,
    show_default=True,
    metavar="N",
    help="Iterations to time, if there is time.",
)
@minutes_option(1.0, "Time no longer than that for a row.")
@_OUTPUT
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Kineto trace of further iterations; .gz compresses. Of several rows, "
    "one file each.",
)
@arguments.quiet_option()
@arguments.debug_option
def workload(model: str, **options: Any) -> int:
    """Run iterations of MODEL, and write what they took to FILE.

    MODEL is a built-in workload (NAME:key=value,...; see `perfc models`), run as its
    twin in PyTorch, or a function that makes a module and example arguments
    (file.py:factory, pkg.mod:factory). There is one row for each batch, mode and
    runtime; a run that was interrupted continues with the same command. On a GPU all
    are timed before any is profiled, for the profiler slows what follows it.
    """
    if options["optimizer"] is not None and TRAINING not in options["mode"]:
        from perfc.tools.models import check_mode

        check_mode(INFERENCE, options["optimizer"])
    start_torch()
    from perfc.measure.device import open_device
    from perfc.measure.models import WorkloadRun, find_subject

    device = open_device(options["device"])
    run = WorkloadRun(
        device,
        find_subject(model),
        options["output"],
        iterations=options["iterations"],
        seconds=options["minutes"] * 60,
    )
    # The settings to measure: every batch in every mode and runtime.
    from perfc.measure.models import OWN, Setting

    settings = [
        Setting(
            batch=batch,
            mode=mode,
            optimizer=(options["optimizer"] or OWN) if mode == TRAINING else "",
            dtype=options["dtype"],
            runtime=runtime,
            inputs=options["inputs"],
            attention=options["attention"],
        )
        for batch in options["batch"] or (None,)
        for mode in options["mode"]
        for runtime in options["runtime"]
    ]
    if options["trace"] is not None:
        run.keep = _writer_of(options["trace"], several=len(settings) > 1)
    run.measure(settings, say=current_progress().line)
    return 0


def _writer_of(path: Path, *, several: bool) -> Keep:
    """Return a writer of the trace of a row; of several rows, one file each."""
    stem, dot, suffix = path.name.partition(".")

    def write(row: WorkloadMeasurement, trace: Trace) -> None:
        words = (stem, str(row.batch), row.mode, row.runtime)
        named = path.with_name("-".join(words) + dot + suffix)
        write_file(named if several else path, trace.text)

    return write
