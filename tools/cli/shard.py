"""`perfc shard`: find where embedding tables go on many GPUs."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import click

from perfc.costmodels import UVM_CACHING
from perfc.ir import PerfcError, UsageError
from perfc.ir.program import MAX_RANKS
from perfc.passes import DATA_PARALLEL, HBM, TIERS, USUAL_CACHE, is_share
from perfc.passes.embeddings import FULL_PRECISION, NAMED_PLANS, PRECISIONS
from perfc.tools.cli import arguments
from perfc.tools.cli.output_options import write_answer
from perfc.tools.cli.verb import Verb, current_progress
from perfc.tools.files import write_result
from perfc.tools.reports import RESULT_FORMATS
from perfc.tools.request import TRAINING
from perfc.tools.size_text import read_size

if TYPE_CHECKING:
    from perfc.passes import Plan
    from perfc.planning.plans import Tiers
    from perfc.tools.progress import Progress
    from perfc.tools.sharding import Sharding, ShardModel

_FEW_RANKS = 16
_TYPES = "table-wise,column-wise,row-wise"


@click.command(
    cls=Verb,
    epilog="Example: perfc shard dlrm-mlperf --target dgx-a100 --ranks 8 --batch 2048",
)
@click.argument("model", metavar="MODEL")
@arguments.request_option(
    "target", metavar="SYSTEM", help="The machine.", multiple=False
)
@arguments.request_option("ranks", required=True, least=2, help="GPUs in all.")
@arguments.request_option(
    "batch", help="Samples of each GPU; what the file says if not given."
)
@arguments.request_option("mode", default=TRAINING, help=None)
@arguments.request_options("optimizer", "dtype")
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="FILE|NAME",
    help="A plan to compare: a JSON file of --format plan or json, or TorchRec's, or "
    "table-wise, row-wise, ...; give it again for more.",
)
@click.option(
    "--types",
    default=_TYPES,
    show_default=True,
    metavar="LIST",
    help="Sharding types that the search may use; also table-row-wise and grid.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="What tables may take of a rank, as 60GB or 56GiB; the GPU's less the rest "
    "of the step if not given.",
)
@click.option(
    "--tiers",
    default=HBM,
    show_default=True,
    metavar="LIST",
    help="Where tables may lie: hbm, device memory; uvm-caching, host memory with a "
    "cache on the device; uvm, host memory.",
)
@click.option(
    "--host-memory",
    metavar="SIZE",
    help="What tables may take of the host's memory for each rank; no limit if not "
    "given.",
)
@click.option(
    "--cache",
    type=float,
    metavar="SHARE",
    help=f"Share of the rows that a cache of uvm-caching holds; {USUAL_CACHE:g} if not "
    "given.",
)
@arguments.request_option(
    "popularity",
    metavar="[TABLE=]TEXT",
    help="How lookups spread over rows, of all tables or of one; give it again.",
)
@click.option(
    "--qcomm",
    type=click.Choice(PRECISIONS),
    help="What pooled rows are sent as.",
)
@click.option(
    "--qcomm-backward",
    type=click.Choice([*PRECISIONS, FULL_PRECISION]),
    help="What their gradients are sent as; as the rows if not given.",
)
@click.option(
    "--cost",
    default="physical",
    show_default=True,
    metavar="NAME",
    help="What the search makes least: physical, the step on its critical path; or "
    "torchrec, the slowest rank by the rules of TorchRec's planner.",
)
@click.option(
    "--search",
    "method",
    type=click.Choice(["local", "beam", "greedy"]),
    default="local",
    show_default=True,
)
@click.option(
    "--seconds",
    type=arguments.NumberRange(min=0.0),
    default=30.0,
    show_default=True,
    metavar="S",
    help="For how long to search at most; Ctrl-C stops it too.",
)
@click.option(
    "--full",
    type=click.IntRange(min=0),
    metavar="N",
    help="Plans found that the whole pipeline analyzes, all ranks together; all, of "
    f"more than {_FEW_RANKS} ranks 1.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice([*RESULT_FORMATS, "plan"]),
    default="table",
    show_default=True,
    help="plan: the best plan, for shard-embeddings{plan=FILE} and TorchRec.",
)
@arguments.output_option()
@arguments.quiet_option()
@arguments.debug_option
def shard(model: str, **options: Any) -> int:
    """Find where the embedding tables of MODEL go, and compare plans.

    MODEL is a file, a built-in workload (`perfc models`), or a list of tables as JSON:
    {"tables": [{"name": ..., "rows": N, "dim": N, "pooling": N}], "batch": N}.
    """
    found = _found(model, options)
    if options["format_"] != "plan":
        write_answer(found)
        return 0
    from perfc.planning.plans import plan_text

    text = plan_text(found.best.plan, found.model.tables, found.model.world)
    write_result(text, options["output"], document=True)
    return 0


def _found(model: str, options: dict[str, Any]) -> Sharding:
    from perfc.tools import sharding
    from perfc.tools.sharding import shard as run

    if options["cost"] not in sharding.COSTS:
        msg = f"--cost {options['cost']!r} is none of {', '.join(sharding.COSTS)}"
        raise UsageError(msg)
    types, room = _types(options["types"]), _size("--memory", options["memory"])
    tiers = _tiers(options)
    sharded = _model(model, options)
    ranks = options["ranks"]
    full = options["full"]
    request = sharding.PlanSearch(
        types=types,
        memory_bytes=room,
        tiers=tiers,
        method=options["method"],
        seconds=options["seconds"],
        given=_given(sharded, options["plans"]),
        full=(MAX_RANKS if ranks <= _FEW_RANKS else 1) if full is None else full,
        cost=sharding.COSTS[options["cost"]],
    )
    progress = current_progress()
    with _interruptible(progress) as pressed:

        def stop() -> bool:
            progress.tick()
            return pressed()

        return run(sharded, request, say=progress.step, stop=stop)


def _model(text: str, options: dict[str, Any]) -> ShardModel:
    """Make what is asked of the machine and the model."""
    from perfc.costmodels import load_target
    from perfc.tools.analysis import check_world
    from perfc.tools.models import check_mode, is_table_list, read_table_list
    from perfc.tools.sharding import ShardModel, world_of

    asked = arguments.read_request(text, options)
    check_mode(asked.mode, asked.optimizer)
    target = load_target(options["target"])
    check_world(options["ranks"], target)
    if is_table_list(text):
        listed = read_table_list(text)
        batch = asked.batch or listed.batch
        if batch is None:
            msg = f"{text} says no batch; add --batch N, the samples of each GPU"
            raise UsageError(msg)
        asked = attrs.evolve(asked, model=listed.program(batch))
    return ShardModel(
        request=asked,
        target=target,
        world=world_of(target, options["ranks"]),
        qcomm=options["qcomm"] or "",
        qcomm_backward=options["qcomm_backward"] or "",
    )


def _given(model: ShardModel, texts: Sequence[str]) -> dict[str, Plan]:
    """Read the plans to compare; each is called by its text."""
    found = {text: model.plan(text) for text in texts}
    if len(found) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        msg = f"--plan {twice} is given twice"
        raise UsageError(msg)
    return found


def _types(text: str) -> tuple[str, ...]:
    """Read sharding types, as pipelines or as plan files spell them."""
    known = {name: kind for name, kind in NAMED_PLANS.items() if kind != DATA_PARALLEL}
    spelled = {**known, **{kind: kind for kind in known.values()}}
    said = [part.strip() for part in text.split(",")]
    if unknown := [part for part in said if part not in spelled]:
        msg = f"--types: {unknown[0]!r} is none of {', '.join(known)}"
        raise UsageError(msg)
    return tuple(dict.fromkeys(spelled[part] for part in said))


def _tiers(options: dict[str, Any]) -> Tiers:
    """Read where tables may lie, as `place-embeddings` spells it."""
    from perfc.planning.plans import Tiers

    names = dict.fromkeys(part.strip() for part in options["tiers"].split(","))
    if unknown := [name for name in names if name not in TIERS]:
        msg = f"--tiers: {unknown[0]!r} is none of {', '.join(TIERS)}"
        if _is_of_sheets(unknown[0], options["target"]):
            msg += "; perfc place puts tables into tiers of sheets"
        raise UsageError(msg)
    host_bytes = _size("--host-memory", options["host_memory"])
    room = math.inf if host_bytes is None else host_bytes
    return Tiers(tuple(names), _cache(options["cache"], names), room)


def _is_of_sheets(name: str, target: str) -> bool:
    """Whether a target, or a memory that ships, has a tier of that name or size."""
    from perfc.costmodels import load_target
    from perfc.costmodels.sheets import find_tier

    try:
        find_tier(load_target(target), name.partition("=")[0])
    except PerfcError:
        return False
    return True


def _cache(share: float | None, tiers: Iterable[str]) -> float:
    """Read which share of the rows a cache holds, if any tier has one."""
    if share is None:
        return USUAL_CACHE
    if not is_share(share):
        msg = f"--cache {share:g}: expected more than 0, up to 1"
        raise UsageError(msg)
    if UVM_CACHING not in tiers:
        msg = (
            f"--cache {share:g}: no tier of --tiers {','.join(tiers)} has a cache; "
            f"add {UVM_CACHING}, or leave --cache out"
        )
        raise UsageError(msg)
    return share


def _size(option: str, text: str | None) -> float | None:
    """Read bytes, with a unit or without."""
    return None if text is None else read_size(option, text)


@contextmanager
def _interruptible(progress: Progress) -> Generator[Callable[[], bool]]:
    """Let the first Ctrl-C stop the search, the second one everything."""
    pressed: list[bool] = []

    def note(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(True)
        progress.line("stopping with the best plan so far; Ctrl-C again gives up")

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # not in the main thread
        yield lambda: False
        return
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
