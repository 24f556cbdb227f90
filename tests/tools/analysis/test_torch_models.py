"""PyTorch models on the command line: `perfc analyze file.py:factory`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tools.command import Command
from torch import Tensor, nn

import perfc
from perfc.tools import compile_backend

MODEL = """
import torch
from torch import nn

def small():
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    return module, torch.zeros(4, 8)

def huge():
    return nn.Linear(1 << 19, 1 << 19), (torch.zeros(4, 1 << 19),)

def named():
    return {"module": nn.Linear(8, 2), "kwargs": {"input": torch.zeros(4, 8)},
            "loss": lambda out: out.square().sum()}

def raises():
    return nn.Linear(8, "x"), ()

def wrong():
    return [1, 2, 3, 4]

number = 3
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Write the file of factories."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return str(path)


def test_factory_is_analyzed(command: Command, model: str) -> None:
    """Name, batch and mode are in the report; each op knows its line."""
    done = command("analyze", f"{model}:small", "--target", "a100", "--format", "json")
    assert 0 == done.code
    report = done.report
    assert ("small", 4) == (report["model"]["name"], report["model"]["batch"])
    assert "2" in {node["module"] for node in report["nodes"]}


def test_factory_is_trained(command: Command, model: str) -> None:
    """`--mode training --optimizer` runs the whole step."""
    options = ("--mode", "training", "--optimizer", "adamw", "--format", "json")
    done = command("analyze", f"{model}:named", "--target", "a100", *options)
    assert 0 == done.code, done.err
    phases = {node["phase"] for node in done.report["nodes"]}
    assert {"forward", "loss", "backward", "optimizer"} <= phases


def test_factory_is_shared_among_ranks(command: Command, model: str) -> None:
    """Layers whose weights PyTorch turns first are shared as others."""
    options = ("--ranks", "2", "--pass", "tensor-parallel{ranks=2}", "-q")
    done = command("analyze", f"{model}:small", "--target", "dgx-a100", *options)

    assert 0 == done.code, done.err
    assert "2 of 2 linear layers are shared" in done.out


@pytest.mark.parametrize("name", ["fsdp", "tensor-parallel"])
def test_recorded_backward_is_not_shared(
    command: Command, model: str, name: str
) -> None:
    """What changes forward is refused in a line that says what to do."""
    options = ("--mode", "training", "--pass", f"{name}{{ranks=2}}")
    done = command("analyze", f"{model}:small", "--target", "dgx-a100", *options)

    assert 2 == done.code
    expected = f"small is recorded with PyTorch's own backward pass, and {name} changes"
    assert expected in done.err
    assert "save torch.export.export(module, arguments) as a .pt2 file" in done.err
    derived = ("--pass", f"{name}{{ranks=2}}", "--pass", "training")
    done = command("analyze", f"{model}:small", "--target", "dgx-a100", *derived)
    assert 0 == done.code, done.err
    assert "training · fp32" in done.out


def test_recorded_backward_is_not_repeated(command: Command, model: str) -> None:
    """Microbatches of a recorded step are its own; a derived one has them."""
    options = ("--target", "a100", "--accumulate", "2")
    done = command("analyze", f"{model}:small", "--mode", "training", *options)

    assert 2 == done.code
    assert "write the loop over microbatches yourself (perfc.from_torch(" in done.error
    done = command("analyze", f"{model}:small", "--pass", "training", *options)
    assert 0 == done.code, done.err
    assert "2 microbatches · training" in done.out


@pytest.mark.parametrize("dtype", ["bf16", "amp-bf16"])
def test_factory_is_recorded_in_its_type(
    command: Command, model: str, dtype: str
) -> None:
    """`--dtype` records the step in that type: autocast runs before backward."""
    training = ("--mode", "training", "--optimizer", "adamw", "--dtype", dtype)
    options = (*training, "--target", "a100", "--format", "json")
    report = command("analyze", f"{model}:small", *options).report
    linear, relu, last = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)
    recorded = perfc.from_torch(
        nn.Sequential(linear, relu, last),
        torch.zeros(4, 8),
        mode="training",
        optimizer="adamw",
        dtype=dtype,
    )
    summary = perfc.analyze(recorded, target="a100").summary

    assert dtype == report["model"]["dtype"] == recorded.dtype
    for key in ("launches", "flops", "bytes", "peak_memory_bytes"):
        assert summary[key] == report["summary"][key], key


def test_autocast_of_a_step_in_a_file(command: Command, tmp_path: Path) -> None:
    """A step whose backward pass is there already is refused, in one line."""
    path = tmp_path / "step.perfc"
    path.write_text(
        "graph @g(%x: f32[2,2], param %w: f32[2,2]) {\n"
        "  %y = matmul(%x, %w) : f32[2,2]\n"
        '  %g = matmul(%x, %y) : f32[2,2] loc{phase = "backward"}\n'
        "  return %g\n}\n"
    )
    error = command.refused(
        ["analyze", str(path), "--target", "a100", "--dtype", "amp-bf16"], 2
    )

    assert "autocast comes before its backward pass" in error


