"""Programs of `torch.export` in memory: read as their archives are, without weights."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch.utils._pytree import tree_leaves

from perfc.frontends.pt2 import read_description
from perfc.frontends.torch.failure import first_line
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.internals import describe_exported, in_exported_order
from perfc.frontends.torch.values import short_list
from perfc.frontends.torch.weightless import from_shapes
from perfc.ir import Program
from perfc.ir.support import UnsupportedModelError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_MODULE = "torch.export.exported_program"


def is_exported(model: object) -> TypeGuard[ExportedProgram]:
    """Whether *model* is what `torch.export.export` returns.

    Its class is not imported to ask, which takes longer than most captures: whoever has
    such a program has imported it.
    """
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(model, module.ExportedProgram)


def read_exported(program: ExportedProgram, name: str | None = None) -> Program:
    """Return the program of an export, forward or joint, its sizes still open.

    It is what the `.pt2` file of the export is: symbols, module paths, source lines
    and phases are those that PyTorch notes. No weight is read, but for short lists that
    say what an op does.

    Args:
        program: What `torch.export.export` returns.
        name: What the program is called; the class that was exported if not given.

    """
    try:
        text = describe_exported(program)
    except Exception as error:  # whatever the serializer of PyTorch trips over
        msg = (
            "torch.export cannot write this program down, and perfc reads what it "
            f"writes: {first_line(error)}; record program.module() instead"
        )
        raise UnsupportedModelError(msg) from error

    held: dict[str, Any] = {**program.constants, **program.state_dict}

    def elements(path: str) -> tuple[int, ...] | None:
        return short_list(held.get(path))

    return read_description(text, name or _class_name(program), elements)


def _class_name(program: ExportedProgram) -> str:
    """Return the name of the class that was exported: the outermost module's."""
    for node in program.graph.nodes:
        for _, kind in node.meta.get("nn_module_stack", {}).values():
            return str(kind).rpartition(".")[2]
    return "ExportedProgram"


def given_sizes(
    program: ExportedProgram,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Return the symbols of the inputs, and their sizes in arguments that are given."""
    if is_list(args) and not args and not kwargs:
        return {}
    listed = args if is_list(args) and not isinstance(args, torch.Size) else (args,)
    try:
        named = in_exported_order(program, kwargs or {})
    except ValueError as error:
        msg = f"the arguments by name are not those of the program: {first_line(error)}"
        raise UnsupportedModelError(msg) from error
    given = tree_leaves([from_shapes(value) for value in (*listed, *named)])
    names = program.graph_signature.user_inputs
    if len(given) != len(names):
        msg = f"the program takes {len(names)} arguments, given {len(given)}"
        raise UnsupportedModelError(msg)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    sizes: dict[str, int] = {}
    for name, value in zip(names, given, strict=True):
        declared = values.get(str(name))
        if isinstance(declared, torch.Tensor) and isinstance(value, torch.Tensor):
            _match(str(name), declared, value, sizes)
    return sizes


def _match(
    name: str, declared: torch.Tensor, given: torch.Tensor, sizes: dict[str, int]
) -> None:
    """Note the sizes of one argument."""
    for wanted, found in _axes(name, declared, given):
        known = sizes.setdefault(wanted, found) if wanted.isidentifier() else found
        fixed = wanted.isdecimal() and int(wanted) != found
        if fixed or known != found:
            expected = wanted if fixed else known
            msg = (
                f"argument {name} has the shape {list(given.shape)}, but the program "
                f"was exported for {list(map(str, declared.shape))}, with {expected} "
                f"in the place of {found}"
            )
            raise UnsupportedModelError(msg)


def _axes(
    name: str, declared: torch.Tensor, given: torch.Tensor
) -> Iterator[tuple[str, int]]:
    if declared.dim() != given.dim():
        msg = (
            f"argument {name} has {given.dim()} dimensions, but the program was "
            f"exported for {declared.dim()}"
        )
        raise UnsupportedModelError(msg)
    for wanted, found in zip(declared.shape, given.shape, strict=True):
        yield str(wanted), int(found)
