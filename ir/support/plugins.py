"""Entry points: how perfc finds frontends, passes, cost models, targets.

The built-in parts register through the same groups as those of other
distributions, so the public path is exercised on every run. A name that two
distributions claim is an error, and so is a plugin that was asked for and fails to
load. What nobody asked for by name is left out, and the report names it.
"""

from __future__ import annotations

import difflib
import functools
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from perfc.installed import EntryPoint
from perfc.installed import entry_points as installed_points
from perfc.ir import support
from perfc.ir.support.errors import PerfcError, UsageError

FRONTENDS = "perfc.frontends"
"""Classes with `load(path)`, named for the suffix that they read."""
PASSES = "perfc.passes"
"""Subclasses of `Pass`, by their own name."""
COST_MODELS = "perfc.cost_models"
"""Instances of `CostModel`."""
TARGETS = "perfc.targets"
"""Paths of target sheets."""
EXPORTERS = "perfc.exporters"
"""Writers of reports, named for their format."""
PRESETS = "perfc.presets"
"""Paths of presets, or their tables."""
_NOUNS = {
    FRONTENDS: "frontend",
    PASSES: "pass",
    COST_MODELS: "cost model",
    TARGETS: "target",
    EXPORTERS: "exporter",
    PRESETS: "preset",
}


_registered: dict[tuple[str, str], object] = {}


def register_plugin(group: str, name: str, plugin: object) -> None:
    """Register *plugin* for this process, as `--plugin MODULE` modules do.

    Raises:
        UsageError: there is no such group.
        PerfcError: the name is taken.

    """
    if group not in _NOUNS:
        msg = f"no plugins are of group {group!r}: expected {', '.join(_NOUNS)}"
        raise UsageError(msg)
    if name in plugin_names(group) and _registered.get((group, name)) is not plugin:
        msg = f"{group} {name!r} is registered already; choose another name"
        raise PerfcError(msg)
    _registered[group, name] = plugin


def plugin_names(group: str) -> list[str]:
    """Names of everything in *group*, sorted."""
    here = {name for other, name in _registered if other == group}
    return sorted(here | set(entry_points(group)))


@functools.cache
def entry_points(group: str) -> dict[str, EntryPoint]:
    """Entry points of *group* by name."""
    found: dict[str, EntryPoint] = {}
    for point in installed_points(group=group):
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            msg = (
                f"{group} {point.name!r} is claimed twice: by {_owner(other)} and "
                f"by {_owner(point)}; uninstall one of them"
            )
            raise PerfcError(msg)
        found[point.name] = point
    return found


def is_somebody_elses(group: str, name: str) -> bool:
    """Whether a plugin was installed with another distribution than perfc.

    Not so what this process registered: somebody asked for that.
    """
    point = entry_points(group).get(name)
    is_own = point is None or point.value.partition(".")[0] == "perfc"
    return not is_own and (group, name) not in _registered


def is_perfcs_own(group: str, name: str) -> bool:
    """Whether a plugin is in perfc's own entry points, and nobody registered it."""
    point = entry_points(group).get(name)
    own = point is not None and point.value.partition(".")[0] == "perfc"
    return own and (group, name) not in _registered


def load_plugin(group: str, name: str) -> object:
    """Load the object registered as *name* in *group*."""
    if (group, name) in _registered:
        return _registered[group, name]
    points = entry_points(group)
    if name not in points:
        names = plugin_names(group)
        close = difflib.get_close_matches(name, names, n=1)
        hint = (
            f"did you mean {close[0]!r}?"
            if close
            else f"known: {', '.join(names) or 'none (is perfc installed?)'}"
        )
        msg = f"unknown {_NOUNS.get(group, group)} {name!r}; {hint}"
        raise UsageError(msg)
    try:
        loaded = points[name].load()
    except Exception as error:
        msg = f"{group} {name!r} of {_owner(points[name])} cannot be loaded: {error!r}"
        raise PerfcError(msg + support.moved_to(error)) from error
    return loaded


def is_built_in(plugin: object) -> bool:
    """Whether *plugin* is of a class of perfc's own."""
    return type(plugin).__module__.partition(".")[0] == "perfc"


@contextmanager
def plugin_at_work(label: str, plugin: object) -> Generator[None, None, None]:
    """Say whose bug it is, and where, if *plugin* is not perfc's own and fails.

    Args:
        label: What to call the plugin, as `pass 'heaviest'`.
        plugin: The object whose code runs.

    """
    try:
        yield
    except PerfcError:
        raise
    except Exception as error:
        if is_built_in(plugin):
            raise
        module = type(plugin).__module__
        msg = f"{label} fails {_place(module, error)}: {type(error).__name__}: {error}"
        raise PerfcError(msg) from error


def _place(module: str, error: Exception) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((f for f in reversed(frames) if f.filename == file), frames[-1])
    return f"in {Path(inner.filename).name}, line {inner.lineno}"


def _owner(point: EntryPoint) -> str:
    return point.owner or point.value
