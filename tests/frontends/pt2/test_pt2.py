"""Archives of `torch.export`, read without torch."""

from __future__ import annotations

import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frontends.aten_recording import graph_of
from tests.frontends.pt2_models import (
    archive,
    joint_model,
    small_model,
    write,
)
from tests.passes.lowered import kernels, lower
from torch import nn

from perfc.frontends.pt2 import Pt2Frontend
from perfc.ir import PerfcError, Program, Record
from perfc.ir.location import Location
from perfc.ir.support import Level
from perfc.tools.models.model import load
from perfc.twins import DlrmNet, bags_of

FIXTURES = Path(__file__).parents[2] / "fixtures" / "onnx"


def _loaded(path: Path, module: nn.Module, *args: Any, **options: Any) -> Program:
    """Export, save, and read again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.export.save(torch.export.export(module, args, **options), path)
    return Pt2Frontend().load(path)


def test_small_model(tmp_path: Path) -> None:
    """Types, symbols, parameters, module paths and source lines come in."""
    path = write(tmp_path / "small.pt2", small_model())
    graph = graph_of(Pt2Frontend().load(path))
    nodes = [n for n in graph if n.op != "constant"]

    assert ["%x", "%fc.weight", "%fc.bias"] == list(map(str, graph.arguments()))
    assert [
        ("%y = linear", "f32[s0,4]"),
        ("%v = reshape", "f32[s0,4]"),
        ("%z = concat", "f32[s0,8]"),
    ] == [(str(n), str(n.results[0].type)) for n in nodes]
    assert (
        Location("y", "fc", "net.py:7", "forward", "aten.linear.default(y)")
        == nodes[0].location
    )


class _Net(nn.Module):
    """One of many kinds of layers."""

    def __init__(self) -> None:
        """Make them."""
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.table = nn.Embedding(10, 8)
        self.bag = nn.EmbeddingBag(10, 8, mode="sum")
        self.fc = nn.Linear(8, 8)

    def forward(
        self, image: torch.Tensor, words: torch.Tensor, flat: torch.Tensor
    ) -> torch.Tensor:
        """Use all of them."""
        pixels = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        rows = self.table(words).sum(1) + self.bag(flat, torch.arange(2))
        mixed = nn.functional.scaled_dot_product_attention(*[rows[None, None]] * 3)
        with torch.no_grad():
            scale = pixels.abs().max()
        made: torch.Tensor = self.fc(mixed[0, 0]) * scale
        return made


def test_layers_of_a_real_export(tmp_path: Path) -> None:
    """PyTorch's own archive of a small model needs no unknown op."""
    words = torch.randint(0, 10, (2, 5))
    args = (torch.randn(2, 3, 8, 8), words, torch.randint(0, 10, (7,)))
    program = _loaded(tmp_path / "net.pt2", _Net(), *args)
    found = Counter(n.op for n in graph_of(program))

    assert () == program.diagnostics
    assert 0 == found["unknown"]
    wanted = ("conv", "batch_norm", "attention", "embedding_bag", "linear")
    assert [1] * 5 == [found[op] for op in wanted]


def test_wrapped_graphs_are_part_of_the_model(tmp_path: Path) -> None:
    """What runs under `no_grad` or `autocast` is in the same graph."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = x @ x
            with torch.no_grad():
                return y.relu() + 1

    program = _loaded(tmp_path / "net.pt2", Net(), torch.randn(4, 4))
    ops = [n.op for n in graph_of(program) if n.op != "constant"]

    assert "matmul" in ops
    assert ["relu", "add"] == ops[-2:]


def test_dynamic_sizes_keep_their_names(tmp_path: Path) -> None:
    """A size that was exported open is the same symbol wherever it is."""
    batch = torch.export.Dim("batch")
    program = _loaded(
        tmp_path / "net.pt2",
        nn.Linear(3, 4),
        torch.randn(5, 3),
        dynamic_shapes=({0: batch},),
    )
    graph = graph_of(program)
    (made,) = graph.outputs
    (x,) = graph.inputs
    assert x.type is not None
    assert made.type is not None

    assert x.type.shape[0] == made.type.shape[0]
    assert made.type.symbols()


def test_branches_that_depend_on_data(tmp_path: Path) -> None:
    """`torch.cond` is an error that says what to do."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # type: ignore[no-any-return]

    with pytest.raises(PerfcError, match=r"torch\.cond: data decide"):
        _loaded(tmp_path / "net.pt2", Net(), torch.randn(4))


