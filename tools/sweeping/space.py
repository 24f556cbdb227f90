"""What is swept: a model, what varies, and what is wanted of each configuration."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import perfc
from perfc.costmodels import Target, load_target
from perfc.ir import PerfcError, UsageError
from perfc.ir.support import brief, read_whole, spend
from perfc.ir.text import print_program
from perfc.measurements import Column
from perfc.passes.pipeline_spec import format_pipeline
from perfc.tools.given import check_known
from perfc.tools.models import Model
from perfc.tools.request import INFERENCE, OPTIONS, Request
from perfc.tools.sweeping.axes import (
    TARGET,
    Axis,
    Names,
    Role,
    place_pass,
    structure_of,
)
from perfc.tools.sweeping.varied import Value, Varied

Row = dict[str, Any]

SCHEMA = "perfc.sweep/1"

INTERVAL = ("time_us_p05", "time_us_p95")

METRICS: Mapping[str, str] = {
    "samples_per_s": "float",
    "time_us": "float",
    "samples_per_j": "float",
    "usd_per_million_samples": "float",
    "peak_memory_bytes": "int",
    "fits": "bool",
    "comm_us": "float",
    "device_only_us": "float",
    "energy_j": "float",
    "exposed_comm_us": "float",
    "gco2e_per_million_samples": "float",
    "flops": "float",
    "bytes": "float",
    "gpu_active_us": "float",
    "gpu_idle_us": "float",
    "host_us": "float",
    "launches": "int",
    "mfu": "float",
    "sm_clock_mhz": "float",
    "tokens_per_s": "float",
    **dict.fromkeys(INTERVAL, "float"),
}
"""What can be wanted of a configuration, by the type of its column: the numbers of a
report's summary, and whether the memory of the target suffices."""

USUAL = tuple(METRICS)[:6]
"""What is wanted if nothing is said: of several batches, throughput decides."""

_LAST: Mapping[str, str] = {**dict.fromkeys(INTERVAL, "float"), "bound": "str"}
ERROR = "error"

_MORE = ("_per_s", "_per_j")


def is_better_high(column: str) -> bool:
    """Whether more of a metric is better."""
    return column.endswith(_MORE) or column in {"mfu", "fits"}


@attrs.frozen
class Configuration:
    """One configuration.

    Attributes:
        number: Which of all it is.
        target: Which of the targets.
        values: What each varied name is set to, in the order of the axes.

    """

    number: int
    target: int
    values: tuple[Value, ...]


