"""`perfc locality`: how popular the rows of embedding tables are."""

from __future__ import annotations

from pathlib import Path

import click

from perfc.ir import UsageError
from perfc.tools.cli.arguments import debug_option, output_option, request_option
from perfc.tools.cli.output_options import format_option
from perfc.tools.cli.verb import Verb
from perfc.tools.files import write_result

_SAMPLE = 2_000_000


@click.command(
    cls=Verb,
    epilog="Example: perfc locality indices.npz --target a100 -o popularity.json",
)
@click.argument("trace", metavar="TRACE", type=click.Path(path_type=Path))
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    metavar="N",
    help="Samples of a batch.",
)
@request_option("target", help="Whose L2 is asked for.", required=False, multiple=False)
@click.option(
    "--row-bytes",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    metavar="N",
    help="Of a row: its columns times the bytes of one.",
)
@click.option(
    "--hits",
    default="50,80,90,95",
    show_default=True,
    metavar="PERCENT,...",
    help="Hits that caches shall have.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=_SAMPLE,
    show_default=True,
    metavar="N",
    help="Lookups of a table above which caches are told from a sample of its rows.",
)
@click.option(
    "--fit/--no-fit",
    default=True,
    show_default=True,
    help="Fit a law to each table, which takes some seconds.",
)
@format_option
@output_option(
    "Write the popularity of each table there: what `analyze --popularity` reads."
)
@debug_option
def locality(
    *,
    trace: Path,
    batch: int,
    target: str | None,
    row_bytes: int,
    hits: str,
    sample: int,
    fit: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Say how popular the rows of embedding tables are, from an index trace.

    TRACE is .npz (indices and lengths, or an array a table), .npy, .parquet or .csv (a
    column a table, a line a sample). Of each table: lookups, rows touched, different
    rows of a batch, what the hottest rows take, a fitted popularity, and which caches
    hit how often.
    """
    from perfc.costmodels import load_target
    from perfc.measurements import read_index_trace
    from perfc.tools.locality import (
        Question,
        localities,
        locality_json,
        locality_text,
        popularity_json,
    )

    # Read percentages.
    try:
        found = [float(part) for part in hits.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < percent <= 100 for percent in found):  # noqa: PLR2004
        msg = f"--hits {hits!r}: expected percentages, as 50,90"
        raise UsageError(msg)
    question = Question(
        batch=batch,
        row_bytes=row_bytes,
        hits=tuple(percent / 100 for percent in found),
        sample=sample,
        fit=fit,
        target=load_target(target) if target else None,
    )
    tables = localities(read_index_trace(trace), question)
    if output is not None:
        write_result(popularity_json(tables), output)
    as_json = format_ == "json"
    write = locality_json if as_json else locality_text
    write_result(write(tables), None, document=as_json)
    return 0
