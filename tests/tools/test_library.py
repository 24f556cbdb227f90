"""perfc as a library."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import attrs
import networkx as nx
import pytest
from tests.html_page import HtmlPage

import perfc
from perfc.costmodels import load_target
from perfc.frontends.workloads import build_workload
from perfc.ir import PASSES, AnnotationKey, Program, UsageError
from perfc.ir.support import PassContractError, VerifyError
from perfc.passes import LAUNCHES, Pass, PassContext, Transform
from perfc.passes.facts import TYPED
from perfc.passes.instruments import Timing
from perfc.passes.shapes import FoldShapes
from perfc.tools import format_us
from perfc.tools.models.model import Model

NAME = "dlrm-ddp:tables=2,rows=1000"


@pytest.fixture
def model() -> Model:
    """A small model."""
    return perfc.load(NAME, batch=64)


@attrs.frozen
class Repeat(Transform):
    """Adds an op that nobody reads; keeps no fact."""

    name = "test-repeat"

    def run(self, program: Program, ctx: PassContext) -> None:
        """Add it."""
        graph = program.classes[0].ops
        assert graph is not None
        graph.add("relu", [graph.outputs[0]], [graph.fresh_name("again")])


def test_every_name() -> None:
    """What `perfc` exports is there, and listed."""
    assert [] == [name for name in perfc.__all__ if getattr(perfc, name) is None]
    assert {"analyze", "load", "Report", "register_plugin"} <= set(perfc.__all__)


def test_the_example_of_the_documentation() -> None:
    """Loading, analysing and reading the report are a line each."""
    report = perfc.analyze(perfc.load(NAME, batch=64), target="a100", runtime="eager")

    low_us, high_us = report.interval_us
    assert low_us < report.time_us < high_us
    assert report.time_us == pytest.approx(
        math.fsum(row["time_us"] for row in report.breakdown)
    )
    assert 0 == report.critical_path[0]["start_us"]
    assert isinstance(report, perfc.Report)


def test_a_name_will_do() -> None:
    """`analyze` loads a model that is given by its name."""
    path = Path(__file__).parents[1] / "fixtures/onnx/dlrm_small_dynamo_op18.onnx"

    assert 4 == perfc.analyze(str(path), "t4").model.batch
    with pytest.raises(perfc.PerfcError, match="--batch N"):
        perfc.analyze(NAME, "t4")


def test_bind(model: Model) -> None:
    """A model is loaded once and bound as often as one likes."""
    report = perfc.analyze(model.bind(4096), "v100")

    assert perfc.analyze(perfc.load(NAME, batch=4096), "v100").to_json() == (
        report.to_json()
    )
    assert (64, 4096) == (model.batch, report.model.batch)


def test_analyses_do_not_disturb_each_other(model: Model) -> None:
    """A report stays what it was when the model is analysed again."""
    first = perfc.analyze(model, "v100")
    before = first.time_us
    perfc.analyze(model, "h100", inputs="device")

    assert before == first.time_us
    assert first.to_json() == perfc.analyze(model, "v100").to_json()


def test_a_loaded_target(model: Model) -> None:
    """A target may be loaded and changed in Python."""
    target = load_target("v100")

    assert perfc.analyze(model, "v100").to_json() == (
        perfc.analyze(model, target).to_json()
    )
    with pytest.raises(UsageError, match="this one is loaded already"):
        perfc.analyze(model, target, overrides={"gpu.sm_count": "1"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runtime": "jit"}, "runtime 'jit' is none of eager, cudagraph, compiled"),
        ({"inputs": "disk"}, "inputs 'disk' is none of host-pinned, "),
        ({"dtype": "fp4"}, "dtype 'fp4' is none of fp32, tf32, bf16, "),
        ({"overheads": "none"}, "unknown host profile 'none'"),
    ],
)
def test_refused(model: Model, options: dict[str, str], message: str) -> None:
    """An option that means nothing is refused, with those that do."""
    with pytest.raises(UsageError, match=message):
        perfc.analyze(model, "v100", **options)  # type: ignore[arg-type]


def test_to_json(model: Model, tmp_path: Path) -> None:
    """The text that is returned is the text that is written."""
    report, path = perfc.analyze(model, "v100"), tmp_path / "r.json"

    text = report.to_json(path)

    assert text == path.read_text(encoding="utf-8")
    assert report.to_dict() == json.loads(text)
    with pytest.raises(perfc.PerfcError, match="cannot write"):
        report.to_json(tmp_path / "no" / "r.json")


def test_to_networkx(model: Model) -> None:
    """The longest way through the tasks is the time, gaps aside."""
    report = perfc.analyze(model, "v100")

    graph = report.to_networkx()

    tasks: dict[int, dict[str, Any]] = {task: graph.nodes[task] for task in graph}
    assert nx.is_directed_acyclic_graph(graph)
    assert report.time_us == pytest.approx(
        max(task["start_us"] + task["duration_us"] for task in tasks.values())
    )
    assert {node["id"] for node in report.nodes} == {t["node"] for t in tasks.values()}
    for earlier, later in graph.edges:
        end_us = tasks[earlier]["start_us"] + tasks[earlier]["duration_us"]
        assert end_us <= tasks[later]["start_us"] + 1e-6
    kinds = {graph.edges[edge]["kind"] for edge in graph.edges}
    assert {"order", "launch", "wait"} == kinds


def test_repr_html(model: Model) -> None:
    """Notebooks show the head of the page: the answer and bars, and nothing runs."""
    graph = build_workload(NAME)
    odd = Model(
        attrs.evolve(model.program, name="<b>&"), model.annotations, model.unbound
    )
    report = perfc.analyze(odd, "v100")

    shown = report._repr_html_()  # pyright: ignore[reportPrivateUsage]

    page = HtmlPage.of(shown)
    assert page.is_alone
    assert "<script" not in shown
    assert f"<b>& on {report.target.name}" == page.headings[0]
    assert "Where the time goes" in page.headings
    assert format_us(report.time_us) in page.text
    assert [label for label, *_ in report.tables.breakdown[:12]] == [
        row[0] for row in page.rows[:12]
    ]
    assert graph.name == model.name


def test_instruments(model: Model) -> None:
    """Observers see the passes of loading and of the analysis."""
    timing = Timing()

    perfc.load(NAME, batch=64, instruments=[timing])
    perfc.analyze(model, "v100", instruments=[timing])

    names = [name for name, _ in timing.seconds]
    assert ("raise-embedding-bag", "time-interval") == (names[0], names[-1])


def test_transforms(model: Model) -> None:
    """A transform runs on loading, and types are inferred again after it."""
    changed = perfc.load(NAME, batch=64, transforms=[Repeat()])

    nodes = [len(perfc.analyze(m, "v100").nodes) for m in (model, changed)]

    assert nodes[0] + 1 == nodes[1]


def test_transforms_do_not_run_in_an_analysis(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded model is shared between targets, so it is not changed."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    perfc.register_plugin(PASSES, Repeat.name, Repeat)

    with pytest.raises(UsageError, match="'test-repeat' changes the graph"):
        perfc.analyze(model, "v100", passes=["test-repeat"])


def test_what_the_front_passes_say_is_in_the_report(tmp_path: Path) -> None:
    """Remarks of type inference are not lost."""
    path = tmp_path / "g.perfc"
    path.write_text(
        'graph @g(%x: f32[8]) {\n  %y = unknown(%x) {op = "a"} : ?\n  return %y\n}\n'
    )

    codes = [remark.code for remark in perfc.analyze(str(path), "v100").diagnostics]

    assert ["type-assumed", "unknown-op"] == codes


def test_register_plugin(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that is registered in Python runs by its name, and only one may."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    seen: list[int] = []

    class Look(Pass):
        name = "test-look"

        def run(self, program: Program, ctx: PassContext) -> None:
            seen.append(len(program.classes))

    perfc.register_plugin(PASSES, "test-look", Look)
    perfc.register_plugin(PASSES, "test-look", Look)
    perfc.analyze(model, "v100", passes=["test-look"])

    assert [1] == seen
    for name in ("test-look", "fold-shapes"):
        with pytest.raises(perfc.PerfcError, match="is registered already; choose"):
            perfc.register_plugin(PASSES, name, FoldShapes)


def test_facts(model: Model) -> None:
    """What a pass found is read from the analysis; what none found is an error."""
    analysis = perfc.analyze(model, "v100").analysis
    graph = model.program.classes[0].ops
    absent: AnnotationKey[int] = AnnotationKey("test.absent", Program)

    assert ("main", True) == (
        analysis.get(LAUNCHES)[0].resources[0].name,
        analysis.get(TYPED, graph),
    )
    with pytest.raises(PassContractError, match="no pass of this analysis provides"):
        analysis.get(absent)


def test_errors_are_one_tree() -> None:
    """Whatever a user can cause is a `PerfcError`."""
    assert issubclass(VerifyError, perfc.PerfcError)
    with pytest.raises(perfc.PerfcError, match="no such file"):
        perfc.load("no.onnx")
