"""What a host pays to launch work: T1 to T5 and the runtime calls, as a profile.

The decomposition is that of Lin et al., HiPC 2022 (arXiv 2201.07821): T1 between
two ops, T2 from the start of an op to its first launch, T3 from its last launch
to its end, T4 in a launch call, T5 between two launches of an op. An op that
launches nothing takes T0 (which the paper counts as T5).

A profile is a TOML file, in microseconds; `load_profile` converts once.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, cast

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.sheets.profile import PROFILE_TEXTS, check_profile, is_profile
from perfc.costmodels.sheets.sheet_file import read_sheet
from perfc.ir import PerfcError, UsageError
from perfc.ir.support import brief, parse_toml, path_text

FOLDER = Path(__file__).parents[1] / "profiles"

GRAPH_LAUNCH = "cudaGraphLaunch"
"""The call that replays a CUDA graph."""

GRAPH_NODE_US = constants("hosts").number("graph_node_us")
"""What each node adds to that call, where a profile does not say."""

COMPILED_GRAPH = "Torch-Compiled Region"
"""What a call of a compiled graph is called, as in Kineto traces."""

COMPILED_US = constants("hosts").table("compiled_us")
"""What Python does in a compiled graph, where a profile does not say.

`graph`: guards and the wrappers around a graph, each time it is called; `kernel`: from
the wrapper to the driver's call, per generated kernel; `call`: around an outside
kernel, in place of T1.
"""

CALLED_SHARE = constants("hosts").table("called_share")
"""Share of T2 of an eager op that is left where compiled code calls what it calls."""

BETWEEN = ("phase", "hand_over", "hand_back", "end", "begin")
"""What lies between two ops and is no T1: a label that begins or ends (a phase, an
optimizer's step), the way from the thread that calls `backward` to autograd's, the way
back, and the end and the beginning of an iteration."""

MAX_US = 1e6
"""A mean overhead of a second or more is a stall, not an overhead."""

REQUIRED_CALLS = (
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
)
"""Calls that every profile has to time, besides `default`."""

_DEFAULT = "default"
_SHARED = "shared"
_SUFFIX = ".toml"
_SIGMAS = ("sigma_shared", "sigma_independent")
_PER_OP = ("t2_us", "t3_us", "t5_us", "t0_us")
_GRAPH_NODE = "graph_node_us"
_JOIN = "join_us"
_CALLS = "calls_us"
_COMPILED = "compiled_us"
_BETWEEN = "between_us"
_SCALED = "sigma_scaled"
_BASE, _SPEED = "base", "speed"
_OF_BASE = (*PROFILE_TEXTS, _BASE, _SPEED, _COMPILED, _CALLS)
"""Fields of a profile that is another one, on a host of another speed: times that it
states itself are of that host already."""

_MAX_SPEED = 100
_OPTIONAL = (_GRAPH_NODE, _JOIN, _COMPILED, _BETWEEN, _SCALED)
_FIELDS = frozenset(
    {*PROFILE_TEXTS, *_SIGMAS, "t1_us", *_PER_OP, "calls_us", *_OPTIONAL}
)

_Table: TypeAlias = Mapping[str, object]


class HostProfileError(PerfcError):
    """A host profile cannot be read, or says something that cannot be."""


def _copied(value: Mapping[str, float]) -> Mapping[str, float]:
    return dict(value)


def _compiled_s(value: Mapping[str, float]) -> Mapping[str, float]:
    """Add what is not given."""
    return {name: us * 1e-6 for name, us in COMPILED_US.items()} | dict(value)


@attrs.frozen
class PerName:
    """Seconds by name, with a value for the names not listed.

    Attributes:
        default_s: Seconds of a name that is not listed.
        named_s: Seconds by name.

    """

    default_s: float
    named_s: Mapping[str, float] = attrs.field(converter=_copied, hash=False)

    def of(self, name: str) -> float:
        """Return the seconds of *name*."""
        return self.named_s.get(name, self.default_s)


@attrs.frozen(kw_only=True)
class HostProfile:
    """Mean host times of eager PyTorch on one kind of host.

    Attributes:
        name: Name of the profile.
        t1_s: Between two ops.
        t2_s: From the start of an op to its first call, by op.
        t3_s: From the end of its last call to the end of an op, by op.
        t5_s: Between two launches of an op, by op.
        t0_s: A whole op that launches nothing, by op.
        calls_s: Inside a runtime call, by call; for a synchronisation, what it
            takes when there is nothing to wait for.
        graph_node_s: What each node of a CUDA graph adds to its launch call.
        join_s: What a library takes, within its call, to launch the kernel that adds up
            the parts of a GEMM; 0 where that was not measured.
        compiled_s: What Python takes in a compiled graph: per `graph`, per generated
            `kernel`, and around each `call` of another.
        between_s: What of `BETWEEN` was measured, by name.
        sigma_shared: Relative uncertainty that all host times share (standard
            deviation of the logarithm): another CPU, another PyTorch.
        sigma_scaled: What `sigma_shared` is instead once it is known how fast a host
            is beside this one; None if that has not been tried.
        sigma_independent: Relative spread of one host time around its mean.
        source: Where the numbers come from.
        date: When they were fitted.
        software: What ran.

    """

    __repr__ = brief

    name: str
    t1_s: float
    t2_s: PerName
    t3_s: PerName
    t5_s: PerName
    t0_s: PerName
    calls_s: PerName
    graph_node_s: float
    join_s: float = 0.0
    compiled_s: Mapping[str, float] = attrs.field(
        converter=_compiled_s, factory=dict[str, float], hash=False
    )
    between_s: Mapping[str, float] = attrs.field(
        converter=_copied, factory=dict[str, float], hash=False
    )
    sigma_shared: float
    sigma_scaled: float | None = None
    sigma_independent: float
    source: str
    date: str
    software: str

    def at_speed(self, speed: float) -> HostProfile:
        """Return the profile of a host that is *speed* times as fast.

        One factor does not tell all: what hosts still differ by is in `sigma_shared`.
        """
        shared = _builtin(_SHARED).sigma_scaled or 0.0
        own = self.sigma_scaled or math.hypot(self.sigma_shared, shared)

        def faster(seconds: Mapping[str, float]) -> dict[str, float]:
            return {name: s / speed for name, s in seconds.items()}

        def per_name(table: PerName) -> PerName:
            return PerName(table.default_s / speed, faster(table.named_s))

        return attrs.evolve(
            self,
            t1_s=self.t1_s / speed,
            t2_s=per_name(self.t2_s),
            t3_s=per_name(self.t3_s),
            t5_s=per_name(self.t5_s),
            t0_s=per_name(self.t0_s),
            calls_s=per_name(self.calls_s),
            graph_node_s=self.graph_node_s / speed,
            join_s=self.join_s / speed,
            compiled_s=faster(self.compiled_s),
            between_s=faster(self.between_s),
            sigma_shared=min(own, 1.0),
            sigma_scaled=None,
        )


def profile_names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    return [*_builtin_names()]


@functools.cache
def _builtin_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob(f"*{_SUFFIX}")))


def load_profile(name_or_path: str | os.PathLike[str]) -> HostProfile:
    """Read a built-in profile by name, or a TOML file by path."""
    name_or_path = path_text("host profile", name_or_path)
    if name_or_path.lower().endswith(_SUFFIX) or "/" in name_or_path:
        return parse_profile(
            _read(Path(name_or_path)),
            name_or_path,
        )
    name = name_or_path.strip().lower()
    known = profile_names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        msg = (
            f"unknown host profile {name_or_path!r}; {hint}known profiles: "
            f"{', '.join(known)}; or the path of a .toml profile"
        )
        raise UsageError(msg)
    return _builtin(name)


@functools.cache
def _builtin(name: str) -> HostProfile:
    return parse_profile(
        _read(FOLDER / f"{name}{_SUFFIX}"),
        f"host profile {name}",
    )


def parse_profile(text: str, where: str) -> HostProfile:
    """Read a profile from TOML text; *where* names it in errors."""
    document: _Table = parse_toml(text, HostProfileError, where)
    if is_profile(document):
        document = _host_of(document, where)
    if _BASE in document:
        return _of_base(document, where)
    problems = list(_problems(document))
    if problems:
        rest = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        msg = f"{where}: {problems[0]}{rest}"
        raise HostProfileError(msg)
    return _profile(document)


def _of_base(document: _Table, where: str) -> HostProfile:
    """Return a built-in profile at another speed, as uncertain as that one."""
    base, speed = document[_BASE], document.get(_SPEED)
    problems = [
        f"unknown field {field!r}; a profile with a base has {', '.join(_OF_BASE)}"
        for field in sorted({*document} - {*_OF_BASE})
    ]
    problems += _text_problems(document)
    compiled, calls = document.get(_COMPILED, {}), document.get(_CALLS, {})
    problems += _named_problems(_COMPILED, COMPILED_US, compiled)
    problems += _call_problems(calls)
    if base not in _builtin_names():
        problems.append(f"base is {base!r}, expected {', '.join(_builtin_names())}")
    if not _is_number(speed) or not 0 < float(speed) <= _MAX_SPEED:
        problems.append(f"speed = {_shown(speed)}; expected a number up to 100")
    if problems or not _is_number(speed):
        msg = f"{where}: {problems[0]}"
        raise HostProfileError(msg)
    known = _builtin(str(base))
    texts: dict[str, Any] = {key: str(document[key]) for key in PROFILE_TEXTS}
    scaled = known.at_speed(float(speed))
    named_s = {**scaled.calls_s.named_s, **_in_seconds(calls)}
    return attrs.evolve(
        scaled,
        compiled_s={**scaled.compiled_s, **_in_seconds(compiled)},
        calls_s=attrs.evolve(scaled.calls_s, named_s=named_s),
        sigma_shared=known.sigma_shared,
        sigma_scaled=known.sigma_scaled,
        **texts,
    )


def _call_problems(table: object) -> Iterator[str]:
    if not isinstance(table, Mapping):
        yield f"{_CALLS} = {_shown(table)}; expected a table"
        return
    for name, value in cast("_Table", table).items():
        yield from _time_problems(f"{_CALLS}.{name}", value)


def _in_seconds(table: object) -> dict[str, float]:
    return {name: us * 1e-6 for name, us in cast("Mapping[str, float]", table).items()}


def profile_problems(text: str) -> list[str]:
    """Return the problems of a `perfc.profile`, its host included.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML.

    """
    document: _Table = tomllib.loads(text)
    problems = list(check_profile(document))
    if "host" in document and not problems:
        problems += _problems(_host_of(document, "profile"))
    return problems


def _host_of(document: _Table, where: str) -> _Table:
    """Return the host of a profile that may have a device, too."""
    problems = list(check_profile(document))
    host = document.get("host")
    if not problems and not isinstance(host, dict):
        problems = ["no [host]: it holds a device only, for --target"]
    if problems:
        msg = f"{where}: profile: {problems[0]}"
        raise HostProfileError(msg)
    texts = {key: document[key] for key in PROFILE_TEXTS}
    return {**texts, **cast("_Table", host)}


def _read(path: Path) -> str:
    return read_sheet(path, "host profile", HostProfileError)


def _problems(document: _Table) -> Iterator[str]:
    for field in sorted(set(document) - _FIELDS):
        known = ", ".join(sorted(_FIELDS))
        yield f"unknown field {field!r}; a host profile has {known}"
    yield from _text_problems(document)
    scaled = (_SCALED,) if _SCALED in document else ()
    for field in (*_SIGMAS, *scaled):
        value = document.get(field)
        if not _is_number(value) or not 0 < float(value) <= 1:
            yield f"{field} = {_shown(value)}; expected a fraction above 0, at most 1"
    yield from _time_problems("t1_us", document.get("t1_us"))
    yield from _time_problems(_GRAPH_NODE, document.get(_GRAPH_NODE, GRAPH_NODE_US))
    yield from _time_problems(_JOIN, document.get(_JOIN, 0.0))
    for field in (*_PER_OP, "calls_us"):
        yield from _table_problems(field, document.get(field))
    yield from _named_problems(_COMPILED, COMPILED_US, document.get(_COMPILED, {}))
    yield from _named_problems(_BETWEEN, BETWEEN, document.get(_BETWEEN, {}))


def _text_problems(document: _Table) -> Iterator[str]:
    for field in PROFILE_TEXTS:
        value = document.get(field)
        if not isinstance(value, str) or not value.strip():
            yield f"{field} is missing; expected text"


def _table_problems(field: str, table: object) -> Iterator[str]:
    if not isinstance(table, Mapping):
        yield f"table [{field}] is missing"
        return
    times = cast("_Table", table)
    wanted = REQUIRED_CALLS if field == "calls_us" else ()
    for name in (_DEFAULT, *wanted):
        if name not in times:
            yield f"{field}.{name} is missing; expected microseconds"
    for name, value in times.items():
        yield from _time_problems(f"{field}.{name}", value)


def _named_problems(field: str, known: Collection[str], table: object) -> Iterator[str]:
    """Check a table that may have each of some names."""
    if not isinstance(table, Mapping):
        yield f"{field} = {_shown(table)}; expected a table"
        return
    for name, value in cast("_Table", table).items():
        if name in known:
            yield from _time_problems(f"{field}.{name}", value)
        else:
            yield f"unknown field '{field}.{name}'; it has {', '.join(known)}"


def _time_problems(name: str, value: object) -> Iterator[str]:
    if not _is_number(value) or not 0 <= float(value) < MAX_US:
        yield f"{name} = {_shown(value)}; expected microseconds from 0 to below 1e6"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]


def _profile(document: _Table) -> HostProfile:
    """Convert a sound document to seconds."""

    def number(field: str, default: float = math.nan) -> float:
        return float(cast("float", document.get(field, default)))

    def per_name(field: str) -> PerName:
        times = cast("Mapping[str, float]", document[field])
        seconds = {name: us * 1e-6 for name, us in times.items()}
        return PerName(seconds.pop(_DEFAULT), seconds)

    def text(field: str) -> str:
        return str(document[field])

    def some(field: str) -> dict[str, float]:
        times = cast("Mapping[str, float]", document.get(field, {}))
        return {name: us * 1e-6 for name, us in times.items()}

    return HostProfile(
        name=text("name"),
        t1_s=number("t1_us") * 1e-6,
        t2_s=per_name("t2_us"),
        t3_s=per_name("t3_us"),
        t5_s=per_name("t5_us"),
        t0_s=per_name("t0_us"),
        calls_s=per_name("calls_us"),
        graph_node_s=number(_GRAPH_NODE, GRAPH_NODE_US) * 1e-6,
        join_s=number(_JOIN, 0.0) * 1e-6,
        compiled_s=some(_COMPILED),
        between_s=some(_BETWEEN),
        sigma_shared=number("sigma_shared"),
        sigma_scaled=number(_SCALED) if _SCALED in document else None,
        sigma_independent=number("sigma_independent"),
        source=text("source"),
        date=text("date"),
        software=text("software"),
    )
