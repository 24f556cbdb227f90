"""`perfc parallel`: compare ways to spread a model over many GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs
import click

from perfc.ir import PerfcError, UsageError
from perfc.tools.cli import arguments
from perfc.tools.cli.output_options import result_format_option, write_answer
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.verb import Verb, current_progress
from perfc.tools.request import TRAINING

if TYPE_CHECKING:
    from perfc.tools.networks import NetworkComparison
    from perfc.tools.strategies import Comparison, MadMaxComparison

EXIT_INTERRUPTED = 130
_METHODS = ("fast", "all")
_OBJECTIVES = ("throughput", "memory", "price")
"""What planning has; that is loaded where something is planned."""
_SAMPLES = 512
"""Samples of one GPU in most of the studies."""

_OF_COMPAT = frozenset(
    {"model", "target", "ranks", "batch", "mode", "texts", "compat", "format_"}
    | {"output", "debug"}
)
"""What `--compat` goes together with."""

_NOT_OF_NETWORKS = frozenset(
    {"target", "ranks", "texts", "method", "limit", "objective", "price"}
    | {"memory_gb", "compat", "accumulate", "price_per_hour"}
)
"""What `--network` leaves no room for."""

_MOST = 64
"""GPUs that `--within` tries, if nobody says how many there are."""

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60, "h": 3600}


@click.command(
    cls=Verb,
    epilog="Example: perfc parallel gpt2 --target dgx-h100 --ranks 16 --batch 256 "
    "--dtype amp-bf16 --optimizer adamw",
)
@click.argument("model", metavar="MODEL")
@arguments.request_option(
    "target",
    metavar="SYSTEM|FILE.toml",
    help="The machine.",
    multiple=False,
    required=False,
)
@arguments.request_options("preset")
@arguments.request_option(
    "ranks",
    callback=arguments.counts,
    most=0,
    required=False,
    metavar="N[,N...]",
    help="GPUs in all; several numbers to compare sizes.",
)
@arguments.request_option("batch", help="Samples of all GPUs together.")
@arguments.request_options("dims", "pooling")
@arguments.request_option("mode", default=TRAINING, help=None)
@arguments.request_options("optimizer", "accumulate", "dtype")
@arguments.request_option("runtime", help=None)
@arguments.request_options("inputs", "overheads")
@arguments.request_option(
    "passes", help="Add a pass to every strategy, as checkpoint-activations{every=40}."
)
@arguments.request_options("overrides")
@click.option(
    "--strategy",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="Price this one: 'dp:8 tp:4 pp:2', 'pp:4 mb:8 interleaved:2', 'fsdp:16 tp:4', "
    "'dense=fsdp emb=row-wise'; "
    "repeat for more.",
)
@click.option(
    "--search",
    "method",
    type=click.Choice(_METHODS),
    is_flag=False,
    flag_value=_METHODS[0],
    metavar="[fast|all]",
    help="Search for the best: fast prices what could be best, all everything. fast if "
    "no --strategy is given.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Price no more than so many.",
)
@click.option(
    "--objective",
    type=click.Choice(_OBJECTIVES),
    default=_OBJECTIVES[0],
    show_default=True,
    help="What is best: most samples a second, least memory of a GPU, least money.",
)
@arguments.request_options("price")
@click.option("--price-per-hour", type=float, hidden=True)
@click.option(
    "--memory",
    "memory_gb",
    type=float,
    metavar="GB",
    help="What a GPU may need, in 10^9 bytes; all that it has if not given.",
)
@click.option(
    "--microbatches",
    callback=arguments.counts,
    metavar="N[,N...]",
    help="Parts of a batch that stages are given; those of --accumulate, or a few are "
    "tried, if not given.",
)
@click.option(
    "--compat",
    type=click.Choice(["madmax"]),
    help="By the rules, models and machines of MAD-Max (ISCA 2024).",
)
@click.option(
    "--network",
    metavar="FILE.toml",
    help="Place layers on GPUs of several kinds, and the links between them.",
)
@click.option(
    "--compress",
    metavar="topk:R[,adaptive][,fp16]|fp16|int8",
    help="What stages of a network send: one in R values, or all in fewer bits.",
)
@click.option(
    "--compare",
    metavar="even,bandwidth",
    help="Splits of a network to compare with.",
)
@click.option(
    "--within",
    metavar="TIME",
    help="The fewest GPUs that finish a step in this time, as 250ms or 2s.",
)
@plugin_option
@result_format_option
@arguments.output_option()
@arguments.quiet_option()
@arguments.debug_option
@click.pass_context
def parallel(ctx: click.Context, /, **options: Any) -> int:
    """Compare ways to spread MODEL over many GPUs, and find the best.

    Data-parallel (dp), fully sharded (fsdp), tensor-parallel (tp) and pipeline-parallel
    (pp), in all combinations that perfc's passes accept, and the tables of embedding
    bags by table, rows or columns (emb); each by the same pipeline as `perfc analyze`.
    What fits in memory comes first, the best first.
    """
    if options["compat"] is not None:
        _check_compat(ctx)
        write_answer(_compat(options))
        return 0
    if options["network"] is not None:
        _check_network(ctx)
        write_answer(_placed(options))
        return 0
    for name in ("compress", "compare"):
        if options[name] is not None:
            msg = f"--{name} goes with --network FILE"
            raise UsageError(msg)
    if options["within"] is not None:
        write_answer(_fewest(options))
        return 0
    if not options["ranks"]:
        msg = "give --ranks N, the GPUs in all, or --network FILE, or --within TIME"
        raise UsageError(msg)
    compared = _compare(options)
    write_answer(compared)
    return EXIT_INTERRUPTED if compared.findings.interrupted else 0


def _check_compat(ctx: click.Context) -> None:
    """Refuse options that the rules of others do not know."""
    for option in ctx.command.params:
        name = option.name or ""
        source = ctx.get_parameter_source(name)
        given = source is click.core.ParameterSource.COMMANDLINE
        if given and name not in _OF_COMPAT:
            msg = f"{option.opts[-1]} does not go with --compat madmax"
            raise UsageError(msg)
    if len(ctx.params["ranks"] or ()) != 1:
        msg = "--compat madmax takes one number of --ranks"
        raise UsageError(msg)


def _compat(options: dict[str, Any]) -> MadMaxComparison:
    """Return the comparison that MAD-Max would make."""
    from perfc.costmodels.reference import madmax_model, madmax_system
    from perfc.frontends.reference import MadMaxStep, read_strategy, strategies
    from perfc.tools.strategies import MadMaxComparison

    (ranks,), texts = options["ranks"], options["texts"]
    sizes = madmax_model(options["model"])
    machine = madmax_system(options["target"])
    machine.check_ranks(ranks)
    wanted = [read_strategy(text, ranks, machine.gpus_per_node) for text in texts]
    return MadMaxComparison.of(
        MadMaxStep(
            model=sizes,
            system=machine,
            ranks=ranks,
            strategy=strategy,
            batch=options["batch"] or _SAMPLES * ranks,
            training=options["mode"] == TRAINING,
        )
        for strategy in wanted or strategies(ranks, machine.gpus_per_node)
    )


def _check_network(ctx: click.Context) -> None:
    """Refuse options that a network has no use for."""
    for option in ctx.command.params:
        name = option.name or ""
        source = ctx.get_parameter_source(name)
        given = source is click.core.ParameterSource.COMMANDLINE
        if given and name in _NOT_OF_NETWORKS:
            msg = f"{option.opts[-1]} does not go with --network"
            raise UsageError(msg)
    if len(ctx.params["microbatches"] or ()) > 1:
        msg = "--network takes one number of --microbatches"
        raise UsageError(msg)


def _placed(options: dict[str, Any]) -> NetworkComparison:
    """Place layers on a network."""
    from perfc.planning.networks import Compression, read_compression, read_network
    from perfc.tools import networks
    from perfc.tools.strategies import StrategyModels

    compress, within = options["compress"], options["within"]
    compare = (options["compare"] or "").split(",") if options["compare"] else []
    for name in compare:
        if name not in networks.POLICIES:
            msg = f"--compare {name}: expected {', '.join(networks.POLICIES)}"
            raise UsageError(msg)
    (count,) = options["microbatches"] or (1,)
    compression = Compression() if compress is None else read_compression(compress)
    network = read_network(options["network"])
    first = network.nodes[0].target.name
    (asked,) = arguments.read_requests(
        options["model"], {**options, "ranks": None}, [first]
    )
    question = networks.NetworkQuestion(
        models=StrategyModels.read(asked),
        network=network,
        microbatches=count,
        compression=compression,
        compare=compare,
        within_s=None if within is None else read_seconds("--within", within),
    )
    pricer = networks.NetworkPricer(question, current_progress(logged=True).glance)
    return networks.NetworkComparison(question, pricer, pricer.plans())


def _fewest(options: dict[str, Any]) -> Comparison:
    """Return the strategies of the fewest GPUs of which one ends in time.

    Numbers of GPUs are those of `--ranks` if it gives several, else powers of two up to
    the one that it gives, or up to `_MOST`.
    """
    within_s = read_seconds("--within", options["within"])
    given = options["ranks"] or (_MOST,)
    sizes = sorted(set(given)) if len(given) > 1 else _doubled(given[0])
    best_s, reason = math.inf, ""
    for count in sizes:
        try:
            compared = _compare({**options, "ranks": (count,)})
        except PerfcError as error:  # this many cannot share it: others may
            reason = f" ({count} GPUs: {error})"
            continue
        best = compared.findings.best
        if compared.findings.interrupted:
            raise KeyboardInterrupt
        if best is None:
            continue
        best_s = min(best_s, best.step_s)
        if best.step_s <= within_s:
            return attrs.evolve(compared, within_s=within_s)
    least = f"; the fastest takes {best_s:.4g} s" if math.isfinite(best_s) else reason
    msg = (
        f"--within {options['within']}: no step on up to {sizes[-1]} GPUs ends in time"
        f"{least}"
    )
    raise PerfcError(msg)


def _doubled(most: int) -> list[int]:
    found = [1]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return sorted({*found, most})


def read_seconds(option: str, text: str) -> float:
    """Read a time as `250ms`, `2s`, `1.5min` or `800us`."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = _UNITS_S.get(text[len(number) :])
    try:
        seconds = float(number) * (unit or math.nan)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        msg = f"{option} {text}: expected a time above 0 with its unit, as 250ms or 2s"
        raise UsageError(msg)
    return seconds