def test_joint_graphs_have_phases(tmp_path: Path) -> None:
    """What stands after the loss is the backward; what it saves has no copies."""
    path = write(tmp_path / "joint.pt2", joint_model())
    nodes = [n for n in graph_of(Pt2Frontend().load(path)) if n.op != "constant"]

    assert [
        ("matmul", "forward"),
        ("relu", "forward"),
        ("reduce", "loss"),
        ("expand", "backward"),
        ("relu_backward", "backward"),
        ("transpose", "backward"),
        ("matmul", "backward"),
        ("alias", "backward"),
    ] == [(n.op, n.location.phase) for n in nodes]
    assert nodes[1].results[0] is nodes[4].operands[1]


def test_copies_left_out_of_joint_graphs(tmp_path: Path) -> None:
    """Copies that eager PyTorch would not make are not counted, which is said."""
    model = joint_model()
    nodes = model["graph_module"]["graph"]["nodes"]
    nodes[2]["target"] = "torch.ops.aten.clone.default"
    program = Pt2Frontend().load(write(tmp_path / "joint.pt2", model))
    (remark,) = program.diagnostics

    assert "clone" not in [node.op for node in graph_of(program)]
    assert (Level.NOTE, "clones-left-out") == (remark.level, remark.code)
    assert remark.message.startswith("1 copies without a memory format")


