"""`perfc validate`: score the cost models against measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfc.ir import PerfcError
from perfc.tools.cli import arguments
from perfc.tools.cli.output_options import format_option
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result

if TYPE_CHECKING:
    from perfc.fitting.scores import GroupScore
    from perfc.measurements import MeasuredColumns

_NOT_MODELLED = 4
"""Exit code of `--strict` where rows were skipped."""


@click.command(
    cls=Verb,
    epilog="Example: perfc validate measured.csv --target h100",
)
@click.argument(
    "tables", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TABLE…"
)
@arguments.request_option(
    "target",
    help="Score rows of this target only, with this sheet or profile; repeat for "
    "several.",
    required=False,
)
@format_option
@click.option("--strict", is_flag=True, help="Exit with 4 if a row was skipped.")
@arguments.output_option()
@arguments.quiet_option(told=False)
@arguments.debug_option
def validate(
    *,
    tables: Sequence[Path],
    target: Sequence[str],
    format_: str,
    strict: bool,
    output: Path | None,
) -> int:
    """Say how far predictions are off rows that were measured.

    TABLE is a file in perfc.measurements/1, .parquet or .csv. Errors are fractions of
    the measured time, by target, op, dtype and timing.

    Rows whose source does not begin with "perfc measure" count as timed again and again
    on the same operands: what L2 holds is read from there. perfc's own rows go through
    more operands than L2 holds.

    Rows of kernels that a profile has measured are not predicted, so they are counted
    apart, and --strict does not mind them.
    """
    from perfc.fitting.scores import HELD
    from perfc.measurements import read_columns
    from perfc.tools.calibration import validation_json, validation_text

    rows = [read_columns(table) for table in tables]
    for table, found in zip(tables, rows, strict=True):
        if not len(found):
            msg = f"{table}: no rows, expected one measurement a row"
            raise PerfcError(msg)
    groups = _scores(rows, target)
    as_json = format_ == "json"
    write = validation_json if as_json else validation_text
    write_result(write(groups), output, document=as_json)
    skipped = any(set(group.skipped) - {HELD} for group in groups)
    return _NOT_MODELLED if strict and skipped else 0


def _scores(
    tables: Sequence[MeasuredColumns], names: Sequence[str]
) -> list[GroupScore]:
    from perfc.costmodels import load_target
    from perfc.fitting.scores import score

    if not names:
        return score(tables)
    targets = {target.name: target for target in map(load_target, names)}
    groups = score(tables, targets)
    if not groups:
        found = sorted({name for table in tables for name in table.target.values})
        msg = (
            f"no row of target {', '.join(targets)}; the rows are of {', '.join(found)}"
        )
        raise PerfcError(msg)
    return groups
