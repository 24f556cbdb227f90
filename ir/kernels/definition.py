"""What the declaration of a kernel says, and what parameters it refuses.

A kernel's cost depends on its parameters by name. One that nobody reads prices the
kernel as if it were not there, so a name that is not declared, a size that is missing
and a value of another type are errors of whoever writes the kernel.
"""

from __future__ import annotations

import difflib
import enum
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeGuard, cast

import attrs

from perfc.ir.record import AttrValue, Record, format_attribute
from perfc.ir.support import VerifyError

WRITERS: Mapping[str, str] = MappingProxyType(
    {
        "eager": "lowering of eager PyTorch",
        "compiled": "lowering of compiled graphs (Inductor)",
        "optimizer": "lowering of optimizer steps over lists of tensors",
        "collectives": "lowering of collectives",
        "copies": "lowering of copies",
        "cpu": "lowering for CPUs",
        "rows": "measured rows",
        "timing": "how a row was timed",
        "plugin": "a plugin",
    }
)
"""Who writes a parameter."""


Types: TypeAlias = frozenset[type]
"""Types of values."""


class ParamType(enum.Enum):
    """What a parameter may be; the value is what errors and lists call it."""

    COUNT = "whole number"
    NUMBER = "number"
    FLAG = "true or false"
    WORD = "word"
    SIZES = "list of whole numbers"
    PER_AXIS = "whole number, or one for each axis"
    SHAPES = "list of lists of whole numbers"
    RECORDS = "list of records"


class _Required(enum.Enum):
    """Stands where there is no default."""

    REQUIRED = enum.auto()


REQUIRED = _Required.REQUIRED
"""In place of a default: every kernel has the parameter."""


