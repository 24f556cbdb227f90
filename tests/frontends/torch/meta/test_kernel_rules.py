"""Rules of what ops return on `meta`, compared with PyTorch's own kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.internals import op
from perfc.frontends.torch.meta.kernel_rules import RULES
from perfc.frontends.torch.meta.quick_rules import UseTorch

HALF, WHOLE, CLASSES = torch.bfloat16, torch.float32, torch.int64


def meta(*shape: int, dtype: torch.dtype = WHOLE) -> torch.Tensor:
    """Return a tensor without elements."""
    return torch.empty(shape, dtype=dtype, device="meta")


def forms(made: Any) -> list[object]:
    """Return types, sizes and strides."""
    several: Sequence[Any] = made if is_list(made) else (made,)
    return [None if t is None else (t.dtype, t.shape, t.stride()) for t in several]


def calls(dtype: torch.dtype) -> list[tuple[str, tuple[Any, ...]]]:
    """Return calls that rules answer."""
    x, rows, weight = (
        meta(4, 3, 8, dtype=dtype),
        meta(5, 7, dtype=dtype),
        meta(8, dtype=dtype),
    )
    notes = (meta(4, 3, 1), meta(4, 3, 1))
    labels, loss = meta(5, dtype=CLASSES), meta(dtype=dtype)
    turned = x.transpose(0, 1)
    backward = (x, x, [8], *notes, weight)
    picked = (labels, None, 1, -100)
    smooth = ("relu", "sigmoid", "tanh", "gelu", "silu", "neg")
    waves = ("exp", "log", "sqrt", "rsqrt", "sin", "cos")
    return [
        *((name, (each,)) for name in (*smooth, *waves) for each in (x, turned)),
        ("native_layer_norm", (x, [8], weight, weight, 1e-5)),
        ("native_layer_norm", (x, [3, 8], None, None, 1e-5)),
        ("native_layer_norm_backward", (*backward, weight, [True, True, True])),
        ("native_layer_norm_backward", (*backward, None, [False, True, True])),
        ("_softmax", (x, -1, False)),
        ("_log_softmax", (rows, 1, False)),
        ("_softmax_backward_data", (x, x, 1, dtype)),
        ("_log_softmax_backward_data", (rows, rows, 1, dtype)),
        ("nll_loss_forward", (rows, *picked)),
        ("nll_loss_forward", (rows, labels, None, 0, -100)),
        ("nll_loss_backward", (loss, rows, *picked, loss)),
    ]


@pytest.mark.parametrize("dtype", [WHOLE, HALF])
def test_rules_say_what_pytorch_says(dtype: torch.dtype) -> None:
    """Types, sizes and strides are those of PyTorch's own kernels."""
    for name, args in calls(dtype):
        assert forms(op(name)(*args)) == forms(RULES[op(name)](*args)), name


@pytest.mark.parametrize("name", ["add_.Tensor", "sub_.Tensor", "mul_.Tensor"])
@pytest.mark.parametrize("dtype", [WHOLE, HALF])
def test_in_place_returns_what_it_writes(name: str, dtype: torch.dtype) -> None:
    """A like tensor, an expanded one or a number: the first tensor comes back."""
    x, row = meta(4, 8, dtype=dtype), meta(1, 8, dtype=dtype)
    for written in (x, x.t().contiguous().t()):
        for other in (x, written, row.expand(4, 8), 2, 0.5, True):
            assert written is op(name)(written, other)
            assert written is RULES[op(name)](written, other)


@pytest.mark.parametrize("name", ["add_.Tensor", "sub_.Tensor", "mul_.Tensor"])
@pytest.mark.parametrize(
    ("written", "other"),
    [
        (meta(4, 8), meta(8)),
        (meta(8), meta(4, 8)),
        (meta(4, 8), meta(4, 8, dtype=HALF)),
        (meta(4, 8, dtype=CLASSES), meta(4, 8)),
        (meta(4, 8, dtype=CLASSES), 0.5),
        (meta(4, 8), 1j),
        (meta(4, 8), torch.zeros(4, 8).to_sparse()),
    ],
)
def test_in_place_leaves_what_may_be_wrong_to_pytorch(
    name: str, written: torch.Tensor, other: torch.Tensor | complex
) -> None:
    """Other sizes, types or layouts broadcast, convert, or are an error."""
    with pytest.raises(UseTorch):
        RULES[op(name)](written, other)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sqrt", (meta(4, dtype=CLASSES),)),
        ("native_layer_norm", (meta(4, 8), [7], None, None, 1e-5)),
        ("native_layer_norm", (meta(8, 4).t(), [8], None, None, 1e-5)),
        ("_softmax", (meta(4, 8), 2, False)),
        ("nll_loss_forward", (meta(4, 8), meta(5, dtype=CLASSES), None, 1, -100)),
    ],
)
def test_rules_leave_what_they_do_not_know_to_pytorch(
    name: str, args: tuple[Any, ...]
) -> None:
    """Wrong sizes, integers and odd layouts: PyTorch answers, or complains."""
    with pytest.raises(UseTorch):
        RULES[op(name)](*args)


_CAPTURE = """
import sys, torch, perfc
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
    def forward(self, x):
        return self.out(self.norm(x).tril() / 2)
perfc.from_torch(Model(), torch.zeros(8, 8), mode="training", optimizer="adamw")
print("torch._dynamo" in sys.modules)
import torch._dynamo
print(torch.compile(torch.tril, backend="eager")(torch.ones(2, 2)).sum().item())
"""


def test_capture_does_not_load_the_compiler() -> None:
    """Which takes longer than the capture; it works when it is loaded later."""
    command = [sys.executable, "-c", _CAPTURE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("False\n3.0\n", 0) == (done.stdout, done.returncode), done.stderr
