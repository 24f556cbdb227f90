"""Plugins: of another distribution (`tests/plugin`), and modules of one's own."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from tests.tools.command import SMALL, Command

from perfc.installed import EntryPoint
from perfc.installed import entry_points as installed_points
from perfc.ir import Program, register_plugin
from perfc.ir.support import FRONTENDS, entry_points

TOY = "perfc-toy-plugin"


def _is_installed() -> bool:
    try:
        metadata.distribution(TOY)
    except metadata.PackageNotFoundError:
        return False
    return True


needs_toy = pytest.mark.skipif(
    not _is_installed(), reason="tests/plugin is not installed: make install"
)


@pytest.fixture
def toy_file(tmp_path: Path) -> str:
    """A model of two kernels, in the toy's own format."""
    path = tmp_path / "model.toy"
    path.write_text("10\n20.5\n")
    return str(path)


@needs_toy
def test_frontend_cost_model_and_target(command: Command, toy_file: str) -> None:
    """A file, a kernel and a device that only the plugin knows make a report."""
    arguments = ("analyze", toy_file, "--target", "toy-gpu", "--format", "json")

    report = command(*arguments).report

    assert "toy-gpu" == report["target"]["name"]
    assert [
        ("line1", "toy::op", 10.0, "toy", "assumed"),
        ("line2", "toy::op", 20.5, "toy", "assumed"),
    ] == [
        (n["id"], n["op"], n["duration_us"], n["cost_model"], n["provenance"])
        for n in report["nodes"]
    ]


@needs_toy
def test_a_cost_model_brings_its_kernel_with_bound_and_interval(
    command: Command, tmp_path: Path
) -> None:
    """Price, bound, interval and provenance of a kernel that perfc does not know.

    A kernel is no faster than its model says that any can be, and the sum of the two
    variances is that of the logarithm of its time.
    """
    path = tmp_path / "model.toy"
    path.write_text("10 4\n10 16\n")
    report = command("analyze", str(path), "--target", "toy-gpu", "--format", "json")
    ninety = math.exp(1.6449 * math.hypot(0.1, 0.1))

    free, bounded = report.report["nodes"]
    for node, us in ((free, 10.0), (bounded, 16.0)):
        assert (us, "toy", "assumed") == (
            node["duration_us"],
            node["cost_model"],
            node["provenance"],
        )
        assert us / ninety == pytest.approx(node["duration_us_p05"], rel=1e-3)
        assert us * ninety == pytest.approx(node["duration_us_p95"], rel=1e-3)


@needs_toy
def test_kernels_of_plugins_are_listed(command: Command) -> None:
    """`perfc ops --kernels` has them with their parameters, as table and as data."""
    table = command("ops", "--kernels").out
    data = command("ops", "--kernels", "--format", "json").report
    (toy,) = (k for k in data["kernels"] if k["name"] == "toy.kernel")

    assert ["us", "least_us"] == [param["name"] for param in toy["params"]]
    assert re.search(r"toy.kernel +us +number +microseconds +required +plugin ", table)


@needs_toy
def test_a_parameter_that_a_plugin_did_not_declare(
    command: Command, tmp_path: Path
) -> None:
    """It is refused as one of perfc's own kernels would be."""
    path = tmp_path / "model.perfc"
    path.write_text(
        'launches @t {\n  thread "main"\n  stream "s0"\n  signature "toy.kernel" '
        '{dtype = "fp32", math = "fp32", flops = 0, bytes_read = 0, bytes_written = 0, '
        "params = {us = 3.5, lest_us = 1.0}}\n}\n"
    )

    line = command.refused(["analyze", str(path), "--target", "t4"], 1)

    assert (
        "kernel 'toy.kernel' has no parameter 'lest_us'; did you mean 'least_us'? "
        "declared: us, least_us, phase, "
    ) in line


@needs_toy
def test_errors_of_a_frontend(command: Command, tmp_path: Path) -> None:
    """An error that a plugin raises on purpose is one line, as any other."""
    path = tmp_path / "model.toy"
    path.write_text("10\nten\n")

    assert f"{path}: line 2: expected microseconds, found 'ten'" == command.refused(
        ["analyze", str(path), "--target", "t4"], 1
    )


@needs_toy
def test_pass(command: Command) -> None:
    """A pass of a plugin runs where its facts allow, and its remark is reported."""
    report = command.analyze("--format", "json", "--pass", "toy-count-ops").report

    (remark,) = report["diagnostics"]
    assert ("note", "toy-op-count") == (remark["level"], remark["code"])
    assert int(remark["message"].removesuffix(" ops")) > 10


@needs_toy
def test_options_of_a_pass(command: Command) -> None:
    """Its fields are options."""
    counted = command.analyze("--pass", "toy-count-ops{only=relu}").out

    assert counted.rstrip().endswith("Note: 7 relu [toy-op-count]")


