"""Entry points: what is missing, doubled or broken is an error that names it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfc.installed import EntryPoint
from perfc.ir import COST_MODELS, EXPORTERS, PASSES, PerfcError, UsageError
from perfc.ir.support import TARGETS, entry_points, load_plugin


class Installed:
    """What the tests pretend is installed."""

    def __init__(self) -> None:
        """Install nothing."""
        self.points: list[EntryPoint] = []

    def add(self, group: str, name: str, value: str) -> None:
        """Install one entry point."""
        self.points.append(EntryPoint(name, value, group))

    def __call__(self, *, group: str) -> list[EntryPoint]:
        """Stand in for `perfc.installed.entry_points`."""
        return [point for point in self.points if point.group == group]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Replace what is installed, for one test."""
    found = Installed()
    monkeypatch.setattr("perfc.ir.support.plugins.installed_points", found)
    entry_points.cache_clear()
    yield found
    entry_points.cache_clear()


def test_load(installed: Installed) -> None:
    """A plugin is the object its entry point names."""
    installed.add(PASSES, "ordered", "collections:OrderedDict")

    assert ["ordered"] == list(entry_points(PASSES))
    assert "OrderedDict" == getattr(load_plugin(PASSES, "ordered"), "__name__", None)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (PASSES, "unknown pass 'my_plugim'; did you mean 'my_plugin'?"),
        (COST_MODELS, "unknown cost model 'my_plugim'; did you mean 'my_plugin'?"),
        (TARGETS, "unknown target 'my_plugim'; did you mean 'my_plugin'?"),
    ],
)
def test_misspelt(installed: Installed, group: str, problem: str) -> None:
    """A misspelt name is answered with the closest one, as it is written."""
    installed.add(group, "my_plugin", "collections:OrderedDict")
    with pytest.raises(UsageError) as caught:
        load_plugin(group, "my_plugim")

    assert problem == str(caught.value)


def test_missing(installed: Installed) -> None:
    """A missing name is answered with those there are."""
    with pytest.raises(UsageError, match=r"known: none \(is perfc installed\?\)"):
        load_plugin(EXPORTERS, "csv")
    entry_points.cache_clear()
    installed.add(EXPORTERS, "html", "collections:OrderedDict")
    with pytest.raises(UsageError, match="unknown exporter 'csv'; known: html"):
        load_plugin(EXPORTERS, "csv")


def test_clash(installed: Installed) -> None:
    """A name that two distributions claim is nobody's."""
    installed.add(PASSES, "fuse", "one:Fuse")
    installed.add(PASSES, "fuse", "two:Fuse")
    with pytest.raises(PerfcError, match="'fuse' is claimed twice: by one:Fuse and by"):
        entry_points(PASSES)


def test_same_twice(installed: Installed) -> None:
    """One distribution seen twice (installed and on the path) is no clash."""
    installed.add(PASSES, "fuse", "one:Fuse")
    installed.add(PASSES, "fuse", "one:Fuse")

    assert ["fuse"] == list(entry_points(PASSES))


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("no_such_module_anywhere:Fuse", ModuleNotFoundError),
        ("collections:NoSuchName", AttributeError),
    ],
)
def test_broken(installed: Installed, value: str, cause: type[Exception]) -> None:
    """A plugin that cannot be imported is an error, not an absence."""
    installed.add(PASSES, "fuse", value)
    with pytest.raises(PerfcError, match="cannot be loaded") as caught:
        load_plugin(PASSES, "fuse")

    assert isinstance(caught.value.__cause__, cause)
