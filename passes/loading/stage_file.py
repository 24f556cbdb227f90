"""Input pipelines in files: TOML or JSON.

mode = "overlapped"            # or "serial"
depth = 2                      # batches on their way in a stage; 0: no data loading
cores = 16                     # that workers have

[values]                       # what formulas name, besides `batch` and `ranks`
edges = 150_000

[[stages]]
name = "sample"
formula = "edges / 20"         # microseconds of a batch, or `time_us = 7500`
workers = 8
resource = "cores"             # or "h2d", "gpu"
depth = 16                     # of this stage
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import parse_json, parse_toml, read_text
from perfc.passes.loading.formulas import value_of
from perfc.passes.loading.stages import RESOURCES, Loading, Stage


class InputPipelineError(PerfcError):
    """A file is no input pipeline."""


_MODES = {"serial": False, "overlapped": True, "pipelined": True}
_KEYS = ("mode", "depth", "cores", "values", "stages")
_LONGEST_US = 1e15
"""What a stage may take: thirty years, of which sums are still numbers."""

_OF_STAGE = ("name", "time_us", "formula", "workers", "resource", "depth")
_MOST = 10**9


def read_loading(
    path: str | Path, values: Mapping[str, float], depth: int | None = None
) -> Loading | None:
    """Read an input pipeline.

    Args:
        path: The file.
        values: What formulas may name of the model: `batch`, `ranks`.
        depth: Batches on their way in stages that do not say it, in place of the
            file's.

    Returns:
        The pipeline; None where the depth is 0, which switches data loading off.

    """
    path = Path(path)
    found = _document(path)
    try:
        return _loading(found, values, depth)
    except (UsageError, InputPipelineError) as error:
        msg = f"{path}: {error}"
        raise InputPipelineError(msg) from None


def _document(path: Path) -> dict[str, Any]:
    text = read_text(path, InputPipelineError, "an input pipeline in TOML or JSON")
    found: object
    if path.suffix == ".json":
        found = parse_json(text, InputPipelineError, str(path), "JSON")
    else:
        found = parse_toml(text, InputPipelineError, str(path))
    if not isinstance(found, dict):
        msg = f"{path}: expected a table with `stages`"
        raise InputPipelineError(msg)
    return cast("dict[str, Any]", found)


def _loading(
    found: Mapping[str, Any], given: Mapping[str, float], depth: int | None
) -> Loading | None:
    _check_keys("a file", found, _KEYS)
    mode = found.get("mode", "overlapped")
    if mode not in [*_MODES]:  # it may have no hash
        msg = f"mode {mode!r}: expected {', '.join(_MODES)}"
        raise InputPipelineError(msg)
    usual = found.get("depth") if depth is None else depth
    if usual is not None:
        usual = _count("depth", usual, 0)
    listed = found.get("stages")
    if not isinstance(listed, list) or not listed:
        msg = "no `stages`: expected one [[stages]] or more"
        raise InputPipelineError(msg)
    entries = cast("list[object]", listed)
    values = {**given, **_values(found.get("values", {}))}
    stages = [_stage(number, one, values, usual) for number, one in enumerate(entries)]
    _check_names(stages)
    cores = found.get("cores")
    if usual == 0:
        return None
    made = None if cores is None else _count("cores", cores, 1)
    return Loading(tuple(stages), _MODES[mode], made)


def _check_names(stages: Sequence[Stage]) -> None:
    names = [stage.name for stage in stages]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        msg = f"two stages are called {twice[0]!r}"
        raise InputPipelineError(msg)


def _check_keys(what: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in found:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            msg = f"{what} has no key {key!r}; {hint}it has {', '.join(known)}"
            raise InputPipelineError(msg)


def _values(found: object) -> dict[str, float]:
    if not isinstance(found, dict):
        msg = "`values` is no table of numbers"
        raise InputPipelineError(msg)
    values = cast("dict[str, object]", found)
    return {name: _number(f"value {name}", value) for name, value in values.items()}


def _stage(
    number: int, found: object, values: Mapping[str, float], usual: int | None
) -> Stage:
    """Read one stage."""
    if not isinstance(found, dict):
        msg = f"stage {number + 1} is no table"
        raise InputPipelineError(msg)
    stage = cast("dict[str, Any]", found)
    name = stage.get("name")
    if not isinstance(name, str) or not name.strip():
        msg = f"stage {number + 1} has no name"
        raise InputPipelineError(msg)
    where = f"stage {name!r}"
    _check_keys(where, stage, _OF_STAGE)
    resource = stage.get("resource")
    if resource not in RESOURCES:
        said = f"no resource {resource!r}" if resource else "no resource"
        msg = f"{where} has {said}: expected {', '.join(RESOURCES)}"
        raise InputPipelineError(msg)
    workers = _count(f"workers of {where}", stage.get("workers", 1), 1)
    depth = stage.get("depth", usual or workers)
    return Stage(
        name=name,
        time_us=_time_us(where, stage, values),
        resource=resource,
        workers=workers,
        depth=_count(f"depth of {where}", depth, 1),
    )


def _time_us(
    where: str, stage: Mapping[str, Any], values: Mapping[str, float]
) -> float:
    if ("time_us" in stage) == ("formula" in stage):
        msg = f"{where}: expected one of time_us and formula"
        raise InputPipelineError(msg)
    if "time_us" in stage:
        time_us = _number(f"time_us of {where}", stage["time_us"])
    else:
        formula = stage["formula"]
        if not isinstance(formula, str):
            msg = f"formula of {where} is no text"
            raise InputPipelineError(msg)
        try:
            time_us = value_of(formula, values)
        except UsageError as error:
            msg = f"{where}: {error}"
            raise InputPipelineError(msg) from None
    if not 0 <= time_us <= _LONGEST_US:  # nor NaN
        msg = f"{where} takes {time_us:g} us; expected 0 to {_LONGEST_US:g}"
        raise InputPipelineError(msg)
    return time_us


def _number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{what} is {value!r}, expected a number"
        raise InputPipelineError(msg)
    return float(value)


def _count(what: str, value: object, least: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= cast("int", value) <= _MOST:
        msg = f"{what} is {value!r}, expected an integer of {least} or more"
        raise InputPipelineError(msg)
    return cast("int", value)