def _change(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Set, or with `...` remove, one field of a description."""

    def change(model: dict[str, Any]) -> None:
        *parents, last = [int(p) if p.isdecimal() else p for p in path.split("/")]
        found: Any = model
        for name in parents:
            found = found[name]
        if value is ...:
            del found[last]
        else:
            found[last] = value

    return change


_GRAPH, _NODE = "graph_module/graph", "graph_module/graph/nodes/0"
_DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "schema": (_change("schema_version/major", 99), "schema version 99"),
    "no-schema": (_change("schema_version", ...), "'schema_version' is missing"),
    "no-graph": (_change("graph_module", []), "'graph_module' is [], expected an obj"),
    "no-nodes": (_change(f"{_GRAPH}/nodes", {}), "'nodes' is {}, expected a list"),
    "no-type": (_change(f"{_GRAPH}/tensor_values/x", ...), "do not have 'x'"),
    "dtype": (
        _change(f"{_GRAPH}/tensor_values/x/dtype", 77),
        "tensor 'x' has unknown element type 77",
    ),
    "size": (
        _change(f"{_GRAPH}/tensor_values/x/sizes", [{"as_int": "3"}]),
        "'as_int' is \"3\", expected an integer",
    ),
    "large": (
        _change(f"{_GRAPH}/tensor_values/x/sizes", [{"as_int": 2**62}] * 2),
        "more than 2**62 bytes",
    ),
    "rank": (
        _change(f"{_GRAPH}/tensor_values/x/sizes", [{"as_int": 1}] * 65),
        "65 dimensions",
    ),
    "target": (_change(f"{_NODE}/target", None), "'target' is missing"),
    "argument": (
        _change(f"{_NODE}/inputs/0/arg", {"as_magic": 1}),
        "unknown kind 'as_magic'",
    ),
    "two-kinds": (
        _change(f"{_NODE}/inputs/0/arg", {"as_int": 1, "as_bool": True}),
        "one of several kinds",
    ),
    "wrong-kind": (
        _change(f"{_NODE}/inputs/0/arg", {"as_int": [1]}),
        "cannot be [1] if it is as_int",
    ),
    "wrong-list": (
        _change(f"{_NODE}/inputs/0/arg", {"as_ints": [None]}),
        "if it is as_ints",
    ),
    "not-a-list": (
        _change(f"{_NODE}/inputs/0/arg", {"as_ints": 3}),
        "if it is as_ints",
    ),
    "cycle": (
        _change(f"{_NODE}/inputs/0/arg/as_tensor/name", "z"),
        "'z' is read by aten.linear.default, but nothing defines it",
    ),
    "twice": (
        _change("graph_module/graph/nodes/2/outputs/0/as_tensor/name", "v"),
        "%v is defined twice",
    ),
    "output": (
        _change("graph_module/signature/output_specs", []),
        "returns no tensor",
    ),
}


@pytest.mark.parametrize("name", _DAMAGE)
def test_damaged_descriptions(name: str, tmp_path: Path) -> None:
    """Each ends in one line that names the file and what is wrong in it."""
    change, message = _DAMAGE[name]
    model = small_model()
    change(model)
    path = write(tmp_path / "bad.pt2", model)

    with pytest.raises(PerfcError) as caught:
        Pt2Frontend().load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read as an archive"),
        (b"PK\x03\x04 nothing", "cannot be read as an archive"),
        (archive({}, "small/other.json"), "has no models/model.json"),
        (archive(b"{"), "cannot be read as a model in JSON"),
        (archive(b"\xff\xfe\xff"), "cannot be read as a model in JSON"),
        (archive(b"[" * 200_000), "nested too deeply"),
        (archive(b'{"a": ' * 200_000), "nested too deeply"),
        (archive(b"1" * 5000), "cannot be read as a model in JSON"),
        (archive([1]), "'model' is [1], expected an object"),
        (archive(small_model())[:-40], "cannot be read as an archive"),
    ],
)
def test_damaged_archives(data: bytes, message: str, tmp_path: Path) -> None:
    """A file that is no archive of a program says so in one line."""
    path = tmp_path / "bad.pt2"
    path.write_bytes(data)

    with pytest.raises(PerfcError) as caught:
        Pt2Frontend().load(path)
    assert message in str(caught.value)


def test_several_models(tmp_path: Path) -> None:
    """Of several models the one called `model` is read; else all are named."""
    path = tmp_path / "two.pt2"
    path.write_bytes(archive(small_model(), "small/models/one.json"))
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr("small/models/two.json", "{}")

    with pytest.raises(PerfcError, match="several models: one, two"):
        Pt2Frontend().load(path)


def test_the_layout_of_older_versions(tmp_path: Path) -> None:
    """PyTorch before 2.8 wrote the description under another name."""
    model = small_model()
    model["schema_version"] = {"major": 7, "minor": 3}
    path = write(tmp_path / "old.pt2", model, "serialized_exported_program.json")

    assert ["x"] == [v.name for v in graph_of(Pt2Frontend().load(path)).inputs]


def test_torch_is_not_imported(tmp_path: Path) -> None:
    """`perfc analyze x.pt2` works where torch is not."""
    path = write(tmp_path / "small.pt2", small_model())
    code = (
        "import sys\nfrom perfc.tools.cli.command_line import main\n"
        f"try: main(['analyze', {str(path)!r}, '--batch', '8', '--target', 'a100'])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'onnx'} & set(sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert 0 == run.returncode, run.stderr
    assert "aten::linear" in run.stdout


def _launches(program: Program) -> Counter[tuple[str, object]]:
    graph = lower(program)
    return Counter((k.op, k.params) for k in kernels(graph))


def test_the_same_launches_as_from_onnx(tmp_path: Path) -> None:
    """DLRM exported as an archive launches what it does exported as ONNX.

    An archive says that the pairs that interact lie on the host, from where each call
    copies them; a file does not say where its constants are.
    """
    net = DlrmNet((13, 64, 16), (1000, 500, 200, 4), (64, 1))
    path = tmp_path / "dlrm.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        args = (torch.rand(4, 13), *bags_of(4, 4, 3))
        torch.export.save(torch.export.export(net, args), path)
    onnx = FIXTURES / "dlrm_small_dynamo_op18.onnx"

    launched, filed = _launches(load(path).program), _launches(load(onnx).program)
    pairs = Record({"kind": "h2d", "bytes": 10 * 8, "pinned": False})
    assert Counter({("memcpy", pairs): 2}) == launched - filed
    assert not filed - launched
