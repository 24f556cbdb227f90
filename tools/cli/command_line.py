"""The `perfc` command: verbs, and how errors leave it.

Results go to stdout, everything else to stderr. Exit codes are a contract:
0 ok, 1 the input or the analysis is at fault, 2 usage, 3 a budget is broken,
4 `--strict` and something was not modelled, 5 out of memory, 128 + N ended by signal N:
130 interrupted, 143 terminated.
"""

from __future__ import annotations

import atexit
import contextvars
import difflib
import errno
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, NoReturn

import click

from perfc.ir import PerfcError
from perfc.ir.support import paused_collector, printable
from perfc.tools.cli.budget_option import TimeIsUpError, stop_clock
from perfc.tools.cli.verb import VerbGroup
from perfc.tools.files import (
    finish,
    give_up_stdout,
    lost_output,
    print_line,
    tell,
    use_plain_text,
    write_result,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MODULES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("targets", "ops", "passes", "models"), "lists")
)
"""Modules of verbs that have no file of their own name."""

_GROUPS = {
    "Predict": {
        "analyze": "Predict the time of one iteration of a model on a target.",
        "sweep": "Price many configurations of a model, in parallel.",
        "replay": "Run measured traces again; say what hosts and devices did.",
        "rescale": "Predict another GPU from a trace of one you own.",
    },
    "Compare and check": {
        "diff": "Say why one report is slower than another.",
        "check": "Hold predictions against budgets, to fail a build.",
        "validate": "Score the cost models against measured rows.",
    },
    "Plan": {
        "parallel": "Compare ways to spread a model over many GPUs.",
        "shard": "Find where embedding tables go on many GPUs.",
        "place": "Find in which tiers of memory embedding tables lie.",
        "quantize": "Price tables and linear layers in fewer bits, or choose which.",
        "dedup": "Say what deduplicated lookups of sessions gain.",
    },
    "Measure and calibrate": {
        "measure": "Run for real on this machine and write measured rows.",
        "calibrate": "Fit a profile from measured rows or traces.",
        "locality": "Say how popular the rows of embedding tables are, from a trace.",
    },
    "Inspect": {
        "opt": "Run passes on perfc assembly and print the result.",
        "targets": "List targets; `targets show T` prints every field of one.",
        "ops": "List the ops perfc knows.",
        "passes": "List the passes and the facts they need and provide.",
        "models": "List the built-in workloads.",
    },
}
"""What each verb does, under headings of what it is for."""

_SUMMARIES = {name: text for verbs in _GROUPS.values() for name, text in verbs.items()}
_LISTED = ", ".join(_SUMMARIES)
_USAGE = 2
_ENDED = 128
"""What a shell adds to the number of a signal."""

_NO_MEMORY = "it needs more memory than there is; make the model or the batch smaller"

_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES)
"""Errors of a name that no file has: `Path.is_file` raises them, it is the user's."""

_ENDING = ("SIGTERM", "SIGHUP")
"""Signals that would end the process as it stands, with files half written."""


