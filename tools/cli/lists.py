"""`perfc targets`, `ops`, `passes`, `models`: what is known."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
import click

from perfc.costmodels import assumed_system, load_target, sheets, target_names
from perfc.frontends import WORKLOADS
from perfc.ir import PerfcError, UsageError
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import Transform
from perfc.passes.pipeline_spec import pass_class, pass_names
from perfc.tools.cli import target_constants
from perfc.tools.cli.arguments import debug_option
from perfc.tools.cli.kernel_list import kernels_json, kernels_table
from perfc.tools.cli.output_options import format_option
from perfc.tools.cli.plugin_option import plugin_option
from perfc.tools.cli.verb import Verb, VerbGroup
from perfc.tools.files import print_line, tell, write_result
from perfc.tools.presets import PRESET_SCHEMA, Preset, load_preset
from perfc.tools.reports import columns_text, format_bytes

_PARAMETERS_WIDTH = 74
MEMORY_SCHEMA = "perfc.memory/1"


def _usable(
    row: Callable[[str], tuple[str, ...]], names: Iterable[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of what can be loaded; name what cannot on stderr."""
    for name in names:
        try:
            yield row(name)
        except PerfcError as error:
            tell(f"perfc: left out: {error}")


@click.group(
    invoke_without_command=True,
    cls=VerbGroup,
    epilog="Example: perfc targets show a100",
)
@click.option("--presets", is_flag=True, help="List presets instead.")
@plugin_option
@debug_option
@click.pass_context
def targets(ctx: click.Context, *, presets: bool) -> None:
    """List targets, systems, memories; `targets show T` prints fields and sources."""
    if ctx.invoked_subcommand is not None:
        return
    if presets:
        titles = ("preset", "target", "host", "inputs", "what it is")
        print_line(columns_text([titles, *_usable(_preset_row, sheets.preset_names())]))
        return
    head = ("name", "aliases", "SMs", "fp32", "memory", "bandwidth", "power")
    print_line(columns_text([head, *_usable(_target_row, target_names())]))
    titles = ("system", "aliases", "a node's GPUs", "joined by", "network of a node")
    print_line()
    print_line(columns_text([titles, *_usable(_system_row, sheets.system_names())]))
    of_memories = ("memory", "capacity", "reads of", "a second", "latency", "rate")
    print_line()
    print_line(
        columns_text([of_memories, *_usable(_memory_row, sheets.memory_names())])
    )


def _target_row(name: str) -> tuple[str, ...]:
    target = load_target(name)
    memory = target.device.memory
    return (
        name,
        " ".join(target.aliases) or "-",
        str(target.device.sm_count),
        f"{target.peak('fp32') / 1e12:.1f} TFLOP/s",
        f"{memory.capacity_bytes / 2**30:.0f} GiB",
        f"{memory.bytes_per_s / 1e9:.0f} GB/s",
        f"{target.watts:.0f} W",
    )


def _preset_row(name: str) -> tuple[str, ...]:
    preset = load_preset(name)
    told = [str(preset.fields.get(key, "-")) for key in _PRESET_COLUMNS]
    return (name, *told, preset.summary)


_PRESET_COLUMNS = ("target", "overheads", "inputs")


def _system_row(name: str) -> tuple[str, ...]:
    target = load_target(name)
    system = assumed_system(target)
    gbit_per_s = system.nic_bytes_per_s * 8e-9
    return (
        name,
        " ".join(target.aliases) or "-",
        f"{system.gpus_per_node} {target.device.name}",
        f"{system.link}, {system.topology}",
        f"{system.nics_per_node} x {gbit_per_s:g} Gbit/s {system.fabric}",
    )


def _memory_row(name: str) -> tuple[str, ...]:
    tier = sheets.load_memory(name)
    return (
        name,
        format_bytes(tier.capacity_bytes),
        f"{tier.granularity_bytes} B",
        f"{tier.reads_per_s:,.0f}",
        f"{tier.read_latency_s * 1e6:g} us",
        f"{tier.read_bytes_per_s / 1e9:g} GB/s",
    )


