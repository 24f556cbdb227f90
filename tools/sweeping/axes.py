"""What a varied name means: a setting, a parameter, a size, a field of a target."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from perfc.costmodels import Target, load_target
from perfc.costmodels.embedding import HOST, REMOTE
from perfc.costmodels.sheets import find_tier
from perfc.ir import PerfcError, UsageError
from perfc.passes.embeddings import TIERS, PlaceEmbeddings
from perfc.passes.pipeline_spec import parse_pipeline
from perfc.tools.given import MAX_DIM, check_known, closest, whole
from perfc.tools.models import input_symbols
from perfc.tools.request import OPTIONS, Request
from perfc.tools.sweeping.varied import Value, Varied

if TYPE_CHECKING:
    from perfc.frontends.workloads import Workload

_FIRST = ("batch", "dtype", "runtime", "mode", "ranks")
_LATER = (
    *("optimizer", "accumulate", "prune", "pooling", "inputs", "attention"),
    "overheads",
)
"""Settings that a parameter of a workload goes before, where it has their name."""

_PLACE, _POPULARITY = "place", "popularity"
_PLACES = frozenset({*TIERS, HOST, REMOTE})
"""Places of tables that are no tiers of a target."""

TARGET = "target"
_DIM = "dim:"
"""What a dimension is called by that has the name of something else."""

_AFTER_LOADING = frozenset({"runtime", "inputs", "attention", "overheads"})
_SIZES = frozenset({"batch", "pooling"})


class Role(enum.Enum):
    """What a varied name is."""

    SETTING = "setting"
    PLACE = "place"
    POPULARITY = "popularity"
    PARAMETER = "parameter of a workload"
    DIM = "dimension"
    FIELD = "field of a target"


@attrs.frozen
class Axis:
    """One varied name.

    Attributes:
        column: What its column is called: the name as it was given.
        role: What it is.
        name: Its name among what it is.
        values: What it is set to, in turn.
        kind: Type of the values, as the columns of tables name it.

    """

    column: str
    role: Role
    name: str
    values: tuple[Value, ...]
    kind: str

    @property
    def is_structural(self) -> bool:
        """Whether the model is loaded anew for each value."""
        if self.role is Role.SETTING:
            return self.name not in _AFTER_LOADING | _SIZES
        return self.role not in (Role.DIM, Role.FIELD)

    @property
    def is_size(self) -> bool:
        """Whether a loaded model is bound to each value."""
        sized = self.role is Role.SETTING and self.name in _SIZES
        return sized or self.role is Role.DIM


@attrs.frozen
class Names:
    """What may be varied of one model, on some targets.

    Attributes:
        request: What is the same in all configurations.
        targets: What it is priced on.
        symbols: Dimensions of the model; None where only running it would say.
        workload: The model, where it is a built-in one.

    """

    request: Request
    targets: Sequence[Target | str]
    symbols: frozenset[str] | None
    workload: Workload | None

    @classmethod
    def of(cls, request: Request, targets: Sequence[Target | str]) -> Names:
        """Return the names that may be varied of a request's model."""
        model = request.model
        return cls(request, targets, input_symbols(model), workload_of(model))

    def axis(self, varied: Varied) -> Axis:
        """Return the axis of a name, with its values checked."""
        role, name = self._found(varied.name)
        try:
            values = tuple(self._read(role)(name, value) for value in varied.values)
        except PerfcError as error:
            msg = f"--vary {varied.name}: {error}"
            raise UsageError(msg) from None
        kind = attrs.evolve(varied, values=values).kind
        return Axis(varied.name, role, name, values, kind)

    def _found(self, name: str) -> tuple[Role, str]:
        """Return the role of a name, and its name among those."""
        if name.startswith(_DIM):
            return Role.DIM, name.removeprefix(_DIM)
        parameters = frozenset(self.workload.parameters if self.workload else ())
        open_sizes = self.symbols or frozenset()
        roles: Sequence[tuple[Role, Collection[str]]] = (
            (Role.SETTING, _FIRST),
            (Role.PLACE, (_PLACE,)),
            (Role.POPULARITY, (_POPULARITY,)),
            (Role.PARAMETER, parameters),
            (Role.SETTING, _LATER),
            (Role.DIM, open_sizes),
        )
        for role, names in roles:
            if name in names:
                return role, name
        if "." in name:
            return Role.FIELD, name
        if self.symbols is None:  # only running the model would say
            return Role.DIM, name
        known = [name for _, names in roles for name in sorted(names)]
        raise UsageError(_unknown(name, list(dict.fromkeys(known))))

    def _read(self, role: Role) -> Callable[[str, Value], Value]:
        readers: Mapping[Role, Callable[[str, Value], Value]] = {
            Role.SETTING: _setting,
            Role.PLACE: self._place,
            Role.POPULARITY: lambda _, value: str(value),
            Role.PARAMETER: self._parameter,
            Role.DIM: whole(MAX_DIM),
            Role.FIELD: self._field,
        }
        return readers[role]

    def _parameter(self, name: str, value: Value) -> Value:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # as of a range from 1e4
        if self.workload is not None:
            self.workload.values(f"{name}={value}")
        return value

    def _place(self, name: str, value: Value) -> Value:
        """Refuse a place of tables that no target has."""
        (placed,) = parse_pipeline(place_pass(str(value)))
        tier = placed.tier if isinstance(placed, PlaceEmbeddings) else ""
        if tier in _PLACES:
            return value
        refused: PerfcError | None = None
        for target in self.targets:
            known = target if isinstance(target, Target) else load_target(target)
            try:
                find_tier(known, tier)
            except PerfcError as error:
                refused = error
            else:
                return value
        raise refused or UsageError(_unknown(name, [*_PLACES]))

    def _field(self, name: str, value: Value) -> Value:
        """Refuse a field that no target has, or a value that it cannot take."""
        refused: PerfcError | None = None
        for target in self.targets:
            if isinstance(target, Target):
                msg = f"field {name} needs targets by name; {target.name} is loaded"
                raise UsageError(msg)
            try:
                load_target(target, {**self.request.overrides, name: str(value)})
            except PerfcError as error:
                refused = error
            else:
                return value
        if refused is not None:
            raise refused
        return value


