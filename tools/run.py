"""One run of the back pipeline: what of a model, on which target, by which passes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels import Target, load_profile
from perfc.ir import Diagnostic, UsageError
from perfc.ir.annotations import Scenario
from perfc.ir.support import US, Level, PipelineError, brief
from perfc.passes import LowerKernels, Pass, PassManager, Transform, pipelines
from perfc.passes.facts import CRITICAL_PATH, INTERVAL
from perfc.passes.instruments import Instrument
from perfc.passes.manager import Analysis
from perfc.passes.pipeline_spec import (
    format_pipeline,
    format_value,
    parse_pipeline,
    read_pipeline,
)
from perfc.passes.timing import Overhead
from perfc.tools.models import Model
from perfc.tools.request import Request


@attrs.frozen(eq=False)
class Run:
    """What was run, or could be: data, from which it can be run again.

    Attributes:
        model: The loaded model.
        target: The target.
        passes: The back pipeline.
        preset: Name of the preset that said part of it, if one did.
        remarks: What there is to say about the request.

    """

    __repr__ = brief

    model: Model
    target: Target
    passes: tuple[Pass, ...]
    preset: str = ""
    remarks: tuple[Diagnostic, ...] = ()

    @classmethod
    def of(cls, request: Request, target: Target) -> Run:
        """Return the run that a request asks for; its model is loaded."""
        passes = tuple(back_passes(request))
        return cls(request.model, target, passes, request.preset or "", request.remarks)

    @property
    def runtime(self) -> str:
        """Runtime that the passes predict, one of `RUNTIMES`."""
        return pipelines.runtime_of(self.passes)

    @property
    def pipeline(self) -> str:
        """All passes, of loading and of timing, as `--pipeline` takes them."""
        return format_pipeline((*self.model.passes, *self.passes))

    @functools.cached_property
    def profile(self) -> str:
        """Name of the host profile."""
        return self.asked_profile or load_profile(self.target.host.overheads).name

    @property
    def asked_profile(self) -> str:
        """Host profile that is asked for; empty for the target's own."""
        hosts = (p.profile for p in self.passes if isinstance(p, Overhead))
        return next(hosts, "")

    @property
    def lowering(self) -> LowerKernels | None:
        """The pass that makes launches of ops, if there is one."""
        return next((p for p in self.passes if isinstance(p, LowerKernels)), None)

    @property
    def asked(self) -> str:
        """What the model was converted to, as `--dtype` says it; "" for nothing."""
        tf32 = self._asks_tf32 and "tf32" in self.target.device.flops_per_s
        return self.model.dtype or ("tf32" if tf32 else "")

    @property
    def inputs_from(self) -> str:
        """Place of inputs, as `--inputs` says it; a CPU has them where it computes."""
        if self.is_given or self.lowering is None:
            return ""
        said = self.lowering.inputs
        return "device" if said and self.target.device.synchronous else said

    @property
    def is_given(self) -> bool:
        """Whether any launches are the source's own."""
        return any(rank.launches is not None for rank in self.model.program.classes)

    @property
    def is_lowered(self) -> bool:
        """Whether its launches are made here, for a device that has launches."""
        synchronous = self.target.device.synchronous
        return self.lowering is not None and not self.is_given and not synchronous

    @property
    def allows_tf32(self) -> bool:
        """Whether cuDNN may compute fp32 in TF32, if the target has that."""
        allowed = self.lowering is None or self.lowering.cudnn_tf32
        return allowed or "tf32" not in self.target.device.flops_per_s

    @property
    def _asks_tf32(self) -> bool:
        return self.lowering is not None and self.lowering.tf32

    def with_pass(self, text: str) -> Run:
        """Return the run with one more pass, after those that make the launches."""
        return self.with_passes(parse_pipeline(text))

    def with_passes(self, added: Sequence[Pass]) -> Run:
        """Return the run with more passes, each as early as it may run."""
        passes = list(self.passes)
        for p in added:
            pipelines.place(passes, p)
        return attrs.evolve(self, passes=tuple(passes))

    def analysis(self, instruments: Sequence[Instrument] = ()) -> Analysis:
        """Run the passes."""
        manager = PassManager(self.passes, instruments, given=pipelines.GIVEN)
        # Refuse a pipeline that ends without a time.
        provided = {key for p in self.passes for key in p.provides}
        for key in (CRITICAL_PATH, INTERVAL):
            if key not in provided:
                msg = (
                    f"the pipeline ends without {key}; `perfc passes` says who "
                    "provides it"
                )
                raise PipelineError(msg)
        return self._managed(manager)

    def ran(self, instruments: Sequence[Instrument] = ()) -> Analysis:
        """Run the passes, which need not end with a time."""
        return self._managed(
            PassManager(self.passes, instruments, given=pipelines.GIVEN)
        )

    def _managed(self, manager: PassManager) -> Analysis:
        target, program = self.target, self.model.program
        text = format_pipeline(self.passes)
        scenario = Scenario(
            target.name, target.spec_sha256, self.runtime, program.bound, text
        )
        facts = self.model.annotations.fork()
        analysis = manager.run(program, target, scenario, facts)
        return self._remarked(analysis)

    def went_on(self, passes: Sequence[Pass], begun: Analysis) -> Analysis:
        """Run passes on what others have left.

        Args:
            passes: The passes.
            begun: What `ran` returned for those before them.

        """
        known = frozenset(begun.annotations.keys(begun.scenario))
        manager = PassManager(passes, given=known)
        facts = begun.annotations
        analysis = manager.run(begun.program, self.target, begun.scenario, facts)
        kept = dict.fromkeys((*begun.diagnostics, *analysis.diagnostics))
        return attrs.evolve(analysis, diagnostics=tuple(kept))

    def _remarked(self, analysis: Analysis) -> Analysis:
        target = self.target
        remarks = [r for r in self.remarks if r not in analysis.diagnostics]
        if self._asks_tf32 and "tf32" not in target.device.flops_per_s:
            message = f"{target.name} has no TF32: GEMMs are fp32, as in PyTorch"
            remarks.append(Diagnostic(Level.NOTE, "no-tf32", message, target.name))
        if not remarks:
            return analysis
        return attrs.evolve(analysis, diagnostics=(*analysis.diagnostics, *remarks))

    def time_us(self) -> float:
        """Return the time of one iteration."""
        return self.analysis().get(CRITICAL_PATH).time_s * US


