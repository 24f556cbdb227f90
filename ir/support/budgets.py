"""Budgets: how much one input may take, the same for everything that reads.

A small file can ask for gigabytes or for hours. Each reader counts what it is about to
hold before it holds it, and refuses what is beyond the budget of that name. Whoever
means it raises a budget: `--budget NAME=VALUE` on the command line, the environment
variable `PERFC_BUDGETS="NAME=VALUE,..."` there and in Python.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from perfc.ir.support.errors import PerfcError, UsageError

VARIABLE = "PERFC_BUDGETS"
"""Environment variable that raises budgets."""


class BudgetError(PerfcError):
    """An input takes more than the budget allows."""


@attrs.frozen
class Budget:
    """One budget.

    Attributes:
        amount: What an input may take unless somebody says otherwise.
        what: What is counted.

    """

    amount: float
    what: str


BUDGETS: Mapping[str, Budget] = {
    "file-bytes": Budget(2**31, "bytes of a file that is read whole"),
    "text-bytes": Budget(2**27, "bytes of a file of text that is read whole"),
    "unpacked-bytes": Budget(2**28, "bytes that are unpacked at once"),
    "elements": Budget(2**25, "numbers of arrays and of Parquet tables"),
    "values": Budget(2**23, "values of JSON, cells of CSV, tokens of perfc assembly"),
    "nodes": Budget(200_000, "nodes of a graph that is read"),
    "loop-nodes": Budget(20_000, "nodes that loops are unrolled to"),
    "pipeline-nodes": Budget(1_000_000, "nodes of all microbatches of a pipeline"),
    "microbatch-nodes": Budget(300_000, "nodes of all microbatches of a step"),
    "parts": Budget(500_000, "parts of embedding tables, tables times ranks"),
    "strategies": Budget(5_000, "ways to spread a model over GPUs"),
    "configurations": Budget(1_000_000, "configurations of a sweep"),
    "launches": Budget(500_000, "host calls and kernels of an iteration"),
    "seconds": Budget(math.inf, "seconds that a command may take"),
}
"""Every budget by name. A value takes some 100 bytes, a node or a launch a kilobyte."""

_RAISED: ContextVar[Mapping[str, float]] = ContextVar("budgets")


def budget(name: str) -> float:
    """Return the budget of that name, as it was last raised."""
    raised = _RAISED.get({})
    if name not in raised and (text := os.environ.get(VARIABLE)):
        raised = parse_budgets(text.split(","), VARIABLE)
    return raised.get(name, BUDGETS[name].amount)


def spend(name: str, amount: float, where: str = "") -> None:
    """Refuse an amount beyond the budget of that name.

    Args:
        name: One of `BUDGETS`.
        amount: How many an input takes, or the first that are too many.
        where: What begins the message, the file or the part of it.

    """
    most = budget(name)
    if amount > most:
        begin = f"{where}: " if where else ""
        # Who stopped counting does not know how many there are.
        enough = _amount(max(amount, 2 * most)).replace(",", "")
        message = (
            f"{begin}{_amount(amount)} {BUDGETS[name].what}, expected at most "
            f"{_amount(most)}; if that is meant, raise it: --budget {name}={enough} "
            f"(or {VARIABLE})"
        )
        raise BudgetError(message)


def raise_budgets(budgets: Mapping[str, float]) -> None:
    """Work with other budgets from now on, in this context."""
    _RAISED.set({**_RAISED.get({}), **budgets})


@contextmanager
def raised_budgets(budgets: Mapping[str, float]) -> Generator[None, None, None]:
    """Work with other budgets, by name; those that are not named stay."""
    token = _RAISED.set({**_RAISED.get({}), **budgets})
    try:
        yield
    finally:
        _RAISED.reset(token)


def parse_budgets(texts: Iterable[str], where: str) -> dict[str, float]:
    """Read `NAME=VALUE` for each budget.

    Args:
        texts: As a user writes them: `elements=1e9`, `seconds=60`.
        where: Where they stand, for messages.

    """
    found: dict[str, float] = {}
    for text in filter(None, map(str.strip, texts)):
        name, _, value = text.partition("=")
        if name not in BUDGETS:
            near = difflib.get_close_matches(name, BUDGETS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            message = f"{where}: no budget {name!r}; {hint}known: {', '.join(BUDGETS)}"
            raise UsageError(message)
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        if not found[name] > 0:
            message = f"{where}: {name} is {value!r}, expected a number above 0"
            raise UsageError(message)
    return found


def _amount(number: float) -> str:
    whole = number < 10**20 and number == int(number)
    return f"{int(number):,}" if whole else f"{float(number):g}"