def _unknown(name: str, known: Sequence[str]) -> str:
    """Return the error of a name that nothing has."""
    if name == TARGET:
        return "--vary target: say --target once for each of them"
    hint = closest(name, known) or f"; there are {', '.join(known)}"
    return (
        f"--vary {name}: no such setting, parameter or dimension{hint}; fields of "
        "targets are written as gpu.memory_gb_per_s"
    )


def workload_of(model: Any) -> Workload | None:  # noqa: ANN401 - of any frontend
    """Return the built-in workload that a model's text names, if it does."""
    if not isinstance(model, str) or Path(model).is_file():
        return None
    from perfc.frontends.workloads import find_workload

    return find_workload(model)


def _setting(name: str, value: Value) -> Value:
    option = OPTIONS[name]
    if option.choices:
        check_known(name, str(value), option.choices)
    read: Value = attrs.fields_dict(Request)[name].metadata["read"](name, value)
    return read


def place_pass(text: str) -> str:
    """Return the pass that puts tables where `--vary place` says.

    Args:
        text: A tier, or one with options of the pass: `uvm-caching{cache=0.1}`.

    """
    tier, brace, options = text.partition("{")
    more = f",{options}" if brace else "}"
    written = f"{PlaceEmbeddings.name}{{tier={tier}{more}"
    parse_pipeline(written)
    return written


def structure_of(model: object, parameters: Mapping[str, Value]) -> object:
    """Return a model's text with parameters of its workload set."""
    workload = workload_of(model)
    if workload is None or not parameters:
        return model
    name, _, options = str(model).partition(":")
    values = {**workload.values(options), **parameters}
    changed = [f"{k}={v}" for k, v in values.items() if v != workload.parameters[k]]
    return f"{name}:{','.join(changed)}" if changed else name
