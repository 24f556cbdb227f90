"""`perfc sweep`: many configurations of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfc.ir import PerfcError, UsageError
from perfc.tools.cli import arguments
from perfc.tools.cli.plugin_option import plugins_option
from perfc.tools.cli.verb import Verb, current_progress
from perfc.tools.files import write_result

if TYPE_CHECKING:
    from perfc.tools.sweeping import Progress, Sweep

_USUAL = (
    "samples_per_s,time_us,samples_per_j,usd_per_million_samples,peak_memory_bytes,fits"
)


@click.command(
    cls=Verb,
    epilog="Example: perfc sweep dlrm-default --vary batch=512:4096:x2 --target a100",
)
@click.argument("model")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="NAME=a,b,c|lo:hi:step|lo:hi:xFACTOR",
    help="What varies: batch, dtype, runtime, mode, ranks, place, popularity, a "
    "parameter of a workload, a dimension (or dim:NAME), a field of the target as "
    "gpu.memory_gb_per_s; repeat for several, whose combinations are all priced.",
)
@arguments.request_options(
    *("target", "batch", "dims", "pooling", "popularity", "mode", "optimizer"),
    *("accumulate", "prune", "ranks", "dtype", "runtime", "attention", "inputs"),
    "overheads",
    *("passes", "pipeline", "overrides", "price", "carbon"),
)
@click.option(
    "--metric",
    default=_USUAL,
    show_default=True,
    metavar="NAME[,NAME...]",
    help="What is wanted of each: keys of a report's summary, and fits.",
)
@click.option(
    "--executor",
    default="local",
    show_default=True,
    metavar="local[:N]|dask://HOST:PORT",
    help="Who prices: N processes of this machine (one a processor), or Dask.",
)
@click.option(
    "--resume", is_flag=True, help="Go on with the rows that the file of -o has."
)
@click.option(
    "--where",
    "condition",
    metavar="CONDITION",
    help="Show only rows of which it holds, as 'peak_memory_bytes < 80e9 and fits'.",
)
@click.option(
    "--pareto",
    metavar="METRIC,METRIC[,...]",
    help="Show only rows that no other row beats in all of these.",
)
@click.option(
    "--best",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show only the N best by the first metric that is known, the best first.",
)
@plugins_option(told=True)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "csv", "json", "html"]),
    default="table",
    show_default=True,
)
@arguments.output_option(
    "Keep all rows there while they come: .parquet, .csv, .html or .json.",
)
@arguments.quiet_option()
@arguments.debug_option
def sweep(model: str, **options: Any) -> int:
    """Price many configurations of MODEL: all combinations of what varies.

    One row a configuration: what varied, the metrics, their 90 % interval, what bounds
    the time, and, of a configuration that cannot be, why.
    """
    from perfc.tools.sweeping import Space, find_executor, read_varied, run_sweep

    output: Path | None = options["output"]
    if options["resume"] and output is None:
        msg = "--resume goes on with a file: name it by -o"
        raise UsageError(msg)
    space = Space.of(
        arguments.read_request(model, options),
        options["target"],
        [read_varied(text) for text in options["varied"]],
        _names(options["metric"]),
        options["plugins"],
    )
    executor = find_executor(options["executor"])
    # Find out before anything is priced whether rows can be selected as asked.
    from perfc.tools.sweeping import INTERVAL, Sweep

    first = next(iter(space))
    numbers = dict.fromkeys((*space.metrics, *INTERVAL), 1)
    _selected(Sweep(space, [space.row_of(first, **numbers)]), options)
    told = _Told()
    try:
        found = run_sweep(space, executor, output, options["resume"], told)
    finally:
        told.end()
    asked = [name for name in ("condition", "pareto", "best") if options[name]]
    if output is None or asked:
        shown = _selected(found, options)
        form = options["format_"]
        write_result(_written(shown, form), None, document=form != "table")
    return _exit_code(found)


def _written(shown: Sweep, form: str) -> str:
    if form == "html":
        return shown.to_html()
    if form == "csv":
        return shown.to_csv()
    return shown.to_json() if form == "json" else str(shown)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _selected(found: Sweep, options: Mapping[str, Any]) -> Sweep:
    if options["condition"]:
        found = found.where(options["condition"])
    if options["pareto"]:
        found = found.pareto(*_names(options["pareto"]))
    return found.best(options["best"]) if options["best"] else found


def _exit_code(found: Sweep) -> int:
    """Return 1 where nothing could be priced, with a line that says why."""
    errors = found.errors
    if not errors or errors.total() < len(found.rows):
        return 0
    ((reason, count),) = errors.most_common(1)
    msg = f"none of {len(found.rows):,} configurations can be; of {count:,}: {reason}"
    raise PerfcError(msg)


class _Told:
    """Says how far it is, and in the end how far it came."""

    def __init__(self) -> None:
        """Begin."""
        self._progress = current_progress(logged=True)
        self._last: Progress | None = None

    def __call__(self, now: Progress) -> None:
        """Show it."""
        self._last = now
        note = _failed(now)
        self._progress.count("configurations", now.done, now.total, note)

    def end(self) -> None:
        """Say where it has ended."""
        if self._last is not None:
            last = self._last
            self._progress.total(last.done, last.total, _failed(last))


def _failed(now: Progress) -> str:
    return f"{now.failed:,} cannot be" if now.failed else ""
