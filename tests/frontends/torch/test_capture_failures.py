"""A model that cannot be recorded: one line that says what, and where."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import perfc
from perfc.ir import PerfcError, UsageError

X = (torch.zeros(4, 8),)


class Inner(nn.Module):
    """Does what it is told."""

    def __init__(self, act: Any) -> None:
        """Remember what."""
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        """Do it."""
        out: Tensor = self.act(self.layer(x))
        return out


def _raises(x: Tensor) -> Tensor:
    msg = "no such\nthing"
    raise KeyError(msg)


@torch.library.custom_op("perfc_test::without_meta", mutates_args=())
def without_meta(x: Tensor) -> Tensor:
    """Have no kernel for tensors without elements."""
    return x.clone()


def _without_meta(x: Tensor) -> Tensor:
    out: Tensor = without_meta(x)
    return out


_ACTS: list[tuple[Callable[[Tensor], Any], str]] = [
    (lambda x: x if x.sum() > 0 else -x, "reads elements of a tensor"),
    (lambda x: x * x.mean().item(), "reads elements of a tensor"),
    (Tensor.tolist, "reads elements of a tensor"),
    (lambda x: x @ torch.zeros(3, 3, device=x.device), "aten::mm: RuntimeError"),
    (lambda x: x * torch.ones(8, device="cpu"), "aten::mul is given a tensor on the"),
    (_raises, "KeyError"),
    (_without_meta, "perfc_test::without_meta"),
]


@pytest.mark.parametrize(
    ("act", "said"),
    _ACTS,
    ids=["branch", "item", "list", "shapes", "host", "raises", "no-meta-kernel"],
)
def test_module_that_fails_is_named(act: Any, said: str) -> None:
    """Op, module path and line are in the message, which is one line."""
    module = nn.Sequential(nn.ReLU(), Inner(act))
    with pytest.raises(PerfcError) as error:
        perfc.from_torch(module, X)
    message = str(error.value)
    assert said in message
    assert "Sequential.1 (forward, " in message
    assert re.search(r"test_capture_failures\.py:\d+\)", message)
    assert "\n" not in message


def _installed(folder: Path, name: str, text: str) -> Any:
    """Import a module that lies as `pip` installs it."""
    (folder / f"{name}-1.dist-info").mkdir(parents=True)
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_HELPER = "def positive(x):\n    return bool((x > 0).all())\n"
_LAYER = """
import torch
from perfc_helper import positive
class Layer(torch.nn.Module):
    def forward(self, x):
        return x if positive(x) else -x  # line 6
"""


def test_failure_names_the_line_of_the_model(tmp_path: Path) -> None:
    """Not that of a function which its library calls for all models.

    A line of code that is not installed is the user's own, wherever it lies.
    """
    helper = _installed(tmp_path / "a", "perfc_helper", _HELPER)
    layer = _installed(tmp_path / "b", "perfc_layer", _LAYER)
    x = torch.Size((4, 8))

    def signed(x: Tensor) -> Tensor:
        return x if helper.positive(x) else -x

    with pytest.raises(PerfcError, match=r"Layer \(forward, \S+/perfc_layer\.py:6\)"):
        perfc.from_torch(layer.Layer(), x)
    with pytest.raises(PerfcError, match=r"test_capture_failures\.py:\d+\)"):
        perfc.from_torch(Inner(signed), x)


@pytest.mark.parametrize(
    ("module", "args", "options", "said"),
    [
        (nn.Linear(8, 8), (), {}, "missing a required argument: 'input'"),
        (nn.Linear(8, 8), (*X, *X), {}, "too many positional arguments"),
        (nn.Linear(8, 8), X, {"kwargs": {"y": 1}}, "unexpected keyword argument 'y'"),
        ("model", X, {}, "'model' is a name: expected a module; perfc.load takes"),
        (lambda: 3, X, {}, "the function made a int"),
        (nn.LazyLinear(8), X, {}, "has no shape yet"),
    ],
    ids=["missing", "many", "keyword", "no-module", "no-made", "lazy"],
)
def test_wrong_arguments_are_refused(
    module: Any,
    args: Any,
    options: Any,
    said: str,
) -> None:
    """What does not fit is told before anything runs."""
    with pytest.raises(PerfcError, match=re.escape(said)):
        perfc.from_torch(module, args, **options)


def test_torchscript_is_refused() -> None:
    """A compiled module has no Python code to run."""
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        scripted = torch.jit.script(nn.Linear(8, 8))
    with pytest.raises(PerfcError, match="TorchScript"):
        perfc.from_torch(scripted, X)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "both"}, "mode 'both' is none of inference, training"),
        ({"optimizer": "adam"}, "an optimizer needs mode 'training'"),
        ({"mode": "training", "optimizer": "lion"}, "optimizer 'lion' is none of sgd"),
        ({"mode": "training", "loss": "l7"}, "loss 'l7' is none of bce"),
        ({"dtype": "fp4"}, "dtype 'fp4' is none of fp32"),
    ],
)
def test_unknown_options_are_usage_errors(options: Any, said: str) -> None:
    """An option names what there is."""
    with pytest.raises(UsageError, match=said):
        perfc.from_torch(nn.Linear(8, 8), X, **options)


class Table(nn.Module):
    """A table with sparse gradients."""

    def __init__(self) -> None:
        """Make the table."""
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Look rows up."""
        out: Tensor = self.table(ids)
        return out


@pytest.mark.parametrize(
    "optimizer",
    ["adam", "adamw", partial(torch.optim.SGD, lr=0.1, momentum=0.9)],
    ids=["adam", "adamw", "momentum"],
)
def test_sparse_gradients_need_an_optimizer_that_takes_them(
    optimizer: Any,
) -> None:
    """Table and optimizer are named, and what would do."""
    ids = (torch.zeros(4, dtype=torch.int64),)
    with pytest.raises(PerfcError, match=r"table\.weight has a sparse gradient.*SGD"):
        perfc.from_torch(Table(), ids, mode="training", optimizer=optimizer)


_LOSSES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda out: out, r"expected a loss that is one number, got Tensor \[4, 8\]"),
    (lambda out: 1, "expected a loss that is one number, got int"),
    (lambda out: out.detach().sum(), "depends on no parameter"),
    (lambda out: out / "x", r"\(loss, .*TypeError"),
]


@pytest.mark.parametrize(("loss", "said"), _LOSSES)
def test_wrong_losses_are_refused(loss: Any, said: str) -> None:
    """A loss is one number that depends on the weights."""
    with pytest.raises(PerfcError, match=said):
        perfc.from_torch(nn.Linear(8, 8), X, mode="training", loss=loss)


def test_failure_leaves_pytorch_as_it_was() -> None:
    """After a capture that failed, real modules run, and modules are captured."""
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), Inner(_raises))
    with pytest.raises(PerfcError):
        perfc.from_torch(module, X, mode="training")
    assert torch.is_grad_enabled()
    assert (4, 8) == module[:2](*X).shape
    meta = torch.zeros(2, 4, 16, 8, device="meta")
    assert (
        "meta"
        == nn.functional.scaled_dot_product_attention(meta, meta, meta).device.type
    )
    assert perfc.from_torch(nn.Linear(8, 8), X).program