def test_factory_of_a_terabyte_takes_no_memory(command: Command, model: str) -> None:
    """Weights are never allocated."""
    assert 0 == command("analyze", f"{model}:huge", "--target", "b200").code


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "raised TypeError"),
        ("wrong", "returned (int, int, int, int), expected (torch.nn.Module"),
        ("smal", "has no function 'smal'; did you mean 'small'?"),
        ("number", "has no function 'number'"),
    ],
)
def test_wrong_factories_are_refused(
    command: Command, model: str, name: str, said: str
) -> None:
    """One line that names the factory, and exit code 1."""
    arguments = ("analyze", f"{model}:{name}", "--target", "a100")
    assert said in command.refused(arguments, 1)


_ENDS = """
import sys
import torch
from torch import nn

class Ends(nn.Module):
    def forward(self, x):
        sys.exit("done")

def ends():
    sys.exit(3)

def inside():
    return Ends(), (torch.zeros(2, 8),)

def text():
    return nn.Linear(8, 8), ("text",)

def stepless():
    return {"module": nn.Linear(8, 8), "args": (torch.zeros(2, 8),), "step": 3}
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ends", r"ends raised SystemExit: 3 \(.*ends.py:11\)"),
        ("inside", r"inside \(forward, .*ends.py:8\): SystemExit: done"),
        ("text", r"text \(forward\): TypeError: linear\(\): argument 'input'"),
        ("stepless", r"stepless returned int for the step, expected a function"),
    ],
)
def test_a_model_ends_nothing_but_itself(
    command: Command, tmp_path: Path, name: str, said: str
) -> None:
    """`sys.exit` in a model is its failure, in one line, not the end of perfc."""
    path = tmp_path / "ends.py"
    path.write_text(_ENDS)
    ran = command("analyze", f"{path}:{name}", "--mode", "training", "--target", "t4")

    assert 1 == ran.code
    assert re.fullmatch(rf"perfc: error: .*{said}.*\n", ran.err)
    assert "" == ran.out


def test_a_file_that_ends_is_no_module(command: Command, tmp_path: Path) -> None:
    """So is `sys.exit` while the file is imported."""
    path = tmp_path / "script.py"
    path.write_text("import sys\nsys.exit()\n")
    ran = command("analyze", f"{path}:model", "--target", "t4")

    assert (1, "") == (ran.code, ran.out)
    assert f"cannot import {path}: SystemExit ({path}:2)" in ran.err


def test_what_a_model_prints_is_no_result(command: Command, tmp_path: Path) -> None:
    """Reports can be piped: prints of the file, factory and model go to stderr."""
    path = tmp_path / "talks.py"
    path.write_text(
        f"print('file')\n{MODEL}\ndef talks():\n    print('made')\n    return small()\n"
    )
    ran = command("analyze", f"{path}:talks", "--target", "t4", "--format", "json")

    assert json.loads(ran.out)["breakdown"]
    assert "file\nmade\n" == ran.err


@pytest.mark.parametrize("name", ["model.py", "model.py:"])
def test_a_file_without_a_name_says_what_is_missing(
    command: Command, tmp_path: Path, name: str
) -> None:
    """Which function makes the model has to be said."""
    ran = command("analyze", str(tmp_path / name), "--target", "t4")

    assert 2 == ran.code
    asked = f"say which function makes the model: {tmp_path / 'model.py'}:NAME"
    assert asked in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("absent.py:model", "absent.py: no such file"),
        ("no_such_package.models:model", "No module named 'no_such_package'"),
    ],
)
def test_absent_files_are_refused(command: Command, text: str, said: str) -> None:
    """The file or the module is named."""
    assert said in command.refused(("analyze", text, "--target", "a100"), 1)


def test_batch_of_a_recording_is_fixed(command: Command, model: str) -> None:
    """Another batch is an error that says which one there is; the same is none."""
    done = command("analyze", f"{model}:small", "--target", "a100", "--batch", "7")
    assert 1 == done.code
    assert "fixed batch of 4" in done.err
    done = command("analyze", f"{model}:small", "--target", "a100", "--batch", "4")
    assert 0 == done.code


def test_pytorch_is_asked_for(
    command: Command, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PyTorch the message says what to install."""

    def absent(name: str) -> None:
        return None

    monkeypatch.setattr("perfc.tools.models.torch_source.find_spec", absent)
    done = command("analyze", f"{model}:small", "--target", "a100")
    assert 1 == done.code
    assert "pip install 'perfc[torch]'" in done.err


