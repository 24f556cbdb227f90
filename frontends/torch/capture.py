"""One iteration of a module, recorded: forward, loss, backward, optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import attrs
import torch

from perfc.frontends.aten import AtenBuilder
from perfc.frontends.torch import internals, meta, torchrec, values
from perfc.frontends.torch.cuda import as_on_cuda
from perfc.frontends.torch.custom_step import CustomStep, record_step
from perfc.frontends.torch.failure import explained
from perfc.frontends.torch.guards import is_list
from perfc.frontends.torch.loss import Loss, loss_of
from perfc.frontends.torch.optimizer import Optimizer, make_optimizer, take_step
from perfc.frontends.torch.recorder import Recorder
from perfc.frontends.torch.traced import noted_arguments
from perfc.frontends.torch.weightless import META, Copier, from_shapes
from perfc.frontends.torch.wrapped import parts
from perfc.ir import Program, UsageError
from perfc.ir.core import BUFFER, PARAM
from perfc.ir.support import UnsupportedModelError, paused_collector

Source: TypeAlias = (
    "torch.nn.Module | torch.export.ExportedProgram | Callable[[], torch.nn.Module]"
)
"""What comes in: a module, a program exported from one, or what makes a module."""

MODES = ("inference", "training")
DTYPES: Mapping[str, tuple[torch.dtype | None, torch.dtype | None]] = {
    "fp32": (None, None),
    "bf16": (torch.bfloat16, None),
    "fp16": (torch.float16, None),
    "amp-bf16": (None, torch.bfloat16),
    "amp-fp16": (None, torch.float16),
}
"""What weights are converted to, and what autocast computes in; None leaves them.
TF32 is no type of a recording: `perfc.analyze(model, dtype="tf32")` says it."""


@attrs.frozen(kw_only=True)
class Recording:
    """What to record of a module; see `perfc.from_torch` for the arguments.

    Attributes:
        args: What `forward` is called with.
        kwargs: Arguments by name.
        mode: One of `MODES`.
        optimizer: Of a step of training; None for none.
        loss: Of a step of training.
        step: The whole step instead.
        dtype: One of `DTYPES`; None leaves the types.
        name: What the program is called; the module's class if not given.
        dims: Numbers that data decide, by name.

    """

    args: Sequence[Any] | torch.Tensor = ()
    kwargs: Mapping[str, Any] | None = None
    mode: str = "inference"
    optimizer: Optimizer = None
    loss: Loss = None
    step: CustomStep = None
    dtype: str | None = None
    name: str | None = None
    dims: Mapping[str, int] = attrs.field(factory=dict[str, int])

    def check(self) -> None:
        """Refuse options that contradict each other."""
        inference = self.mode == "inference"
        problem = None
        if self.mode not in MODES:
            problem = f"mode {self.mode!r} is none of {', '.join(MODES)}"
        elif self.dtype is not None and self.dtype not in DTYPES:
            problem = f"dtype {self.dtype!r} is none of {', '.join(DTYPES)}"
        elif inference and self.optimizer is not None:
            problem = "an optimizer needs mode 'training'"
        elif self.step is not None and not callable(self.step):
            problem = f"step={self.step!r:.60}: expected a function of the module, "
            problem += "its optimizer and the arguments"
        elif inference and self.step is not None:
            problem = "a step of your own needs mode 'training'"
        elif self.step is not None and self.loss is not None:
            problem = "a step of your own works its loss out itself: give no other loss"
        if problem is not None:
            raise UsageError(problem)


@paused_collector()
def capture_module(
    module: torch.nn.Module | Callable[[], torch.nn.Module], recording: Recording
) -> Program:
    """Record one iteration of *module* on tensors without memory.

    Neither the module nor the arguments are changed.
    """
    recording.check()
    args, kwargs = recording.args, recording.kwargs
    if isinstance(module, torch.fx.GraphModule) and is_list(args):
        args, kwargs = (args, kwargs) if args or kwargs else noted_arguments(module)
    model, original = _weightless(module, recording.name)
    made = _Step(
        recording.name or original,
        recording.mode == "training",
        recording.loss,
        recording.step,
        DTYPES[recording.dtype or "fp32"],
        recording.dims,
    )
    return made.run(model, args, kwargs or {}, recording.optimizer)


def _weightless(module: Any, name: str | None) -> tuple[torch.nn.Module, str]:
    """Return a copy of a module, or what a function makes where nothing has weight.

    Also the name of its class.
    """
    if isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        with torch.no_grad():
            copied: torch.nn.Module = Copier(_keep_value).copy(module, name or kind)
        return copied, kind
    if not callable(module):
        msg = f"expected a torch.nn.Module, got {type(module).__name__}"
        raise UnsupportedModelError(msg)
    _check_makes(module)
    with meta.weightless():
        made = module()
    if not isinstance(made, torch.nn.Module):
        msg = f"the function made a {type(made).__name__}, not a torch.nn.Module"
        raise UnsupportedModelError(msg)
    if all(tensor.is_meta for tensor in (*made.parameters(), *made.buffers())):
        return made, type(made).__name__
    return _weightless(made, name)  # `torch.FloatTensor(3)` heeds no device


def _check_makes(made: Callable[..., Any]) -> None:
    """Refuse a class, or a function, that makes nothing without arguments."""
    try:
        inspect.signature(made).bind()
    except ValueError:  # built in: it has no signature
        return
    except TypeError as error:
        name = getattr(made, "__name__", type(made).__name__)
        what = "class" if isinstance(made, type) else "function"
        msg = (
            f"the {what} {name} makes no module without arguments ({error}): give the "
            f"module, as {name}(...), or what makes it, as lambda: {name}(...)"
        )
        raise UnsupportedModelError(msg) from None


@attrs.define(eq=False)
class _Step:
    """One iteration on its way into a program."""

    name: str
    training: bool
    loss: Loss
    step: CustomStep
    types: tuple[torch.dtype | None, torch.dtype | None]
    dims: Mapping[str, int]
    _counts: meta.Counts = attrs.field(init=False)
    _builder: AtenBuilder = attrs.field(init=False)
    _recorder: Recorder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._builder = AtenBuilder(self.name)
        # What a user's step keeps from one iteration to the next is a state.
        unknown = self._builder.state if self.step else self._builder.parameter
        self._recorder = Recorder(self._builder.call, unknown)
        self._counts = meta.Counts(self.dims, self._recorder.locations.line)

    def run(
        self,
        model: torch.nn.Module,
        args: Sequence[Any] | torch.Tensor,
        kwargs: Mapping[str, Any],
        optimizer: Optimizer,
    ) -> Program:
        """Set up, declare, record."""
        if not self.training or not model.training:
            model.train(self.training)
        if self.types[0] is not None:
            model.to(self.types[0])
        with torch.no_grad():
            # Arguments without weight.
            several = is_list(args) and not isinstance(args, torch.Size)
            listed = tuple(args) if several else (args,)
            bound = _bound(model, listed, kwargs, self.name)
            copied = {n: self._argument(n, v) for n, v in bound.arguments.items()}
            bound.arguments.update(copied)
            given, named = bound.args, bound.kwargs
        lookups = torchrec.fused_lookups(model)
        self._declare(model, torchrec.pieces(lookups))
        with explained(self._recorder, self.name), self._recording(model, lookups):
            outputs = self._iterate(model, given, named, optimizer)
        self._builder.outputs(outputs)
        program = self._builder.program(diagnostics=self._counts.remarks(self.name))
        return attrs.evolve(program, recorded=True, bound=tuple(self.dims.items()))

    def _argument(self, name: str, value: Any) -> Any:
        """Copy an argument, and declare its tensors as inputs."""
        found: list[torch.Tensor] = []

        def note(original: torch.Tensor, copied: torch.Tensor) -> None:
            _keep_value(original, copied)
            found.append(copied)

        copied = Copier(note).copy(from_shapes(value), f"argument {name}")
        wanted = self.types[0]
        for index, tensor in enumerate(found):
            if wanted is not None and tensor.is_floating_point():
                tensor.data = tensor.data.to(wanted)
            stem = name if len(found) == 1 else f"{name}.{index}"
            kept = isinstance(tensor, torch.nn.Parameter) or name.lower().startswith(
                "l_self_"
            )
            declare = self._builder.parameter if kept else self._builder.input
            declare(self._recorder.christen(tensor, stem))
        return copied

    def _declare(self, model: torch.nn.Module, pieces: Container[int]) -> None:
        for kind, tensors in (
            (PARAM, model.named_parameters()),
            (BUFFER, model.named_buffers()),
        ):
            stored = [p for name, tensor in tensors for p in parts(tensor, name)]
            for name, tensor in stored:
                if id(tensor) not in pieces:
                    named = self._recorder.christen(tensor, name)
                    self._builder.parameter(named, kind)

    @contextmanager
    def _recording(
        self, model: torch.nn.Module, lookups: Sequence[torchrec.FusedLookup]
    ) -> Generator[None]:
        with ExitStack() as stack:
            stack.enter_context(internals.compiler_left_out())
            stack.enter_context(internals.scaler_left_on())
            stack.enter_context(internals.literals_copied())
            stack.enter_context(meta.counting(self._counts))
            stack.enter_context(as_on_cuda(self._recorder))
            stack.enter_context(meta.autocast_on_cuda())
            stack.enter_context(internals.checkpoints_on_cuda())
            stack.enter_context(self._recorder.locations.following(model))
            stack.enter_context(torch.set_grad_enabled(self.training))
            stack.enter_context(self._recorder)
            stack.enter_context(
                torchrec.recorded(
                    model,
                    lookups,
                    self._recorder,
                    self._builder,
                    training=self.training,
                )
            )
            yield

    def _iterate(
        self,
        model: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        optimizer: Optimizer,
    ) -> list[str]:
        """Run the iteration; return the names of what it returns."""
        recorder, locations = self._recorder, self._recorder.locations
        precision = self.types[1]
        if self.step is not None:
            if precision is not None:
                model.forward = torch.autocast("cuda", precision)(model.forward)
            given = (model, args, kwargs, optimizer, recorder, self._builder)
            return _names(recorder, record_step(self.step, *given))
        with torch.autocast("cuda", precision, enabled=precision is not None):
            output = model(*args, **kwargs)
            if not self.training:
                return _names(recorder, output)
            locations.phase = "loss"
            lost = loss_of(output, self.loss, self._label)
        if not lost.requires_grad:
            msg = f"{self.name}: the loss depends on no parameter that is trained"
            raise UnsupportedModelError(msg)
        locations.phase = "backward"
        lost.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        locations.phase = "optimizer"
        with recorder.paused():
            stepper = make_optimizer(optimizer, model)
        if stepper is not None:
            take_step(stepper, model, recorder, self._builder)
        return list(dict.fromkeys([*_names(recorder, output), recorder.name(lost)]))

    def _label(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Make what the loss compares with, an input."""
        with self._recorder.paused():
            labels = torch.empty(shape, dtype=dtype, device=META)
        self._builder.input(self._recorder.christen(labels, "labels"))
        return labels


def _keep_value(original: torch.Tensor, copied: torch.Tensor) -> None:
    """Let small arguments and buffers keep their elements."""
    if original.numel() > values.LIMIT or type(original) is not torch.Tensor:
        return
    known = values.value_of(original)
    if known is not None:
        values.set_value(copied, known.clone())


def _bound(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> inspect.BoundArguments:
    """Match arguments to the parameters of `forward`."""
    signature = inspect.signature(model.forward)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        msg = f"the example arguments do not fit {name}.forward{signature}: {error}"
        if not args and not kwargs:
            msg = (
                f"{name}.forward{signature} needs example arguments ({error}): give "
                "them as a tuple, perfc.from_torch(module, (argument, ...))"
            )
        raise UnsupportedModelError(msg) from None


def _names(recorder: Recorder, output: Any) -> list[str]:
    """Return the names of the tensors in what a module returns."""
    found: list[str] = []

    def note(original: torch.Tensor, copied: torch.Tensor) -> None:
        found.append(recorder.name(original))

    with recorder.paused():
        Copier(note).copy(output, "what the module returns")
    return found