@needs_toy
def test_a_transform_stands_where_it_says(command: Command) -> None:
    """Between two built-in passes; what is printed with it runs again."""
    dropped = command.analyze("--pass", "toy-drop-relu", "--print-pipeline").out

    assert ",raise-linear,toy-drop-relu,raise-activation," in dropped
    report = command.analyze("--pass", "toy-drop-relu", "--format", "json").report
    assert "aten::relu" not in {node["op"] for node in report["nodes"]}
    again = command.analyze("--pipeline", dropped.strip(), "--format", "json")
    assert report == again.report


@needs_toy
def test_the_cost_model_leaves_others_alone(command: Command) -> None:
    """A model that is installed prices only what it claims."""
    report = command.analyze("--format", "json").report

    assert "toy" not in {node["cost_model"] for node in report["nodes"]}


@needs_toy
@pytest.mark.parametrize(
    ("verb", "name"), [("targets", "toy-gpu"), ("passes", "toy-count-ops")]
)
def test_lists(command: Command, verb: str, name: str) -> None:
    """Plugins stand in the lists beside the built-in parts."""
    lines = filter(None, command(verb).out.splitlines())
    names = [line.split()[0] for line in lines]

    assert name in names


@needs_toy
def test_exporter(command: Command) -> None:
    """A format of a plugin is written as the built-in ones are."""
    lines = command.analyze("--target", "a100", "--format", "toy-line").out

    assert ["v100-sxm2-16g", "a100-sxm-80g"] == [
        line.split()[0] for line in lines.splitlines()
    ]


@needs_toy
def test_suffixes(command: Command) -> None:
    """A file that nobody reads is answered with the plugin's suffix, too."""
    message = command.refused(["analyze", "a.b", "--target", "t4"], 2)

    assert ".perfc, .pt2, .toy" in message


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points that seem installed besides those that are."""
    added: list[EntryPoint] = []

    def points(*, group: str) -> list[EntryPoint]:
        mine = [point for point in added if point.group == group]
        return [*installed_points(group=group), *mine]

    monkeypatch.setattr("perfc.ir.support.plugins.installed_points", points)
    entry_points.cache_clear()
    yield added
    entry_points.cache_clear()


@pytest.mark.parametrize(
    ("group", "name", "value", "arguments", "message"),
    [
        (
            *("perfc.cost_models", "gemm", "other:GEMM", SMALL),
            "perfc.cost_models 'gemm' is claimed twice: by perfc and by other:GEMM",
        ),
        (
            *("perfc.passes", "overhead", "other:Overhead", SMALL),
            "perfc.passes 'overhead' is claimed twice: by perfc and by other:Overhead",
        ),
        (
            *("perfc.passes", "mine", "math:pi", (*SMALL, "--pass", "mine")),
            "plugin 'mine' of perfc.passes is not a subclass of Pass but 3.14159",
        ),
        (
            *("perfc.frontends", "mine", "math:pi", ("{file}",)),
            "frontend 'mine' is not callable: 3.141592653589793",
        ),
        (
            *("perfc.exporters", "mine", "math:pi", (*SMALL, "--format", "mine")),
            "'mine' of perfc.exporters is not a subclass of Exporter: 3.14159",
        ),
    ],
)
def test_broken_plugins(
    command: Command,
    installed: list[EntryPoint],
    tmp_path: Path,
    *,
    group: str,
    name: str,
    value: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    """A plugin that clashes or cannot be used is one line that names it."""
    installed.append(EntryPoint(name, value, group))
    file = tmp_path / "model.mine"
    file.touch()

    words = [argument.format(file=file) for argument in arguments]

    assert message in command.refused(["analyze", *words, "--target", "t4"], 1)


def test_a_pass_that_is_not_asked_for(
    command: Command, installed: list[EntryPoint]
) -> None:
    """A pass that cannot be loaded disturbs nobody who does not use it."""
    installed.append(EntryPoint("mine", "no_such_module:P", "perfc.passes"))

    assert 0 == command.analyze().code
    assert "'mine' of no_such_module:P cannot" in command.refused(
        ["analyze", *SMALL, "--target", "t4", "--pass", "mine"], 1
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no_such_module:MODEL", "of no_such_module:MODEL cannot be loaded: ModuleNot"),
        ("math:pi", "is float without name, priority, ops, claims, estimate; register"),
    ],
)
def test_a_cost_model_that_is_not_asked_for(
    command: Command, installed: list[EntryPoint], value: str, why: str
) -> None:
    """One that cannot be used prices nothing, and the report names it."""
    before = command.analyze("--format", "json").report
    installed.append(EntryPoint("mine", value, "perfc.cost_models"))
    entry_points.cache_clear()
    after = command.analyze("--format", "json").report

    (remark,) = (d for d in after["diagnostics"] if d not in before["diagnostics"])
    assert ("warning", "plugin-left-out") == (remark["level"], remark["code"])
    assert f"'mine' {why}" in remark["message"]
    assert before["nodes"] == after["nodes"]


@pytest.mark.parametrize(
    ("verb", "value"),
    [("passes", "no_such_module:P"), ("targets", "no_such_module:SHEET")],
)
def test_lists_go_on(
    command: Command, installed: list[EntryPoint], verb: str, value: str
) -> None:
    """A list has all that can be loaded, and names the rest on stderr."""
    before = command(verb).out
    installed.append(EntryPoint("mine", value, f"perfc.{verb}"))
    entry_points.cache_clear()
    done = command(verb)

    assert before == done.out
    assert f"perfc: left out: perfc.{verb} 'mine' of {value} cannot be" in done.err


def test_reports_do_not_name_plugins_that_did_nothing(command: Command) -> None:
    """What is installed leaves no trace in a report that it did not change."""
    assert TOY not in json.dumps(command.analyze("--format", "json").report)


def test_a_module_of_plugins(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--plugin` imports a module that stands in the working directory."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_fast_gemm.py").write_text(
        "import attrs\n"
        "from perfc.costmodels.gemm import GEMM\n"
        "from perfc.ir import register_plugin\n"
        "class Mine:\n"
        "    name, priority, ops = 'mine', 1000, GEMM.ops\n"
        "    def claims(self, kernels, target):\n"
        "        return GEMM.claims(kernels, target)\n"
        "    def estimate(self, kernels, target):\n"
        "        found = GEMM.estimate(kernels, target)\n"
        "        return attrs.evolve(found, model=['mine'] * len(kernels))\n"
        "register_plugin('perfc.cost_models', 'mine', Mine())\n"
    )

    report = command.analyze("--format", "json", "--plugin", "my_fast_gemm").report

    models = {node["cost_model"] for node in report["nodes"]}
    assert "mine" in models
    assert "gemm" not in models


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.py", "no such file"),
        ("json.py", "a module has this name already ("),
    ],
)
def test_a_file_that_is_not_imported(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    message: str,
) -> None:
    """A file that is not there, or hidden by a module of its name, is an error."""
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "json.py").touch()

    line = command.refused(["passes", "--plugin", f"{tmp_path / name}"], 1)

    assert line.startswith(f"--plugin {tmp_path / name}: {message}")


@pytest.mark.parametrize("name", ["folder_of_nothing", "sys"])
def test_a_module_that_registers_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A folder that Python takes for an empty package is an error."""
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder_of_nothing").mkdir()

    assert command.refused(["passes", "--plugin", name], 1).startswith(
        f"--plugin {name}: no .py file, and no folder with an __init__.py"
    )


