"""Budgets held against predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from perfc.costmodels import load_target
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import Json, brief, counted, write_file
from perfc.tools.analysis import report_on
from perfc.tools.checks.baselines import check_alike
from perfc.tools.checks.budget_file import Budget
from perfc.tools.checks.keys import in_keys
from perfc.tools.diffs import diff
from perfc.tools.models import load_request
from perfc.tools.presets import with_preset
from perfc.tools.reports import OUT_OF_MEMORY, Report, VerbResult, columns_text
from perfc.tools.request import Request

REGRESSION, FITS = "regression", "fits"
EXIT_BROKEN, EXIT_OUT_OF_MEMORY = 3, 5
_DIGITS, _MOST_DIGITS = 6, 17
"""Digits of numbers: as a rule, and where two differ in the last one alone."""


@attrs.frozen
class Finding:
    """A limit, and what was found.

    Attributes:
        limit: What is limited: a key of budgets, `fits` for what a device holds.
        most: The most that it may be; of a regression in microseconds.
        found: What it is.
        reason: Of a regression that is broken, what it comes from.

    """

    limit: str
    most: float
    found: float
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is held."""
        return self.found <= self.most

    @property
    def numbers(self) -> tuple[str, str]:
        """Most and found, in so many digits that they differ if they do."""
        for digits in range(_DIGITS, _MOST_DIGITS):
            most, found = f"{self.most:,.{digits}g}", f"{self.found:,.{digits}g}"
            if most != found or self.most == self.found:
                return most, found
        return f"{self.most:,.{_MOST_DIGITS}g}", f"{self.found:,.{_MOST_DIGITS}g}"

    @property
    def message(self) -> str:
        """What was found, in words."""
        than = "at most" if self.holds else "over"
        most, found = self.numbers
        text = f"{self.limit}: {found}, {than} {most}"
        return f"{text} ({self.reason})" if self.reason else text


@attrs.frozen(eq=False)
class Checked:
    """A budget, its report and its limits."""

    budget: Budget
    report: Report
    findings: Sequence[Finding]

    @property
    def broken(self) -> list[Finding]:
        """The limits that do not hold."""
        return [one for one in self.findings if not one.holds]


