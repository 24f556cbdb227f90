"""A GPU that is not there: iterations of models on it are noted, and take no time."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

import attrs
import pytest
import torch
from torch import nn

from perfc.frontends.torch import Made
from perfc.measure.device import Device
from perfc.measure.models import Setting, Subject
from perfc.measure.profiled import Trace

BUSY_US = 5.0
"""How long it is busy in an iteration, if the profiler sees that."""

STEP_US = 20.0
_BYTES = 1 << 20

_WARM_UP = 5
"""Iterations of a warm-up: a run is asked for others."""

ITERATIONS = 7


@attrs.define
class FakeGpu:
    """What was done on it, and what goes wrong there.

    Attributes:
        done: `time` and `profile`, with the batch and the runtime of each.
        blind: Whether the profiler sees no kernel.
        fails: What is raised, by `time` or `profile` and the batch.
        lost: Whether nothing works any more.

    """

    done: list[tuple[str, int | None, str]] = attrs.field(
        factory=list["tuple[str, int | None, str]"]
    )
    blind: bool = False
    fails: dict[tuple[str, int], BaseException] = attrs.field(
        factory=dict[tuple[str, int], BaseException]
    )
    lost: bool = False

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
        """Let `WorkloadRun` run on it."""
        gpu = cls()

        def iteration(made: Made, device: Device, setting: Setting) -> FakeIteration:
            return FakeIteration(gpu, setting)

        def make(subject: Subject, device: Device, setting: Setting) -> Made:
            return Made(nn.Identity(), ())

        monkeypatch.setattr(Subject, "make", make)
        monkeypatch.setattr("perfc.measure.models.workload.Iteration", iteration)
        monkeypatch.setattr("perfc.measure.models.workload.trace_of", gpu.trace_of)
        monkeypatch.setattr("perfc.measure.models.workload.allocated_peak", _peak)
        for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
            monkeypatch.setattr(torch.cuda, name, gpu.check)
        monkeypatch.setattr(
            gc, "collect", lambda: 0
        )  # there is nothing that takes room
        for name in ("max_memory_allocated", "max_memory_reserved"):
            monkeypatch.setattr(torch.cuda, name, lambda: _BYTES)
        return gpu

    def check(self) -> None:
        """Raise what CUDA does once it has failed."""
        if self.lost:
            msg = "CUDA error: an illegal memory access was encountered"
            raise RuntimeError(msg)

    def does(self, what: str, setting: Setting) -> None:
        """Note something, or let it fail."""
        error = self.fails.get((what, setting.batch or 0))
        if error is not None:
            raise error
        self.done.append((what, setting.batch, setting.runtime))

    def trace_of(
        self, iteration: FakeIteration, device: Device, count: int, **_: object
    ) -> Trace:
        """Return what the profiler sees of *count* iterations."""
        self.does("profile", iteration.setting)
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "dur": BUSY_US}
        seen = [{**kernel, "ts": 100.0 * number} for number in range(count)]
        events = [] if self.blind else seen
        return Trace("{}", events, [STEP_US] * count)


@attrs.frozen
class FakeIteration:
    """An iteration of a setting there."""

    gpu: FakeGpu
    setting: Setting

    def prepare(self) -> None:
        """Prepare nothing."""

    def standing(self) -> list[torch.Tensor]:
        """Return nothing that lives longer."""
        return []

    @contextmanager
    def running(self) -> Generator[None]:
        """Set nothing."""
        yield

    def timed(self, count: int, seconds: float) -> list[float]:
        """Return times; a warm-up is not noted."""
        if count != _WARM_UP:
            self.gpu.does("time", self.setting)
        return [STEP_US] * count


def _peak(*_: object) -> int:
    return _BYTES


def silent(line: str) -> None:
    """Say nothing."""
