"""One run of all parts: budgets, what is said and kept on the way, the manifest."""

from __future__ import annotations

import itertools
import json
import statistics
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from collection import clock, machine, parts
from collection.output import MANIFEST, Output, OutputError
from collection.parts import CLOSING_SECONDS, PARTS, WHOLE_SECONDS, Part, Run
from collection.plan import planned, planned_on_cpu
from collection.probe import probes
from perfc.costmodels import target_of_device
from perfc.ir import PerfcError
from perfc.measure.device import open_device
from perfc.measure.fatal import DeviceFailedError
from perfc.measurements import MEASUREMENTS, WORKLOADS, read_rows

_ROOT = Path(__file__).resolve().parents[2]
_LOG = "collect.log"
_LEAST_SECONDS = 1.0
"""A part is not begun with less."""

_SOFT_SHARE, _SOFT_SECONDS = 0.05, 2.0
"""Last share of a part, and most seconds of that, in which it begins nothing new."""

_LEAST_CLOSING = 3.0


@attrs.define
class Session:
    """A run, from the device to the manifest.

    Attributes:
        output: Where it goes.
        kind: cuda or cpu.
        begin: When the process began, on the clock of `time.monotonic`.
        end: When it is to be over.

    Raises:
        PerfcError: there is no such device, or no PyTorch.

    """

    output: Output
    kind: str
    begin: float
    end: float
    _run: Run = attrs.field(init=False)
    _machine: dict[str, Any] = attrs.field(init=False)
    _before: list[Any] = attrs.field(factory=list[Any], init=False)
    _parts: list[dict[str, object]] = attrs.field(
        factory=list[dict[str, object]], init=False
    )

    def __attrs_post_init__(self) -> None:
        """Open the device; take over what an earlier run says of itself."""
        device = open_device(self.kind)
        plan = planned() if device.is_cuda else planned_on_cpu()
        self._run = Run(device, self.output, plan, self.say, self._log)
        self._machine = machine.describe(device, _ROOT)
        path = self.output.folder / MANIFEST
        if path.exists():
            self._before = json.loads(path.read_text(encoding="utf-8"))["runs"]
        if device.is_cuda and target_of_device(device.name) is None:
            self.say(
                f"perfc has no sheet of {device.name}: rows are of {device.target!r}, "
                "which is scored and fitted once there is one"
            )

    def window(self) -> bool:
        """Measure all parts; return whether the device failed on the way."""
        return self._measured(PARTS, part_ends(PARTS, time.monotonic(), self.end))

    def probe(self) -> bool:
        """Try one case of everything; return whether the device failed on the way."""
        chosen = probes(self._run)
        last = self.end - _LEAST_CLOSING
        kept = itertools.accumulate(part.seconds for part in reversed(chosen))
        behind = [0.0, *kept][-2::-1]
        return self._measured(chosen, [last - seconds for seconds in behind])

    def _measured(self, chosen: Sequence[Part], ends: Sequence[float]) -> bool:
        try:
            for part, end in zip(chosen, ends, strict=True):
                if self._part(part, end):
                    return True
            return False
        finally:
            self._run.output.flushers.clear()
            counts = self._counts()
            self.output.publish(self.manifest() | counts)
            self.say(self._summary(counts["rows"]))

    def _part(self, part: Part, end: float) -> bool:
        """Measure one part; return whether the device failed."""
        start = time.monotonic()
        if end - start < _LEAST_SECONDS:
            self._parts.append({"part": part.name, "seconds": 0.0, "ended": "no time"})
            return False
        self.say(f"{part.name}, {end - start:.0f} s")
        ended = "interrupted"
        try:
            ended = self._attempt(part, start, end)
        finally:
            seconds = round(time.monotonic() - start, 2)
            self._parts.append({"part": part.name, "seconds": seconds, "ended": ended})
        self.output.publish(self.manifest())
        return ended == _DEVICE_FAILED

    def _attempt(self, part: Part, start: float, end: float) -> str:
        """Return how a part ended; only the device and the folder end the run."""
        soft = end - min(_SOFT_SECONDS, _SOFT_SHARE * (end - start))
        try:
            try:
                with clock.hard_end(end):
                    part.measure(self._run, soft)
                ended = "done" if time.monotonic() < soft else _TIME_OVER
            except clock.PartOver:
                ended = _TIME_OVER
            parts.free_memory()
        except DeviceFailedError as error:
            self.say(str(error))
            return _DEVICE_FAILED
        except OutputError:
            raise
        except PerfcError as error:
            ended = f"failed: {error}"
        except Exception as error:  # noqa: BLE001 - the parts after it are measured
            self._log(traceback.format_exc())
            ended = f"failed: {type(error).__name__}: {error}".splitlines()[0]
        if ended not in {"done", _TIME_OVER}:
            self.say(f"{part.name} {ended}")
        return ended

    def say(self, line: str) -> None:
        """Tell the user one line; copy what there is if it is time."""
        text = f"{time.monotonic() - self.begin:6.1f} s  {line}"
        print(text, flush=True)
        self._log(text)
        if self.output.due():
            self.output.publish(self.manifest())

    def _log(self, text: str) -> None:
        with (self.output.scratch / _LOG).open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")

    def manifest(self) -> dict[str, Any]:
        """Return the manifest's content; counts of rows come once a run is over."""
        run = self._run
        this = {
            "seconds": round(time.monotonic() - self.begin, 1),
            "asked_seconds": round(self.end - self.begin, 1),
            "parts": self._parts,
            "ceilings": run.ceilings,
            "timed_beside_profiler": run.beside_profiler,
            "failed": run.failures,
            "traces_left_out": self.output.traces_left_out,
        }
        return {
            **self._machine,
            "kind": self.kind,
            "runs": [*self._before, this],
        }

    def _counts(self) -> dict[str, Any]:
        rows: dict[str, int] = {}
        clocks: list[float] = []
        throttled = 0
        for name in ("kernels", "overheads", "workloads"):
            path = self.output.table(name)
            if not path.exists():
                continue
            found: list[Any] = (
                read_rows(path, WORKLOADS)
                if name == "workloads"
                else read_rows(path, MEASUREMENTS)
            )
            rows[path.name] = len(found)
            clocks += [row.sm_clock_mhz for row in found if row.sm_clock_mhz]
            throttled += sum(row.throttled is True for row in found)
        return {
            "rows": rows,
            "throttled_rows": throttled,
            "sm_clock_mhz": _spread(clocks),
        }

    def _summary(self, counts: Mapping[str, int]) -> str:
        listed = ", ".join(f"{count} rows in {name}" for name, count in counts.items())
        failed = len(self._run.failures)
        return f"{listed or 'no rows'}; {failed} not measured; {self.output.folder}"


_DEVICE_FAILED, _TIME_OVER = "the device failed", "time was over"


def part_ends(chosen: Sequence[Part], start: float, end: float) -> list[float]:
    """Return when parts end that begin at *start* and are all over before *end*.

    Each has its share; one that ends early leaves the rest of it to the next.
    """
    closing = CLOSING_SECONDS * (end - start) / WHOLE_SECONDS
    last = end - max(closing, _LEAST_CLOSING)
    scale = (last - start) / sum(part.seconds for part in chosen)
    shares = (part.seconds * scale for part in chosen)
    return [*itertools.accumulate(shares, initial=start)][1:]


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    middle = statistics.median(values)
    return {"least": min(values), "median": middle, "most": max(values)}
