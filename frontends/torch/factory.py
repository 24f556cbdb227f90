"""Models named on the command line: `file.py:factory` or `pkg.mod:factory`."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import torch

from perfc.frontends.torch.capture import Recording, capture_module
from perfc.frontends.torch.custom_step import CustomStep
from perfc.frontends.torch.exported import is_exported, read_exported
from perfc.frontends.torch.guards import is_list, is_mapping
from perfc.frontends.torch.internals import scaler_left_on
from perfc.frontends.torch.location import own_line
from perfc.frontends.torch.loss import Loss
from perfc.frontends.torch.meta import weightless
from perfc.frontends.torch.optimizer import Optimizer
from perfc.ir import PerfcError, Program
from perfc.ir.support import UnsupportedModelError, paused_collector

_PARTS = (2, 3)
_RETURNS = (
    "(torch.nn.Module, example_args), a dict of module, args, kwargs, loss, "
    "optimizer, step, or a torch.export.ExportedProgram"
)


@attrs.frozen(eq=False)
class Made:
    """What a factory returns.

    Attributes:
        module: A `torch.nn.Module`.
        args: What `forward` is called with.
        kwargs: Arguments by name.
        loss: Of a training step, as `perfc.from_torch` takes it.
        optimizer: Of a training step, as `perfc.from_torch` takes it.

    """

    module: Any
    args: Any = ()
    kwargs: Mapping[str, Any] | None = None
    loss: Loss = None
    optimizer: Optimizer = None
    step: CustomStep = None


@paused_collector()
def capture_factory(
    text: str,
    *,
    mode: str = "inference",
    optimizer: Optimizer = None,
    dtype: str | None = None,
    dims: Mapping[str, int] | None = None,
) -> Program:
    """Record one iteration of the model that `FILE.py:NAME` or `MODULE:NAME` makes.

    It is made on the device `meta`, so that weights take no memory. What it returns
    with the model (see `perfc.from_torch`) holds unless *optimizer* says otherwise; a
    step of training without any is one of `sgd`. A `torch.export.ExportedProgram` is
    read as it is, not recorded: its mode is for passes to change.
    """
    # What the model prints is not perfc's result.
    with contextlib.redirect_stdout(sys.stderr):
        return _captured(
            text, mode=mode, optimizer=optimizer, dtype=dtype, dims=dims or {}
        )


def _captured(
    text: str,
    *,
    mode: str,
    optimizer: Optimizer,
    dtype: str | None,
    dims: Mapping[str, int],
) -> Program:
    name = text.rpartition(":")[2]
    with weightless(), scaler_left_on():
        returned = _call(text, None)
    if is_exported(returned):
        return read_exported(returned, name)
    made = _read(returned, text)
    chosen = optimizer or made.optimizer or "sgd"
    recording = Recording(
        args=made.args,
        kwargs=made.kwargs,
        mode=mode,
        optimizer=chosen if mode == "training" else optimizer,
        loss=made.loss,
        step=made.step if mode == "training" else None,
        dtype=dtype,
        name=name,
        dims=dims,
    )
    return capture_module(lambda: made.module, recording)


def run_factory(text: str, batch: int | None = None) -> Made:
    """Return the model that `FILE.py:NAME` or `MODULE:NAME` makes, of its *batch*."""
    return _read(_call(text, batch), text)


def _call(text: str, batch: int | None) -> Any:
    where, _, name = text.rpartition(":")
    factory, given = _find(where, name), {} if batch is None else {"batch": batch}
    if given and not _takes(factory, "batch"):
        msg = f"{text} takes no argument 'batch': --batch needs one"
        raise UnsupportedModelError(msg)
    try:
        return factory(**given)
    except PerfcError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{text} raised {raised_by(error)}"
        raise UnsupportedModelError(msg) from error


def _takes(factory: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(factory).parameters
    every = (p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return name in parameters or any(every)


def _find(where: str, name: str) -> Callable[..., Any]:
    """Import a file or a module; return its function."""
    try:
        module = _file(Path(where)) if where.endswith(".py") else _module(where)
    except UnsupportedModelError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"cannot import {where}: {raised_by(error)}"
        raise UnsupportedModelError(msg) from error
    found = getattr(module, name, None)
    if not callable(found):
        names = [n for n, v in vars(module).items() if callable(v) and n[0] != "_"]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        msg = f"{where} has no function {name!r}{hint}"
        raise UnsupportedModelError(msg)
    return found  # type: ignore[no-any-return]  # whatever the file has


def _file(path: Path) -> ModuleType:
    """Import a file as Python runs a script: its folder is where it imports from."""
    if not path.is_file():
        msg = f"{path}: no such file"
        raise UnsupportedModelError(msg)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"perfc_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{path}: not a file of Python code"
        raise UnsupportedModelError(msg)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _module(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def raised_by(error: BaseException) -> str:
    """Name what was raised, and the innermost line of the model's."""
    line = own_line([*traceback.walk_tb(error.__traceback__)][::-1])
    place = f" ({line})" if line else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    said = " ".join(str(error).partition("\n\n")[0].split())
    colon = ": " if said else ""
    return f"{type(error).__name__}{colon}{said}{place}"


def _read(returned: Any, text: str) -> Made:
    """Take apart what a factory returned."""
    if is_exported(returned):
        args, kwargs = returned.example_inputs or ((), {})
        return Made(returned.module(), args, kwargs)
    if is_mapping(returned):
        known = {field.name for field in attrs.fields(Made)}
        if "module" in returned and returned.keys() <= known:
            return _checked(Made(**returned), text)
    elif is_list(returned) and len(returned) in _PARTS:
        module, args, *third = returned
        made = Made(module, args)
        if is_mapping(args):
            made = Made(module, (), args)
        for extra in third:
            key = "kwargs" if is_mapping(extra) else "loss"
            made = attrs.evolve(made, **{key: extra})
        return _checked(made, text)
    msg = f"{text} returned {_kind(returned)}, expected {_RETURNS}"
    raise UnsupportedModelError(msg)


def _kind(value: Any) -> str:
    if is_list(value):
        return f"({', '.join(type(item).__name__ for item in value)})"
    if is_mapping(value):
        return f"a dict of {', '.join(map(str, value))}"
    return type(value).__name__


def _checked(made: Made, text: str) -> Made:
    if not isinstance(made.module, torch.nn.Module):
        msg = (
            f"{text} returned {_kind(made.module)} for the module, expected {_RETURNS}"
        )
        raise UnsupportedModelError(msg)
    if made.step is not None and not callable(made.step):
        msg = f"{text} returned {_kind(made.step)} for the step, expected a function"
        raise UnsupportedModelError(msg)
    return made
