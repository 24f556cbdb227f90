"""`perfc place`: find in which tiers of memory embedding tables lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import click

from perfc.ir import UsageError
from perfc.tools.cli import arguments
from perfc.tools.cli.analyze import EXIT_NOT_MODELLED
from perfc.tools.cli.output_options import write_answer
from perfc.tools.cli.verb import Verb, current_progress
from perfc.tools.reports import RESULT_FORMATS
from perfc.tools.size_text import read_size

if TYPE_CHECKING:
    from perfc.tools.placing import QueriedModel, Scenario

_ABOVE_NONE = arguments.NumberRange(min=0, min_open=True, max=1e15)
_OBJECTIVES = ("time", "power", "cost")


@click.command(
    cls=Verb,
    epilog="Example: perfc place dlrm-default --target 1s-server --tiers "
    "dram=1GB,optane",
)
@click.argument("model", metavar="MODEL|SCENARIO|TABLES.json")
@arguments.request_option(
    "target",
    metavar="NAME|FILE.toml",
    help="The machine.",
    multiple=False,
    required=False,
)
@click.option(
    "--tiers",
    metavar="NAME[=SIZE|xCOUNT],...",
    help="Where tables may lie: hbm, dram, tiers of the target's sheet, or memories "
    "that ship with perfc; SIZE limits what tables take, COUNT is that of drives or "
    "modules.",
)
@click.option(
    "--cache",
    metavar="SIZE",
    help="DRAM of the host that holds rows of slower tiers, as 16GB; of a tier's sheet "
    "if not given.",
)
@click.option(
    "--objective",
    type=click.Choice(_OBJECTIVES),
    default=_OBJECTIVES[0],
    show_default=True,
    help="What to have least of: a query's time, the watts of all hosts, or the price "
    "of the memory that tables take.",
)
@click.option(
    "--users",
    metavar="TABLES",
    help="Tables that a query looks up once: names, ranges as t0-t60, patterns as "
    "'user*', with commas between them; others are looked up for each candidate.",
)
@click.option(
    "--candidates",
    type=click.IntRange(min=1, max=10**7),
    metavar="N",
    help="Candidates of a query, which are its batch (--batch); 1 if not given.",
)
@click.option(
    "--queries",
    "queries_per_s",
    type=_ABOVE_NONE,
    metavar="PER_S",
    help="Queries a second on one host; 1 if not given.",
)
@click.option(
    "--fleet",
    "fleet_per_s",
    type=_ABOVE_NONE,
    metavar="PER_S",
    help="Queries a second of all hosts; those of --queries if not given.",
)
@click.option(
    "--sla",
    metavar="mean=TIME|p99=TIME",
    help="How long a query may take, as p99=10ms; p99 only of tiers whose sheets have "
    "it.",
)
@arguments.request_option(
    "popularity",
    metavar="[TABLE=]TEXT",
    help="How lookups of different queries spread over rows, of all tables or of one; "
    "give it again.",
)
@click.option(
    "--compare",
    metavar="NAME,...",
    help="Plans to compare: one tier alone, maybe of another machine, as dram or "
    "dram@2s-skylake; greedy (densest tables first), size (smallest first); or none. "
    "Savings are of the first. All tables in the machine's own memory if not given.",
)
@click.option(
    "--in-flight",
    type=arguments.NumberRange(min=1, max=1e6),
    metavar="N",
    help="Reads that a query has under way at one drive; 32 if not given.",
)
@click.option(
    "--overlap/--no-overlap",
    default=True,
    show_default=True,
    help="Dense layers and other lookups run beside reads of tiers.",
)
@click.option(
    "--pooled",
    type=arguments.NumberRange(min=0, max=1),
    default=0,
    show_default=True,
    metavar="SHARE",
    help="Share of lookups that a cache of pooled rows saves.",
)
@click.option(
    "--lookahead",
    "window",
    type=click.IntRange(min=0, max=10**6),
    metavar="W",
    help="A training step instead, whose tables lie on servers, with a cache of rows "
    "on the trainers that knows the next W batches; beside none and LRU (--compare).",
)
@click.option(
    "--cache-rows",
    type=click.IntRange(min=1, max=10**12),
    metavar="N",
    help="Rows that the cache of --lookahead holds.",
)
@click.option(
    "--servers",
    type=click.IntRange(min=1, max=10**6),
    metavar="N",
    help="Hosts that have the tables of --lookahead; 1 if not given.",
)
@arguments.request_options("batch", "ranks", "optimizer")
@arguments.request_options("dims", "pooling", "dtype", "overrides")
@click.option("--strict", is_flag=True, help="Exit 4 if an op is not modelled.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(RESULT_FORMATS),
    default="table",
    show_default=True,
    help="csv: a line a table and plan; html: also what a cache of each size saves.",
)
@arguments.output_option()
@arguments.quiet_option()
@arguments.debug_option
def place(model: str, **options: Any) -> int:
    """Find in which tiers of memory the embedding tables of MODEL lie.

    MODEL is a file, a built-in workload (`perfc models`), a list of tables as JSON:
    {"tables": [{"name": ..., "rows": N, "dim": N, "pooling": N}]}, or a scenario:
    sdm-m1, sdm-m2, sdm-m3, or a file of TOML like theirs, which says the options, too.
    """
    from perfc.tools.placing import place as run

    say = current_progress().step
    if options["window"] is not None:
        return _look_ahead(model, options, say)
    _refuse_step(options)
    if options["batch"] is not None:  # the samples of a query are its candidates
        if options["candidates"] not in (None, options["batch"]):
            msg = "--batch and --candidates are one number, a query's: give one of them"
            raise UsageError(msg)
        options["candidates"] = options["batch"]
    scenario = _scenario(model)
    asked = _asked(model, options, scenario)
    found = run(asked, scenario=scenario, say=say)
    write_answer(found)
    unknown = found.best.site.base.report.coverage["unknown_ops"]
    return EXIT_NOT_MODELLED if options["strict"] and unknown else 0


_OF_STEPS = {
    "cache_rows": "--cache-rows",
    "servers": "--servers",
    "ranks": "--ranks",
    "optimizer": "--optimizer",
}
_OF_QUERIES = {
    "cache": "--cache",
    "users": "--users",
    "candidates": "--candidates",
    "queries_per_s": "--queries",
    "fleet_per_s": "--fleet",
    "sla": "--sla",
    "in_flight": "--in-flight",
}


def _refuse_step(options: Mapping[str, Any]) -> None:
    """Refuse options of a training step where queries are asked about."""
    for name, flag in _OF_STEPS.items():
        if options[name] is not None:
            msg = f"{flag} is of a training step behind a cache: give --lookahead, too"
            raise UsageError(msg)


def _look_ahead(
    model: str, options: Mapping[str, Any], say: Callable[[str], None]
) -> int:
    """Predict a training step with tables on servers, behind caches."""
    from perfc.tools.placing import CacheQuestion, check_tier, look_ahead

    for name, flag in _OF_QUERIES.items():
        if options[name] is not None:
            msg = f"{flag} is of queries: leave it out beside --lookahead"
            raise UsageError(msg)
    check_tier(options["tiers"])
    if options["cache_rows"] is None or options["target"] is None:
        missing = "target" if options["target"] is None else "cache-rows"
        raise click.MissingParameter(param_hint=f"'--{missing}'", param_type="option")
    compare = options["compare"]
    request = attrs.evolve(
        arguments.read_request(model, options), target=options["target"]
    )
    question = CacheQuestion(
        request=request,
        window=options["window"],
        rows=options["cache_rows"],
        servers=options["servers"] or 1,
        **({} if compare is None else {"policies": tuple(compare.split(","))}),
    )
    found = look_ahead(question, say=say)
    write_answer(found)
    unknown = found.steps[0][1].coverage["unknown_ops"]
    return EXIT_NOT_MODELLED if options["strict"] and unknown else 0


def _scenario(model: str) -> Scenario | None:
    from perfc.tools.placing import is_scenario, read_scenario

    return read_scenario(model) if is_scenario(model) else None


def _asked(
    model: str, options: Mapping[str, Any], scenario: Scenario | None
) -> QueriedModel:
    """Return the model, and what is asked of it; what is not given, by the scenario."""
    from perfc.costmodels import load_target
    from perfc.tools import placing
    from perfc.tools.models import is_table_list, read_table_list

    setup: Mapping[str, Any] = {} if scenario is None else scenario.setup
    given = {name: _given(name, options, setup) for name in _FIRST}
    cache = given["cache"]
    latency, compare = options["sla"], options["compare"]
    users = options["users"]
    request = arguments.read_request(model, options)
    question = placing.Question(
        request=attrs.evolve(request, overrides={}),
        tiers=placing.read_tiers(str(given["tiers"])),
        target=load_target(str(given["target"]), request.overrides),
        cache_bytes=None if cache is None else _cache(str(cache)),
        objective=options["objective"],
        users=_users(users, scenario),
        candidates=int(given["candidates"] or 1),
        queries_per_s=float(given["queries_per_s"] or 1.0),
        fleet_per_s=options["fleet_per_s"],
        latency=None if latency is None else placing.read_latency_target(latency),
        compare=None if compare is None else placing.read_plans(compare),
        in_flight=options["in_flight"],
        overlap=options["overlap"],
        pooled_share=options["pooled"],
    )
    if scenario is not None:
        return placing.QueriedModel(question=question, listed=scenario.tables)
    listed = read_table_list(model) if is_table_list(model) else None
    return placing.QueriedModel(question=question, listed=listed)


_FIRST = {
    "target": "--target",
    "tiers": "--tiers",
    "cache": "",
    "candidates": "",
    "queries_per_s": "",
}
"""What a scenario says where an option does not; an option where one must."""


def _given(name: str, options: Mapping[str, Any], setup: Mapping[str, Any]) -> Any:
    """Return the value of an option, or of a scenario.

    Raises:
        MissingParameter: neither does, and one has to.

    """
    value = options[name]
    found = setup.get(name) if value is None else value
    if found is None and _FIRST[name]:
        raise click.MissingParameter(
            param_hint=f"'{_FIRST[name]}'", param_type="option"
        )
    return found


def _cache(text: str) -> float:
    return 0.0 if text.strip() in {"0", "0B", "0GB"} else read_size("--cache", text)


def _users(text: str | None, scenario: Scenario | None) -> tuple[str, ...]:
    if text is None:
        return () if scenario is None else scenario.users
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        msg = f"--users {text!r}: expected names of tables with commas between them"
        raise UsageError(msg)
    return names
