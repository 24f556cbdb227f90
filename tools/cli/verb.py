"""How every verb says what it takes: options in groups, one example, `-h`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from perfc.tools.cli.budget_option import budget_option
from perfc.tools.files import wipe

if TYPE_CHECKING:
    from perfc.tools.progress import Progress

_FEW = 10
"""Options that are read at a glance, without groups."""

_OWN = "Options"
_QUIET = "perfc.quiet"

_GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "Model": "--batch --dim --pooling --popularity --dtype --prune "
        "--input-pipeline",
        "Training": "--mode --optimizer --accumulate",
        "Target": "--target --preset --set --ranks --runtime --attention --inputs "
        "--overheads --device --price --carbon",
        "Passes": "--pass --pipeline --plugin --verify-each --print-pipeline",
        "Output": "--format --output --quiet --verbose --strict --sensitivity "
        "--metric --where --sort --pareto --best",
        "Other": "--budget --debug --help",
    }
)
"""Headings, in order, and the options that each has of whatever verb; those that are
of one verb only stand before them."""

_HEADINGS = {
    flag: heading for heading, flags in _GROUPS.items() for flag in flags.split()
}


class _Helped(click.Command):
    """Its help has options in groups, and the example as it is typed: in one line."""

    def __init__(self, *given: Any, **options: Any) -> None:
        """Make the command, with the options that all have."""
        options["context_settings"] = {"help_option_names": ["-h", "--help"]}
        super().__init__(*given, **options)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write options under headings, unless they are few."""
        groups: dict[str, list[tuple[str, str]]] = {_OWN: []}
        groups |= {heading: [] for heading in _GROUPS}
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        records = [(one, one.get_help_record(ctx)) for one in options]
        listed = [(one, record) for one, record in records if record is not None]
        for option, record in listed:
            heading = (
                next((_HEADINGS[one] for one in option.opts if one in _HEADINGS), _OWN)
                if len(listed) > _FEW
                else _OWN
            )
            groups[heading].append(record)
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write(f"\n  {self.epilog}\n")


def be_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's signature
    """Note whether the verb is to tell no progress: a click callback."""
    ctx.meta[_QUIET] = value
    return value


def current_progress(*, logged: bool = False) -> Progress:
    """Return the progress of the verb that runs.

    Args:
        logged: Whether a log is told, too, how many things are done.

    """
    from perfc.tools.progress import Progress

    progress = click.get_current_context().find_object(Progress) or Progress()
    progress.logged |= logged
    return progress


class Verb(_Helped):
    """A verb, whose input `--budget` limits, unless that is of its own."""

    def __init__(self, *given: Any, **options: Any) -> None:
        """Make the command, with the option that all verbs have."""
        super().__init__(*given, **options)
        option = budget_option()
        if not any(set(one.opts) & set(option.opts) for one in self.params):
            self.params.append(option)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; what it counts is told on stderr, unless it is to be quiet."""
        from perfc.ir.support import told_to
        from perfc.tools.progress import Progress

        ctx.obj = Progress(quiet=ctx.meta.get(_QUIET, False))
        try:
            with told_to(ctx.obj):
                return super().invoke(ctx)
        finally:
            wipe()


class VerbGroup(_Helped, click.Group):
    """A verb with verbs under it."""

    command_class = Verb

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write its options, then the verbs."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
