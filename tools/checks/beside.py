"""Files that a budget names: they lie beside the file of budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import attrs

from perfc.costmodels.sheets import is_path
from perfc.passes.pipeline_spec import PassRequest, format_value, read_pipeline

_MODELS = (".onnx", ".pt2", ".perfc", ".et", ".json", ".gz", ".py")
_DATA = (".toml", ".json", ".csv", ".gz")
"""What a text ends in that names a file, whether or not there is one."""


@attrs.frozen
class Beside:
    """Places paths.

    Attributes:
        folder: What they are relative to.

    """

    folder: Path

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields of a request, with the paths of the files that they name."""
        found = dict(given)
        if not self.folder.parts:
            return found
        for key, place in self._places.items():
            if key in found:
                found[key] = _each(found[key], place)
        return found

    @property
    def _places(self) -> Mapping[str, Callable[[str], str]]:
        """What places the texts of an option, for those that take files."""
        return {
            "model": self._model,
            **dict.fromkeys(("target", "overheads", "preset", "price"), self._named),
            "input_pipeline": self._file,
            "popularity": self._data,
            **dict.fromkeys(("passes", "pipeline"), self._passes),
        }

    def _file(self, text: str) -> str:
        return str(self.folder / text)

    def _named(self, text: str) -> str:
        return self._file(text) if is_path(text) else text

    def _model(self, text: str) -> str:
        is_file = text.partition(":")[0].endswith(_MODELS)
        return self._file(text) if is_file else text

    def _data(self, text: str) -> str:
        is_file = text.endswith(_DATA) or _is_file(self.folder / text)
        return self._file(text) if is_file else text

    def _passes(self, text: str) -> str:
        return ",".join(map(self._pass, read_pipeline(text)))

    def _pass(self, one: PassRequest) -> str:
        placed = {key: _each(value, self._data) for key, value in one.written.items()}
        if placed == one.written:
            return one.text
        options = (
            f"{key.replace('_', '-')}={format_value(value)}"
            for key, value in placed.items()
        )
        return f"{one.cls.name}{{{','.join(options)}}}"


def _each(value: object, place: Callable[[str], str]) -> Any:  # noqa: ANN401 - as given
    """Return a value with its texts placed; what is none is refused elsewhere."""
    if isinstance(value, str):
        return place(value)
    if isinstance(value, list):
        return [_each(one, place) for one in cast("list[object]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _each(one, place) for key, one in items}
    return value


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text too long for a name, or with a null byte
        return False
