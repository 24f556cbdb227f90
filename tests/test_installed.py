"""What is installed is found as `importlib.metadata` finds it."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from perfc import installed
from perfc.installed import EntryPoint

TEXT = """
# what it offers
[perfc.passes]
one = toy.passes:One
two = toy.passes : Some.Two [extra]

[other]
three=toy
"""


def _install(folder: Path, name: str, text: str) -> None:
    made = folder / f"{name}.dist-info"
    made.mkdir(parents=True)
    called, _, version = name.partition("-")
    (made / "METADATA").write_text(f"Name: {called}\nVersion: {version}\n")
    (made / "entry_points.txt").write_text(text)


def test_all_groups_are_as_importlib_has_them() -> None:
    """Here and now, of every distribution: the same names, values and owners."""
    everywhere = [p for d in metadata.distributions() for p in d.entry_points]
    for group in {point.group for point in everywhere}:
        expected = {(p.name, p.value) for p in metadata.entry_points(group=group)}
        points = installed.entry_points(group=group)
        assert expected == {(point.name, point.value) for point in points}


@pytest.mark.parametrize("name", ["numpy", "attrs", "perfc_toy.plugin", "no-such"])
def test_versions_are_as_importlib_has_them(name: str) -> None:
    """A name in any spelling has its version; what is not installed has none."""
    try:
        expected = metadata.version(name)
    except metadata.PackageNotFoundError:
        expected = None

    assert expected == installed.version(name)


def test_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a distribution that is there twice, only the first offers anything."""
    _install(tmp_path / "first", "My.Toy-2.0", TEXT)
    _install(tmp_path / "second", "my_toy-1.0", "[perfc.passes]\nold = toy:Old\n")
    for folder in ("second", "first"):
        monkeypatch.syspath_prepend(tmp_path / folder)

    found = installed.entry_points(group="perfc.passes")
    found = [point for point in found if point.name in {"one", "two", "old"}]
    assert [
        EntryPoint("one", "toy.passes:One", "perfc.passes", "My.Toy"),
        EntryPoint("two", "toy.passes : Some.Two [extra]", "perfc.passes", "My.Toy"),
    ] == found
    assert "2.0" == installed.version("my-toy")


def test_what_lies_in_a_zip_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There `importlib.metadata` looks."""
    with zipfile.ZipFile(tmp_path / "toys.zip", "w") as packed:
        packed.writestr("toys-3.0.dist-info/METADATA", "Name: toys\nVersion: 3.0\n")
        packed.writestr("toys-3.0.dist-info/entry_points.txt", TEXT)
    monkeypatch.syspath_prepend(tmp_path / "toys.zip")

    assert "3.0" == installed.version("toys")
    (found,) = installed.entry_points(group="other")[-1:]
    assert EntryPoint("three", "toy", "other", "toys") in installed.entry_points(
        group="other"
    )
    assert "other" == found.group


@pytest.mark.parametrize(
    "folder", ["my.toy.egg-info", "my.toy-1.0.egg-info", "my.toy-1.0.dist-info"]
)
def test_an_owner_is_named_without_the_suffix_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Build tools write metadata with and without the version in the folder's name."""
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "PKG-INFO").write_text("Name: my.toy\nVersion: 1.0\n")
    (tmp_path / folder / "entry_points.txt").write_text("[toys]\none = toy:One\n")
    monkeypatch.syspath_prepend(tmp_path)

    found = installed.entry_points(group="toys")
    assert [EntryPoint("one", "toy:One", "toys", "my.toy")] == found
    assert "1.0" == installed.version("my-toy")


def test_an_entry_point_loads_what_it_names() -> None:
    """An attribute, one within another, a module; anything else is an error."""
    assert Path == EntryPoint("a", "pathlib:Path", "g").load()
    assert Path.home == EntryPoint("a", "pathlib : Path.home [x]", "g").load()
    assert sys == EntryPoint("a", "sys", "g").load()
    with pytest.raises(ValueError, match="'a b' is no module:attribute"):
        EntryPoint("a", "a b", "g").load()
    with pytest.raises(AttributeError, match="Nothing"):
        EntryPoint("a", "pathlib:Nothing", "g").load()
