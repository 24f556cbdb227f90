"""A request and its preset: an option that is given wins, and that is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs

from perfc.costmodels import Target, load_target
from perfc.costmodels.sheets import PresetError
from perfc.ir import Diagnostic, UsageError
from perfc.ir.support import Level
from perfc.passes import Pass, Transform
from perfc.passes.pipeline_spec import (
    PassRequest,
    format_value,
    pass_class,
    read_pipeline,
)
from perfc.passes.pipelines import RUNTIME_PASSES, TIMING
from perfc.tools.presets.preset import Preset, load_preset, shown
from perfc.tools.request import OPTIONS, TRAINING, Request

_MAPPINGS = frozenset({"dims", "overrides", "popularity"})
_TAKEN_APART = frozenset({*_MAPPINGS, "passes", "target"})
_ONLY_LOADED = frozenset({"optimizer", "popularity"})
"""What a loaded model has, and does not tell."""


def merged(request: Request, ran: Sequence[Pass] | None, loaded_by: str) -> Request:
    """Return a request with what its preset says besides; see `with_preset`."""
    preset = load_preset(request.preset or "")
    if ran is not None and loaded_by != preset.name:
        # Refuse a model that went through a pass without its options.
        late = [p.name for p in ran if preset.passes.get(p.name)]
        if late:
            msg = (
                f"{request.model.name} is loaded already, without the options of "
                f"{late[0]} of preset {preset.name}; give preset to perfc.load as well"
            )
            raise UsageError(msg)
    return _Merge(preset, request, is_loaded=ran is not None).result()


@attrs.define(eq=False)
class _Merge:
    """Puts a preset below a request.

    Attributes:
        preset: The preset.
        request: What is asked for.
        is_loaded: Whether its model is loaded.
        remarks: What there is to say.

    """

    preset: Preset
    request: Request
    is_loaded: bool
    remarks: list[Diagnostic] = attrs.field(factory=list[Diagnostic], init=False)

    def result(self) -> Request:
        """Return the request with all that both say."""
        fields = dict(self._plain())
        for name in _MAPPINGS:
            if not (self.is_loaded and name in _ONLY_LOADED):
                fields[name] = self._pairs(name)
        fields["target"] = target = self._target(fields["overrides"])
        self._check_set(target)
        merged = attrs.evolve(self.request, **fields)
        merged = attrs.evolve(merged, **self._passes(merged))
        return attrs.evolve(
            merged, preset=self.preset.name, remarks=tuple(self.remarks)
        )

    def _plain(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.preset.fields.items():
            if name in _TAKEN_APART or (self.is_loaded and name in _ONLY_LOADED):
                continue
            if name not in self.request.given:
                yield name, value
            elif getattr(self.request, name) != value:
                flag = OPTIONS[name].flag
                self._say(f"{flag} {getattr(self.request, name)}", value)

    def _pairs(self, name: str) -> dict[str, Any]:
        given = cast("Mapping[str, Any]", getattr(self.request, name))
        own = cast("Mapping[str, Any]", self.preset.fields.get(name, {}))
        for key in given:
            if key in own and str(own[key]) != str(given[key]):
                self._say(f"{OPTIONS[name].flag} {key}={given[key]}", own[key])
        return {**own, **given}

    def _say(self, given: str, instead: object) -> None:
        self._remark(f"{given} is given, where {self._name} has {shown(instead)}")

    def _remark(self, message: str) -> None:
        one = Diagnostic(Level.NOTE, "preset-overridden", message, self.preset.name)
        self.remarks.append(one)

    @property
    def _name(self) -> str:
        return f"preset {self.preset.name}"

    def _target(self, overrides: Mapping[str, str]) -> Target | str:
        """Return the target: the one that is given, if it is of the preset's kind."""
        own = cast("str", self.preset.fields.get("target", ""))
        given = self.request.target
        if not given:
            return own
        if isinstance(given, Target) and overrides:
            msg = (
                f"{self._name} sets {next(iter(overrides))} of its target, and this "
                "one is loaded already: give its name or the path of its sheet"
            )
            raise UsageError(msg)
        if not own:
            return given
        target = given if isinstance(given, Target) else load_target(given)
        meant = load_target(own)
        if _kind(target) != _kind(meant):
            msg = (
                f"{self._name} is for {meant.name} ({_kind(meant)}), not for "
                f"{target.name} ({_kind(target)}); leave one of the two out"
            )
            raise UsageError(msg)
        if target.name != meant.name:
            self._say(f"--target {target.name}", meant.name)
        return given

    def _check_set(self, target: Target | str) -> None:
        """Refuse fields that the target has not."""
        own = cast("Mapping[str, str]", self.preset.fields["overrides"])
        if not own or isinstance(target, Target) or not target:
            return
        try:
            load_target(target, own)
        except UsageError as error:
            msg = f"{self._name}: {str(error).removeprefix('--set ')}"
            raise PresetError(msg) from None

    def _passes(self, merged: Request) -> dict[str, Any]:
        """Return the passes and the transforms, with the options of the preset."""
        own = cast("tuple[str, ...]", self.preset.fields.get("passes", ()))
        if merged.pipeline is not None:
            if own or self.preset.passes:
                self._remark(
                    f"--pipeline says all passes: those of {self._name} do not"
                )
            return {}
        asked = [one for text in merged.passes for one in read_pipeline(text)]
        named = {one.cls.name for one in asked}
        added = [one for text in own for one in read_pipeline(text)]
        for one in added:
            if one.cls.name in named and one.text not in merged.passes:
                self._say(f"--pass {one.cls.name}", one.text)
        asked = [*(one for one in added if one.cls.name not in named), *asked]
        if self.is_loaded:
            asked = [one for one in asked if one not in added or not _changes(one.cls)]
        transforms = [self._told(p) for p in merged.transforms]
        named = {one.cls.name for one in asked} | {p.name for p in transforms}
        for name in self.preset.passes:
            late = self.is_loaded and _changes(pass_class(name))
            if name not in named and not late and _runs(name, merged):
                asked.append(PassRequest(pass_class(name), {}, name))
        texts = tuple(self._completed(one, merged) for one in asked)
        return {"passes": texts, "transforms": tuple(transforms)}

    def _told(self, p: Pass) -> Pass:
        """Return a pass with the preset's options where it has its defaults."""
        for option, text in self.preset.passes.get(p.name, {}).items():
            field = option.replace("-", "_")
            default = attrs.fields_dict(cast("Any", type(p)))[field].default
            value = read_pipeline(f"{p.name}{{{option}={text}}}")[0].written[field]
            if getattr(p, field) == default:
                p = attrs.evolve(cast("Any", p), **{field: value})
            elif getattr(p, field) != value:
                self._say(f"{option} of {p.name}", text)
        return p

    def _completed(self, one: PassRequest, merged: Request) -> str:
        """Return the text of a pass with the preset's options that are not given."""
        name = one.cls.name
        more: list[str] = []
        settings = {"optimizer": merged.optimizer or "sgd"}
        settings = settings if name == TRAINING else {}
        for option, text in self.preset.passes.get(name, {}).items():
            (read,) = read_pipeline(f"{name}{{{option}={text}}}")
            (field,) = read.written
            if field in one.written:
                if one.written[field] != read.written[field]:
                    given = _item(
                        name, [f"{option}={format_value(one.written[field])}"]
                    )
                    self._say(f"--pass {given}", text)
                continue
            why = _contradiction(one, {**settings, **read.written})
            if why:
                self._remark(f"{option}={text} of {self._name} is left out: {why}")
            else:
                more.append(f"{option}={text}")
        return one.text if not more else _item(name, [*_options(one), *more])


def _kind(target: Target) -> str:
    return target.device.architecture


def _changes(cls: type[Pass]) -> bool:
    return issubclass(cls, Transform)


def _runs(name: str, request: Request) -> bool:
    """Whether a pass runs though nobody names it."""
    many = {"data-parallel": request.ranks, "accumulate-gradients": request.accumulate}
    return (
        name in TIMING.split(",")
        or name == RUNTIME_PASSES.get(request.runtime)
        or (name == TRAINING and request.mode == TRAINING)
        or (many.get(name) or 1) > 1
    )


def _contradiction(one: PassRequest, more: Mapping[str, object]) -> str:
    """Return why a pass cannot have more options, if it can be made without them."""
    try:
        one.make()
    except UsageError:
        return ""
    try:
        one.make(**more)
    except UsageError as error:
        return str(error)
    return ""


def _options(one: PassRequest) -> Sequence[str]:
    inner = one.text.partition("{")[2].rpartition("}")[0].strip()
    return [inner] if inner else []


def _item(name: str, options: Sequence[str]) -> str:
    return f"{name}{{{','.join(options)}}}"
