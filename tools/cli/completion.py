"""What a shell asks to complete a command line of `perfc`.

`_PERFC_COMPLETE=bash_source perfc` prints the script that a shell reads once; it calls
`perfc` with `bash_complete` and the words typed so far.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping

import click
from click.shell_completion import (
    CompletionItem,
    get_completion_class,
    shell_complete,
)

from perfc.ir import UsageError

VARIABLE = "_PERFC_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_TASKS = ("source", "complete")


def complete(group: click.Group, instruction: str) -> int:
    """Print the script of a shell, or what it may complete with; return an exit code.

    Args:
        group: The command with all verbs.
        instruction: What the environment variable says, `bash_source`.

    Raises:
        UsageError: it names another shell, or nothing to do.

    """
    shell, _, task = instruction.partition("_")
    if (
        shell not in _SHELLS
        or get_completion_class(shell) is None
        or task not in _TASKS
    ):
        expected = ", ".join(f"{name}_source" for name in _SHELLS)
        msg = f"{VARIABLE}={instruction[:40]}: expected {expected}"
        raise UsageError(msg)
    with click.Context(group, info_name="perfc") as ctx:
        for word in _words():
            command = group.get_command(ctx, word)
            if command is not None:
                _prepare(command)
    return shell_complete(group, {}, "perfc", VARIABLE, instruction)


def _words() -> list[str]:
    """Return the words typed so far, as the scripts of all shells hand them on."""
    try:
        return shlex.split(os.environ.get("COMP_WORDS", ""))[1:]
    except ValueError:  # a quotation that is still open
        return os.environ.get("COMP_WORDS", "").split()[1:]


class _Names(click.ParamType[str]):
    """Text that often is one of a few names, else a file's."""

    name = "text"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; the shell adds files."""
        found = [n for n in sorted(self.names()) if n.startswith(incomplete)]
        return [*map(CompletionItem, found), CompletionItem(incomplete, type="file")]


def _prepare(command: click.Command) -> None:
    """Let parameters that take names complete them."""
    for parameter in command.params:
        for option in parameter.opts:
            if option in _NAMES:
                parameter.type = _Names(_NAMES[option])
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _prepare(inner)


def _targets() -> Iterable[str]:
    from perfc.costmodels import target_names
    from perfc.costmodels.sheets import system_names

    return [*target_names(), *system_names()]


def _models() -> Iterable[str]:
    from perfc.frontends import WORKLOADS

    return WORKLOADS


def _passes() -> Iterable[str]:
    from perfc.passes.pipeline_spec import pass_names

    return pass_names()


_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "--target": _targets,
    "target": _targets,
    "model": _models,
    "--pass": _passes,
}
"""What completes a parameter, by its option or the name of an argument."""
