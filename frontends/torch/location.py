"""Location of a recorded call: module path, line of the model's code, phase.

Backward is matched to forward by the sequence numbers that autograd gives its nodes,
so a gradient is where the op is that it is the gradient of.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import attrs
import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from perfc.frontends.source import source_line
from perfc.frontends.torch import internals
from perfc.ir.location import ACCUMULATE_GRAD, Location

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
"""What lies here is no code of a model: PyTorch, and perfc."""

_OUTERMOST = str(Path(__file__).with_name("capture.py"))
"""Who calls this file's functions is not in the model."""

_BEFORE = "before"
_AFTER = {_BEFORE: "forward", "forward": "loss", "backward": "optimizer"}
"""The phase of what no module does, by what ran last."""

Place = tuple[str, str]
"""Module path, and file and line."""


@attrs.define(eq=False)
class Locations:
    """Follows a run of a module.

    Attributes:
        phase: `forward`, `loss`, `backward` or `optimizer`.

    """

    phase: str = "forward"
    _tells: bool = False
    _forced: str = ""
    _inside: int = 0
    _paths: dict[int, str] = attrs.field(factory=dict[int, str])
    _stack: list[str] = attrs.field(factory=lambda: [""])
    _forward: dict[int, Place] = attrs.field(factory=dict[int, Place])
    _made: dict[tuple[Place, str, str], Location] = attrs.field(
        factory=dict["tuple[Place, str, str]", Location]
    )
    _own_code: dict[CodeType, bool] = attrs.field(factory=dict[CodeType, bool])
    _traced: dict[CodeType, _Traced] = attrs.field(factory=dict[CodeType, "_Traced"])

    @contextmanager
    def following(self, module: torch.nn.Module) -> Generator[None]:
        """Know the paths of the modules below *module* while it runs."""
        named = [*cast("Iterable[tuple[str, object]]", module.named_modules())]
        self._paths = {id(child): name for name, child in named}
        self._traced = dict(
            _traced(name, child)
            for name, child in named
            if isinstance(child, torch.fx.GraphModule)
        )
        entered = register_module_forward_pre_hook(self._enter)
        left = register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            entered.remove()
            left.remove()

    def tell_phases(self) -> None:
        """Tell phases from what runs, where nobody sets them.

        What modules do is forward; what follows is the loss, until autograd runs, and
        from then on the optimizer's.
        """
        self.phase, self._tells = _BEFORE, True

    @contextmanager
    def within(self, phase: str) -> Generator[None]:
        """Give what happens now one phase."""
        before, self._forced = self._forced, phase
        try:
            yield
        finally:
            self._forced = before

    def _told(self, frame: FrameType | None) -> str:
        if self._forced:
            return self._forced
        if internals.current_node() is not None or internals.called_by_autograd(frame):
            self.phase = "backward"
            return self.phase
        return "forward" if self._inside else _AFTER[self.phase]

    def path(self, module: object) -> str | None:
        """Return the path of a module of the model."""
        return self._paths.get(id(module))

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self._stack.append(self._paths.get(id(module), self._stack[-1]))
        if self._tells and id(module) in self._paths:
            self._inside += 1
            if internals.current_node() is None:  # else backward runs it again
                self.phase = "forward"

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()
        self._inside -= self._tells and id(module) in self._paths

    def here(self, frame: FrameType | None) -> Location:
        """Return where the call is that *frame* makes."""
        return self.under(internals.current_node(), frame)

    def failing(self) -> Location:
        """Return where the call is that runs, for whom it concerns to mend it."""
        frame, frames = caller(1), list[tuple[FrameType, int]]()
        found = self.here(frame)
        while frame is not None and frame.f_code.co_filename != _OUTERMOST:
            frames.append((frame, frame.f_lineno))
            frame = frame.f_back
        if not _is_installed(Path(found.source).parent):
            return found
        return attrs.evolve(found, source=own_line(frames))

    def line(self) -> str:
        """Return the line of the model that runs."""
        return self.failing().source

    def under(self, node: Any, frame: FrameType | None) -> Location:
        """Return where the call is that *frame* makes while autograd runs *node*."""
        phase = self._told(frame) if self._tells else self.phase
        place = self._place(node, frame, phase)
        hands_over = phase == "backward" and hasattr(node, "variable")
        origin = ACCUMULATE_GRAD if hands_over else ""
        key = (place, phase, origin)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Location(
                module=place[0], source=place[1], phase=phase, origin=origin
            )
        return found

    def _place(
        self,
        node: Any,
        frame: FrameType | None,
        phase: str,
    ) -> Place:
        if node is None or len(self._stack) > 1:
            place = self._seen(frame)
            if node is None and phase != "optimizer":
                number = internals.sequence_number()
                self._forward.setdefault(number, place)
            return place
        variable = getattr(node, "variable", None)
        if variable is not None:  # a parameter, or an input, accumulates
            return (getattr(variable, "_perfc_name", "").rpartition(".")[0], "")
        return self._forward.get(internals.sequence_number(node), ("", ""))

    def _seen(self, frame: FrameType | None) -> Place:
        """Return the innermost module, and line of the model's own code.

        Code that is generated from a traced graph has neither: its nodes note them.
        """
        module = self._stack[-1]
        while frame is not None and frame.f_code.co_filename != _OUTERMOST:
            code = frame.f_code
            own = self._own_code.get(code)
            if own is None:
                own = self._own_code[code] = not is_library(code.co_filename)
            if own:
                return (module, f"{code.co_filename}:{frame.f_lineno}")
            traced = self._traced.get(code)
            if traced is not None:
                noted = traced.lines.get(frame.f_lineno, (module, ""))
                return (noted[0] if module == traced.path else module, noted[1])
            frame = frame.f_back
        return (module, "")