class _LazyGroup(VerbGroup):
    """Imports a verb when it is asked for, so that `perfc --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUMMARIES:
            return None
        home = _MODULES.get(cmd_name, cmd_name)
        module = importlib.import_module(f"perfc.tools.cli.{home}")
        command = getattr(module, cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(cmd_name)
        return command

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        verbs = [name for name in _SUMMARIES if name.startswith(incomplete)]
        found = [CompletionItem(name, help=_SUMMARIES[name]) for name in verbs]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if verb not in _SUMMARIES and not ctx.resilient_parsing:
            ctx.fail(f"no verb {verb!r}; {_meant(verb)}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        widest = max(map(len, _SUMMARIES))
        for heading, verbs in _GROUPS.items():
            with formatter.section(heading):
                rows = [(f"{name:<{widest}}", text) for name, text in verbs.items()]
                formatter.write_dl(rows)


def _meant(verb: str) -> str:
    """Say which verb was meant by what is none: another one, or that of a model."""
    close = difflib.get_close_matches(verb, _SUMMARIES, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    from perfc.frontends import WORKLOADS

    if verb.partition(":")[0] in WORKLOADS or Path(verb.partition(":")[0]).is_file():
        return f"did you mean `perfc analyze {verb}`?"
    return f"verbs: {_LISTED}"


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value and not ctx.resilient_parsing:
        import perfc

        print_line(f"perfc {perfc.__version__}")
        ctx.exit()


@click.command(
    cls=_LazyGroup,
    subcommand_metavar="VERB [ARGS]...",
    invoke_without_command=True,
    epilog="Example: perfc analyze dlrm-default --batch 2048 --target a100",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def perfc_command(ctx: click.Context) -> int:
    """Tell how long a deep-learning model takes on a GPU, and why, without one."""
    if ctx.invoked_subcommand is not None:
        return 0
    tell(ctx.get_help())
    return _USAGE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the console script."""
    if argv is None:
        # Leave cyclic garbage to the end of the process, which drops all at once.
        # One command makes objects, and then ends: there is nothing to collect, and to
        # look for it takes longer than a small analysis, at the end once more.
        gc.disable()
        atexit.register(gc.freeze)
    arguments = sys.argv[1:] if argv is None else list(argv)
    use_plain_text()
    try:
        with _ending_in_order():
            code = _run(arguments)
    except (PerfcError, click.ClickException) as error:
        code = _fail(_message(error), error.exit_code, arguments)
    except TimeIsUpError as late:
        code = _fail(str(late), late.error.exit_code, arguments)
    except KeyboardInterrupt:
        code = _fail("interrupted", _ENDED + signal.SIGINT, ())
    except _EndedError as error:
        code = _fail("terminated", _ENDED + error.number, ())
    except RecursionError:
        code = _fail("the input is nested too deeply", 1, arguments)
    except Exception as error:
        if _is_out_of_memory(error):
            code = _fail(_NO_MEMORY, 1, arguments)
        elif "PYTEST_CURRENT_TEST" in os.environ:
            raise
        else:
            problem = f"this is a bug of perfc ({type(error).__name__}: {error})"
            code = _fail(f"{problem}; --debug shows where", 1, arguments)
    finally:
        stop_clock()
    return code


def _run(arguments: list[str]) -> int:
    """Run the verb, and see its result off."""
    try:
        with paused_collector():
            # Budgets that it raises end with it.
            code = contextvars.copy_context().run(_invoke, arguments)
        finish()
    except BrokenPipeError:
        give_up_stdout()  # the reader (head, less) has gone: nothing to tell anyone
        return 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise lost_output(error) from None  # what click prints itself
        if error.errno not in _NO_SUCH_NAME:
            raise
        message = f"{str(error.filename)[:60]}: {error.strerror}"
        raise PerfcError(message) from None
    return code


class _EndedError(BaseException):
    """A signal asks the process to end: what is half done is undone on the way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _ending_in_order() -> Generator[None, None, None]:
    """Let signals that end the process unwind it, unless somebody else has them."""
    taken: list[int] = []
    if threading.current_thread() is threading.main_thread():
        known = [getattr(signal, name, None) for name in _ENDING]  # not all on Windows
        taken = [n for n in known if n and signal.getsignal(n) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise _EndedError(number)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether the system has no more memory, as Python, it or PyTorch says that."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _invoke(arguments: list[str]) -> int:
    """Run the verb; unlike click's own `main`, leave every exception alone."""
    if asked := os.environ.get("_PERFC_COMPLETE"):
        from perfc.tools.cli.completion import complete

        return complete(perfc_command, asked)
    try:
        with perfc_command.make_context("perfc", arguments) as ctx:
            result = perfc_command.invoke(ctx)
    except click.exceptions.Exit as done:  # --help, --version
        write_result("", None)  # which says if there is no stdout
        return done.exit_code
    return result if isinstance(result, int) else 0


def _message(error: PerfcError | click.ClickException) -> str:
    if not isinstance(error, click.ClickException):
        return str(error)
    message = error.format_message().rstrip(".")
    if not isinstance(error, click.UsageError):
        return message
    command = error.ctx.command_path if error.ctx is not None else "perfc"
    stop = "" if message.endswith("?") else ";"
    return f"{message}{stop} see `{command} --help`"


def _fail(message: str, code: int, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        traceback.print_exc()
    tell(f"perfc: error: {' '.join(printable(message).split())}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