@attrs.frozen(eq=False)
class Check(VerbResult):
    """Budgets, and whether they hold.

    Attributes:
        checked: The budgets, in the order of the file.
        file: Where they stand.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.check/1"
    checked: Sequence[Checked]
    file: str

    @property
    def rows(self) -> Sequence[Json]:
        """One row a limit."""
        return [
            {
                "name": one.budget.name,
                "limit": each.limit,
                "most": each.most,
                "found": each.found,
                "holds": each.holds,
                "reason": each.reason,
            }
            for one in self.checked
            for each in one.findings
        ]

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What there is to say of the predictions, each once."""
        found = [d for one in self.checked for d in one.report.diagnostics]
        return tuple(dict.fromkeys(found))

    @property
    def exit_code(self) -> int:
        """0; 5 where a model does not fit, else 3 where a limit is broken."""
        broken = {each.limit for one in self.checked for each in one.broken}
        if FITS in broken:
            return EXIT_OUT_OF_MEMORY
        return EXIT_BROKEN if broken else 0

    def _document(self) -> Json:
        budgets = [
            {
                "name": one.budget.name,
                "model": one.budget.model,
                "target": one.report.target.name,
                "ok": not one.broken,
                "time_us": one.report.time_us,
                "time_us_p95": one.report.interval_us[1],
                "limits": [
                    {**attrs.asdict(each), "holds": each.holds} for each in one.findings
                ],
            }
            for one in self.checked
        ]
        return {"file": self.file, "ok": not self.exit_code, "budgets": budgets}

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A row a limit, a heading first."""
        heading = ("budget", "limit", "most", "found", "", "reason")
        return [
            heading,
            *(
                _cells(one.budget.name, each)
                for one in self.checked
                for each in one.findings
            ),
        ]

    @property
    def headline(self) -> str:
        """How many hold, in words."""
        count = sum(not one.broken for one in self.checked)
        return f"{count:,} of {len(self.checked):,} budgets hold"

    @property
    def faults(self) -> list[str]:
        """What is broken, a line each."""
        return [
            _line(f"{one.budget.name}: {each.message}")
            for one in self.checked
            for each in one.broken
        ]

    def _text(self) -> str:
        return f"{columns_text(self.table)}\n\n{self.headline}\n"


def _cells(name: str, one: Finding) -> tuple[str, ...]:
    holds = "ok" if one.holds else "BROKEN"
    return (_line(name), one.limit, *one.numbers, holds, _line(one.reason))


def _line(text: str) -> str:
    return " ".join(text.split())


def check(
    budgets: Sequence[Budget],
    file: str,
    *,
    update: bool = False,
    option: str = "--update",
) -> Check:
    """Predict what budgets are of, each model loaded once for all of its targets.

    Args:
        budgets: The budgets.
        file: Where they stand.
        update: Whether reports become the new baselines, and no regression is found.
        option: What users update them by, for errors.

    """
    loaded: dict[str, Request] = {}
    reports: list[Report] = []
    for one in counted(budgets, "budgets"):
        try:
            reports.append(_report(one.request, loaded))
        except PerfcError as error:
            msg = f"{one.where}: {in_keys(str(error))}"
            raise PerfcError(msg) from error
    checked: list[Checked] = []
    for one, report in zip(budgets, reports, strict=True):
        findings = [*_findings(one, report)]
        if not update and one.baseline is not None:
            findings.append(_regression(one, one.baseline, report, option))
        checked.append(Checked(one, report, findings))
    folders = (Path(file).resolve().parent, Path.cwd().resolve())
    for each in checked if update else ():
        if each.budget.baseline is not None:
            _write_baseline(each.budget, each.budget.baseline, each.report, folders)
    return Check(checked, file)


def _write_baseline(
    one: Budget, path: Path, report: Report, folders: Sequence[Path]
) -> None:
    # Who wrote the file of budgets is not who runs the update: no link, and no dots,
    # lead to a file elsewhere.
    if not any(path.resolve().is_relative_to(folder) for folder in folders):
        msg = f"{one.where}.baseline: expected a file in {folders[0]}, found {path}"
        raise PerfcError(msg)
    try:
        write_file(path, report.to_json())
    except PerfcError as error:
        msg = f"{one.where}.baseline: {error}"
        raise PerfcError(msg) from error


def _report(asked: Request, loaded: dict[str, Request]) -> Report:
    asked = with_preset(asked)
    target = load_target(str(asked.target), asked.overrides)
    fields = attrs.asdict(asked, recurse=False)
    key = repr(sorted((k, repr(v)) for k, v in fields.items() if k not in _OF_TARGET))
    if key not in loaded:
        loaded[key] = attrs.evolve(load_request(asked), overrides={})
    return report_on(attrs.evolve(loaded[key], target=target, remarks=asked.remarks))


_OF_TARGET = frozenset({"target", "overrides", "remarks", "given"})
"""Fields of a request that loading a model does not read."""


def _findings(one: Budget, report: Report) -> Iterator[Finding]:
    numbers = {
        "time_us": report.time_us,
        "time_us_p95": report.interval_us[1],
        "peak_memory_bytes": report.memory_use.peak_bytes,
    }
    for name, most in one.limits.items():
        if name == "launches":
            found = report.summary["launches"]
        elif name == "unknown_ops":
            found = sum(report.coverage["unknown_ops"].values())
        else:
            found = numbers[name]
        yield Finding(name, most, found)
    if any(remark.code == OUT_OF_MEMORY for remark in report.diagnostics):
        usable = report.target.device.memory.usable_bytes
        yield Finding(FITS, usable, report.memory_use.peak_bytes)


def _regression(one: Budget, path: Path, report: Report, option: str) -> Finding:
    assert one.regression is not None  # noqa: S101 - a baseline has one
    if not path.exists():
        msg = f"{one.where}.baseline: there is no file {path}; write it with {option}"
        raise PerfcError(msg)
    try:
        found = diff(path, report)
        if not found.base.is_measured:
            check_alike(path, report, option)
    except PerfcError as error:
        msg = f"{one.where}.baseline: {error}"
        raise PerfcError(msg) from error
    most = found.base_us * (1 + one.regression)
    held = Finding(REGRESSION, most, found.head_us)
    steps = [step for step in found.steps if step.delta_us > 0]
    if held.holds or not steps:
        return held
    return attrs.evolve(held, reason=f"mostly {steps[0].name}: {steps[0].reason}")
