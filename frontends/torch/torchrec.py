"""Fused lookups of fbgemm, which TorchRec's fused collections are made of.

An `EmbeddingBagCollection` is a loop of `nn.EmbeddingBag` and is recorded as that. A
`FusedEmbeddingBagCollection`, or a `SplitTableBatchedEmbeddingBagsCodegen` of the
model's own, calls kernels that run nowhere but on a GPU: its forward is replaced, while
it is recorded, by two calls of perfc's own, a lookup in all tables and, in backward,
the update of their rows by the optimizer that the module is configured with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import attrs
import torch

from perfc.frontends.aten import Argument, AtenBuilder, AtenCall, AtenTensor, Ref
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.meta import tensor_type
from perfc.frontends.torch.recorder import Recorder
from perfc.frontends.torch.weightless import META
from perfc.ir.ops.optimizer import state_types
from perfc.ir.support import UnsupportedModelError

LOOKUP = "SplitTableBatchedEmbeddingBagsCodegen"
"""fbgemm's class; recognised by its name, so that it need not be installed."""

OPTIMIZERS: Mapping[str, str] = {
    "SGD": "sgd",
    "EXACT_SGD": "sgd",
    "EXACT_ADAGRAD": "adagrad",
    "EXACT_ROWWISE_ADAGRAD": "rowwise_adagrad",
    "ADAM": "adam",
}
"""Members of fbgemm's `EmbOptimType`, and what they are here."""

MODES: Mapping[str, str] = {"SUM": "sum", "MEAN": "mean"}
"""Members of fbgemm's `PoolingMode`."""

OUTPUT_TYPES: Mapping[int, torch.dtype] = {
    0: torch.float32,
    1: torch.float16,
    5: torch.bfloat16,
}
"""Numbers of fbgemm's `SparseType`: the floats that rows are pooled to."""


@attrs.frozen(eq=False)
class FusedLookup:
    """One lookup module of a model.

    Attributes:
        module: fbgemm's.
        path: What its tables are called after.

    """

    module: Any
    path: str

    @property
    def optimizer(self) -> str:
        """The kind of optimizer that its backward pass applies."""
        return self._known("optimizer", OPTIMIZERS)

    @property
    def mode(self) -> str:
        """How rows are pooled."""
        return self._known("pooling_mode", MODES)

    @property
    def features(self) -> list[int]:
        """The table that each feature looks up in."""
        found: Sequence[int] | None = getattr(self.module, "feature_table_map", None)
        return (
            list(range(len(self.module.embedding_specs))) if found is None else [*found]
        )

    @property
    def output_type(self) -> torch.dtype:
        """Element type of the pooled rows."""
        number = getattr(self.module, "output_dtype", 0)
        if number not in OUTPUT_TYPES:
            msg = f"{self.path}: {LOOKUP} with output_dtype {number}, not a float"
            raise UnsupportedModelError(msg)
        return OUTPUT_TYPES[number]

    def _known(self, attribute: str, kinds: Mapping[str, str]) -> str:
        name = getattr(getattr(self.module, attribute, None), "name", "")
        if name not in kinds:
            msg = (
                f"{self.path}: {LOOKUP} with {attribute} {name or 'unknown'}; "
                f"expected {', '.join(kinds)}"
            )
            raise UnsupportedModelError(msg)
        return kinds[name]


def fused_lookups(model: torch.nn.Module) -> list[FusedLookup]:
    """Find the lookups of a model, those that modules keep in plain lists included."""
    found: dict[int, FusedLookup] = {}
    for path, module in _all_modules(model, ""):
        if type(module).__name__ == LOOKUP:
            found.setdefault(id(module), FusedLookup(module, path))
    return list(found.values())


def pieces(lookups: Sequence[FusedLookup]) -> set[int]:
    """Return the ids of tensors that hold all tables, or all states, of a lookup.

    They are declared table by table instead.
    """
    modules = [lookup.module for lookup in lookups]
    return {id(t) for m in modules for t in (*m.parameters(), *m.buffers())}


def _all_modules(
    module: torch.nn.Module, path: str
) -> Iterator[tuple[str, torch.nn.Module]]:
    yield path, module
    for name, value in [*module.named_children(), *_in_lists(module)]:
        yield from _all_modules(value, f"{path}.{name}" if path else name)


