"""`perfc rescale`: predict another GPU from a trace of one you own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import counted
from perfc.tools.cli import arguments, output_options
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result
from perfc.tools.replay import check_steps

if TYPE_CHECKING:
    from perfc.costmodels import Target


@click.command(
    cls=Verb,
    epilog="Example: perfc rescale trace.json.gz --to a100 --to h100",
)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TRACE"
)
@click.option(
    "--to",
    "--target",
    "names",
    multiple=True,
    required=True,
    metavar="NAME|FILE.toml",
    help="GPU to predict; give it again, or names with commas between, for more.",
)
@click.option(
    "--from",
    "origin",
    metavar="NAME|FILE.toml",
    help="GPU the trace was measured on, if not the one that it names.",
)
@click.option(
    "--method",
    type=click.Choice(["model", "wave"]),
    default="model",
    show_default=True,
    help="Rescale kernels by perfc's models where they know them, else by their waves "
    "of blocks; or all of them by their waves.",
)
@arguments.request_option(
    "overheads",
    metavar="NAME|PROFILE.toml",
    help="Host times of this profile; those of the trace if not given.",
)
@click.option(
    "--same-host",
    is_flag=True,
    help="The GPU is in the machine that the trace was measured on, so that another "
    "host is no part of the interval.",
)
@click.option(
    "--tf32/--no-tf32",
    default=True,
    show_default=True,
    help="Convolutions of fp32 in TF32 on GPUs that have it, as PyTorch runs them by "
    "default, though the GPU of the trace has not.",
)
@output_options.steps_option("Report these profiler steps only.")
@output_options.max_events_option
@output_options.contention_option
@output_options.format_option
@arguments.output_option()
@arguments.quiet_option("No remarks below the tables.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Say of each kernel by what it was carried over, and how far.",
)
@arguments.debug_option
def rescale(
    *,
    files: tuple[Path, ...],
    names: tuple[str, ...],
    origin: str | None,
    method: str,
    overheads: str | None,
    same_host: bool,
    tf32: bool,
    steps: range | None,
    max_events: int,
    contention: bool,
    format_: str,
    output: Path | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Predict the time of a measured trace on other GPUs.

    TRACE is a Kineto trace of PyTorch's profiler, .json or .json.gz, or beside it the
    execution trace of the same run, which tells the arguments of its ops. Each kernel's
    measured time is multiplied by the ratio of what perfc predicts for it on both
    GPUs; then the trace runs again by perfc's rules of time.
    """
    from perfc.costmodels import load_profile, load_target
    from perfc.tools import replay

    targets = [load_target(name) for name in _split(names)]
    host = None if overheads is None else load_profile(overheads)
    recorded, *others = replay.read_recorded(files, steps=steps, max_events=max_events)
    if others:
        msg = f"{len(files)} traces; expected one, and its execution trace if there is"
        raise UsageError(msg)
    if not recorded.works:
        what = "the device did nothing in it; there is nothing to rescale"
        msg = f"{recorded.trace.file}: {what}"
        raise PerfcError(msg)
    check_steps([recorded], steps)
    ops = replay.trace_ops(recorded)
    measured_on = replay.target_of_trace(recorded, origin, "--from")
    for target in targets:
        _check_kind(measured_on, target)
    here = replay.trace_prices(ops, measured_on)
    rescaling = replay.Rescaling(
        ops, here, replay.Method(method), host, steps, contention, tf32, same_host
    )
    found = [rescaling.to(target) for target in counted(targets, "targets")]
    if format_ == "json":
        text = replay.rescale_json(rescaling, found, verbose=verbose)
    else:
        text = replay.rescale_text(rescaling, found, quiet=quiet, verbose=verbose)
    write_result(text, output, document=format_ == "json")
    return 0


def _check_kind(origin: Target, target: Target) -> None:
    """Refuse a CPU for a trace of a GPU, and the other way round."""
    if origin.device.synchronous == target.device.synchronous:
        return
    msg = (
        f"--to {target.name}: the trace is of {origin.name}, and a CPU runs other "
        f"kernels than a GPU; predict the model itself: perfc analyze --target "
        f"{target.name}"
    )
    raise UsageError(msg)


def _split(names: tuple[str, ...]) -> list[str]:
    """Return targets by their names, of which one option may give several."""
    found = [name.strip() for given in names for name in given.split(",")]
    if not all(found):
        msg = f"--to {','.join(names)}: an empty name"
        raise UsageError(msg)
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        msg = f"--to {twice} is given twice"
        raise UsageError(msg)
    return found
