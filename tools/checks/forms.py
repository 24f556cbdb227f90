"""The forms in which checked budgets are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from perfc.tools.checks.checking import Check
from perfc.tools.reports import format_json

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def _json(found: Check) -> str:
    return found.to_json()


def _markdown(found: Check) -> str:
    heading, *rows = found.table
    lines = [
        f"**{found.headline}**",
        "",
        f"| {' | '.join(heading)} |",
        "| --- | --- | ---: | ---: | --- | --- |",
        *(f"| {' | '.join(map(_plain, row))} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Take away the meaning that Markdown gives to characters of names."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def _junit(found: Check) -> str:
    """Return JUnit's XML: a test case a budget."""
    broken = sum(bool(one.broken) for one in found.checked)
    counts = f'tests="{len(found.checked)}" failures="{broken}" errors="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="perfc check" {counts}>',
        f'<testsuite name={quoteattr(_xml(found.file))} {counts} skipped="0">',
    ]
    for one in found.checked:
        name = quoteattr(_xml(one.budget.name))
        lines.append(f'<testcase classname="perfc.check" name={name} time="0">')
        if one.broken:
            text = "; ".join(each.message for each in one.broken)
            message = quoteattr(_xml(text))
            body = escape(_xml(text))
            lines.append(f'<failure type="budget" message={message}>{body}</failure>')
        lines.append("</testcase>")
    return "\n".join([*lines, "</testsuite>", "</testsuites>"]) + "\n"


def _xml(text: str) -> str:
    """Take away what XML 1.0 has no place for."""
    return "".join(
        c if c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe" else " "
        for c in text
    )


def _sarif(found: Check) -> str:
    """Return SARIF 2.1.0: a result a broken limit, at the budget's line."""
    rules = sorted({each.limit for one in found.checked for each in one.findings})
    results = [
        {
            "ruleId": each.limit,
            "level": "error",
            "message": {"text": f"{one.budget.name}: {each.message}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(found.file)},
                        "region": {"startLine": one.budget.line},
                    }
                }
            ],
        }
        for one in found.checked
        for each in one.broken
    ]
    driver = {"name": "perfc", "rules": [{"id": name} for name in rules]}
    run = {"tool": {"driver": driver}, "results": results}
    return format_json({"$schema": _SARIF, "version": "2.1.0", "runs": [run]})


FORMATS: Mapping[str, Callable[[Check], str]] = {
    "table": str,
    "md": _markdown,
    "json": _json,
    "junit": _junit,
    "sarif": _sarif,
}
"""What writes each `--format`."""