def _in_lists(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield modules that are attributes in disguise: PyTorch does not know of them."""
    for name, value in vars(module).items():
        if isinstance(value, torch.nn.Module) and name.startswith("_"):
            yield name, value
        if not is_list(value):
            continue
        for index, item in enumerate(value):
            if isinstance(item, torch.nn.Module):
                yield f"{name}.{index}", item


@attrs.frozen(eq=False)
class _Tables:
    """A lookup whose tables and states are values of the graph.

    Attributes:
        lookup: The module.
        weights: The name of each feature's table.
        dims: Columns of each feature's table.
        states: The names of states, list by list, a table of a feature each.

    """

    lookup: FusedLookup
    weights: tuple[str, ...]
    dims: tuple[int, ...]
    states: tuple[str, ...]


@contextmanager
def recorded(
    model: torch.nn.Module,
    lookups: Sequence[FusedLookup],
    recorder: Recorder,
    builder: AtenBuilder,
    *,
    training: bool,
) -> Generator[None]:
    """Record the lookups of *model* as perfc's own calls while this lasts."""
    if not lookups:
        yield
        return
    whole = pieces(lookups)
    rest = (p for p in model.parameters() if id(p) not in whole)
    declared = {_place(tensor): recorder.name(tensor) for tensor in rest}
    with ExitStack() as stack:
        for lookup in lookups:
            tables = _declared(lookup, declared, recorder, builder, training)
            forward = partial(_forward, tables, recorder, builder)
            stack.enter_context(patch.object(lookup.module, "forward", forward))
        yield


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the storage and offset of a tensor: the same for views of one table."""
    storage: Any = tensor.untyped_storage()
    return int(storage._cdata), int(tensor.storage_offset())  # noqa: SLF001


def _declared(
    lookup: FusedLookup,
    declared: Mapping[tuple[int, int], str],
    recorder: Recorder,
    builder: AtenBuilder,
    training: bool,
) -> _Tables:
    """Declare tables that the model does not name itself, and their states."""
    with recorder.paused():
        rows: list[torch.Tensor] = [*lookup.module.split_embedding_weights()]
    types = [tensor_type(weight) for weight in rows]
    names: list[str] = []
    for index, weight in enumerate(rows):
        name = declared.get(_place(weight))
        if name is None:
            name = recorder.fresh(f"{lookup.path}.{index}.weight")
            builder.parameter(AtenTensor(name, types[index]))
        names.append(name)
    features = lookup.features
    states: list[list[str]] = []
    per_table = [state_types(lookup.optimizer, type_) for type_ in types]
    for number, kinds in enumerate(zip(*per_table, strict=True) if training else ()):
        made = [recorder.fresh(f"{name}.state{number}") for name in names]
        for name, type_ in zip(made, kinds, strict=True):
            builder.state(AtenTensor(name, type_))
        states.append([made[table] for table in features])
    return _Tables(
        lookup,
        tuple(names[table] for table in features),
        tuple(rows[table].shape[1] for table in features),
        tuple(name for listed in states for name in listed),
    )


class _Lookup(torch.autograd.Function):
    """A lookup whose gradient is an update: nothing flows further back."""

    @staticmethod
    def forward(
        ctx: Any,
        trigger: torch.Tensor,
        shape: tuple[int, int],
        dtype: torch.dtype,
        call: Any,
    ) -> torch.Tensor:
        """Make the pooled rows; *trigger* only makes them need a gradient."""
        ctx.call = call
        return torch.empty(shape, dtype=dtype, device=META)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Update the tables."""
        ctx.call(grads[0])
        return (None, None, None, None)


def _forward(
    tables: _Tables,
    recorder: Recorder,
    builder: AtenBuilder,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    per_sample_weights: torch.Tensor | None = None,
    *rest: Any,
    **options: Any,
) -> torch.Tensor:
    """Look up, as `SplitTableBatchedEmbeddingBagsCodegen.forward` does."""
    if any(value is not None for value in (*rest, *options.values())):
        msg = f"{tables.lookup.path}: only indices, offsets and weights are supported"
        raise UnsupportedModelError(msg)
    lookup = tables.lookup
    batch = (offsets.numel() - 1) // len(tables.weights)
    arguments: dict[str, Argument] = {
        "weights": tuple(map(Ref, tables.weights)),
        "indices": Ref(recorder.name(indices)),
        "offsets": Ref(recorder.name(offsets)),
        "mode": lookup.mode,
    }
    if per_sample_weights is not None:
        arguments["per_sample_weights"] = Ref(recorder.name(per_sample_weights))
    place = recorder.locations.here(None)

    def update(grad: torch.Tensor) -> None:
        given = {
            **arguments,
            "grad": Ref(recorder.name(grad)),
            "states": tuple(map(Ref, tables.states)),
            "optimizer": lookup.optimizer,
        }
        location = attrs.evolve(place, phase="backward")
        builder.call(AtenCall(f"{_OP}_backward.default", given, (), location))

    with recorder.paused():
        trigger = torch.empty(0, device=META, requires_grad=torch.is_grad_enabled())
        shape = (batch, sum(tables.dims))
        pooled = _pooled(trigger, shape, lookup.output_type, update)
    result = recorder.christen(pooled, "embedding_bag")
    builder.call(AtenCall(f"{_OP}.default", arguments, (result,), place))
    return pooled


_OP = "perfc.embedding_bag"
_pooled: Callable[..., torch.Tensor] = cast("Any", _Lookup).apply
