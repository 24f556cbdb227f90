"""Budgets as a file says them: a model, a target, options and limits."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import parse_toml, read_text
from perfc.tools.checks.beside import Beside
from perfc.tools.checks.keys import NAMES, in_keys
from perfc.tools.given import closest
from perfc.tools.models import is_factory
from perfc.tools.request import AnalyzeOptions, Request

LIMITS = ("time_us", "time_us_p95", "peak_memory_bytes", "launches", "unknown_ops")
"""What can be limited by a number."""

_OWN = ("name", "model", "target", *LIMITS, "regression", "baseline")
_OF_PYTHON = frozenset({"transforms", "instruments"})
"""Options that take Python's own objects."""

_OPTIONS = AnalyzeOptions.__optional_keys__ - {*NAMES.values()} - _OF_PYTHON
KEYS = (*_OWN, *sorted({*_OPTIONS, *NAMES}))
"""What a budget takes."""

_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


@attrs.frozen(kw_only=True)
class Budget:
    """What a model may take.

    Attributes:
        name: What it is called; `MODEL@TARGET` where the file does not say.
        model: The model, as it names it.
        request: What is analyzed.
        limits: The most of each of `LIMITS` that has one.
        regression: By which share the time may grow over that of the baseline.
        baseline: Report that the time is compared with.
        where: File and place, for errors.
        line: Line of the file where it begins, from 1.

    """

    name: str
    model: str
    request: Request
    limits: Mapping[str, float]
    regression: float | None
    baseline: Path | None
    where: str
    line: int


def read_budgets(path: Path, *, allow_python: bool) -> list[Budget]:
    """Return the budgets of a file; paths in it are relative to its folder.

    Args:
        path: The file.
        allow_python: Whether a model may be a function of Python, which runs with all
            rights of who reads it. Nothing else that a budget names is code.

    """
    text = read_text(path, PerfcError, "a file of budgets")
    document = parse_toml(text, PerfcError, str(path))
    found = document.get("budget")
    if not isinstance(found, list) or not found or set(document) != {"budget"}:
        msg = f"{path}: budget: expected tables [[budget]] and nothing beside them"
        raise PerfcError(msg)
    lines = [n for n, one in enumerate(text.splitlines(), 1) if "[[budget]]" in one]
    tables = cast("Sequence[object]", found)
    budgets = [
        _Reader(
            f"{path}: budget[{number}]", path.parent, _line(lines, number), table
        ).budget()
        for number, table in enumerate(tables)
    ]
    _check_apart(budgets)
    for one in budgets:
        if is_factory(one.request.model) and not allow_python:
            msg = (
                f"{one.where}.model: expected a file or a built-in workload, found "
                f"{one.model!r}, which is Python that runs: allow it by "
                "--allow-python, or by --config FILE of the base branch"
            )
            raise PerfcError(msg)
    return budgets


def _check_apart(budgets: Sequence[Budget]) -> None:
    """Refuse a name that is taken, and a baseline that is that of another question."""
    names: set[str] = set()
    baselines: dict[Path, Budget] = {}
    for one in budgets:
        if one.name in names:
            msg = (
                f"{one.where}.name: expected one of its own, {one.name!r} is taken; "
                "without a name it is model@target"
            )
            raise PerfcError(msg)
        names.add(one.name)
        if one.baseline is None:
            continue
        first = baselines.setdefault(one.baseline.resolve(), one)
        if _asked(first) != _asked(one):
            msg = (
                f"{one.where}.baseline: expected one of its own, {one.baseline} is "
                f"that of {first.name!r}, which asks something else"
            )
            raise PerfcError(msg)


def _asked(one: Budget) -> dict[str, object]:
    return attrs.asdict(one.request, recurse=False)