@attrs.frozen(kw_only=True)
class KernelParam:
    """One parameter of a kernel.

    Attributes:
        name: As in measured rows and in perfc assembly.
        type: What it is.
        summary: One sentence, without a full stop.
        unit: What it counts, in the plural, as `bytes` or `rows`; "" for a word.
        default: What a kernel without it has; `REQUIRED`, if there is none.
        choices: The words that it may be; none for any.
        writers: Who writes it (`WRITERS`); those of its kernel, if none are named.
        fields: Of a list of records, the parameters of each.

    """

    name: str
    type: ParamType
    summary: str
    unit: str = ""
    default: AttrValue | _Required = REQUIRED
    choices: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    fields: tuple[KernelParam, ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether every kernel has it."""
        return self.default is REQUIRED

    @property
    def value_without(self) -> AttrValue:
        """The default; None, if there is none."""
        return None if self.is_required else cast("AttrValue", self.default)

    @property
    def expected(self) -> str:
        """What a value is, as an error says it."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        a_word = self.type is not ParamType.FLAG
        return f"a {self.type.value}" if a_word else self.type.value

    @functools.cached_property
    def plain(self) -> Types:
        """Types whose every value fits."""
        if self.choices:
            return frozenset()
        optional: set[type] = set() if self.is_required else {type(None)}
        return frozenset(_PLAIN.get(self.type, set()) | optional)

    def fits(self, value: AttrValue) -> bool:
        """Whether a value is one that the parameter may have."""
        if type(value) in self.plain or (value is None and not self.is_required):
            return True
        if self.choices:
            return value in self.choices or value == self.default
        if self.type is ParamType.RECORDS:
            if not isinstance(value, tuple):
                return False
            for item in value:
                if not isinstance(item, Record):
                    return False
                self.record.check(item)
            return True
        return _NESTED.get(self.type, _never)(value)

    @functools.cached_property
    def record(self) -> Declared:
        """What its records may hold."""
        return Declared(f"a record of {self.name!r}", self.fields)


def _never(_: AttrValue) -> bool:
    return False


def _is_number(value: AttrValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: AttrValue) -> bool:
    return _is_number(value) and value == value // 1


def _are_counts(value: AttrValue) -> bool:
    return isinstance(value, tuple) and all(map(_is_count, value))


def _are_shapes(value: AttrValue) -> bool:
    return isinstance(value, tuple) and all(map(_are_counts, value))


def _is_per_axis(value: AttrValue) -> bool:
    return _is_count(value) or _are_counts(value)


_PLAIN: Mapping[ParamType, set[type]] = {
    ParamType.COUNT: {int},
    ParamType.NUMBER: {int, float},
    ParamType.FLAG: {bool},
    ParamType.WORD: {str},
    ParamType.PER_AXIS: {int},
}
_NESTED: Mapping[ParamType, Callable[[AttrValue], bool]] = {
    ParamType.COUNT: _is_count,
    ParamType.NUMBER: _is_number,
    ParamType.SIZES: _are_counts,
    ParamType.PER_AXIS: _is_per_axis,
    ParamType.SHAPES: _are_shapes,
}


@attrs.frozen(eq=False)
class Declared:
    """Parameters by name, which records are held against.

    Attributes:
        owner: What they are of, as an error says it.
        params: In the order in which they are listed.

    """

    owner: str
    params: tuple[KernelParam, ...]

    @functools.cached_property
    def by_name(self) -> Mapping[str, KernelParam]:
        """The parameters by name."""
        return {param.name: param for param in self.params}

    @functools.cached_property
    def _plain(self) -> Mapping[str, Types]:
        return {param.name: param.plain for param in self.params}

    @functools.cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(param.name for param in self.params if param.is_required)

    def check(self, given: Record) -> None:
        """Refuse parameters that are not declared, missing, or of another type.

        A record that was found right is not looked at again.
        """
        if given.checked_for == self.owner:
            return
        plain_types = self._plain
        for name, value in given.items():
            plain = plain_types.get(name)
            if plain is None:
                raise self._unknown(name)
            if type(value) not in plain and not self.by_name[name].fits(value):
                found, expected = format_attribute(value), self.by_name[name].expected
                msg = f"{self.owner}: {name} is {found}, expected {expected}"
                raise VerifyError(msg)
        if not given.keys() >= self._required:
            raise self._missing(given)
        given.checked_for = self.owner

    def check_names(self, names: Mapping[str, object]) -> None:
        """Refuse names that are not declared, and missing ones, whatever the values."""
        for name in names:
            if name not in self.by_name:
                raise self._unknown(name)
        if not names.keys() >= self._required:
            raise self._missing(names)

    def _unknown(self, name: str) -> VerifyError:
        close = difflib.get_close_matches(name, self.by_name, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        listed = ", ".join(self.by_name) or "none"
        return VerifyError(
            f"{self.owner} has no parameter {name!r}; {hint}declared: {listed}"
        )

    def _missing(self, given: Mapping[str, object]) -> VerifyError:
        missing = [name for name in self.by_name if name in self._required - {*given}]
        param, found = self.by_name[missing[0]], ", ".join(given) or "none"
        return VerifyError(
            f"{self.owner} lacks {', '.join(missing)}; expected {param.name}, "
            f"{param.expected} ({param.summary}); found: {found}; "
            f"declared: {', '.join(self.by_name)}"
        )


@attrs.frozen(kw_only=True)
class KernelDef:
    """The declaration of a kernel: all that its cost may depend on besides its work.

    Attributes:
        name: Canonical name, as in measured rows and in perfc assembly.
        summary: One line for `perfc ops --kernels`.
        params: Its own parameters; every kernel has those of `COMMON`, too.
        writers: Who writes kernels of it (`WRITERS`).

    """

    name: str
    summary: str
    params: tuple[KernelParam, ...] = ()
    writers: tuple[str, ...] = ("plugin",)

    def __attrs_post_init__(self) -> None:
        """Refuse what would be a mistake in a declaration."""
        names = [param.name for param in self.all_params]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            msg = f"kernel {self.name!r} declares {twice!r} twice"
            raise VerifyError(msg)
        for param in self.params:
            _check_default(self.name, param)
        writers = {*self.writers, *(w for p in self.params for w in p.writers)}
        if unknown := writers - WRITERS.keys():
            msg = (
                f"kernel {self.name!r} is written by {min(unknown)!r}; "
                f"known: {', '.join(WRITERS)}"
            )
            raise VerifyError(msg)

    @property
    def all_params(self) -> tuple[KernelParam, ...]:
        """Its own parameters, then those of every kernel."""
        return (*self.params, *COMMON)

    @functools.cached_property
    def declared(self) -> Declared:
        """What its parameters are held against."""
        return Declared(f"kernel {self.name!r}", self.all_params)


def _check_default(kernel: str, param: KernelParam) -> None:
    if not param.is_required and not param.fits(cast("AttrValue", param.default)):
        msg = (
            f"kernel {kernel!r}: the default of {param.name} is {param.default!r}, "
            f"expected {param.expected}"
        )
        raise VerifyError(msg)


PHASES = ("forward", "backward", "backward_data", "backward_weight")

COMMON = (
    KernelParam(
        name="phase",
        type=ParamType.WORD,
        summary="which part of a training step it belongs to",
        default="forward",
        choices=PHASES,
        writers=("eager", "rows"),
    ),
    KernelParam(
        name="in_place",
        type=ParamType.FLAG,
        summary="whether its large result is written over an operand",
        default=False,
        writers=("cpu",),
    ),
    KernelParam(
        name="new_pages",
        type=ParamType.FLAG,
        summary="whether its large result lies on pages that are new to the process",
        default=False,
        writers=("cpu",),
    ),
    KernelParam(
        name="repeated",
        type=ParamType.FLAG,
        summary="whether it was timed again and again on the same operands",
        default=False,
        writers=("timing",),
    ),
    KernelParam(
        name="idle",
        type=ParamType.FLAG,
        summary="whether it began on a GPU without other work",
        default=False,
        writers=("timing",),
    ),
    KernelParam(
        name="met",
        type=ParamType.NUMBER,
        summary="how many kernels of its op the process had called before it",
        unit="kernels",
        default=0,
        writers=("timing",),
    ),
    KernelParam(
        name="software",
        type=ParamType.WORD,
        summary="the source of its row, which says who replayed the graph",
        default="",
        writers=("timing",),
    ),
)
"""Parameters of every kernel."""


def named(*definitions: KernelDef) -> Mapping[str, KernelDef]:
    """Return definitions by name."""
    found = {definition.name: definition for definition in definitions}
    if len(found) < len(definitions):
        names = [definition.name for definition in definitions]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"kernel {twice!r} is declared twice"
        raise VerifyError(msg)
    return found
