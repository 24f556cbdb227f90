"""One request: what calls in Python take, and what they say of what they refuse."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
import torch

import perfc
from perfc.costmodels import load_profile, load_target
from perfc.passes.embeddings import BatchEmbeddings
from perfc.tools.cli import perfc_command
from perfc.tools.models.model import Model
from perfc.tools.request import (
    OPTIONS,
    AnalyzeOptions,
    LoadOptions,
    Request,
    SizeOptions,
    TorchOptions,
)
from perfc.tools.sheet_options import SHEET_OPTIONS

_NAME = "dlrm-ddp:tables=2,rows=1000"
_ONNX = Path(__file__).parents[1] / "fixtures/onnx/dlrm_small_dynamo_op18.onnx"
_VALUES = torch.zeros(4, 8)


class _Two(torch.nn.Module):
    """Adds two tensors."""

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        """Add."""
        return one + two


@pytest.fixture(scope="module")
def model() -> Model:
    """A small model."""
    return perfc.load(_NAME, batch=64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": "2048"}, "batch='2048' is a str: expected a whole number; write "),
        ({"batch": 2048.0}, "expected a whole number; write batch=2048"),
        ({"batch": 2.5}, "batch=2.5 is a float: expected a whole number"),
        ({"batch": True}, "batch=True is a bool: expected a whole number"),
        ({"batch": 0}, "batch=0: expected at least 1"),
        ({"batch": 2**80}, "batch=a number of many digits: expected at most"),
        ({"batch": np.array([1, 2])}, "batch is an array of 2: expected one number; "),
        ({"batch": [1, 2]}, r"batch=\[1, 2\] is a list: expected a whole number"),
        ({"pooling": "x"}, "pooling='x' is a str: expected a whole number"),
        ({"ranks": 4.0}, "expected a whole number; write ranks=4"),
        ({"dims": ["batch"]}, "expected a mapping, as dims={'sequence': 128}"),
        ({"dims": {"batch": "3"}}, r"write dims\['batch'\]=3"),
        ({"mode": "train"}, "mode 'train' is none of .*; did you mean training?"),
        ({"mode": 3}, "mode=3 is an int: expected one of 'inference', 'training'"),
        ({"dtype": "float16"}, "dtype 'float16' is none of .*; did you mean fp16?"),
        ({"dtype": torch.int8}, "dtype torch.int8 is none of fp32, tf32, bf16"),
        ({"dtype": np.float64}, "numpy.float64'> is none of fp32, tf32, bf16"),
        ({"dtype": float}, "'float'> is none of fp32, tf32, bf16"),
        ({"dtype": 16}, "dtype 16 is none of fp32, tf32, bf16"),
        ({"dtype": "tf32"}, "'tf32' is how a target multiplies: give it to perfc.ana"),
        ({"optimiser": "adam"}, "no option 'optimiser'; did you mean optimizer?"),
        (
            {"target": "a100"},
            "perfc.load takes no option 'target'; it takes acc",
        ),
        ({"transforms": ["batch-embeddings"]}, "expected passes, as transforms="),
        ({"transforms": [BatchEmbeddings]}, "the class BatchEmbeddings in it"),
        ({"transforms": 3}, "transforms=3 is an int: expected a list"),
        ({"instruments": "timing"}, "expected observers, as instruments="),
        ({"popularity": 1.05}, "popularity=1.05 is a float: expected a mapping, as"),
    ],
)
def test_what_load_refuses(options: Mapping[str, Any], message: str) -> None:
    """A value that means nothing is refused in a line that says what to write."""
    given: dict[str, Any] = {"batch": 4, **options}

    with pytest.raises(perfc.PerfcError, match=message) as error:
        perfc.load(_NAME, **given)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runtim": "eager"}, "takes no option 'runtim'; did you mean runtime?"),
        ({"runtime": "compile"}, "is none of .*; did you mean compiled?"),
        ({"passes": "pin-copies"}, r"is one text: .* write passes=\['pin-copies'\]"),
        ({"passes": [BatchEmbeddings()]}, "passes has a BatchEmbeddings in it: expec"),
        ({"overrides": ["gpu.x=1"]}, "expected a mapping, as overrides={'gpu.sm_cloc"),
        ({"overrides": {"gpu.sm_count": []}}, "a list: expected a number or a text"),
        ({"overheads": 3}, "overheads=3 is an int: expected a name or a path"),
        ({"mode": "training"}, "is loaded for inference; give mode and optimizer to"),
        ({"ranks": 2}, "is loaded for 1 ranks; give ranks to perfc.load"),
        ({"popularity": "zipf(1.1)"}, "loaded already; give popularity to perfc.load"),
        ({"transforms": [BatchEmbeddings()]}, "give transforms to perfc.load"),
    ],
)
def test_what_analyze_refuses(
    model: Model, options: Mapping[str, Any], message: str
) -> None:
    """So does `analyze`, of a model that is loaded."""
    with pytest.raises(perfc.PerfcError, match=message) as error:
        perfc.analyze(model, "a100", **options)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["a100", "h100"], "target is a list: expected one target; ask once for each"),
        (("a100", "h100"), r"\[perfc.analyze\(model, t\) for t in \('a100', 'h100'\)"),
        (None, "target=None is a NoneType: expected a name, as 'a100'"),
        (3, "target=3 is an int: expected a name, as 'a100'"),
        (Path("missing.toml"), "missing.toml: cannot read the target sheet: no such"),
        (Request(), "target is a Request: the model comes first, as perfc.analyze"),
    ],
)
def test_no_targets(model: Model, target: Any, message: str) -> None:
    """A target that is none is refused with what it may be."""
    with pytest.raises(perfc.PerfcError, match=message):
        perfc.analyze(model, target)


def _report() -> perfc.Report:
    return perfc.analyze(_NAME, "a100", batch=4)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (_report, "the model is a Report: give what it is about, report.model"),
        (lambda: load_target("a100"), "the model is a Target: the model comes first"),
        (lambda: perfc.load(_NAME, batch=4).program, "the model is a Program: give "),
        (lambda: None, r"no model is given \(it is None\)"),
        (dict, "the model is a dict, {}: expected what perfc.load returns"),
        (lambda: b"onnx", "the model is a bytes, b'onnx': expected what perfc.load"),
        (lambda: Path("missing.onnx"), "missing.onnx: no such file"),
        (_Two, r"give them as a tuple, perfc.from_torch\(module, \(argument, ...\)\)"),
        (lambda: _Two, r"give them as a tuple, perfc.from_torch\(module, \(argument"),
        (lambda: torch.nn.Linear, "the class Linear makes no module without argum"),
    ],
)
def test_no_models(made: Callable[[], Any], message: str) -> None:
    """What is no model is refused by all that take one, with what to give instead."""
    wrong = made()

    with pytest.raises(perfc.PerfcError, match=message):
        perfc.analyze(wrong, "a100")
    with pytest.raises(perfc.PerfcError, match=message):
        perfc.load(wrong)


def test_arguments_of_forward_are_a_tuple() -> None:
    """Arguments one by one are refused, however many."""
    call: Any = perfc.from_torch

    for more in ((_VALUES, _VALUES), (_VALUES, _VALUES, 3)):
        with pytest.raises(perfc.PerfcError, match=r"from_torch\(module, \(a, b\)\)"):
            call(_Two(), *more)
    assert "_Two" == call(_Two(), (_VALUES, _VALUES)).name
    assert "_Two" == call(_Two(), (_VALUES,), {"two": _VALUES}).name


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("resnet50", "'resnet50' is a name: expected a module; perfc.load takes names"),
        (torch.nn.Linear, "give the module, as Linear"),
    ],
)
def test_no_modules(module: Any, message: str) -> None:
    """What is no module is refused before anything is recorded."""
    with pytest.raises(perfc.PerfcError, match=message):
        perfc.from_torch(module, _VALUES)


@pytest.mark.parametrize(
    ("call", "args", "options", "message"),
    [
        ("bind", (8,), {"pooled": 3}, "Model.bind takes no option 'pooled'; did you"),
        ("bind", (np.float32(8),), {}, "is a float32: .*; write batch=8"),
        ("target", (["a100"],), {}, r"target=\['a100'\] is a list: expected a name"),
        ("profile", (None,), {}, "host profile=None is a NoneType: expected a name"),
        ("json", (3.5,), {}, "path=3.5 is a float: expected a name or a path"),
        ("html", (3.5,), {}, "path=3.5 is a float: expected a name or a path"),
        ("export", (3,), {}, "format=3 is an int: expected a name or a path"),
        ("export", ("jsn",), {}, "unknown exporter 'jsn'; did you mean 'json'?"),
        ("plugin", ("perfc.pass", "x", 3), {}, "no plugins are of group 'perfc.pass'"),
        (
            "onnx",
            (_Two(), _VALUES, _VALUES),
            {},
            "path=.* is a Tensor: expected a name",
        ),
        ("onnx", (_Two(), _VALUES, _VALUES, "x"), {}, r"export_onnx\(module, \(a, b\)"),
        ("onnx", (_Two(), (), "x"), {"opsets": 3}, "no option 'opsets'; did you mean"),
        (
            "onnx",
            ("resnet50", (), "x"),
            {},
            "expected a torch.nn.Module to export, got",
        ),
        ("onnx", (_Two, (), "x"), {}, "expected a torch.nn.Module to export, got <cl"),
    ],
)
def test_what_other_calls_refuse(
    call: str, args: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    """Whatever is public says in a line what it expects instead."""
    report = _report()
    calls: dict[str, Any] = {
        "bind": report.model.bind,
        "target": load_target,
        "profile": load_profile,
        "json": report.to_json,
        "html": report.to_html,
        "export": report.export,
        "plugin": perfc.register_plugin,
        "onnx": perfc.export_onnx,
    }

    with pytest.raises(perfc.PerfcError, match=message) as error:
        calls[call](*args, **options)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": torch.optim.SGD([_VALUES])}, "optimizer is a SGD: expected a n"),
        ({"optimizer": 3}, "optimizer is a int: expected a name, a class or what"),
        ({"step": 3}, "step=3: expected a function of the module, its optimizer and"),
        ({"losses": "mse"}, "perfc.from_torch takes no option 'losses'; did you mean"),
        ({"name": 3}, "name=3 is an int: expected a name or a path"),
    ],
)
def test_what_recordings_refuse(options: dict[str, Any], message: str) -> None:
    """Of what a step has, too."""
    with pytest.raises(perfc.PerfcError, match=message):
        perfc.from_torch(torch.nn.Linear(8, 8), _VALUES, mode="training", **options)


def test_sizes_of_a_loaded_model(model: Model) -> None:
    """They are read alike where a model is bound; numbers of NumPy are numbers."""
    wrong: Any = np.array([1, 2])

    with pytest.raises(perfc.PerfcError, match="batch is an array of 2"):
        model.bind(wrong)
    assert 8 == model.bind(np.int64(8)).batch  # type: ignore[arg-type]
    assert 8 == perfc.analyze(model, "a100", batch=8).model.batch
    assert "batch 8 " in str(perfc.analyze(model.bind(np.int32(8)), "a100"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.float16, "fp16"),
        (torch.bfloat16, "bf16"),
        (torch.float32, "fp32"),
        (np.float16, "fp16"),
        (np.dtype("float32"), "fp32"),
        (None, "fp32"),
    ],
)
def test_types_of_other_libraries(model: Model, given: Any, dtype: str) -> None:
    """PyTorch's and NumPy's own types mean theirs, for all that take a type."""
    recorded = perfc.from_torch(torch.nn.Linear(8, 8), _VALUES, dtype=given)

    assert dtype == perfc.analyze(model, "a100", dtype=given).dtype
    assert dtype == perfc.analyze(recorded, "a100").dtype


def test_a_type_on_loading(model: Model) -> None:
    """A model that is loaded in a type is one that is converted."""
    loaded = perfc.load(_NAME, batch=64, dtype="amp-bf16")

    converted = perfc.analyze(model, "a100", dtype="amp-bf16")
    assert converted.to_json() == perfc.analyze(loaded, "a100").to_json()
    assert "amp-bf16" == loaded.dtype


def test_popularity_on_loading() -> None:
    """Popular rows are read faster: of all tables, or of those that are named."""
    texts: tuple[Any, ...] = ("uniform", {"emb_l.0": "zipf(1.5)"}, "zipf(1.5)")
    name = "dlrm-ddp:tables=2,rows=10000000"
    times = [
        perfc.analyze(name, "a100", batch=65536, popularity=text).time_us
        for text in texts
    ]

    assert sorted(times, reverse=True) == times
    assert 3 == len(set(times))


def test_a_model_by_name(model: Model) -> None:
    """`analyze` takes what `load` takes, and numbers for fields of a sheet."""
    report = perfc.analyze(Path(_ONNX), "t4", overrides={"gpu.sm_clock_mhz": 1200})
    text = perfc.analyze(str(_ONNX), "t4", overrides={"gpu.sm_clock_mhz": "1200"})

    assert report.to_json() == text.to_json()
    by_name = perfc.analyze(_NAME, "a100", batch=64, mode="inference")
    assert perfc.analyze(model, "a100").to_json() == by_name.to_json()


def test_a_model_of_onnx_in_memory() -> None:
    """It is read as its file is, which is named otherwise."""
    proto = onnx.load(str(_ONNX), load_external_data=False)

    found = perfc.analyze(proto, "a100")
    assert "main_graph" == found.model.name
    assert perfc.analyze(_ONNX, "a100").time_us == found.time_us
    proto.ClearField("graph")
    with pytest.raises(perfc.PerfcError, match="not an ONNX model, or a damaged one"):
        perfc.load(proto)


@pytest.mark.parametrize(
    ("call", "known"),
    [
        (perfc.load, LoadOptions),
        (perfc.analyze, AnalyzeOptions),
        (perfc.from_torch, TorchOptions),
    ],
)
def test_signatures(call: Callable[..., Any], known: Any) -> None:
    """A call shows the options that it takes, and is told of in its docstring."""
    shown = inspect.signature(call).parameters
    options: set[str] = set(known.__annotations__)

    assert options <= set(shown)
    assert "fp32" == shown["dtype"].default
    documented = inspect.getdoc(call) or ""
    assert [] == [name for name in options if f"    {name}: " not in documented]


def test_every_option_is_a_field() -> None:
    """Calls take fields of a request; the command line declares none of them again."""
    fields = {*Request.__annotations__, *SHEET_OPTIONS}

    for call in (SizeOptions, LoadOptions, AnalyzeOptions, TorchOptions):
        assert set(call.__annotations__) <= fields
    group: Any = perfc_command
    verb: click.Command = group.get_command(click.Context(group), "analyze")
    known = {**OPTIONS, **{name: one.option for name, one in SHEET_OPTIONS.items()}}
    made = {p.name: p.opts[-1] for p in verb.params if p.name in known}
    assert {name: option.flag for name, option in known.items()} == made


def test_words_of_a_request() -> None:
    """A request is said on the command line by what is no default in it."""
    asked = Request(
        model="gpt2",
        batch=8,
        mode="training",
        dims={"a": 1, "b": 2},
        passes=("remove-syncs", "pin-copies"),
    )
    words = [*asked.words("batch", "mode", "dtype", "ranks", "dims", "passes")]

    assert [
        "--batch",
        "8",
        "--mode",
        "training",
        "--dim",
        "a=1",
        "--dim",
        "b=2",
    ] == words[:8]
    assert ["--pass", "remove-syncs", "--pass", "pin-copies"] == words[8:]
