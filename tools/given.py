"""Values as Python code gives them: read, or refused with a line that says how."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from perfc.ir import UsageError
from perfc.ir.choices import INPUTS
from perfc.ir.support import UnsupportedModelError, path_text

if TYPE_CHECKING:
    from perfc.costmodels import Target

_OTHER_DTYPES = {
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
}
"""What PyTorch and NumPy call types, by perfc's names."""

_SHOWN = 60
"""Characters of a value that an error repeats."""

WIDE_DTYPES = ("fp32", "tf32")
NARROW_DTYPES = ("fp8", "mxfp8", "int8", "w8a16", "w4a16")
"""Types of linear layers alone, in a model that computes in 16 bits."""

DTYPES = (*WIDE_DTYPES, "bf16", "fp16", "amp-bf16", "amp-fp16", *NARROW_DTYPES)
MAX_DIM = 2**40
"""Largest size of a dimension."""

Read = Callable[[str, Any], Any]
"""Reads what Python code gives for the field of a name."""


def _shown(value: object) -> str:
    """Return a value as an error repeats it: in one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _kind(value: object) -> str:
    article = "an" if type(value).__name__[0] in "aeioAEIO" else "a"
    return f"{article} {type(value).__name__}"


def closest(word: object, known: Iterable[str]) -> str:
    """Return the end of an error that names what *word* may have meant."""
    found = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def check_known(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a value that is none of those there are."""
    if value not in known:
        msg = f"{name} {value!r} is none of {', '.join(known)}{closest(value, known)}"
        raise UsageError(msg)


def whole(most: int, least: int = 1) -> Read:
    """Return a reader of whole numbers of a range; NumPy's count as well."""

    def read(name: str, value: Any) -> int:  # noqa: ANN401 - whatever was given
        if getattr(value, "ndim", 0):
            msg = (
                f"{name} is an array of {len(value)}: expected one number; call once "
                f"for each, with {name}=n for n in the array"
            )
            raise UsageError(msg)
        number = _index(value)
        if number is None:
            near = _near_integer(value)
            advice = f"; write {name}={near}" if near is not None else ""
            msg = f"{name}={_shown(value)} is {_kind(value)}: expected a whole number"
            raise UsageError(msg + advice)
        if not least <= number <= most:
            found = number if abs(number) <= MAX_DIM else "a number of many digits"
            limit = f"at most {most}" if number > most else f"at least {least}"
            msg = f"{name}={found}: expected {limit}"
            raise UsageError(msg)
        return number

    return read


def _index(value: Any) -> int | None:  # noqa: ANN401 - whatever was given
    """Return a whole number as Python has it; None for what is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _near_integer(value: object) -> int | None:
    """Return the number that a text or a float stands for, if it is whole."""
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number.is_integer() else None


def read_prune(name: str, value: Any) -> float:  # noqa: ANN401 - whatever was given
    """Read a share of channels to take away: 0 or more, less than 1."""
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = math.nan
    if isinstance(value, bool) or not 0 <= share < 1:
        msg = f"{name} {_shown(value)}: expected a share of 0 or more, below 1"
        raise UsageError(msg)
    return share


def choice_of(known: Sequence[str]) -> Read:
    """Return a reader of one of some words."""

    def read(name: str, value: object) -> str:
        if not isinstance(value, str):
            msg = f"{name}={_shown(value)} is {_kind(value)}: expected one of "
            raise UsageError(msg + ", ".join(map(repr, known)))
        check_known(name, value, known)
        return value

    return read


def read_inputs(name: str, value: object) -> str:
    """Read a place of inputs, and those of some behind it, by patterns of names."""
    read = choice_of(INPUTS)
    for part in value.split(",") if isinstance(value, str) else (value,):
        read(name, part.rpartition("=")[2] if isinstance(part, str) else part)
    return str(value)


def read_dtype(name: str, value: Any) -> str:  # noqa: ANN401 - whatever was given
    """Read a type: by perfc's name, or PyTorch's or NumPy's own object."""
    home = type(value).__module__.partition(".")[0]
    if home == "torch":
        text = str(value).removeprefix("torch.")
    elif home in {"numpy", "ml_dtypes"} or isinstance(value, type):
        text = str(getattr(value, "name", getattr(value, "__name__", value)))
    elif isinstance(value, str):
        near = _OTHER_DTYPES.get(value)
        if near is not None:
            msg = (
                f"{name} {value!r} is none of {', '.join(DTYPES)}; did you mean {near}?"
            )
            raise UsageError(msg)
        return str(choice_of(DTYPES)(name, value))
    else:
        text = ""
    found = _OTHER_DTYPES.get(text) if text != "float" else None
    if found is None:
        msg = f"{name} {_shown(value)} is none of {', '.join(DTYPES)}"
        raise UsageError(msg)
    return found


def read_texts(name: str, value: object) -> tuple[str, ...]:
    """Read several texts, which one text is not."""
    if isinstance(value, str):
        msg = f"{name}={value!r} is one text: expected a list; write {name}=[{value!r}]"
        raise UsageError(msg)
    found = _items(name, value)
    for one in found:
        if not isinstance(one, str):
            msg = (
                f"{name} has {_kind(one)} in it: expected texts, as "
                f"{name}=['pin-copies']"
            )
            raise UsageError(msg)
    return tuple(map(str, found))


