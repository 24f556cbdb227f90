"""Copies of modules and arguments that take no memory.

PyTorch's device `meta` has tensors with sizes, strides and types but without
elements. To a capture it is the GPU: what is on `cpu` is on the host. Unlike fake
tensors of device `cuda`, its tensors go through autograd in a build of PyTorch
without CUDA.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from perfc.frontends.torch.guards import is_pair
from perfc.frontends.torch.wrapped import is_wrapper, rebuilt
from perfc.ir.support import UnsupportedModelError

_COPY: Any = vars(torch.Tensor)["__deepcopy__"]  # its types are partly unknown
META = torch.device("meta")

Note = Callable[[torch.Tensor, torch.Tensor], None]


class Copier(TorchFunctionMode):
    """Copies Python objects; tensors become tensors on `meta`.

    Tensors that share memory, tied parameters among them, share it in the copy too.
    The original is only read.
    """

    def __init__(self, note: Note | None = None) -> None:
        """Remember *note*, which is told each tensor and its copy, in order."""
        super().__init__()
        self._note = note
        self._memo: dict[int, Any] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._kept: list[torch.Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer `copy.deepcopy` of a tensor."""
        if func is _COPY:
            return self.tensor(args[0])
        return func(*args, **(kwargs or {}))

    def copy(self, what: Any, name: str) -> Any:
        """Return a copy of a module or of arguments."""
        if isinstance(what, torch.jit.ScriptModule):
            msg = f"{name} is a TorchScript module, which hides its Python code"
            raise UnsupportedModelError(msg)
        if isinstance(what, torch.nn.Module):
            self._copy_parameters(what)
        for leaf in tree_leaves(what):
            if isinstance(leaf, torch.nn.Parameter):
                self.tensor(leaf)
        try:
            with self, warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of PyTorch's graphs
                return copy.deepcopy(what, self._memo)
        except (TypeError, RuntimeError, NotImplementedError, copy.Error) as error:
            problem = str(error).partition("\n")[0]
            msg = (
                f"{name} cannot be copied: {problem}; give a function without "
                "arguments that makes the module"
            )
            raise UnsupportedModelError(msg) from error

    def _copy_parameters(self, module: torch.nn.Module) -> None:
        """Copy parameters first: they answer `deepcopy` by themselves, with a clone."""
        for name, parameter in module.named_parameters():
            if isinstance(parameter, torch.nn.UninitializedParameter):
                msg = f"parameter {name} has no shape yet: run the module once"
                raise UnsupportedModelError(msg)
            self.tensor(parameter)

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the copy of one tensor."""
        found = self._memo.get(id(tensor))
        if found is None:
            found = self._memo[id(tensor)] = self._fresh(tensor)
            self._kept.append(tensor)  # an id is only good while the object lives
            if self._note is not None:
                self._note(tensor, found)
        assert isinstance(found, torch.Tensor)  # noqa: S101 - the memo holds no other
        return found

    def _fresh(self, tensor: torch.Tensor) -> torch.Tensor:
        made = self._twin(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make a tensor of the same size, layout and type; share memory alike."""
        if is_wrapper(type(tensor)):
            return rebuilt(tensor, self.tensor)
        if tensor.layout != torch.strided:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
        sizes, strides = tensor.shape, tensor.stride()
        if tensor.device.type == "meta" or type(tensor) not in _PLAIN:
            return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=META)
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        shared = self._storages.get(key) if key else None
        if shared is None:
            bytes_ = torch.empty(storage.nbytes(), dtype=torch.uint8, device=META)
            shared = self._storages[key] = bytes_.untyped_storage()
        empty = torch.empty(0, dtype=tensor.dtype, device=META)
        return empty.set_(shared, tensor.storage_offset(), sizes, strides)


def from_shapes(value: Any) -> Any:
    """Make a tensor of `torch.Size`, or of a pair of a shape and a type."""
    if isinstance(value, torch.Size):
        return torch.empty(value, device=META)
    if is_pair(value) and isinstance(value[1], torch.dtype):
        return torch.empty(value[0], dtype=value[1], device=META)
    return value


_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Other classes of tensors may have no memory, or several."""