@attrs.frozen(eq=False, kw_only=True)
class Space:
    """All configurations of a sweep: data, which other processes are sent.

    Attributes:
        request: What is the same in all of them.
        targets: What they are priced on, by name, path, or loaded.
        names: What the targets are called.
        axes: What varies.
        metrics: What is wanted of each.
        plugins: Modules to import first, by name or path.
        file: What the model is read from; empty if from no file.
        digest: Tells this sweep from others.
        version: The version of perfc that prices it.

    """

    __repr__ = brief

    request: Request
    targets: tuple[Target | str, ...]
    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    metrics: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    file: str = ""
    digest: str = ""
    version: str = ""

    @classmethod
    def of(
        cls,
        request: Request,
        targets: Sequence[Target | str],
        varied: Sequence[Varied],
        metrics: Sequence[str] = USUAL,
        plugins: Sequence[str] = (),
    ) -> Space:
        """Return a space, everything named in it found."""
        found = [_loaded(target, request.overrides) for target in targets]
        names = [target.name for target in found]
        _refuse_twice("target", names)
        _refuse_twice("vary", [one.name for one in varied])
        for metric in metrics:
            check_known("metric", metric, [*METRICS])
        what = Names.of(request, targets)
        axes = tuple(map(what.axis, varied))
        # Refuse names that columns of results have.
        taken = {*METRICS, *_LAST, ERROR, TARGET}
        for axis in axes:
            if axis.column in taken:
                msg = (
                    f"--vary {axis.column}: this is what a column of results is "
                    "called; a "
                    f"dimension is also written dim:{axis.column}"
                )
                raise UsageError(msg)
        space = cls(
            request=request,
            targets=tuple(targets),
            names=tuple(names),
            axes=axes,
            metrics=tuple(dict.fromkeys(metrics)),
            plugins=tuple(plugins),
            file=next(map(str, _files(request.model)), ""),
            version=perfc.__version__,
        )
        spend("configurations", len(space))
        # A digest of all that the rows of a sweep depend on.
        words = space.request.words(*(name for name in OPTIONS if name != "target"))
        said: dict[str, Any] = {
            "model": _model_text(space.request.model),
            "options": list(words),
            "transforms": format_pipeline(space.request.transforms),
            "targets": [
                *zip(space.names, [target.spec_sha256 for target in found], strict=True)
            ],
            "axes": [(axis.column, axis.values) for axis in space.axes],
            "metrics": space.metrics,
            "plugins": space.plugins,
            "version": space.version,
        }
        digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
        return attrs.evolve(space, digest=digest)

    def __len__(self) -> int:
        return math.prod((len(self.targets), *(len(axis.values) for axis in self.axes)))

    @property
    def varied(self) -> tuple[str, ...]:
        """Columns of what varies, the target last."""
        return (*(axis.column for axis in self.axes), TARGET)

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the rows, in order."""
        wanted = {metric: METRICS[metric] for metric in self.metrics}
        return (
            *(Column.of(axis.column, axis.kind) for axis in self.axes),
            Column.of(TARGET, "str"),
            *(
                Column.of(n, kind, "" if kind == "str" else None)
                for n, kind in {**wanted, **_LAST, ERROR: "str"}.items()
            ),
        )

    def __iter__(self) -> Iterator[Configuration]:
        places = itertools.product(
            *(axis.values for axis in self.axes), range(len(self.targets))
        )
        for number, (*values, target) in enumerate(places):
            yield Configuration(number, int(target), tuple(values))

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the cells that tell a row from others: those that vary."""
        return tuple(row[column] for column in self.varied)

    def key_of(self, one: Configuration) -> tuple[Any, ...]:
        """Return the key of the row of a configuration."""
        return (*one.values, self.names[one.target])

    def row_of(self, one: Configuration, **cells: object) -> Row:
        """Return the row of a configuration; what is not said is unknown."""
        known = {**dict(zip(self.varied, self.key_of(one), strict=True)), **cells}
        return {c.name: known.get(c.name, c.default) for c in self.columns}

    def structure(self, one: Configuration) -> tuple[Value, ...]:
        """Return the values that the model of a configuration is loaded by."""
        return self._part(one, "is_structural")

    def sizes(self, one: Configuration) -> tuple[Value, ...]:
        """Return the sizes that a loaded model is bound to."""
        return self._part(one, "is_size")

    def overrides(self, one: Configuration) -> dict[str, str]:
        """Return the fields of the target that are set."""
        own = {axis.name: str(v) for axis, v in self._set(one, Role.FIELD)}
        return {**self.request.overrides, **own}

    def _part(self, one: Configuration, kind: str) -> tuple[Value, ...]:
        pairs = zip(self.axes, one.values, strict=True)
        return tuple(value for axis, value in pairs if getattr(axis, kind))

    def _set(self, one: Configuration, role: Role) -> list[tuple[Axis, Value]]:
        pairs = zip(self.axes, one.values, strict=True)
        return [(axis, value) for axis, value in pairs if axis.role is role]

    def request_of(self, one: Configuration) -> Request:
        """Return the request of a configuration, but for its target."""
        base = self.request
        fields: dict[str, Any] = {
            axis.name: value for axis, value in self._set(one, Role.SETTING)
        }
        if fields.get("mode") == INFERENCE and "optimizer" not in fields:
            fields["optimizer"] = None  # which is what the others train by
        parameters = {
            axis.name: value for axis, value in self._set(one, Role.PARAMETER)
        }
        fields["model"] = structure_of(base.model, parameters)
        sizes = {axis.name: value for axis, value in self._set(one, Role.DIM)}
        fields["dims"] = {**base.dims, **sizes}
        for _, value in self._set(one, Role.POPULARITY):
            fields["popularity"] = {**base.popularity, "": str(value)}
        places = [place_pass(str(value)) for _, value in self._set(one, Role.PLACE)]
        fields["passes"] = (*places, *base.passes)
        return attrs.evolve(base, overrides={}, **fields)


def _loaded(target: Target | str, overrides: Mapping[str, str]) -> Target:
    if not isinstance(target, Target):
        return load_target(target, overrides)
    if overrides:
        msg = (
            f"target {target.name} is loaded already: give its name or path to set "
            f"{next(iter(overrides))}"
        )
        raise UsageError(msg)
    return target


def _refuse_twice(option: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            msg = f"--{option} {name} is given twice; give it once"
            raise UsageError(msg)


def _model_text(model: Any) -> list[str]:  # noqa: ANN401 - of any frontend
    """Return texts that tell a model from others."""
    if isinstance(model, Model):
        return [model.name, _sha256(print_program(model.unbound).encode())]
    if isinstance(model, str):
        contents = (read_whole(path, PerfcError) for path in _files(model))
        return [model, *map(_sha256, contents)]
    return [repr(model), str(id(model))]


def _files(model: object) -> list[Path]:
    if not isinstance(model, str):
        return []
    files = (Path(model), Path(f"{model.rpartition('.py:')[0]}.py"))
    return [path for path in files if path.is_file()]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