def test_measuring_works_with_an_older_pytorch(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From 2.6 on, as `perfc[measure]` says; one that is older still is refused."""
    rows = tmp_path / "rows.csv"
    arguments = ["measure", "kernels", "--device", "cpu", "--op", "softmax"]
    arguments += ["--minutes", "0.001", "-o", str(rows)]
    found = ["2.6.0", "2.5.1"]

    def next_one(name: str) -> str:
        return found.pop(0)

    monkeypatch.setattr("perfc.tools.models.torch_source.version", next_one)
    assert 0 == command(*arguments).code

    done = command(*arguments)
    assert 1 == done.code
    said = "measuring needs PyTorch 2.6 or newer, found 2.5.1: pip install --upgrade"
    assert f"perfc: error: {said} 'perfc[measure]'\n" == done.err


def test_old_pytorch_is_refused(
    command: Command, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that captures are not made for is one line that says which one is."""

    def old(name: str) -> str:
        return "2.9.1+cpu"

    monkeypatch.setattr("perfc.tools.models.torch_source.version", old)
    said = "needs PyTorch 2.13 or newer, found 2.9.1+cpu: pip install --upgrade"
    assert said in command.refused(("analyze", f"{model}:small", "--target", "a100"), 1)


def test_exported_programs_and_graph_modules_come_in() -> None:
    """Both give the flops of the module that they were made from."""
    module, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU()).eval(), torch.zeros(4, 8)
    exported = torch.export.export(module, (x,), strict=False)
    graphs = (
        perfc.from_torch(module, (x,)),
        perfc.from_torch(exported),
        perfc.from_torch(torch.fx.symbolic_trace(module), (x,)),
    )
    flops = {perfc.analyze(graph, "a100").summary["flops"] for graph in graphs}
    assert 1 == len(flops)


EXPORTS = """
import torch
from torch import nn

def program():
    rows = torch.export.Dim("rows")
    return torch.export.export(
        nn.Linear(8, 4), (torch.zeros(6, 8),), dynamic_shapes=({0: rows},)
    )

def mixed():
    return {"module": program(), "loss": "sum"}
"""


def test_factory_of_an_exported_program(command: Command, tmp_path: Path) -> None:
    """On the command line its sizes are bound, and its step derived, as of a file."""
    path = tmp_path / "model.py"
    path.write_text(EXPORTS)
    model = ("analyze", f"{path}:program", "--target", "a100")
    report = command(*model, "--batch", "32", "--format", "json").report
    assert ("program", 32) == (report["model"]["name"], report["model"]["batch"])
    trained = command(*model, "--batch", "32", "--mode", "training", "--format", "json")
    assert "optimizer" in {node["phase"] for node in trained.report["nodes"]}
    assert "(the batch); add --batch N" in command.refused(model, 1)
    mixed = ("analyze", f"{path}:mixed", "--target", "a100")
    assert "for the module, expected (torch.nn.M" in command.refused(mixed, 1)


def test_compile_backend_reports_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The report is on stderr; weights are no inputs; what comes back is the graph."""
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    graph = torch.fx.symbolic_trace(module)
    x = torch.rand(4, 8)
    run_it = compile_backend(graph, (x,), options={"target": "h100"})
    assert torch.equal(module(x), run_it(x))
    said = capsys.readouterr()
    assert "h100-sxm-80g" in said.err
    assert not said.out


_COMPILED = """
import torch
module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
compiled = torch.compile(module, backend="perfc", options={"target": "h100"})
x = torch.rand(4, 8)
print(torch.equal(module(x), compiled(x)))
"""


def test_torch_compile_reports_and_runs() -> None:
    """Dynamo hands over graphs whose code nobody has asked for yet."""
    command = [sys.executable, "-c", _COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("True\n", 0) == (done.stdout, done.returncode), done.stderr
    assert "h100-sxm-80g" in done.stderr
    assert "time of one iteration" in done.stderr


def test_compile_backend_runs_what_it_cannot_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An unknown target is one line; the model runs."""
    graph = torch.fx.symbolic_trace(nn.Linear(8, 8))
    run_it = compile_backend(graph, (torch.rand(4, 8),), options={"target": "x9"})
    assert (4, 8) == run_it(torch.rand(4, 8)).shape
    assert capsys.readouterr().err.startswith("perfc: error: unknown target x9")


@torch.library.custom_op("perfc_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """Be an op that perfc does not know."""
    return x + x


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    """Calls an op of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """Call it."""
        out: Tensor = twice(x)
        return out


def test_custom_ops_are_costed_by_bytes_and_by_their_formula() -> None:
    """An op of the user's is reported; a formula registered with PyTorch counts."""
    counter: Any = import_module("torch.utils.flop_counter")
    report = perfc.analyze(perfc.from_torch(Custom(), torch.zeros(4, 8)), "a100")
    assert {"perfc_test::twice": 1} == report.coverage["unknown_ops"]
    assert 0 == report.summary["flops"]
    op = torch.ops.perfc_test.twice

    def formula(shape: torch.Size, *, out_shape: torch.Size) -> int:
        return shape.numel()

    counter.register_flop_formula(op)(formula)
    try:
        report = perfc.analyze(perfc.from_torch(Custom(), torch.zeros(4, 8)), "a100")
    finally:
        del counter.flop_registry[op]
    assert 32 == report.summary["flops"]


def test_factory_is_printed(command: Command, model: str) -> None:
    """`perfc opt` reads what `perfc analyze` does."""
    done = command("opt", "-p", "shape-inference", f"{model}:small")

    assert 0 == done.code, done.err
    assert "linear(" in done.out
