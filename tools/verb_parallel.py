"""`perfc parallel`: compare ways to spread a model over many GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from perfc.tools.files import write_result
from perfc.tools.output_options import debug_option, format_option, output_option

_COUNT = click.IntRange(min=1)
_SAMPLES = 512
"""Of one GPU in most of the studies."""


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: perfc parallel dlrm_a --target zionex --ranks 128 --compat madmax",
)
@click.argument("model", metavar="MODEL")
@click.option(
    "--target", "system", required=True, metavar="SYSTEM", help="The machine."
)
@click.option("--ranks", required=True, type=_COUNT, metavar="N", help="GPUs in all.")
@click.option(
    "--batch",
    type=_COUNT,
    metavar="N",
    help=f"Samples of all GPUs together; {_SAMPLES} for each if not given.",
)
@click.option(
    "--mode",
    type=click.Choice(["inference", "training"]),
    default="training",
    show_default=True,
)
@click.option(
    "--strategy",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="As 'mlp=ddp emb=mp', or with a level in the node and one across nodes, as "
    "'mlp=tp:8+ddp:16 emb=mp:128'; give it again for more. Without it, those that "
    "the studies compare.",
)
@click.option(
    "--compat",
    required=True,
    type=click.Choice(["madmax"]),
    help="Whose rules, models and machines: MAD-Max's (ISCA 2024).",
)
@format_option
@output_option
@debug_option
def parallel(  # noqa: PLR0913 - one argument per option
    *,
    model: str,
    system: str,
    ranks: int,
    batch: int | None,
    mode: str,
    texts: tuple[str, ...],
    compat: str,
    format_: str,
    output: Path | None,
    debug: bool,
) -> int:
    """Compare ways to spread a recommendation model over many GPUs.

    Layers go data-parallel (ddp), with sharded weights (fsdp) or tensor-parallel (tp),
    tables model-parallel (mp) or data-parallel (ddp), each at one level or at two: in
    the node, then across nodes. What fits in memory comes first, the fastest first.
    """
    from perfc.costmodels import madmax_model, madmax_system  # noqa: PLC0415
    from perfc.frontends import (  # noqa: PLC0415
        MadMaxStep,
        read_strategy,
        strategies,
    )
    from perfc.tools.parallel import (  # noqa: PLC0415
        outcome,
        parallel_json,
        parallel_text,
        ranked,
    )

    sizes, machine = madmax_model(model), madmax_system(system)
    machine.check_ranks(ranks)
    wanted = [read_strategy(text, ranks, machine.gpus_per_node) for text in texts]
    outcomes = ranked(
        outcome(
            MadMaxStep(
                model=sizes,
                system=machine,
                ranks=ranks,
                strategy=strategy,
                batch=batch or _SAMPLES * ranks,
                training=mode == "training",
            )
        )
        for strategy in wanted or strategies(ranks, machine.gpus_per_node)
    )
    made = parallel_json if format_ == "json" else parallel_text
    write_result(made(outcomes), output)
    return 0
