"""Measuring the host: what PyTorch and the driver take around kernels."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from perfc.ir import AttrValue, PerfcError, Record
from perfc.ir.support import US, parse_json, read_text, write_file
from perfc.measure.device import Device
from perfc.measure.failure import explained
from perfc.measure.host.floors import floors
from perfc.measure.host.times import Key, host_events, host_times
from perfc.measure.kernel_run import Say, check_source
from perfc.measure.models import ON_DEVICE, Iteration, Setting, Subject, find_subject
from perfc.measure.profiled import Trace, trace_of
from perfc.measure.timing import percentiles
from perfc.measurements import MEASUREMENTS, Measurement, RowWriter

HOST_OP = "host_overhead"

_SAMPLES = ".part.json"
"""Added to the name of the table: samples that are not in it yet."""

SMALL_MODELS = (
    ("dlrm-ddp:rows=1000", 32, "sgd"),
    ("gpt2:layers=2,hidden=64,heads=2,seq=16,vocab=100", 2, "adamw"),
    ("resnet50:image=32,classes=10", 2, "sgd"),
)
"""Models whose kernels are short, so that the host is never waited for: their names,
batches and optimizers."""

_PROFILED = 20
_CHAIN, _CHAINS = 200, 20
"""Ops of a chain, and chains, that tell what the profiler takes."""

_FLOORS = frozenset({"launch", "sync", "copy", "graph_launch"})


@attrs.define
class OverheadRun:
    """A table of a host's times that is being filled.

    Attributes:
        device: What the host launches on.
        path: The table; rows that it has are kept.
        models: What is run: name, batch, optimizer.
        iterations: Profiled of each model.

    """

    device: Device
    path: Path
    models: Sequence[tuple[str, int, str]] = SMALL_MODELS
    iterations: int = _PROFILED
    _writer: RowWriter[Measurement] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there."""
        self._writer = RowWriter(self.path, MEASUREMENTS)
        check_source(self._writer, self.device)

    @property
    def rows(self) -> list[Measurement]:
        """All rows of the table."""
        return self._writer.rows

    def flush(self) -> None:
        """Write the table as it is now."""
        self._writer.flush()

    def measure(self, say: Say) -> None:
        """Measure what the table has no rows of; then write the table."""
        try:
            self.measure_floors()
            if self._types <= _FLOORS:
                self._append(self._times(say))
                self._samples.unlink(missing_ok=True)
        finally:
            self._writer.flush()
        say(f"{len(self.rows)} rows in {self.path}")

    def measure_floors(self) -> None:
        """Measure what calls of the runtime take, unless the table has that."""
        if not self._types & _FLOORS:
            self._append(floors(self.device))

    @property
    def _types(self) -> frozenset[AttrValue]:
        return frozenset(r.params["type"] for r in self.rows if r.op == HOST_OP)

    def _append(
        self, found: Sequence[tuple[Mapping[str, AttrValue], Sequence[float]]]
    ) -> None:
        self._writer.append([self._row(*sample) for sample in found if sample[1]])

    def _times(self, say: Say) -> list[tuple[Mapping[str, AttrValue], list[float]]]:
        """Return T0 to T5 of all models together."""
        pooled: dict[Key, list[float]] = defaultdict(list)
        kept = self._kept()
        with explained(self.device):
            tax_us = profiler_tax_us(self.device)
            say(f"recording an event takes PyTorch's profiler {tax_us:.2f} us")
            for name, batch, optimizer in self.models:
                title = f"{name}, batch {batch}, {optimizer}"
                if title not in kept:
                    say(title)
                    trace = self._profiled(find_subject(name), batch, optimizer)
                    found = host_times(trace, tax_us, cuda=self.device.is_cuda)
                    kept[title] = [[*key, us] for key, us in found.items()]
                    content = {"source": self.device.source, "models": kept}
                    write_file(self._samples, json.dumps(content))
                for type_, op, samples in kept[title]:
                    pooled[type_, op] += samples
        return [
            ({"type": type_, "op": op}, pooled[type_, op])
            for type_, op in sorted(pooled)
        ]

    @property
    def _samples(self) -> Path:
        """Path of the samples of models, until those of all are there."""
        return self.path.with_name(self.path.name + _SAMPLES)

    def _kept(self) -> dict[str, list[Any]]:
        """Return the samples of models that an interrupted run has measured."""
        if not self._samples.exists():
            return {}
        try:
            text = read_text(self._samples, PerfcError, "samples in JSON")
            found: Any = parse_json(text, PerfcError, "", "samples in JSON")
            models: dict[str, list[Any]] = found["models"]
            same = found["source"] == self.device.source
        except (PerfcError, KeyError, TypeError) as error:
            msg = f"cannot read {self._samples}: {error}; remove it, then measure again"
            raise PerfcError(msg) from None
        return models if same else {}

    def _profiled(self, subject: Subject, batch: int, optimizer: str) -> Trace:
        """Return a trace of training steps in their steady state."""
        setting = Setting(
            batch=batch,
            mode="training",
            optimizer=optimizer,
            dtype="fp32",
            runtime="eager",
            inputs="host-pinned" if self.device.is_cuda else ON_DEVICE,
        )
        made = subject.make(self.device, setting)
        iteration = Iteration(made, self.device, setting)
        iteration.prepare()
        with iteration.running():
            return trace_of(iteration, self.device, self.iterations, shapes=False)

    def _row(
        self, params: Mapping[str, AttrValue], samples: Sequence[float]
    ) -> Measurement:
        _, low, high = percentiles(samples)
        return Measurement(
            target=self.device.target,
            op=HOST_OP,
            dtype="fp32",
            params=Record(params),
            latency_us=float(np.mean(samples)),
            timing="host",
            source=self.device.source,
            p10_us=low,
            p90_us=high,
            n=len(samples),
        )


def profiler_tax_us(device: Device) -> float:
    """Return the microseconds that recording one event of the host takes.

    The least time of a chain of short ops under the profiler, less the least without
    it, by the events of the chain: what others do on the machine is not the tax.
    """
    one = torch.zeros(1, device=device.kind)

    def chain() -> None:
        for _ in range(_CHAIN):
            one.add_(1.0)

    def plain() -> float:
        start = time.perf_counter()
        chain()
        device.synchronize()
        return (time.perf_counter() - start) * US

    chain()
    before = [plain() for _ in range(_CHAINS)]
    trace = trace_of(chain, device, _CHAINS, shapes=False)
    after = [plain() for _ in range(_CHAINS)]
    slower = min(trace.walls_us) - min(*before, *after)
    return max(slower * _CHAINS / host_events(trace), 0.0)