@attrs.frozen(eq=False)
class _Traced:
    """A traced graph in the model: its path, and where its lines come from."""

    path: str
    lines: Mapping[int, Place]


_ROOT = re.compile(r"[LG]\[[^]]*\]\.?")
"""What the paths of `torch.compile` begin with: `L['self'].layers.0`."""


def _traced(path: str, module: torch.fx.GraphModule) -> tuple[CodeType, _Traced]:
    code, notes = internals.traced_lines(module)
    lines: dict[int, Place] = {}
    for line, meta in notes.items():
        entered = [str(entry[0]) for entry in meta.get("nn_module_stack", {}).values()]
        inner = _ROOT.sub("", entered[-1]) if entered else ""
        below = ".".join(part for part in (path, inner) if part)
        lines[line] = (below, source_line(meta.get("stack_trace") or ""))
    return code, _Traced(path, lines)


def own_line(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return the innermost line of the model: of its classes' files, or not installed.

    Functions that a library's model calls for all models say nothing of it.

    Args:
        frames: What runs, with its line, innermost first.

    """
    called = [(f, n) for f, n in frames if not is_library(f.f_code.co_filename)]
    objects = [frame.f_locals.get("self") for frame, _ in called]
    modules = {type(o).__module__ for o in objects if isinstance(o, torch.nn.Module)}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in modules}
    lines = [(frame.f_code.co_filename, line) for frame, line in called]
    own = [x for x in lines if x[0] in files or not _is_installed(Path(x[0]).parent)]
    return ":".join(map(str, (own or lines)[0])) if lines else ""


@functools.cache
def _is_installed(folder: Path) -> bool:
    return any(
        next(parent.glob("*.dist-info"), None) is not None
        for parent in (folder, *folder.parents)
    )


def is_library(file: str) -> bool:
    """Whether code is PyTorch's, perfc's or generated, and so no model's."""
    return file.startswith((*_LIBRARIES, "<string>", "<frozen", "<eval_with_key>"))


_frame: Callable[[int], FrameType] = vars(sys)["_getframe"]
"""`inspect.stack` would read the source files."""


def caller(depth: int) -> FrameType | None:
    """Return the frame *depth* calls above the caller's."""
    try:
        return _frame(depth + 1)
    except ValueError:
        return None
