"""What a twin of a built-in workload is: the same model as a PyTorch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
import torch
from torch import Tensor, nn

from perfc.frontends import WORKLOADS
from perfc.ir import UsageError

Values: TypeAlias = Mapping[str, int | str]
Argument: TypeAlias = Tensor | list[Tensor]
Made: TypeAlias = tuple[nn.Module, tuple[Argument, ...]]

_SEED = 0


@attrs.frozen(kw_only=True)
class Twin:
    """A factory of a module and example arguments, with a workload's parameters.

    `perfc analyze examples/twins/FILE.py:NAME` records it, `perfc measure workload`
    runs it. It computes what the workload of that name describes, with the same
    matmuls, in what eager PyTorch runs.

    Attributes:
        name: The workload.
        batch: Samples, if nobody says how many.
        make: Makes the module and its arguments from the parameters and the batch.
        fixed: Parameters that have one value in PyTorch, and that value.
        sparse: Whether it has tables, which `sparse` gives sparse gradients.

    """

    name: str
    batch: int
    make: Callable[[Values, int], Made]
    fixed: Values = attrs.field(factory=dict[str, int | str])
    sparse: bool = False

    def __call__(self, *, batch: int | None = None, **parameters: int | str) -> Made:
        """Make the module and arguments on the default device, of a fixed seed.

        `sparse=0` gives the tables dense gradients, which Adam needs.

        Raises:
            UsageError: a parameter is unknown, or has no such value in PyTorch.

        """
        sparse = parameters.pop("sparse", 1) if self.sparse else 0
        text = ",".join(f"{key}={value}" for key, value in parameters.items())
        values = self.values(text)
        seed: Any = vars(torch)["manual_seed"]  # its types are partly unknown
        seed(_SEED)
        return self.make(
            {**values, "sparse": sparse}, self.batch if batch is None else batch
        )

    def values(self, options: str) -> dict[str, int | str]:
        """Return every parameter as `NAME:options` has it.

        Raises:
            UsageError: a parameter is unknown, or has no such value in PyTorch.

        """
        workload = WORKLOADS[self.name]
        values = workload.values(options)
        for key, value in self.fixed.items():
            if values[key] not in (value, workload.parameters[key]):
                msg = (
                    f"parameter {key}={values[key]} of {self.name!r}: its PyTorch twin "
                    f"has {key}={value} only"
                )
                raise UsageError(msg)
            values[key] = value
        return values