@targets.command("show", epilog="Example: perfc targets show a100")
@click.argument("target")
@click.option(
    "--constants",
    "constants_",
    is_flag=True,
    help="Print the constants of cost models that hold on it instead.",
)
@click.option("--preset", is_flag=True, help="TARGET is a preset: print what it says.")
@format_option
@plugin_option
@debug_option
def show(target: str, *, constants_: bool, preset: bool, format_: str) -> None:
    """Print every field of TARGET (a name or a sheet file) with its source.

    TARGET may be a memory, too.

    With --constants: those of the cost models that hold on it. A kind is `fitted` to
    rows, `published` in a paper, a manual or source code, `single` (read off one case)
    or `assumed`.
    """
    if preset and constants_:
        msg = "--preset and --constants exclude each other"
        raise UsageError(msg)
    if preset:
        _show_preset(load_preset(target), as_json=format_ == "json")
        return
    if not constants_ and sheets.is_memory(target):
        _show_memory(target, as_json=format_ == "json")
        return
    loaded = load_target(target)
    if format_ == "json":
        content = (
            target_constants.constants_json(loaded)
            if constants_
            else {
                "fields": _named(
                    [*sheets.describe(loaded), *sheets.describe_modes(target)]
                )
            }
        )
        write_result(target_constants.target_json(loaded, content), None, document=True)
        return
    print_line(f"{loaded.name}   spec {loaded.spec_sha256[:16]}")
    fields = [*sheets.describe(loaded), *sheets.describe_modes(target)]
    rows = [[str(cell) for cell in row] for row in fields]
    print_line(
        target_constants.constants_text(loaded) if constants_ else columns_text(rows)
    )


def _show_preset(preset: Preset, *, as_json: bool) -> None:
    if as_json:
        lines = [attrs.asdict(line) for line in preset.lines]
        told = {"name": preset.name, "summary": preset.summary, "lines": lines}
        _print_json({"schema": PRESET_SCHEMA, **told})
        return
    print_line(f"{preset.name}   {preset.summary}")
    print_line(columns_text([[n.key, n.text, n.source] for n in preset.lines]))


def _show_memory(name: str, *, as_json: bool) -> None:
    rows, memory = sheets.describe_memory(name), sheets.load_memory(name).device
    if as_json:
        document = {"schema": MEMORY_SCHEMA, "name": memory, "fields": _named(rows)}
        _print_json(document)
        return
    print_line(memory)
    print_line(columns_text([[str(cell) for cell in row] for row in rows]))


def _print_json(document: Mapping[str, object]) -> None:
    write_result(f"{json.dumps(document, indent=2)}\n", None, document=True)


def _named(rows: Iterable[tuple[object, ...]]) -> list[dict[str, object]]:
    names = ("name", "value", "unit", "source")
    return [dict(zip(names, row, strict=True)) for row in rows]


@click.command(epilog="Example: perfc ops --kernels", cls=Verb)
@click.option(
    "--kernels",
    is_flag=True,
    help="List the kernels that ops are lowered to, with their parameters.",
)
@format_option
@plugin_option
@debug_option
def ops(*, kernels: bool, format_: str) -> None:
    """List the ops of perfc's vocabulary, or the kernels."""
    as_json = format_ == "json"
    if kernels:
        text = kernels_json() if as_json else kernels_table()
        write_result(f"{text}\n", None, document=as_json)
        return
    rows = [(op.name, op.summary) for op in sorted(BUILTIN_OPS, key=lambda o: o.name)]
    listed = [{"name": name, "summary": summary} for name, summary in rows]
    if as_json:
        _print_json({"schema": "perfc.ops/1", "ops": listed})
    else:
        print_line(columns_text(rows))


@click.command(epilog="Example: perfc passes", cls=Verb)
@plugin_option
@debug_option
def passes() -> None:
    """List the passes, with the facts each needs and provides."""
    head = ("name", "kind", "requires", "provides", "does")
    print_line(columns_text([head, *_usable(_pass_row, pass_names())]))


def _pass_row(name: str) -> tuple[str, ...]:
    cls = pass_class(name)
    return (
        name,
        "transform" if issubclass(cls, Transform) else "analysis",
        ", ".join(sorted(map(str, cls.requires))) or "-",
        ", ".join(sorted(map(str, cls.provides))) or "-",
        (cls.__doc__ or "").strip().partition("\n")[0],
    )


@click.command(epilog="Example: perfc models", cls=Verb)
@debug_option
def models() -> None:
    """List the built-in workloads and their parameters."""
    rows: list[tuple[str, str]] = []
    for workload in WORKLOADS.values():
        # Break `key=value,key=value` after commas, for a terminal.
        spaced = textwrap.wrap(workload.usage.replace(",", ", "), _PARAMETERS_WIDTH)
        lines = [
            workload.summary,
            *[line.replace(", ", ",") for line in spaced],
            f"from {workload.source}",
        ]
        names = (workload.name, *[""] * (len(lines) - 1))
        rows += zip(names, lines, strict=True)
    print_line(columns_text(rows))
