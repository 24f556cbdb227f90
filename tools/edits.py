"""Edits: what an oracle is asked about, as frozen values.

An edit says what is different; the oracle works out what follows. Edits are compared
by value, can be keys of dictionaries, and are pickled.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import attrs

from perfc.ir import UsageError
from perfc.tools.given import MAX_DIM, pairs_of, read_dtype, read_field, whole

__all__ = [
    "Apply",
    "Bind",
    "Dtype",
    "Duration",
    "Edit",
    "Fuse",
    "Place",
    "Replace",
    "Shard",
    "Target",
]

Pairs: TypeAlias = tuple[tuple[str, Any], ...]
"""A mapping that can be hashed: names and values, sorted."""


def _where(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    msg = (
        f"where={value!r}: expected the id of a node, a pattern of modules, or the "
        "name of a kernel"
    )
    raise UsageError(msg)


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        found = float(value)
        if 0 <= found < math.inf:
            return found
    msg = f"{name}={value!r} of a duration: expected a finite number, 0 or more"
    raise UsageError(msg)


def _us(value: object) -> float | None:
    return _seconds("us", value)


def _taken_us(value: object) -> float:
    found = _seconds("us", value)
    if found is None:
        msg = "us=None of Replace: expected the microseconds that the kernel takes"
        raise UsageError(msg)
    return found


def _factor(value: object) -> float | None:
    return _seconds("factor", value)


def _sizes(value: object) -> Pairs:
    if isinstance(value, tuple):  # of an edit that is copied
        value = dict(cast("Pairs", value))
    found: Mapping[str, int] = pairs_of(whole(MAX_DIM), "{'sequence': 128}")(
        "dims", value
    )
    return tuple(sorted(found.items()))


def _batch(value: object) -> int | None:
    if value is None:
        return None
    found: int = whole(MAX_DIM)("batch", value)
    return found


def _ops(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_where(value),)
    if not isinstance(value, tuple | list | set | frozenset) or not value:
        msg = f"ops={value!r} of Fuse: expected ids of nodes, as ('%1', '%2')"
        raise UsageError(msg)
    names = tuple(map(_where, cast("Iterable[object]", value)))
    return names if isinstance(value, tuple | list) else tuple(sorted(names))


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    msg = f"{name}={value!r}: expected a text"
    raise UsageError(msg)


def _table(value: object) -> str:
    return _text("table", value)


def _tier(value: object) -> str:
    return _text("tier", value)


def _plan(value: object) -> str:
    return _text("plan", value)


def _pass(value: object) -> str:
    return _text("text", value)


def _dtype(value: object) -> str:
    return read_dtype("dtype", value)


@attrs.frozen
class Bind:
    """Other sizes.

    Attributes:
        batch: Samples in the batch; None for as many as before.
        dims: Other symbols and their numbers; those that are not named stay.

    """

    batch: int | None = attrs.field(default=None, converter=_batch)
    dims: Any = attrs.field(default=(), converter=_sizes)

    def __attrs_post_init__(self) -> None:
        """Refuse an edit that changes nothing."""
        if self.batch is None and not self.dims:
            msg = "Bind() binds nothing: give batch, or dims={'sequence': 128}"
            raise UsageError(msg)


@attrs.frozen
class Dtype:
    """Another type to compute in.

    Attributes:
        where: Modules or nodes, `*` for the whole model.
        dtype: One of `perfc.analyze`'s: `bf16`, `fp16`, `amp-bf16`, `amp-fp16`; `tf32`
            for the whole model.

    """

    where: str = attrs.field(converter=_where)
    dtype: str = attrs.field(converter=_dtype)


@attrs.frozen
class Duration:
    """Another duration of what a node, modules or kernels run on the device.

    A node that runs nothing there is a time of the host, and takes that; one that costs
    the host nothing either stays as it is. Several tasks of one node keep their
    proportions.

    Attributes:
        where: Id of a node, pattern of modules, or name of a kernel.
        us: Microseconds of each node, or of each kernel of that name.
        factor: How many times what it took before, instead.

    """

    where: str = attrs.field(converter=_where)
    us: float | None = attrs.field(default=None, converter=_us, kw_only=True)
    factor: float | None = attrs.field(default=None, converter=_factor, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse both, or none of the two."""
        if (self.us is None) == (self.factor is None):
            msg = f"Duration({self.where!r}): expected us=… or factor=…, one of the two"
            raise UsageError(msg)


@attrs.frozen
class Fuse:
    """One kernel in place of those of several ops.

    Attributes:
        ops: Ids of the nodes, which follow one another.

    """

    ops: tuple[str, ...] = attrs.field(converter=_ops)


@attrs.frozen
class Replace:
    """One kernel of a known duration in place of what nodes or modules launch.

    Attributes:
        where: Id of a node, or pattern of modules, whose nodes follow one another.
        us: Microseconds that the kernel takes.

    """

    where: str = attrs.field(converter=_where)
    us: float = attrs.field(converter=_taken_us, kw_only=True)


@attrs.frozen(init=False)
class Target:
    """Another target, or other fields of its sheet.

        Target("h100")
        Target(**{"gpu.memory_gb_per_s": 2500})

    Attributes:
        name: Name or path of another target; empty for the same one.
        fields: Fields of the sheet, and what they are set to.

    """

    name: str
    fields: Pairs

    def __init__(self, name: str = "", /, **fields: object) -> None:
        """Set fields by their names in the sheet; other fields stay as they were."""
        if not isinstance(cast("object", name), str):
            msg = f"Target({name!r}): expected the name or the path of a target"
            raise UsageError(msg)
        if not name and not fields:
            msg = (
                "Target() changes nothing: give a name, or fields of a sheet, as "
                "Target(**{'gpu.memory_gb_per_s': 2500})"
            )
            raise UsageError(msg)
        values = {field: read_field(field, value) for field, value in fields.items()}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "fields", tuple(sorted(values.items())))


@attrs.frozen
class Place:
    """Another place of an embedding table.

    Attributes:
        table: Its parameter, with or without `.weight`; `*` for all tables.
        tier: `hbm`, `uvm` or `uvm-caching`.
        cache: Share of the rows that device memory holds, with `uvm-caching`.

    """

    table: str = attrs.field(converter=_table)
    tier: str = attrs.field(converter=_tier)
    cache: float | None = None


@attrs.frozen
class Shard:
    """Embedding tables sharded otherwise, over the ranks that the model runs on.

    Attributes:
        table: Its parameter, with or without `.weight`; `*` for all tables.
        plan: `table-wise`, `row-wise`, `column-wise`, `table-row-wise`, `grid` or
            `data-parallel`.

    """

    table: str = attrs.field(converter=_table)
    plan: str = attrs.field(converter=_plan)


@attrs.frozen
class Apply:
    """One more pass.

    Attributes:
        text: The pass, as `--pass` takes it: `name{option=value}`.

    """

    text: str = attrs.field(converter=_pass)


Edit: TypeAlias = (
    Bind | Dtype | Duration | Fuse | Replace | Target | Place | Shard | Apply
)
"""What an oracle is asked about."""

EDITS = (Bind, Dtype, Duration, Fuse, Replace, Target, Place, Shard, Apply)
"""The classes of edits."""
