"""Records what PyTorch dispatches on the CPU as calls for the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from perfc.frontends.aten import Argument, AtenBuilder, AtenCall, AtenTensor, Ref
from perfc.ir import DTYPES, DType, Graph, Program, TensorType

_DTYPES: dict[object, DType] = {
    torch.float64: DTYPES["f64"],
    torch.float32: DTYPES["f32"],
    torch.float16: DTYPES["f16"],
    torch.bfloat16: DTYPES["bf16"],
    torch.int64: DTYPES["i64"],
    torch.int32: DTYPES["i32"],
    torch.int16: DTYPES["i16"],
    torch.int8: DTYPES["i8"],
    torch.uint8: DTYPES["u8"],
    torch.bool: DTYPES["bool"],
    torch.complex64: DTYPES["c64"],
    torch.complex128: DTYPES["c128"],
}


def _parameters(func: Any) -> list[str]:
    """Return the names of an op's parameters."""
    schema = cast("Any", vars(func)["_schema"])
    return [str(parameter.name) for parameter in schema.arguments]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's
    """Hands every call to a builder; what it has not seen is a parameter."""

    def __init__(self, name: str = "recorded") -> None:
        """Begin an empty model."""
        super().__init__()  # type: ignore[no-untyped-call] # torch's
        self.builder = AtenBuilder(name)
        self.targets: list[str] = []
        self._names: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []
        self._count = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run the call and note it."""
        given = dict(zip(_parameters(func), args, strict=False))
        given.update(kwargs or {})
        arguments = {name: self._argument(value) for name, value in given.items()}
        made = func(*args, **(kwargs or {}))
        leaves = [] if made is None else tree_leaves(made)
        results = tuple(
            self._result(leaf) if isinstance(leaf, torch.Tensor) else None
            for leaf in leaves
        )
        target = str(func)
        self.targets.append(target)
        self.builder.call(AtenCall(target, arguments, results))
        return made

    def _argument(self, value: object) -> Argument:
        if isinstance(value, torch.Tensor):
            return Ref(self._name(value))
        if isinstance(value, list | tuple):
            listed = cast("Sequence[object]", value)
            return tuple([self._argument(item) for item in listed])
        if isinstance(value, torch.dtype):
            return _DTYPES[value]
        if value is None or isinstance(value, bool | int | float | complex | str):
            return value
        return str(value)

    def _name(self, tensor: torch.Tensor) -> str:
        name = self._names.get(id(tensor))
        if name is None:
            described = self._described(tensor)
            self.builder.parameter(described)
            name = described.name
        return name

    def _result(self, tensor: torch.Tensor) -> AtenTensor:
        return self._described(tensor)

    def _described(self, tensor: torch.Tensor) -> AtenTensor:
        name = f"t{self._count}"
        self._count += 1
        self._names[id(tensor)] = name
        self._kept.append(tensor)
        shape = tuple(tensor.shape)
        return AtenTensor(name, TensorType(_DTYPES[tensor.dtype], shape))


def record(run: Callable[[], object]) -> Program:
    """Return what *run* dispatches as a program."""
    recorder = Recorder()
    with recorder:
        run()
    return recorder.builder.program()


def graph_of(program: Program) -> Graph:
    """Return the one op graph."""
    graph = program.classes[0].ops
    assert graph is not None
    return graph


def ops_of(program: Program) -> Sequence[str]:
    """Return the ops, constants apart."""
    return [node.op for node in graph_of(program) if node.op != "constant"]
