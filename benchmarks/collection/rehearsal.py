"""What can be tried of a GPU's run where there is none: every call, every model.

Operands on a GPU are faked: PyTorch, built with CUDA, checks the arguments of each
kernel and computes nothing. What a CUDA graph cannot hold (reading a number back, sizes
that depend on data, copies from the host) is told by a mode that sees every op.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from collection.plan import Planned
from collection.probe import smallest
from perfc.measure.case import DTYPES_OF_TENSORS, Case, Family, Tensors
from perfc.measure.device import Device, open_device
from perfc.measure.models import Iteration, Setting, find_subject
from perfc.measure.suites import suite

NEEDS_DRIVER: Mapping[str, Callable[[Case], bool]] = MappingProxyType(
    {
        "autograd": lambda case: (
            case.params.get("algorithm") == "math" and "phase" in case.params
        ),
        "sparse gradients": lambda case: (
            "optimizer" in case.params or case.op == "coalesce"
        ),
        "fused optimizers": lambda case: (
            case.op == "optimizer_step" and case.params["algorithm"] == "fused"
        ),
    }
)
"""What PyTorch does not fake without a driver: such cases run on the CPU instead."""

_READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique")
"""Parts of the names of ops that wait for the device."""


class FakeTensors(Tensors):
    """Operands on a GPU that is not there."""

    def __init__(self) -> None:
        """Draw nothing."""
        self.kind = "cuda"

    def random(self, dtype: str, *shape: int) -> torch.Tensor:
        """Return a tensor of that size."""
        return torch.empty(shape, dtype=DTYPES_OF_TENSORS[dtype], device="cuda")

    def integers(self, high: int, count: int) -> torch.Tensor:
        """Return *count* int64 numbers."""
        return torch.empty(count, dtype=torch.int64, device="cuda")

    def shares(self, count: int) -> torch.Tensor:
        """Return *count* fp64 numbers."""
        return torch.empty(count, dtype=torch.float64, device="cuda")


def cases_of(device: Device) -> list[tuple[Family, Case]]:
    """Return the smallest case of every way to call every family."""
    names = ("full", "workloads")
    return [*smallest(pair for name in names for pair in suite(name, device))]


def rejected_calls(cases: Sequence[tuple[Family, Case]]) -> Iterator[tuple[Case, str]]:
    """Yield cases whose calls PyTorch refuses, and what it says."""
    for family, case in cases:
        if any(needs(case) for needs in NEEDS_DRIVER.values()):
            continue
        try:
            with FakeTensorMode(), torch.no_grad():
                family.prepare(case, FakeTensors())()
        except Exception as error:  # noqa: BLE001 - whatever a call raises
            yield case, f"{type(error).__name__}: {error}".splitlines()[0]


_Mode: Any = TorchDispatchMode  # its methods have no types


class Uncapturable(_Mode):  # type: ignore[misc]  # a base class without types
    """Notes what a CUDA graph cannot hold of what runs inside.

    Attributes:
        problems: Names of ops, and why each cannot be captured.

    """

    def __init__(self) -> None:
        """Find nothing yet."""
        super().__init__()
        self.problems: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Look at an op, and run it."""
        name = str(func.name()) if hasattr(func, "name") else str(func)
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(part in name for part in _READS):
            self.problems.append(f"{name} waits for the device")
        if "index" in name and any(t.dtype == torch.bool for t in tensors[1:]):
            self.problems.append(f"{name} takes a Boolean index")
        kinds = {t.device.type for t in tensors if t.dim()}
        if len(kinds - {"meta"}) > 1:
            self.problems.append(f"{name} works across {', '.join(sorted(kinds))}")
        return func(*args, **(kwargs or {}))


def forward_on_fake_gpu(planned: Planned, device: Device) -> list[str]:
    """Return the ops of a setting's forward pass that a CUDA graph cannot hold."""
    with ExitStack() as stack:
        stack.enter_context(patch("torch.cuda.synchronize"))
        # The model is made there, and fake parameters cannot be exchanged.
        stack.enter_context(patch("torch.nn.Module.to", lambda module, *_: module))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        return _uncapturable(planned, device, "inference", "")


def step_on_cpu(planned: Planned) -> list[str]:
    """Return the ops of a setting's step on the CPU that a CUDA graph cannot hold."""
    return _uncapturable(planned, open_device("cpu"), planned.mode, planned.optimizer)


def _uncapturable(
    planned: Planned, device: Device, mode: str, optimizer: str
) -> list[str]:
    setting = Setting(
        batch=planned.batch,
        mode=mode,
        optimizer=optimizer,
        dtype=planned.dtype,
        runtime="eager",
        inputs="device",
    )
    with warnings.catch_warnings(), Uncapturable() as seen:
        warnings.simplefilter("ignore")  # PyTorch's, of how models are written
        made = find_subject(planned.model).make(device, setting)
        iteration = Iteration(made, device, setting)
        iteration.prepare()
        with iteration.running():
            iteration()  # makes gradients and states
            seen.problems.clear()
            iteration()
    found: list[str] = seen.problems
    return found