def budget_of(model: str | os.PathLike[str], said: Mapping[str, object]) -> Budget:
    """Return the budget of a model that keywords say, as the keys of a file do.

    Paths are relative to the current folder.
    """
    table: dict[str, object] = {
        "model": os.fspath(model),
        **{k: str(v) if isinstance(v, Path) else v for k, v in said.items()},
    }
    return _Reader("perfc_budget", Path(), 1, table, _OF_PYTHON).budget()


def _line(lines: Sequence[int], number: int) -> int:
    return lines[number] if number < len(lines) else 1


@attrs.frozen(eq=False)
class _Reader:
    """Reads one table.

    Attributes:
        where: What errors call it.
        folder: What paths in it are relative to.
        line: Where it begins.
        table: The table.
        more: Options that it may have besides.

    """

    where: str
    folder: Path
    line: int
    table: object
    more: frozenset[str] = frozenset()

    def _expected(self, key: str, what: str, found: object) -> PerfcError:
        msg = f"{self.where}.{key}: expected {what}, found {found!r:.60}"
        return PerfcError(msg)

    def budget(self) -> Budget:
        """Read it."""
        own = self.table
        if not isinstance(own, Mapping):
            msg = f"{self.where}: expected a table, [[budget]]"
            raise PerfcError(msg)
        table = cast("Mapping[str, Any]", own)
        self._check_keys(table)
        limits = {key: self._limit(key, table[key]) for key in LIMITS if key in table}
        regression, baseline = self._regression(table)
        if not limits and regression is None:
            known = ", ".join((*LIMITS, "regression"))
            msg = f"{self.where}: it has no limit; give one of {known}"
            raise PerfcError(msg)
        model, target = self._text(table, "model"), self._text(table, "target")
        named = {"name": f"{model}@{target}", **table}
        return Budget(
            name=self._text(named, "name"),
            model=model,
            request=self._request(table),
            limits=limits,
            regression=regression,
            baseline=baseline,
            where=self.where,
            line=self.line,
        )

    def _check_keys(self, table: Mapping[str, Any]) -> None:
        for key in table:
            if key not in {*KEYS, *NAMES.values(), *self.more}:
                hint = closest(key, KEYS) or f"; it takes {', '.join(KEYS)}"
                msg = f"{self.where}: a budget takes no option {key!r}{hint}"
                raise PerfcError(msg)

    def _text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self._expected(key, "a text", value)
        return value

    def _limit(self, key: str, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number) and number >= 0:
                return number
        raise self._expected(key, "a number from 0 on", value)

    def _regression(self, table: Mapping[str, Any]) -> tuple[float | None, Path | None]:
        said = [key for key in ("regression", "baseline") if key in table]
        if not said:
            return None, None
        if len(said) == 1:
            (other,) = {"regression", "baseline"} - {*said}
            msg = f"{self.where}.{other}: missing; {said[0]} needs it"
            raise PerfcError(msg)
        text = self._text(table, "regression")
        percent = _PERCENT.fullmatch(text)
        if percent is None:
            msg = f"{self.where}.regression: expected a share as 5 %, found {text!r}"
            raise PerfcError(msg)
        baseline = self.folder / self._text(table, "baseline")
        return float(percent[1]) / 100, baseline

    def _request(self, table: Mapping[str, Any]) -> Request:
        asked = {key: value for key, value in table.items() if key not in _OWN}
        named = {key: self._text(table, key) for key in ("model", "target")}
        try:
            for key, value in asked.items():
                _check(key, value)
            options = {NAMES.get(key, key): value for key, value in asked.items()}
            placed = Beside(self.folder).options({**options, **named})
            named = {key: placed.pop(key) for key in named}
            return Request.of("a budget", AnalyzeOptions, placed, **named)
        except UsageError as error:
            msg = f"{self.where}: {in_keys(str(error))}"
            raise PerfcError(msg) from None


def _check(key: str, value: object) -> None:
    """Refuse a value that means nothing by the name that the budget has for it."""
    field = attrs.fields_dict(Request).get(NAMES.get(key, key))
    if field is not None and value is not None:
        field.metadata["read"](key, value)
