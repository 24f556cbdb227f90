"""The descriptions of the layout agree: folders, links, pyproject, the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import perfc

ROOT = Path(__file__).parents[1]
LAYERS = (
    "costmodels",
    "exporters",
    "fitting",
    "frontends",
    "ir",
    "measure",
    "measurements",
    "passes",
    "planning",
    "tools",
    "traces",
)
TWINS = "examples/twins"
FOLDERS = {**{layer: ROOT / layer for layer in LAYERS}, "twins": ROOT / TWINS}
"""Where each package lies."""
HEAVY = ("attrs", "networkx", "numpy", "onnx", "torch")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _files(suffix: str) -> set[str]:
    """Every such file of the packages, by its path in the wheel."""
    return {
        f"perfc/{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in FOLDERS.items()
        for path in folder.rglob(f"*{suffix}")
    }


def test_every_package_is_listed() -> None:
    """A folder missing from `packages` would be missing from the wheel only."""
    found = {"perfc"}
    for name in _files("__init__.py"):
        found.add(name.removesuffix("/__init__.py").replace("/", "."))

    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_layer_is_linked() -> None:
    """Type checkers reach the packages through the links in src/perfc."""
    if (ROOT / "src" / "perfc" / "ir").is_file():
        pytest.skip("this checkout was made without symbolic links")
    links = {
        path.name: path.resolve()
        for path in (ROOT / "src" / "perfc").iterdir()
        if path.is_symlink()
    }

    assert links == FOLDERS


def test_no_layer_is_imported_under_its_bare_name() -> None:
    """`import ir` would load every class a second time."""
    bare = {name for name in sys.modules if name.partition(".")[0] in LAYERS}

    assert set() == bare


def test_the_wheel_holds_every_file(tmp_path: Path) -> None:
    """Code, `py.typed`, and the data that the code reads are in the wheel."""
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*LAYERS, TWINS, "src"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(tree)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    own = {path.name for path in (ROOT / "src" / "perfc").glob("*.*")}
    facade = {f"perfc/{name}" for name in own}

    with zipfile.ZipFile(wheel) as archive:
        held = {n for n in archive.namelist() if not n.startswith("perfc-")}

    kinds = (".toml", ".npz", ".txt", ".csv", ".js", ".css")
    data = {name for kind in kinds for name in _files(kind)}
    assert facade | _files(".py") | data == held


def test_version() -> None:
    """The version is that of pyproject.toml."""
    assert PROJECT["project"]["version"] == perfc.__version__


def test_unknown_name() -> None:
    """The lazy module refuses a name as any module does."""
    with pytest.raises(AttributeError, match=r"'perfc' has no attribute 'nothing'"):
        getattr(perfc, "nothing")  # noqa: B009 - the type checkers know better


def test_names_that_are_not_loaded_yet_are_listed() -> None:
    """What completes `perfc.` in a shell is what may be asked for."""
    assert set(perfc.__all__) <= set(dir(perfc))


def test_import_is_cheap() -> None:
    """`import perfc` loads none of the libraries that perfc uses."""
    code = f"import sys, perfc; print(*[m for m in {HEAVY} if m in sys.modules])"

    command = [sys.executable, "-I", "-c", code]
    result = subprocess.run(command, check=True, capture_output=True, text=True)

    assert "\n" == result.stdout


def test_every_entry_point_loads() -> None:
    """Each plugin named in pyproject.toml is installed and exists."""
    groups: dict[str, dict[str, str]] = PROJECT["project"].get("entry-points", {})
    for group, plugins in groups.items():
        for name in plugins:
            (found,) = entry_points(group=group, name=name)

            assert plugins[name] == found.value
            assert found.load() is not None
