"""One iteration of a real model: inputs, forward, loss, backward, optimizer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from perfc.frontends.torch import Label, Made, loss_of, settled_loss
from perfc.ir.support import US, UnsupportedModelError
from perfc.measure.capture import capture_stream, captured
from perfc.measure.case import math_of
from perfc.measure.device import Device
from perfc.measure.models.inputs import Inputs
from perfc.measure.models.optimizers import optimizers_of
from perfc.measure.models.setting import (
    ATTENTION,
    AUTO,
    AUTOCAST,
    CUDAGRAPH,
    OWN,
    STORED,
    Setting,
)

_SDPA: Any = torch.nn.attention  # its types are partly unknown

_LEAST = 3
"""Iterations that are timed, however long they take."""

_BEFORE_CAPTURE = 3
"""Iterations that allocate and choose, on the stream that is captured later."""


class Iteration:
    """A model that is set up, and one iteration of it as a call.

    A call enqueues the iteration; the wait at its end is the caller's.
    """

    def __init__(self, made: Made, device: Device, setting: Setting) -> None:
        """Move the model to the device, make labels and the optimizer."""
        self._device, self._setting = device, setting
        self._made = made
        stored = STORED.get(setting.dtype)
        model: nn.Module = made.module.to(device.kind)
        self.model = (model if stored is None else model.to(stored)).train(
            setting.training
        )
        several = isinstance(made.args, list | tuple)
        args = tuple(made.args) if several else (made.args,)
        given = (args, dict(made.kwargs or {}))
        self._inputs = Inputs(given, device.kind, setting.inputs, stored)
        self._labels = Inputs([], device.kind, setting.inputs)
        self._loss: Callable[[Any, Label], Any] | None = None
        self._optimizers: list[torch.optim.Optimizer] = []
        self._run = self._eager
        self._forward: Callable[..., Any] = self._compute

    def prepare(self) -> None:
        """Run a forward pass for labels and loss; then capture or compile."""
        with self.running():
            if self._setting.training:
                named = self._setting.optimizer
                chosen = (self._made.optimizer or "sgd") if named == OWN else named
                captured = self._setting.runtime == CUDAGRAPH
                self._optimizers = optimizers_of(
                    chosen, self.model, capturable=captured
                )
                if self._made.step is None:
                    self._prepare_loss()
                elif len(self._optimizers) > 1:
                    msg = f"a step of your own takes one optimizer, {named} here is two"
                    raise UnsupportedModelError(msg)
                else:
                    self._forward = self._custom_step
            if self._setting.runtime == "compiled":
                compiled: Any = vars(torch)["compile"]  # its types are partly unknown
                self._forward = compiled(self._forward, dynamic=False)
            if self._setting.runtime == CUDAGRAPH:
                self._run = self._captured()

    def __call__(self) -> None:
        """Enqueue one iteration; call it within `running`."""
        self._run()

    def timed(self, count: int, seconds: float = math.inf) -> list[float]:
        """Return the times of iterations, each from an idle device to the wait, in us.

        There are *count* of them, or as many as *seconds* allow, but not too few.
        """
        samples: list[float] = []
        end = time.perf_counter() + seconds
        self._device.synchronize()
        while len(samples) < count:
            start = time.perf_counter()
            self._run()
            self._device.synchronize()
            now = time.perf_counter()
            samples.append((now - start) * US)
            if now > end and len(samples) >= _LEAST:
                break
        return samples

    @contextmanager
    def running(self) -> Generator[None]:
        """Set what holds for all iterations: gradients, TF32, attention."""
        dtype, training = self._setting.dtype, self._setting.training
        with ExitStack() as stack:
            stack.enter_context(math_of(dtype))
            stack.enter_context(torch.set_grad_enabled(training))
            if self._setting.attention != AUTO:
                allowed = list(ATTENTION[self._setting.attention])
                stack.enter_context(_SDPA.sdpa_kernel(allowed, set_priority=True))
            yield

    def standing(self) -> list[Tensor]:
        """Return the tensors that outlive an iteration, gradients freed."""
        self._zero_grad()
        states = [optimizer.state_dict()["state"] for optimizer in self._optimizers]
        weights = [*self.model.parameters(), *self.model.buffers()]
        kept = (weights, states, self._inputs.copied(), self._labels.copied())
        return [leaf for leaf in tree_leaves(kept) if isinstance(leaf, Tensor)]

    def _custom_step(self, args: Any, kwargs: Any, labels: list[Tensor]) -> Any:
        """Run what the factory's own training loop does in an iteration."""
        optimizer = self._optimizers[0] if self._optimizers else None
        step: Any = self._made.step
        with self._autocast():
            return step(self.model, optimizer, *args, **kwargs)

    def _prepare_loss(self) -> None:
        """Make labels of a first output, and the loss that fits it."""
        labels: list[Tensor] = []

        def label(shape: torch.Size, dtype: torch.dtype) -> Tensor:
            # Class 0 is a label whatever the number of classes.
            floats = dtype.is_floating_point
            made = torch.rand(shape) if floats else torch.zeros(shape)
            labels.append(made.to(self._device.kind, dtype))
            return labels[-1]

        args, kwargs = self._inputs.copied()
        output = self._output(args, kwargs)
        loss = loss_of(output, self._made.loss, label)
        if not loss.requires_grad:
            msg = "the loss depends on no parameter that is trained"
            raise UnsupportedModelError(msg)
        self._loss = settled_loss(output, self._made.loss)
        self._labels = Inputs(labels[:1], self._device.kind, self._setting.inputs)

    def _output(self, args: Any, kwargs: Any) -> Any:
        """Run forward; autocast ends before the loss, which reads 32 bits."""
        with self._autocast():
            output = self.model(*args, **kwargs)
        if self._setting.dtype in AUTOCAST:
            return tree_map_only(Tensor, _in_32_bits, output)
        return output

    def _autocast(self) -> torch.autocast:
        precision = AUTOCAST.get(self._setting.dtype)
        enabled = precision is not None
        return torch.autocast(self._device.kind, precision, enabled=enabled)

    def _compute(self, args: Any, kwargs: Any, labels: list[Tensor]) -> Any:
        """Run forward, and the loss in training: what is compiled together."""
        output = self._output(args, kwargs)
        if self._loss is None:
            return output
        return self._loss(output, lambda shape, dtype: labels[0])

    def _step(self, inputs: Any, labels: list[Tensor]) -> None:
        """Run all that works on inputs that are on the device."""
        if self._made.step is None:
            self._zero_grad()
        result = self._forward(*inputs, labels)
        if self._loss is not None:
            result.backward()
            for optimizer in self._optimizers:
                optimizer.step()

    def _eager(self) -> None:
        self._step(self._inputs.copied(), self._labels.copied())

    def _zero_grad(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad()

    def _captured(self) -> Callable[[], None]:
        """Capture the step as a CUDA graph; inputs are copied before each replay."""
        inputs, labels = self._inputs.copied(), self._labels.copied()
        torch.cuda.synchronize()
        with torch.cuda.stream(capture_stream()):
            for _ in range(_BEFORE_CAPTURE):
                self._step(inputs, labels)
        graph = torch.cuda.CUDAGraph()
        self._zero_grad()  # gradients are made anew, in the graph's own memory
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # as much memory as there is for the graph
        torch.cuda.reset_peak_memory_stats()  # replays allocate nothing any more
        with captured(graph):
            self._step(inputs, labels)

        def replay() -> None:
            self._inputs.refill(inputs)
            self._labels.refill(labels)
            graph.replay()

        return replay


def _in_32_bits(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
