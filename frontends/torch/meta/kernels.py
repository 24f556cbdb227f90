"""What ops return on tensors without elements, where PyTorch does not say or is slow.

Most ops have kernels for the device `meta`. The results of others follow from the
known elements of their arguments, or from the rules here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from perfc.frontends.torch import internals, values
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.meta.counts import counted, number_read, unknown
from perfc.frontends.torch.meta.kernel_rules import RULES
from perfc.frontends.torch.meta.quick_rules import UseTorch
from perfc.frontends.torch.meta.schema import Schema, schema_of
from perfc.frontends.torch.weightless import META

_ITEM, _COPY = internals.op("_local_scalar_dense"), internals.op("copy_")


def run_weightless(
    func: Any,
    schema: Schema,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return the result of *func*.

    Raises:
        UnknownValueError: it would read elements that nobody knows.
        Exception: what PyTorch raises where its arguments are wrong.

    """
    if func is _ITEM:
        return _item(schema, args[0])
    rule = RULES.get(func)
    if rule is not None and _is_weightless(args, kwargs):
        with contextlib.suppress(UseTorch):
            return rule(*args, **kwargs)
    if schema.writes and not schema.returns and _is_weightless(args, kwargs):
        return None  # lists of tensors changed in place: there is nothing to change
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if not isinstance(error, NotImplementedError) and not _counts(func):
            raise
        try:
            return _from_values(func, schema, args, kwargs)
        except LookupError:
            raise error from None


def _is_weightless(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the first argument, or what is made from numbers, is on `meta`."""
    first = args[0] if args else None
    if is_list(first) and first:
        first = first[0]
    if isinstance(first, torch.Tensor):
        return first.is_meta
    return str(kwargs.get("device")) == "meta"


def _from_values(
    func: Any, schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of *func*, from the known elements of its arguments."""
    try:
        found = values.on_host(func, args, kwargs)
    except LookupError:
        # Whether *func* copies elements to the host.
        written = func is _COPY and args[0].is_cpu
        if written or str(kwargs.get("device", "")) == "cpu":
            raise unknown(schema.label) from None
        if torch.Tag.data_dependent_output in func.tags:
            raise unknown(schema.label) from None
        if _counts(func):
            return counted(func, schema.label, args, kwargs)
        raise
    if str(kwargs.get("device", "")) == "cpu":
        return found
    return tree_map_only(torch.Tensor, _weightless, found)


def _weightless(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(tensor, device=META)
    values.set_value(made, tensor)
    return made


def _counts(func: Any) -> bool:
    return (
        torch.Tag.dynamic_output_shape in func.tags
        or internals.own_rule(func) is not None
    )


def _item(schema: Schema, tensor: torch.Tensor) -> Any:
    """Return the one element of a tensor."""
    known = values.value_of(tensor)
    if known is not None:
        return known.item()
    if _ANY_NUMBER.get():
        return 1
    return number_read("aten::item", tensor.dtype)


_ANY_NUMBER: ContextVar[bool] = ContextVar("_ANY_NUMBER", default=False)


@contextmanager
def any_number() -> Generator[None]:
    """Read 1 where an element is not known: for code that only computes with it."""
    token = _ANY_NUMBER.set(True)
    try:
        yield
    finally:
        _ANY_NUMBER.reset(token)


@contextmanager
def weightless() -> Generator[None]:
    """Make tensors without elements; those of small ones are worked out beside."""
    with (
        torch.device(META),
        internals.compiler_left_out(),
        internals.literals_copied(),
        _Weightless(),  # type: ignore[no-untyped-call]  # torch's
    ):
        yield


class _Weightless(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Answers for the kernels of `meta`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing its compiler for this class."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        schema = schema_of(func)
        out = run_weightless(func, schema, args, kwargs)
        values.follow(func, args, kwargs, out, writes=schema.writes)
        return out
