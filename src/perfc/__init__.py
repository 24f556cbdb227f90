"""Tell how long a deep-learning model takes on a GPU, and why, without one.

    import perfc
    model = perfc.load("model.onnx", batch=2048)
    report = perfc.analyze(model, target="a100")
    print(report.time_us, report.interval_us)
    print(report)

Names are loaded when first used, so that `import perfc` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfc import edits
    from perfc.ir import PerfcError, register_plugin
    from perfc.tools import (
        Diff,
        Model,
        Oracle,
        Report,
        Sweep,
        analyze,
        diff,
        export_onnx,
        from_torch,
        load,
        sweep,
        tile_time_us,
    )

__all__ = [
    "Diff",
    "Model",
    "Oracle",
    "PerfcError",
    "Report",
    "Sweep",
    "__version__",
    "analyze",
    "diff",
    "edits",
    "export_onnx",
    "from_torch",
    "load",
    "register_plugin",
    "sweep",
    "tile_time_us",
]

_HOMES = {
    "Diff": "perfc.tools",
    "Model": "perfc.tools",
    "Oracle": "perfc.tools",
    "PerfcError": "perfc.ir",
    "Report": "perfc.tools",
    "Sweep": "perfc.tools",
    "analyze": "perfc.tools",
    "diff": "perfc.tools",
    "export_onnx": "perfc.tools",
    "from_torch": "perfc.tools",
    "load": "perfc.tools",
    "register_plugin": "perfc.ir",
    "sweep": "perfc.tools",
    "tile_time_us": "perfc.tools",
}

_UNKNOWN = "unknown (not installed)"

__version__: str
"""The version of the installed distribution; of a checkout, what its project says."""


def __dir__() -> list[str]:
    """Return the public names, those that are not loaded yet among them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name in {*_HOMES, "edits"}:
        from importlib import import_module  # noqa: PLC0415 - lazy

        if name == "edits":
            return import_module("perfc.edits")
        found: object = getattr(import_module(_HOMES[name]), name)
        return found
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def _version() -> str:
    from perfc.installed import version  # noqa: PLC0415 - lazy

    return version("perfc") or _version_of_checkout()


def _version_of_checkout() -> str:
    """Return the version in the project file beside `src`, which runs as it lies."""
    import tomllib  # noqa: PLC0415 - lazy
    from pathlib import Path  # noqa: PLC0415 - lazy

    try:
        text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
        project = tomllib.loads(text)["project"]
        return str(project["version"]) if project["name"] == "perfc" else _UNKNOWN
    except (OSError, ValueError, LookupError, TypeError):
        return _UNKNOWN
