"""Pipelines as text, and back: `shape-inference,lower-kernels{inputs=device}`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import attrs

from perfc.ir import PASSES, UsageError
from perfc.ir.support import PipelineError, load_plugin, plugin_names
from perfc.passes.base import Pass

_STRING = r'"(?:[^"\\]|\\.)*"'
_ITEM = re.compile(rf"\s*([\w.-]+)\s*(?:\{{((?:[^{{}}\"]|{_STRING})*)\}})?\s*(?:(,)|$)")
_LIST = r"[^,\"]*?(?:\s*,\s*[\w.*?+-]+:[\w.]+)*"
"""A value, or items `NAME:VALUE` with commas between them."""

_OPTION = re.compile(rf"\s*([\w-]+)\s*=\s*({_STRING}|{_LIST})\s*(?:(,)|$)")
_PLAIN = re.compile(r"[\w.:/+~@%-]+")
_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_WORDS = {"true": True, "false": False}
_EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}
_SHOWN = 60

Kinds = dict[str, type]
"""Names of options, as written, and what kind of value each takes."""


def pass_names() -> list[str]:
    """Names of all passes, built in and from plugins."""
    return plugin_names(PASSES)


def pass_class(name: str) -> type[Pass]:
    """Return the class of the pass called *name*."""
    loaded = load_plugin(PASSES, name)
    if not (isinstance(loaded, type) and issubclass(loaded, Pass)):
        hint = "; register the class, not one made of it" * isinstance(loaded, Pass)
        msg = f"plugin {name!r} of {PASSES} is not a subclass of Pass but {loaded!r}"
        raise PipelineError(msg + hint)
    called = getattr(loaded, "name", None)
    if called != name:
        msg = (
            f"pass {name!r} must have the name it is registered by: {loaded.__name__} "
            f"says name = {called!r}"
        )
        raise PipelineError(msg)
    return loaded


@attrs.frozen
class PassRequest:
    """One item of a pipeline's text.

    Attributes:
        cls: The pass.
        written: The options that the text gives, also where it gives the default.
        text: The item, as written.

    """

    cls: type[Pass]
    written: dict[str, Any]
    text: str

    def make(self, **settings: object) -> Pass:
        """Make the pass with *settings*, except where the text says otherwise."""
        given = {**settings, **self.written}
        missing = [
            f
            for f in _fields(self.cls)
            if (f.init and f.default is attrs.NOTHING) and f.name not in given
        ]
        if missing:
            asked = ",".join(f"{_key(f.name)}=…" for f in missing)
            msg = f"pass {self.cls.name!r} needs more: {self.cls.name}{{{asked}}}"
            raise UsageError(msg)
        try:
            return self.cls(**given)
        except TypeError as error:
            msg = f"pass {self.cls.name!r}: {error}"
            raise UsageError(msg) from None

    def update(self, p: Pass) -> Pass:
        """Return *p*, of the same class, with the options that the text gives."""
        updated: Pass = attrs.evolve(cast("Any", p), **self.written)
        return updated


def parse_pipeline(text: str) -> list[Pass]:
    """Read a pipeline and make its passes."""
    return [request.make() for request in read_pipeline(text)]


def read_pipeline(text: str) -> list[PassRequest]:
    """Read a pipeline without making its passes."""
    if not text.strip():
        return []
    requests: list[PassRequest] = []
    for match in _scan(_ITEM, text):
        if match is None:
            msg = (
                f"not a pipeline: {text[:_SHOWN]!r} "
                "(expected name or name{option=value,...}, separated by commas)"
            )
            raise UsageError(msg)
        requests.append(_request(match[1], match[2] or ""))
    return requests


def make_pass(name: str, options: str = "") -> Pass:
    """Make one pass from its name and the text between its braces."""
    return _request(name, options).make()


def _request(name: str, options: str) -> PassRequest:
    cls = pass_class(name)
    known = option_kinds(cls)
    values: dict[str, Any] = {}
    for match in _scan(_OPTION, options) if options.strip() else ():
        key = match[1].replace("_", "-") if match is not None else ""
        if match is None or key not in known:
            found = options[:_SHOWN] if match is None else match[1]
            listed = ", ".join(sorted(known)) or (
                "none"
                if attrs.has(cls)
                else "none, as it is not an @attrs.frozen class"
            )
            msg = f"pass {name!r} has no option {found!r}; options: {listed}"
            raise UsageError(msg)
        field = key.replace("-", "_")
        if field in values:
            msg = f"option {key} of pass {name!r} is given twice"
            raise UsageError(msg)
        values[field] = _convert(name, key, match[2], known[key])
    return PassRequest(cls, values, f"{name}{{{options}}}" if options else name)


def _scan(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str] | None]:
    """Yield comma-separated matches, and None where *text* stops matching."""
    position = 0
    while (match := pattern.match(text, position)) is not None:
        yield match
        if match[3] is None:
            return
        position = match.end()
    yield None


def option_kinds(cls: type[Pass]) -> Kinds:
    """Return the options of a pass that text can give: its scalar fields."""
    return {
        _key(field.name): kind
        for field in _fields(cls)
        if (kind := _kind(field.type)) is not None and field.init
    }


def _key(name: str) -> str:
    """Return the option, as written, that sets a field."""
    return name.replace("_", "-")


def _fields(cls: type[Pass]) -> tuple[attrs.Attribute[Any], ...]:
    if not attrs.has(cls):
        return ()
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
    return fields


def _kind(annotation: object) -> type | None:
    name = annotation if isinstance(annotation, str) else None
    if isinstance(annotation, type):
        name = annotation.__name__
    return _KINDS.get(name) if name is not None else None


def _convert(name: str, key: str, text: str, kind: type) -> object:
    """Read *text* as the kind of value that the option takes."""
    try:
        plain = json.loads(text) if text.startswith('"') else text
        return _WORDS[plain] if kind is bool else kind(plain)
    except (ValueError, KeyError):
        msg = f"option {key}={text} of pass {name!r}: expected {_EXPECTED[kind]}"
        raise UsageError(msg) from None


def format_pipeline(passes: Iterable[Pass]) -> str:
    """Write passes as text that `parse_pipeline` reads back."""
    return ",".join(map(_format_pass, passes))


def _format_pass(p: Pass) -> str:
    known = option_kinds(type(p))
    options: list[str] = []
    for field in _fields(type(p)):
        value, key = getattr(p, field.name), _key(field.name)
        if key in known and value != field.default:
            options.append(f"{key}={format_value(value)}")
    return f"{p.name}{{{','.join(options)}}}" if options else p.name


def format_value(value: bool | float | str) -> str:  # noqa: FBT001 - any scalar
    """Write the value of an option as text that a pipeline may have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
