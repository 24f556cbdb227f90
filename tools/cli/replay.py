"""`perfc replay`: rebuild the schedule of measured traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfc.ir import UsageError
from perfc.tools.cli import arguments, output_options
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result
from perfc.tools.replay import check_steps
from perfc.tools.reports import format_parts

if TYPE_CHECKING:
    from perfc.costmodels import HostProfile
    from perfc.tools.replay import TracePrices
    from perfc.traces import Recorded


@click.command(
    cls=Verb,
    epilog="Example: perfc replay trace.json.gz",
)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TRACE…"
)
@click.option(
    "--kernels",
    type=click.Choice(["measured", "predicted"]),
    default="measured",
    show_default=True,
    help="Durations of kernels: as measured, or as perfc predicts them where the trace "
    "says what was launched.",
)
@arguments.request_option(
    "target",
    help="Whose predicted kernels; the trace's device if not given.",
    required=False,
    multiple=False,
)
@click.option(
    "--host",
    default="exact",
    show_default=True,
    metavar="exact|per-op|global|PROFILE.toml",
    help="Host times: each as measured, the means of each op, the means over all ops, "
    "or a profile's.",
)
@output_options.steps_option(
    "Report these profiler steps only; host times are learnt from them, too."
)
@click.option(
    "--joint",
    is_flag=True,
    help="The traces are ranks of one run: collectives start when the last rank is "
    "there.",
)
@output_options.max_events_option
@output_options.contention_option
@output_options.page_option
@arguments.output_option()
@arguments.quiet_option(told=False)
@arguments.debug_option
def replay(
    *,
    files: Sequence[Path],
    kernels: str,
    target: str | None,
    host: str,
    steps: range | None,
    joint: bool,
    max_events: int,
    contention: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Run measured traces again, and say what their hosts and devices did.

    TRACE is a Kineto trace of PyTorch's profiler, .json or .json.gz, or beside it the
    execution trace of the same run, which tells the arguments of its ops. Kernels take
    what they took, or what perfc predicts for them; launches, streams, waits and
    threads follow perfc's rules. The difference to what was measured tells how far
    those rules are right.
    """
    from perfc.costmodels import load_target
    from perfc.fitting.trace_host import host_times
    from perfc.tools.replay import (
        read_recorded,
        replay_alone,
        replay_joint,
        replay_json,
        replay_parts,
        replay_title,
    )

    _check_host(host)
    if target is not None and kernels == "measured":
        msg = "--target is for --kernels predicted"
        raise UsageError(msg)
    own = _named_profile(host)  # and the target: before large files are read
    if target is not None:
        load_target(target)
    recorded = read_recorded(files, joint=joint, steps=steps, max_events=max_events)
    check_steps(recorded, steps)
    profile = _learnt(host, recorded, steps) if host in _LEARNT else own
    run = replay_joint if joint else replay_alone
    predicted = _predicted(recorded, target) if kernels == "predicted" else []
    instead = [_seconds(one, joint=joint) for one in predicted] or None
    replayed = run(recorded, profile, steps, instead, contention=contention)
    times = [time for one in recorded for time in host_times(one, steps)]
    if format_ == "json":
        text = replay_json(replayed, times, predicted)
    else:
        title = f"perfc replay: {replay_title(replayed)}"
        parts = replay_parts(replayed, times, predicted)
        text = format_parts(parts, format_, title)
    write_result(text, output, document=format_ != "table")
    return 0


def _predicted(recorded: Sequence[Recorded], name: str | None) -> list[TracePrices]:
    """Return perfc's predictions for the kernels of each trace."""
    from perfc.tools.replay import (
        target_of_trace,
        trace_ops,
        trace_prices,
    )

    return [
        trace_prices(trace_ops(one), target_of_trace(one, name, "--target"))
        for one in recorded
    ]


def _seconds(prices: TracePrices, *, joint: bool) -> dict[int, float]:
    """Return the seconds of kernels in place of those that they took, by task.

    Ranks that run together wait for each other; of one alone the waits are kept.
    """
    from perfc.tools.replay import (
        collective_prices,
        measured_on,
        with_waits,
    )

    there, recorded = prices.collectives, prices.ops.recorded
    if joint:
        return prices.seconds | {t: one.seconds for t, one in there.sent.items()}
    origin = measured_on(recorded) or prices.target
    same = origin.name == prices.target.name
    here = there if same else collective_prices(recorded, origin)
    return prices.seconds | with_waits(recorded, there, here)


_LEARNT = ("per-op", "global")


def _check_host(host: str) -> None:
    """Refuse a host that is none before traces are read."""
    from perfc.costmodels.sheets import profile_names

    names = ("exact", *_LEARNT, *profile_names())
    if host not in names and not _is_file(host):
        known = ", ".join(names)
        msg = f"--host {host}: expected {known}, or the path of a .toml profile"
        raise UsageError(msg)


def _is_file(host: str) -> bool:
    return host.endswith(".toml") or "/" in host


def _named_profile(host: str) -> HostProfile | None:
    from perfc.costmodels import load_profile

    return None if host in ("exact", *_LEARNT) else load_profile(host)


def _learnt(
    host: str, recorded: Sequence[Recorded], steps: range | None
) -> HostProfile:
    """Return the mean host times of the traces."""
    from perfc.costmodels import load_profile
    from perfc.fitting.trace_host import fit_trace_host

    per_op = host == "per-op"
    return fit_trace_host(
        recorded, load_profile("shared"), steps, per_op=per_op
    ).profile
