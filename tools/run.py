"""One run of the back pipeline: what of a model, on which target, by which passes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels import Target, load_profile
from perfc.ir import Diagnostic, UsageError
from perfc.ir.annotations import Scenario
from perfc.ir.support import Level, PipelineError, brief
from perfc.passes import Pass, PassManager, Transform
from perfc.passes.facts import CRITICAL_PATH, INTERVAL
from perfc.passes.instruments import Instrument
from perfc.passes.kinds import is_a
from perfc.passes.manager import Analysis
from perfc.passes.pipeline_spec import PassRequest, format_pipeline, read_pipeline
from perfc.passes.pipelines import GIVEN
from perfc.tools.models import Model
from perfc.tools.request import Request

BACK_PIPELINE = (
    "lower-kernels,kernel-cost,overhead,stream-schedule,critical-path,time-interval"
)
"""What turns a typed op graph into a time."""

US = 1e6
"""Microseconds in a second."""

_RUNTIME_PASSES: Mapping[str, str] = {
    "cudagraph": "capture-graph",
    "compiled": "fuse-kernels",
}
"""The pass that makes the launches of a runtime out of eager PyTorch's."""


@attrs.frozen(eq=False)
class Run:
    """What was run, or could be: data, from which it can be run again.

    Attributes:
        model: The loaded model.
        target: The target.
        passes: The back pipeline.

    """

    __repr__ = brief

    model: Model
    target: Target
    passes: tuple[Pass, ...]

    @classmethod
    def of(cls, request: Request, target: Target) -> Run:
        """Return the run that a request asks for; its model is loaded.

        Raises:
            UsageError: a pass or an option is unknown, or options contradict.

        """
        return cls(request.model, target, tuple(back_passes(request)))

    @property
    def runtime(self) -> str:
        """Which of `RUNTIMES` the passes predict."""
        for runtime, added in _RUNTIME_PASSES.items():
            if any(is_a(p, added) for p in self.passes):
                return runtime
        return "eager"

    @functools.cached_property
    def profile(self) -> str:
        """Name of the host profile."""
        named = next((p.profile for p in self.passes if is_a(p, "overhead")), "")
        return named or load_profile(self.target.host.overheads).name

    @property
    def asked(self) -> str:
        """What the model was converted to, as `--dtype` says it; "" for nothing."""
        tf32 = self._asks_tf32 and "tf32" in self.target.device.flops_per_s
        return self.model.dtype or ("tf32" if tf32 else "")

    @property
    def inputs_from(self) -> str:
        """Where inputs are, as `--inputs` says it; a CPU has them where it computes."""
        said = next((p.inputs for p in self.passes if is_a(p, "lower-kernels")), "")
        if self.is_given:
            return ""
        return "device" if said and self.target.device.synchronous else said

    @property
    def is_given(self) -> bool:
        """Whether any launches are the source's own."""
        return any(rank.launches is not None for rank in self.model.program.classes)

    @property
    def is_lowered(self) -> bool:
        """Whether its launches are made here, for a device that has launches."""
        lowered = any(is_a(p, "lower-kernels") for p in self.passes)
        return lowered and not self.is_given and not self.target.device.synchronous

    @property
    def _asks_tf32(self) -> bool:
        return any(p.tf32 for p in self.passes if is_a(p, "lower-kernels"))

    def with_pass(self, text: str) -> Run:
        """Return the run with one more pass, after those that make the launches."""
        passes = list(self.passes)
        _insert(passes, *read_pipeline(text))
        return attrs.evolve(self, passes=tuple(passes))

    def analysis(self, instruments: Sequence[Instrument] = ()) -> Analysis:
        """Run the passes.

        Raises:
            PipelineError: they find no time, or cannot run in this order.
            PerfcError: a pass refuses the model.

        """
        target, program = self.target, self.model.program
        manager = PassManager(self.passes, instruments, given=GIVEN)
        _check_provided(self.passes)
        text = format_pipeline(self.passes)
        scenario = Scenario(
            target.name, target.spec_sha256, self.runtime, program.bound, text
        )
        facts = self.model.annotations.fork()
        analysis = manager.run(program, target, scenario, facts)
        if not self._asks_tf32 or "tf32" in target.device.flops_per_s:
            return analysis
        message = f"{target.name} has no TF32: products are fp32, as in PyTorch"
        remark = Diagnostic(Level.NOTE, "no-tf32", message, target.name)
        return attrs.evolve(analysis, diagnostics=(*analysis.diagnostics, remark))

    def time_us(self) -> float:
        """Return the time of one iteration.

        Raises:
            PerfcError: as `analysis` does.

        """
        return self.analysis().get(CRITICAL_PATH).time_s * US


def _check_provided(passes: Sequence[Pass]) -> None:
    """Refuse a pipeline that ends without a time."""
    provided = {key for p in passes for key in p.provides}
    for key in (CRITICAL_PATH, INTERVAL):
        if key not in provided:
            msg = (
                f"the pipeline ends without {key}; `perfc passes` says who provides it"
            )
            raise PipelineError(msg)


def back_passes(request: Request) -> list[Pass]:
    """Return the passes that a request asks for, in order.

    Raises:
        UsageError: a pass or an option is unknown, or options contradict.

    """
    if request.pipeline is not None and request.passes:
        msg = "--pipeline and --pass exclude each other: put the pass in the pipeline"
        raise UsageError(msg)
    text = BACK_PIPELINE if request.pipeline is None else request.pipeline
    requests = read_pipeline(text)
    extras = [extra for item in request.passes for extra in read_pipeline(item)]
    added = _RUNTIME_PASSES.get(request.runtime)
    if added is not None and all(r.cls.name != added for r in (*requests, *extras)):
        if request.pipeline is not None:
            msg = f"--runtime {request.runtime} needs the pass {added} in --pipeline"
            raise UsageError(msg)
        extras = [*read_pipeline(added), *extras]
    compiled = any(one.cls.name == "fuse-kernels" for one in (*requests, *extras))
    passes = [_configured(r, request, compiled=compiled) for r in requests]
    for extra in extras:
        _insert(passes, extra)
    for p in passes:
        if isinstance(p, Transform):
            msg = (
                f"pass {p.name!r} changes the graph, so it runs when the model is "
                "loaded: use --pass, not --pipeline; from Python, "
                "perfc.load(..., transforms=[...])"
            )
            raise UsageError(msg)
    return passes


def _configured(wanted: PassRequest, request: Request, *, compiled: bool) -> Pass:
    """Make a pass as the request says, except where its own text says otherwise.

    Inductor fuses what a source spells out; attention it knows by its pattern
    (`fx_passes/fuse_attention.py`).
    """
    if is_a(wanted.cls, "lower-kernels"):
        return wanted.make(
            inputs=request.inputs,
            tf32=request.dtype == "tf32",
            spelled_out=not compiled,
        )
    if is_a(wanted.cls, "overhead"):
        return wanted.make(profile=request.overheads or "")
    return wanted.make()


def _insert(passes: list[Pass], extra: PassRequest) -> None:
    """Give its options to the pass of that class, or run as early as facts allow.

    That is behind every pass that provides, or changes, what it reads.
    """
    for index, p in enumerate(passes):
        if type(p) is extra.cls:
            passes[index] = extra.update(p)
            return
    added = extra.make()
    sources = [i for i, p in enumerate(passes) if p.provides & added.requires]
    passes.insert(sources[-1] + 1 if sources else 0, added)
