"""What parameters of verbs can be completed with: names, their parts, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

GOES_ON = "part"
"""Type of a candidate after which more is typed, without a space."""

_FILE = "file"
_OF_FILES = ("FILE", ".toml", ".json", "TABLE", "TRACE")
"""What the metavar of a parameter has in it that takes a file."""

Candidates = Callable[[str], Iterable[str]]
"""What a word can become that begins so; what ends in `=` or `:` goes on."""


if TYPE_CHECKING:
    _Text = click.ParamType[str]
else:
    _Text = click.ParamType  # which older ones have without a parameter


class _Names(_Text):
    """Text that often is one of a few names, or a file's."""

    name = "text"

    def __init__(self, names: Candidates | None, *, files: bool) -> None:
        self.names, self.files = names, files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the names that begin so, then files."""
        names = () if self.names is None else self.names(incomplete)
        found = [
            CompletionItem(name, type=GOES_ON if name.endswith(("=", ":")) else "plain")
            for name in names
            if name.startswith(incomplete)
        ]
        if self.files and not (found and ":" in incomplete):
            found.append(CompletionItem(incomplete, type=_FILE))
        return found


def complete_names(command: click.Command) -> None:
    """Let parameters of a verb, and of those under it, complete what they take."""
    for parameter in command.params:
        names = next((_NAMES[one] for one in parameter.opts if one in _NAMES), None)
        metavar = parameter.metavar or ""
        files = any(text in metavar for text in _OF_FILES) or names in _OR_FILES
        if isinstance(parameter.type, click.types.StringParamType) and (names or files):
            parameter.type = _Names(names, files=files)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            complete_names(inner)


def _targets(text: str) -> Iterator[str]:
    """Yield targets and systems; aliases only where nothing else begins so."""
    from perfc.costmodels import target_names
    from perfc.costmodels.sheets import system_names, target_aliases

    names = [*target_names(), *system_names()]
    if not any(name.startswith(text) for name in names):
        names = target_aliases()
    yield from sorted(names)


def _shown_targets(text: str) -> Iterator[str]:
    yield from _targets(text)
    yield from _presets(text)


def _models(text: str) -> Iterator[str]:
    """Yield workloads, or what goes on with one: its parameters and their choices."""
    from perfc.frontends import WORKLOADS

    name, colon, options = text.partition(":")
    if not colon or name not in WORKLOADS:
        yield from sorted(WORKLOADS)
        return
    workload = WORKLOADS[name]
    *given, last = options.split(",")
    before = text.removesuffix(last)
    key, equals, _ = last.partition("=")
    if equals:
        yield from (f"{before}{key}={one}" for one in workload.choices.get(key, ()))
        return
    taken = {one.partition("=")[0] for one in given}
    yield from (f"{before}{one}=" for one in workload.parameters if one not in taken)


def _passes(text: str) -> Iterator[str]:
    from perfc.passes.pipeline_spec import pass_names

    before = text[: text.rfind(",") + 1]
    yield from (before + name for name in sorted(pass_names()))


def _presets(text: str) -> Iterator[str]:
    from perfc.costmodels.sheets import preset_names

    yield from sorted(preset_names())


def _profiles(text: str) -> Iterator[str]:
    from perfc.costmodels.sheets import profile_names

    yield from sorted(profile_names())


def _fields(text: str) -> Iterator[str]:
    from perfc.costmodels.sheets import FIELDS

    yield from sorted(f"{name}=" for name, one in FIELDS.items() if not one.text)


def _formats(text: str) -> Iterator[str]:
    from perfc.ir.support import EXPORTERS, plugin_names

    yield from sorted(plugin_names(EXPORTERS))


def _budgets(text: str) -> Iterator[str]:
    from perfc.ir.support import BUDGETS

    yield from (f"{name}=" for name in BUDGETS)


def _varied(text: str) -> Iterator[str]:
    yield from (f"{name}=" for name in _VARIED)
    yield from _fields(text)


_VARIED = ["batch", "dtype", "runtime", "mode", "ranks", "place", "popularity"]

_NAMES: Mapping[str, Candidates] = MappingProxyType(
    {
        "--target": _targets,
        "--to": _targets,
        "--from": _targets,
        "target": _shown_targets,
        "model": _models,
        "file": _models,
        "--pass": _passes,
        "--pipeline": _passes,
        "--preset": _presets,
        "--overheads": _profiles,
        "--set": _fields,
        "--vary": _varied,
        "--format": _formats,
        "--budget": _budgets,
    }
)
"""What completes a parameter, by its option or the name of an argument."""

_OR_FILES = frozenset({_targets, _shown_targets, _models, _presets, _profiles})
"""Names beside which files can stand."""
