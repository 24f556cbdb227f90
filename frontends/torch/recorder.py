"""Writes down every op that PyTorch dispatches, without running it for real.

What is kept are names, types and places, never a tensor: autograd clones gradients
that someone else still holds. The name of a tensor hangs on the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perfc.frontends import aten
from perfc.frontends.torch import internals, meta, values
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.location import Locations, caller
from perfc.frontends.torch.wrapped import has_wrapper
from perfc.ir.location import Location

_NAME, _STEM = "_perfc_name", "_perfc_stem"
_DETACH, _ADD = internals.op("detach"), internals.op("add.Tensor")
_IGNORED = ("profiler.", "prim.")
"""Namespaces of ops that do nothing to tensors."""
_AS_AUTOGRAD_RUNS = {"aten.index_put.default": "aten.index_put_.default"}
"""Calls of backward that are in place where nobody looks on: a dispatch mode makes
autograd leave its zeros alone (`index_backward` in `FunctionsManual.cpp`)."""
_ADD_IN_PLACE = internals.op("add_.Tensor")


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Records calls of ops while it is entered and not paused.

    Attributes:
        locations: Says where a call comes from.
        failed: The first op that did not work, and where it is.
        gradients: For each parameter with a sparse gradient, the gradient's name.

    """

    def __init__(
        self,
        sink: Callable[[aten.AtenCall], None],
        declare: Callable[[aten.AtenTensor], None],
    ) -> None:
        """Send calls to *sink*, and tensors that no call has made to *declare*."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.locations = Locations()
        self.failed: tuple[str, Location] | None = None
        self.gradients: dict[str, str] = {}
        self._sink = sink
        self._declare = declare
        self._paused = False
        self._others: list[torch.Tensor] = []
        self._numbers: dict[str, int] = {}
        self._taken: set[str] = set()
        self._last: tuple[object, ...] = ()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing its compiler for this class."""
        return False

    @property
    def is_paused(self) -> bool:
        """Whether ops run without being recorded."""
        return self._paused

    @contextmanager
    def paused(self) -> Generator[None]:
        """Run ops without recording them."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the op on tensors without elements, and write it down.

        Tensors that are made of others say first what it is of those.
        """
        if has_wrapper(types):
            return NotImplemented
        kwargs = kwargs or {}
        schema = meta.schema_of(func)
        frame = caller(1)
        try:
            out = meta.run_weightless(func, schema, args, kwargs)
        except Exception:
            if self.failed is None:
                self.failed = (schema.target, self.locations.failing())
            raise
        if not self._paused and not schema.target.startswith(_IGNORED):
            results = _flat(out) if schema.returns else []
            self._note(func, schema, args, kwargs, results, frame)
        values.follow(func, args, kwargs, out, writes=schema.writes)
        return out

    def name(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor; one that nobody made is declared."""
        found = getattr(tensor, _NAME, None)
        if found is None:
            found = self.fresh(getattr(tensor, _STEM, "tensor"))
            setattr(tensor, _NAME, found)
            self._others.append(tensor)
            self._declare(meta.described(found, tensor))
        return str(found)

    def __exit__(self, *failure: object) -> None:
        """Leave tensors that the model has from elsewhere as they were."""
        super().__exit__(*failure)  # type: ignore[no-untyped-call]  # torch's
        for tensor in self._others:
            delattr(tensor, _NAME)
        self._others.clear()

    def suggest(self, tensor: torch.Tensor, stem: str) -> None:
        """Say what a tensor is called if it is met, and no call has made it."""
        setattr(tensor, _STEM, stem)

    def christen(self, tensor: torch.Tensor, stem: str) -> aten.AtenTensor:
        """Give a tensor a new name that begins with *stem*."""
        name = self.fresh(stem)
        setattr(tensor, _NAME, name)
        return meta.described(name, tensor)

    def fresh(self, stem: str) -> str:
        """Return *stem*, or *stem* with a number that makes it new."""
        name, number = stem, self._numbers.get(stem, 0)
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._numbers[stem] = number
        self._taken.add(name)
        return name

    def emit(
        self,
        func: Any,
        arguments: Mapping[str, Any],
        results: Sequence[torch.Tensor | None],
    ) -> None:
        """Write down a call of *func* that has not been dispatched."""
        if not self._paused:
            self._write(meta.schema_of(func), arguments, results, self._here())

    def _here(self) -> Location:
        return self.locations.here(caller(2))

    def _note(
        self,
        func: Any,
        schema: meta.Schema,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        results: Sequence[torch.Tensor | None],
        frame: FrameType | None,
    ) -> None:
        node = internals.current_node()
        if self._is_inner(node, func, args, results, frame):
            return
        if func is _ADD and _adds_in_place(args[0], frame):
            schema = meta.schema_of(_ADD_IN_PLACE)
        arguments = dict(zip(schema.arguments, args, strict=False))
        arguments.update(kwargs)
        location = self.locations.under(node, frame)
        flops = internals.stated_flops(func, args, kwargs, results)
        self._write(schema, arguments, results, location, flops)

    def _write(
        self,
        schema: meta.Schema,
        arguments: Mapping[str, Any],
        results: Sequence[torch.Tensor | None],
        location: Location,
        flops: int = 0,
    ) -> None:
        given = {
            name: self._argument(value)
            for name, value in arguments.items()
            if value is not None
        }
        stem = schema.stem
        made = [None if t is None else self.christen(t, stem) for t in results]
        target = schema.target
        if location.phase == "backward":
            target = _AS_AUTOGRAD_RUNS.get(target, target)
        # The elements of arguments that say what the op does, if they are known.
        told: dict[str, tuple[int, ...]] = {}
        for name in aten.READ_ELEMENTS.get(target, ()):
            known = values.short_list(arguments.get(name))
            if known is not None:
                told[name] = known
        self._sink(aten.AtenCall(target, given, tuple(made), location, flops, told))

    def _argument(self, value: Any) -> aten.Argument:
        """Name a tensor; one number of the host that no call made is that number."""
        if isinstance(value, torch.Tensor):
            unmade = value.is_cpu and not value.dim() and not hasattr(value, _NAME)
            return meta.plain(value.item()) if unmade else aten.Ref(self.name(value))
        if is_list(value):
            return tuple([self._argument(item) for item in value])
        return meta.plain(value)

    def _is_inner(
        self,
        node: Any,
        func: Any,
        args: Sequence[Any],
        results: Sequence[torch.Tensor | None],
        frame: FrameType | None,
    ) -> bool:
        """Whether a call is autograd's bookkeeping, which a real run does not do.

        Autograd saves a result of an op as a copy that shares its memory; sparse
        gradients it takes apart to see whether it may keep them.
        """
        accumulates = node is not None and hasattr(node, "variable")
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        inner = accumulates and tensor is not None
        if inner and self._is_sparse_part(node, tensor, results):
            return True
        if func is not _DETACH or tensor is None or accumulates:
            self._last = (_instruction(frame), *map(id, results))
            return False
        saved = (_instruction(frame), id(tensor))
        if node is None and saved not in [(self._last[0], i) for i in self._last[1:]]:
            return False
        _alias(results, self.name(tensor))
        return True

    def _is_sparse_part(
        self,
        node: Any,
        tensor: Any,
        results: Sequence[torch.Tensor | None],
    ) -> bool:
        """Note whose gradient a sparse tensor is; hide what it is taken apart into."""
        if tensor.layout == torch.sparse_coo:
            self.gradients[self.name(node.variable)] = self.name(tensor)
        elif getattr(tensor, _NAME, None) is not _HIDDEN:
            return False
        _alias(results, _HIDDEN)
        return True


def _adds_in_place(held: torch.Tensor, frame: FrameType | None) -> bool:
    """Whether autograd adds a gradient to what has arrived before, where that lies.

    It does if nothing else holds that memory (`accumulate` in `input_buffer.cpp`),
    but not while a dispatch mode looks on.
    """
    if torch.is_grad_enabled() or not internals.called_by_autograd(frame):
        return False
    return internals.is_alone(held)


_HIDDEN = "?"
"""The name of tensors that a real run does not make."""


def _alias(results: Sequence[torch.Tensor | None], name: str) -> None:
    for result in results:
        if result is not None:
            setattr(result, _NAME, name)


def _instruction(frame: FrameType | None) -> tuple[int, int]:
    return (id(frame), frame.f_lasti) if frame is not None else (0, 0)


def _flat(value: Any) -> list[torch.Tensor | None]:
    """Return the tensors that an op returns, lists flattened; None for other values."""
    if isinstance(value, torch.Tensor):
        return [value]
    if is_list(value):
        return [tensor for item in value for tensor in _flat(item)]
    return [None]
