"""`perfc diff` as it is typed, and `perfc.diff`."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from tests.html_page import HtmlPage
from tests.tools.command import Command

import perfc
from perfc.ir import PerfcError
from perfc.tools.diffs import Diff

BY = ("op", "module", "phase", "kernel", "overhead")
TABLES = "dlrm-ddp:tables={},rows=1000"


def _report(tables: int = 2, batch: int = 64, **options: Any) -> dict[str, Any]:
    target = options.pop("target", "v100")
    model = TABLES.format(tables)
    return perfc.analyze(model, target, batch=batch, **options).to_dict()


BASE = _report()


def _chance(found: Diff) -> float:
    """Return how probable it is that the head is slower, which reports say."""
    assert found.probability_slower is not None
    return found.probability_slower


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "head",
    [
        {"tables": 3},
        {"batch": 128},
        {"target": "a100"},
        {"runtime": "cudagraph"},
        {"runtime": "compiled"},
        {"mode": "training"},
    ],
    ids=str,
)
def test_steps_sum_to_the_difference(head: dict[str, Any], by: str) -> None:
    """Whatever differs, the steps are all of it, and turn round with the question."""
    other = _report(**head)
    there, back = perfc.diff(BASE, other, by), perfc.diff(other, BASE, by)
    expected = other["summary"]["time_us"] - BASE["summary"]["time_us"]

    assert expected == there.difference_us == -back.difference_us
    assert math.fsum(s.delta_us for s in there.steps) == pytest.approx(
        expected, rel=1e-9
    )
    assert [(s.name, -s.delta_us) for s in there.steps] == [
        (s.name, s.delta_us) for s in back.steps
    ]
    assert 1 == pytest.approx(_chance(there) + _chance(back))


def test_a_report_does_not_differ_from_itself() -> None:
    """There are no steps, and a toss of a coin says which is slower."""
    found = perfc.diff(BASE, BASE)

    assert ([], [], 0.0, 0.5) == (
        found.steps,
        found.changes,
        found.difference_us,
        found.probability_slower,
    )


def test_order_does_not_matter() -> None:
    """Nodes are matched by what they are."""
    shuffled = {
        **BASE,
        "nodes": random.Random(0).sample(BASE["nodes"], len(BASE["nodes"])),
    }

    assert [] == perfc.diff(BASE, shuffled).steps


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"tables": 3}, "added"),
        ({"tables": 1}, "removed"),
        ({"batch": 8192}, "shape"),
        ({"target": "a100", "runtime": "cudagraph"}, "kernel"),
        ({"overheads": "lin-v100"}, "host"),
        ({"overrides": {"host.speed": 2}}, "host"),
        ({"runtime": "cudagraph", "dtype": "fp16"}, "dtype"),
    ],
)
def test_reasons(head: dict[str, Any], reason: str) -> None:
    """What was changed is the reason that is told first of some step."""
    base = _report(runtime=head.get("runtime", "eager"))
    found = perfc.diff(base, _report(**head))

    assert reason in {step.reason.split(", ")[0] for step in found.steps}


@pytest.mark.parametrize(
    "option", [{"overheads": "lin-v100"}, {"overrides": {"host.speed": 2}}], ids=str
)
def test_another_host_is_no_other_kernel(option: dict[str, Any]) -> None:
    """Where the host alone differs, no step is by kernels, and each part is named."""
    found = perfc.diff(BASE, _report(**option), by="overhead")
    reasons = {step.name: step.reason for step in found.steps}

    assert "host" == reasons["T1"] == reasons["T2"]
    assert {"host", "schedule", "rounding"} >= {*reasons.values()}
    assert {"host"} >= {row["reason"] for row in found.changes}


def test_launches_that_are_more_or_others() -> None:
    """Their number is told apart from what they are."""
    by_number = json.loads(json.dumps(BASE))
    by_kind = json.loads(json.dumps(BASE))
    place = next(n for n, one in enumerate(BASE["nodes"]) if len(one["kernels"]) == 1)
    by_number["nodes"][place]["kernels"] *= 2
    by_kind["nodes"][place]["kernels"] = ["conv2d fp32 fp32"]

    assert ["launches"] == [
        row["reason"] for row in perfc.diff(BASE, by_number).changes
    ]
    assert ["kernel"] == [row["reason"] for row in perfc.diff(BASE, by_kind).changes]


def test_what_both_are_off_by_counts_once() -> None:
    """A few percent are told apart although the interval is much wider."""
    found = perfc.diff(BASE, _report(4))

    assert BASE["summary"]["time_us_p95"] > found.head_us
    assert _chance(found) > 0.8


def _written(folder: Path, name: str, document: object) -> str:
    path = folder / name
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_the_command(tmp_path: Path, command: Command) -> None:
    """All formats hold the steps; several reports are compared one by one."""
    base = _written(tmp_path, "base.json", BASE)
    head = _written(tmp_path, "head.json", _report(3))
    found = command("diff", base, head, "--format", "json").report

    assert "perfc.diff/1" == found["schema"]
    assert {"name", "by", "delta_us", "reason"} == found["steps"][0].keys()
    assert "aten::embedding\\_bag" in command("diff", base, head, "--format", "md").out
    for form in ("table", "html"):
        assert "embedding_bag" in command("diff", base, head, "--format", form).out
    page = HtmlPage.of(command("diff", base, head, "--format", "html").out)
    assert page.is_alone
    assert "base.json" in page.text
    assert "From base to head, by op" in page.headings
    names = [row[0] for row in page.rows]
    steps = [step["name"] for step in found["steps"] if step["name"] != "rounding"]
    assert ["base", *steps, "head"] == names[1 : 3 + len(steps)]
    reports = {"schema": "perfc.reports/1", "reports": [BASE, BASE]}
    two = _written(tmp_path, "two.json", reports)
    several = command("diff", two, two, "--format", "json").report
    assert [[], []] == [one["steps"] for one in several["diffs"]]
    refused = command("diff", base, two)
    assert 1 == refused.code
    assert "two.json: reports: expected as many" in refused.error


@pytest.mark.parametrize(
    ("head", "left", "right"),
    [
        ({"batch": 128}, ", batch 64", ", batch 128"),
        ({"mode": "training"}, ", inference", ", training"),
        ({"dtype": "fp16"}, ", fp32", ", fp16"),
        ({"batch": 32, "dtype": "fp16"}, ", batch 64, fp32", ", batch 32, fp16"),
        ({"tables": 3}, "", ""),
    ],
    ids=str,
)
def test_headings_say_what_differs(
    head: dict[str, Any], left: str, right: str, tmp_path: Path, command: Command
) -> None:
    """Of what was asked, the first line of a table and of Markdown has what differs."""
    base = _written(tmp_path, "base.json", BASE)
    other = _written(tmp_path, "head.json", _report(**head))
    name = "dlrm-ddp on v100-sxm2-16g, eager"
    expected = f"{name}{left} → {name}{right}"

    assert expected == command("diff", base, other).out.splitlines()[0]
    shown = command("diff", base, other, "--format", "md").out.splitlines()[0]
    assert f"### {expected}" == shown


def _several(folder: Path, name: str, *reports: dict[str, Any]) -> str:
    document = {"schema": "perfc.reports/1", "reports": [*reports]}
    return _written(folder, name, document)


def test_several_are_compared_by_model_and_target(
    tmp_path: Path, command: Command
) -> None:
    """Another order, as of `--sort`, changes nothing; nor does a runtime between."""
    other, third = _report(target="a100"), _report(runtime="cudagraph")
    faster = _report(target="a100", batch=32)
    base = _several(tmp_path, "base.json", BASE, other, third)
    head = _several(tmp_path, "head.json", third, faster, BASE)
    shown = command("diff", base, head, "--format", "json").report["diffs"]

    less_us = faster["summary"]["time_us"] - other["summary"]["time_us"]
    assert [0.0, less_us, 0.0] == [one["difference_us"] for one in shown]
    assert all(one["base"]["name"] == one["head"]["name"] for one in shown)
    assert [] == [remark for one in shown for remark in one["diagnostics"]]


def test_several_of_other_targets_are_compared_in_order(
    tmp_path: Path, command: Command
) -> None:
    """It is said that they are not of the same models and targets."""
    base = _several(tmp_path, "base.json", BASE, _report(target="a100"))
    head = _several(tmp_path, "head.json", _report(target="h100"), BASE)
    shown = command("diff", base, head, "--format", "json").report["diffs"]

    assert [("v100", "h100"), ("a100", "v100")] == [
        tuple(one[side]["name"].split(" on ")[1][:4] for side in ("base", "head"))
        for one in shown
    ]
    for one in shown:
        (said,) = one["diagnostics"]
        assert ("warning", "reports-by-place") == (said["level"], said["code"])
    out = command("diff", base, head).out
    assert 2 == out.count(f"Warning: {base} and {head} are not of the same models")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "perfc.report/2"}, "head.json: schema: expected perfc.report/1"),
        ({"nodes": 3}, "head.json: nodes: expected a list, found 3"),
        ({"summary": {}}, "head.json: summary.time_us: expected a number"),
        ({"nodes": [{"id": 1}]}, "head.json: nodes[0].rank: expected a whole"),
        (
            {"nodes": [], "critical_path": [], "summary": {"time_us": 0}},
            "head.json: nodes: none is of an op",
        ),
        (
            {"critical_path": []},
            "head.json: critical_path: expected segments that sum to summary.time_us, ",
        ),
        (
            {"critical_path": BASE["critical_path"][1:]},
            "head.json: critical_path: expected segments that sum to summary.time_us, ",
        ),
        (
            {
                "critical_path": [
                    {**BASE["critical_path"][0], "node": "nonexist"},
                    *BASE["critical_path"][1:],
                ]
            },
            "head.json: critical_path[0].node: expected the id of a node of rank 0, ",
        ),
        (
            {
                "critical_path": [
                    *BASE["critical_path"][:-1],
                    {**BASE["critical_path"][-1], "rank": 7},
                ]
            },
            "].node: expected the id of a node of rank 7, found ",
        ),
    ],
)
def test_damaged_reports(
    change: dict[str, Any], message: str, tmp_path: Path, command: Command
) -> None:
    """One line names the file and the key, and nothing is written."""
    base = _written(tmp_path, "base.json", BASE)
    head = _written(tmp_path, "head.json", {**BASE, **change})
    output = tmp_path / "diff.md"
    outcome = command("diff", base, head, "-o", str(output))

    assert (1, 1) == (outcome.code, len(outcome.error.splitlines()))
    assert message in outcome.error
    assert not output.exists()


@pytest.mark.parametrize("none_is_base", [True, False])
def test_files_of_no_reports(
    none_is_base: bool, tmp_path: Path, command: Command
) -> None:
    """The file that has none is the one at fault."""
    files = [_several(tmp_path, "none.json"), _written(tmp_path, "base.json", BASE)]
    outcome = command("diff", *(files if none_is_base else reversed(files)))

    assert 1 == outcome.code
    assert f"{files[0]}: reports: expected one or more, found none" in outcome.error
    assert "base.json" not in outcome.error


def test_one_report_is_expected_in_python(tmp_path: Path) -> None:
    """Of a file of several, the line says how many it has."""
    three = _several(tmp_path, "three.json", BASE, BASE, BASE)
    for sides in ((three, BASE), (BASE, three), (three, three)):
        with pytest.raises(PerfcError) as caught:
            perfc.diff(*sides)
        assert f"{three}: reports: expected one, found 3" == str(caught.value)


def test_damaged_reports_of_several(tmp_path: Path, command: Command) -> None:
    """The line says which of them it is."""
    damaged: dict[str, Any] = {**BASE, "critical_path": []}
    several = _several(tmp_path, "several.json", BASE, damaged)
    outcome = command("diff", several, several)

    assert 1 == outcome.code
    assert "several.json: reports[1].critical_path: expected " in outcome.error
