"""What a file of settings lets budgets do that themselves may not say."""

from __future__ import annotations

from pathlib import Path

from perfc.ir import PerfcError
from perfc.ir.support import parse_toml, read_text

_KEY = "allow-python"


def allows_python(config: Path, budgets: Path) -> bool:
    """Return whether a file of settings lets the models of budgets be Python.

    Whoever proposes a change writes all files of its checkout. Only what is checked out
    apart from it, from the branch that it is proposed to, says what the project allows.

    Args:
        config: The file of settings, `perfc.toml`.
        budgets: The file of budgets.

    """
    if _checkout(config) == _checkout(budgets):
        msg = (
            f"{config}: lies in the same checkout as {budgets}, so that a change could "
            "allow itself: name that of the base branch, checked out elsewhere"
        )
        raise PerfcError(msg)
    text = read_text(config, PerfcError, "a file of settings")
    found = parse_toml(text, PerfcError, str(config))
    if other := [key for key in found if key != _KEY]:
        msg = f"{config}: {other[0]}: expected no key but {_KEY}"
        raise PerfcError(msg)
    value = found.get(_KEY, False)
    if not isinstance(value, bool):
        msg = f"{config}: {_KEY}: expected true or false, found {value!r:.60}"
        raise PerfcError(msg)
    return value


def _checkout(path: Path) -> Path:
    folder = path.resolve().parent
    roots = (one for one in (folder, *folder.parents) if (one / ".git").exists())
    return next(roots, folder)