def test_a_bug_of_a_frontend(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mistake in somebody's frontend is not called perfc's."""
    path = tmp_path / "model.mine"
    path.touch()

    class Mine:
        def load(self, path: Path) -> Program:
            raise KeyError(path)

    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    register_plugin(FRONTENDS, "mine", Mine)

    line = command.refused(["opt", str(path)], 1)

    assert line.startswith("frontend 'mine' fails in test_plugin.py, line ")


def test_a_module_of_plugins_that_breaks(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plugin module raises on import is one line that names it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_broken.py").write_text("1 / 0\n")

    assert "--plugin my_broken: ZeroDivisionError: division by zero" == command.refused(
        ["analyze", *SMALL, "--target", "t4", "--plugin", "my_broken"], 1
    )


SOURCE = """\
import attrs
from perfc.ir import PASSES, register_plugin
from perfc.passes import Pass

class Mine(Pass):
    name = "{name}"

    def run(self, program, ctx):
        {body}

register_plugin(PASSES, "test-mine", Mine)
"""


@pytest.fixture
def write_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Write the file of a pass; it is forgotten after the test."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    monkeypatch.setattr("sys.path", [*sys.path])

    def write(body: str, name: str = "test-mine") -> str:
        path = tmp_path / "pass_of_mine.py"
        path.write_text(SOURCE.format(body=body, name=name))
        return str(path)

    yield write
    sys.modules.pop("pass_of_mine", None)


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", *SMALL, "--target", "t4", "--pass", "test-mine"),
        ("opt", "-p", "test-mine", "dlrm-ddp"),
        ("passes",),
    ],
    ids=" ".join,
)
def test_a_file_of_plugins(
    command: Command, write_pass: Callable[..., str], words: tuple[str, ...]
) -> None:
    """`--plugin` takes a file, wherever it lies, with every verb that runs passes."""
    file = write_pass("ctx.note('mine', 'test-mine ran')")

    assert "test-mine" in command(*words, "--plugin", file).out


@pytest.mark.parametrize(
    ("body", "name", "message"),
    [
        ("ctx.tell()", "test-mine", "fails in pass_of_mine.py, line 9: AttributeError"),
        ("max()", "test-mine", "fails in pass_of_mine.py, line 9: TypeError: max exp"),
        ("pass", "other", "must have the name it is registered by: Mine says name = "),
    ],
)
def test_a_bug_of_a_pass(
    command: Command,
    write_pass: Callable[..., str],
    *,
    body: str,
    name: str,
    message: str,
) -> None:
    """A mistake in somebody's pass is one line that says where, and not perfc's."""
    words = ("analyze", *SMALL, "--target", "t4", "--pass", "test-mine")

    line = command.refused([*words, "--plugin", write_pass(body, name)], 1)

    assert line.startswith(f"pass 'test-mine' {message}")