def _compare(options: dict[str, Any]) -> Comparison:
    """Price strategies by perfc's own pipeline."""
    from perfc.tools.strategies import compare

    current_progress(logged=True)
    return compare(_question(options))


def _question(options: dict[str, Any]) -> Any:  # imported late
    from perfc.costmodels import load_target
    from perfc.planning.strategies import Objective
    from perfc.tools.strategies import Question, StrategyModels

    for name in ("price_per_hour", "memory_gb"):
        _check_positive(name.removesuffix("_gb").replace("_", "-"), options[name])
    method = options["method"] or (None if options["texts"] else _METHODS[0])
    if options["price_per_hour"] is not None:
        if options["price"] is not None:
            msg = "--price-per-hour and --price say the same: give --price"
            raise UsageError(msg)
        options = {**options, "price": options["price_per_hour"]}
    of_strategies = {"ranks": None, "accumulate": None}
    (asked,) = arguments.read_requests(
        options["model"],
        {**options, **of_strategies},
        [options["target"]] if options["target"] else [],
    )
    return Question(
        target=load_target(str(asked.target), asked.overrides),
        models=StrategyModels.read(asked),
        ranks=options["ranks"],
        objective=Objective(options["objective"]),
        texts=options["texts"],
        method=method,
        limit=options["limit"],
        microbatches=options["microbatches"] or (),
        accumulate=options["accumulate"],
        memory_gb=options["memory_gb"],
    )


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        msg = f"--{name} {value}: expected a number above 0"
        raise UsageError(msg)
