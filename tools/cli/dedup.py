"""`perfc dedup`: look lists up once that samples of a session repeat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfc.ir import UsageError
from perfc.tools.cli import arguments
from perfc.tools.cli.output_options import result_format_option, write_answer
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.verb import Verb, current_progress
from perfc.tools.request import TRAINING

if TYPE_CHECKING:
    from perfc.tools.dedup import DedupQuestion


@click.command(
    cls=Verb,
    epilog="Example: perfc dedup dlrm-ddp --session 9 --stay '*=1' --target t4 "
    "--batch 8",
)
@click.argument("model", metavar="MODEL")
@click.option(
    "--session",
    type=arguments.NumberRange(min=1.0),
    metavar="S",
    help="Mean samples of a session inside a batch; 1 in a shuffled one.",
)
@click.option(
    "--stay",
    multiple=True,
    metavar="PATTERN=d",
    help="Probability that the lists of the features that PATTERN matches all stay "
    "from one sample of a session to the next; they are a group. Repeat for more.",
)
@click.option(
    "--measure",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Measure both on samples: Parquet or CSV, a line a sample in the order of "
    "batches, a column a feature.",
)
@click.option(
    "--session-key", metavar="COL", help="Column of FILE that names sessions."
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN[+PATTERN...]",
    help="Features with one inverse index; repeat for more. If not given, what each "
    "--stay matches, or each feature that is measured.",
)
@arguments.request_option("target", required=False, multiple=False, help="The machine.")
@arguments.request_options("preset")
@arguments.request_option("batch", help="Samples of each rank.")
@arguments.request_options("dims", "pooling", "popularity")
@arguments.request_option("mode", default=TRAINING, help=None)
@arguments.request_options("optimizer")
@arguments.request_option(
    "ranks",
    help="GPUs that run it; their tables are sharded, table-wise unless --pass "
    "shard-embeddings{plan=...} says how.",
)
@arguments.request_options(
    "dtype", "runtime", "inputs", "overheads", "passes", "overrides"
)
@plugin_option
@result_format_option
@arguments.output_option()
@arguments.quiet_option()
@arguments.debug_option
def dedup(model: str, **options: Any) -> int:
    """Say what MODEL gains if lists that sessions repeat are looked up once.

    MODEL is a file or a built-in workload (`perfc models`), as `perfc analyze` has it.
    Features are tables by the names of their parameters, without `.weight`.
    """
    from perfc.tools.dedup import dedup as run

    question = _question(model, options)
    say = current_progress().step
    found = run(question, say=say)
    write_answer(found)
    return 0


def _question(model: str, options: dict[str, Any]) -> DedupQuestion:
    """Read what is asked."""
    from perfc.tools.dedup import DedupQuestion

    measure, stays = options["measure"], arguments.pairs(options["stay"], "--stay")
    for name in ("session", "stay"):
        given = options[name] not in (None, ())
        if measure is not None and given:
            msg = f"--measure and --{name} exclude each other"
            raise UsageError(msg)
        if measure is None and not given:
            msg = f"--{name} is missing: give it, or --measure FILE --session-key COL"
            raise UsageError(msg)
    if (measure is None) != (options["session_key"] is None):
        msg = "--measure FILE and --session-key COL go together"
        raise UsageError(msg)
    targets: Sequence[str] = [options["target"]] if options["target"] else []
    (asked,) = arguments.read_requests(model, options, targets)
    return DedupQuestion(
        request=asked,
        session=options["session"],
        stay=";".join(f"{name}:{value}" for name, value in stays.items()),
        groups=options["groups"],
        measure=None if measure is None else str(measure),
        session_key=options["session_key"] or "",
    )