def _items(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, Iterable):
        msg = f"{name}={_shown(value)} is {_kind(value)}: expected a list"
        raise UsageError(msg)
    return tuple(cast("Iterable[object]", value))


def objects_with(method: str, example: str) -> Read:
    """Return a reader of objects that have a method, as passes do."""

    def read(name: str, value: object) -> tuple[object, ...]:
        found = (value,) if isinstance(value, str) else _items(name, value)
        for one in found:
            if isinstance(one, type) or not callable(getattr(one, method, None)):
                what = f"the class {one.__name__}" if isinstance(one, type) else ""
                msg = f"{name} has {what or _shown(one)} in it: expected {example}"
                raise UsageError(msg)
        return found

    return read


def pairs_of(of_values: Read, example: str) -> Read:
    """Return a reader of a mapping from names."""

    def read(name: str, value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            msg = (
                f"{name}={_shown(value)} is {_kind(value)}: expected a mapping, as "
                f"{name}={example}"
            )
            raise UsageError(msg)
        items = cast("Mapping[object, object]", value).items()
        return {str(key): of_values(f"{name}[{key!r}]", v) for key, v in items}

    return read


def read_field(name: str, value: object) -> str:
    """Read what a field of a sheet is set to, as `--set` spells it."""
    number = isinstance(value, float) or _index(value) is not None
    if isinstance(value, str) or number:
        return str(value)
    msg = f"{name} is {_kind(value)}: expected a number or a text"
    raise UsageError(msg)


def _is_text(value: object) -> bool:
    """Whether a value names something: a text or a path."""
    return isinstance(value, str | os.PathLike)


def check_options(call: str, options: Iterable[str], known: type) -> None:
    """Refuse options that a call does not take.

    Args:
        call: The call, as errors name it.
        options: Names of the options that it was given.
        known: The options that it takes: a `TypedDict`.

    """
    names = sorted(cast("Any", known).__optional_keys__)
    for name in options:
        if name not in names:
            hint = closest(name, names) or f"; it takes {', '.join(names)}"
            msg = f"{call} takes no option {name!r}{hint}"
            raise UsageError(msg)


def read_popularity(name: str, value: object) -> dict[str, str]:
    """Read how lookups spread: over all tables, or by the name of the table."""
    if _is_text(value):
        return {"": path_text(name, value)}
    found: dict[str, str] = pairs_of(path_text, "{'table': 'zipf(1.05)'}")(name, value)
    return found


_NO_MODELS = {
    "Report": "give what it is about, report.model",
    "Target": "the model comes first, as perfc.analyze(model, target)",
    "Program": "give the loaded model that it belongs to, as perfc.load returns it",
    "Graph": "give the loaded model that it belongs to, as perfc.load returns it",
}
"""Objects of perfc that are no models."""


def read_model(name: str, value: object) -> Any:  # noqa: ANN401 - of any frontend
    """Read which model is meant: a path becomes text, what has one name a hint."""
    if _is_text(value):
        return path_text(name, value)
    own = type(value).__module__.startswith("perfc.")
    if own and type(value).__name__ in _NO_MODELS:
        advice = _NO_MODELS[type(value).__name__]
        msg = f"the model is {_kind(value)}: {advice}"
        raise UsageError(msg)
    known = own or callable(value) or _is_of("torch", value) or _is_of("onnx", value)
    if not known:
        msg = (
            f"the model is {_kind(value)}, {_shown(value)}: expected what perfc.load "
            "returns, the path of a file, or a name of `perfc models`"
        )
        if value is None:
            msg = "no model is given (it is None): expected what perfc.load returns"
        raise UnsupportedModelError(msg)
    return value


def _is_of(package: str, value: object) -> bool:
    homes = (kind.__module__.partition(".")[0] for kind in type(value).__mro__)
    return package in sys.modules and package in homes


def read_target(name: str, value: object) -> Target | str:
    """Read which target is meant."""
    if _is_text(value):
        return path_text(name, value)
    from perfc.costmodels import Target

    if isinstance(value, Target):
        return value
    if isinstance(value, list | tuple | set | frozenset | dict):
        what = _kind(cast("object", value))
        msg = (
            f"{name} is {what}: expected one target; ask once for each of "
            "several, as [perfc.analyze(model, t) for t in ('a100', 'h100')]"
        )
        raise UsageError(msg)
    if type(value).__module__.startswith("perfc.tools"):
        msg = (
            f"{name} is {_kind(value)}: the model comes first, as "
            "perfc.analyze(model, target)"
        )
        raise UsageError(msg)
    msg = (
        f"{name}={_shown(value)} is {_kind(value)}: expected a name, as 'a100' "
        "(`perfc targets` lists them), the path of a sheet, or a Target"
    )
    raise UsageError(msg)


def read_anything(name: str, value: object) -> object:
    """Read what somebody else looks into."""
    return value