def back_passes(request: Request) -> list[Pass]:
    """Return the passes that a request asks for, in order."""
    if request.pipeline is not None and request.passes:
        msg = "--pipeline and --pass exclude each other: put the pass in the pipeline"
        raise UsageError(msg)
    text = pipelines.TIMING if request.pipeline is None else request.pipeline
    requests = read_pipeline(text)
    extras = [extra for item in request.passes for extra in read_pipeline(item)]
    if request.input_pipeline is not None:
        if any(extra.cls.name == "input-pipeline" for extra in (*requests, *extras)):
            msg = "--input-pipeline and the pass input-pipeline say the same: give one"
            raise UsageError(msg)
        file = format_value(request.input_pipeline)
        extras += read_pipeline(f"input-pipeline{{file={file}}}")
    added = pipelines.RUNTIME_PASSES.get(request.runtime)
    if added is not None and all(r.cls.name != added for r in (*requests, *extras)):
        if request.pipeline is not None:
            msg = f"--runtime {request.runtime} needs the pass {added} in --pipeline"
            raise UsageError(msg)
        extras = [*read_pipeline(added), *extras]
    # Inductor fuses what a source spells out; attention it knows by some patterns
    # (`fx_passes/fuse_attention.py`).
    compiled = any(one.cls.name == "fuse-kernels" for one in (*requests, *extras))
    settings: Mapping[str, Mapping[str, object]] = {
        "lower-kernels": {
            "inputs": request.inputs,
            "tf32": request.dtype == "tf32",
            "spelled_out": not compiled,
            "patterns": compiled,
            "attention": request.attention,
        },
        "overhead": {"profile": request.overheads or ""},
    }
    passes = pipelines.timing_pipeline(requests, extras, settings)
    for p in passes:
        if isinstance(p, Transform):
            msg = (
                f"pass {p.name!r} changes the graph, so it runs when the model is "
                "loaded: give it to perfc.load(..., transforms=[...])"
            )
            raise UsageError(msg)
    return passes
