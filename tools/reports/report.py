"""The result of an analysis, as perfc's users see it (`perfc.report/1`)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import attrs

from perfc.costmodels import Device, Target
from perfc.ir import Diagnostic, PerfcError, support
from perfc.passes import MemoryUse, timing
from perfc.passes.manager import Analysis, find_fact
from perfc.passes.memory import MEMORY, Memory
from perfc.passes.what_if import WHAT_IF, Savings, WhatIf
from perfc.tools.cost import gco2e_per_million, rates, usd_per_million
from perfc.tools.given import WIDE_DTYPES
from perfc.tools.models import Model, tokens_per_sample
from perfc.tools.reports import memory as report_memory
from perfc.tools.reports import nodes as report_nodes
from perfc.tools.reports import phases as report_phases
from perfc.tools.reports import ranks as report_ranks
from perfc.tools.reports import summary as report_summary
from perfc.tools.reports import table as report_table
from perfc.tools.reports import what_if as report_what_if
from perfc.tools.reports.exporter import find_exporter
from perfc.tools.reports.nodes import NODE_KEYS
from perfc.tools.reports.results import Results
from perfc.tools.reports.variants import Variant, variants_of
from perfc.tools.reports.verb_result import VerbResult
from perfc.tools.request import TRAINING
from perfc.tools.run import Run

if TYPE_CHECKING:
    from networkx import DiGraph
    from pandas import DataFrame

    from perfc.passes.loading import LoadedStep
    from perfc.passes.timing import TimeErrors
    from perfc.tools.reports.sensitivity import Sensitivity

Json: TypeAlias = Any
OUT_OF_MEMORY = "out-of-memory"


@attrs.frozen(eq=False)
class Report(VerbResult):
    """What perfc says of one model on one target.

    Times are in microseconds. Everything beyond the time itself is computed
    when it is asked for.

    It is data: it can be pickled. What needs more runs, as `what_if`, is run from `run`
    when it is asked for.

    Attributes:
        run: What was run: the model, the target and the passes.
        analysis: The facts that the run found.
        sensitivity: What decides the time, if that was asked for.
        called: What its model is called beside others; its own name if empty.

    """

    schema: ClassVar[str] = "perfc.report/1"
    run: Run
    analysis: Analysis
    sensitivity: Sensitivity | None = None
    called: str = ""

    @property
    def model(self) -> Model:
        """The model."""
        return self.run.model

    @property
    def pipeline(self) -> str:
        """The passes that ran, as `--pipeline` takes them."""
        return self.run.pipeline

    @property
    def target(self) -> Target:
        """The target."""
        return self.run.target

    @property
    def runtime(self) -> str:
        """`eager`, `cudagraph` or `compiled`."""
        return self.run.runtime

    @functools.cached_property
    def results(self) -> Results:
        """The facts, typed."""
        return Results.of(self.analysis)

    @functools.cached_property
    def dtype(self) -> str:
        """What the model computes in, as `--dtype` says it."""
        asked = self.run.asked
        if asked not in {"", "tf32"}:
            return asked
        own = report_summary.computed_in(self.results)
        return asked if asked and own == "fp32" else own

    @property
    def time_us(self) -> float:
        """Predicted time of one iteration."""
        return self.results.path.time_s * support.US

    @property
    def interval_us(self) -> tuple[float, float]:
        """5th and 95th percentile of the time."""
        interval = self.results.interval
        return interval.low_s * support.US, interval.high_s * support.US

    @functools.cached_property
    def errors(self) -> TimeErrors:
        """What the time is off, by what it shares with other times."""
        return timing.time_errors(self.analysis)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What there is to say about the model and the analysis."""
        remarks = self.analysis.diagnostics
        if self.sensitivity is not None:
            remarks = (*remarks, *self.sensitivity.diagnostics)
        needed = self.memory_use.peak_bytes
        usable = self.target.device.memory.usable_bytes
        if needed <= usable:
            return remarks
        message = (
            f"{self._largest} needs {support.format_bytes(needed)}, {self.target.name} "
            "has "
            f"{support.format_bytes(usable)}; the time is what it would take if it "
            "fitted"
        )
        name = self.target.name
        return (
            *remarks,
            Diagnostic(support.Level.WARNING, OUT_OF_MEMORY, message, name),
        )

    @functools.cached_property
    def breakdown(self) -> list[Json]:
        """Parts of the time along the critical path; they sum to `time_us`."""
        return report_summary.breakdown(self.results)

    @functools.cached_property
    def critical_path(self) -> list[Json]:
        """The chain of segments that makes the time."""
        return report_summary.critical_path(self.results)

    @functools.cached_property
    def nodes(self) -> list[Json]:
        """One entry per op: when, how long, on what stream, priced by whom."""
        return report_nodes.node_entries(self.results)

    @property
    def rows(self) -> list[Json]:
        """The `nodes`."""
        return self.nodes

    @functools.cached_property
    def phases(self) -> list[Json]:
        """What forward, loss, backward and optimizer take: time, work and memory."""
        return report_phases.phase_entries(
            self.results, self.memory_use, self._node_phases
        )

    @functools.cached_property
    def _node_phases(self) -> dict[str, str]:
        return report_phases.node_phases(self.results)

    @functools.cached_property
    def memory(self) -> Json:
        """Device memory: its peak, where that is, and what is live there."""
        return report_memory.memory_report(self.memory_use, self._node_phases)

    @functools.cached_property
    def memory_uses(self) -> tuple[MemoryUse, ...]:
        """Device memory of each rank class."""
        return find_fact(self.analysis, MEMORY, Memory(), self.target)

    @property
    def memory_use(self) -> MemoryUse:
        """Device memory of the rank class that needs most."""
        return max(self.memory_uses, key=lambda use: use.peak_bytes)

    @property
    def _largest(self) -> str:
        """Who needs most memory, in words."""
        if self.model.ranks == 1:
            return "the model"
        number = self.memory_uses.index(self.memory_use)
        first, *others = self.analysis.program.classes[number].ranks
        return f"rank {first}" + (f", as {len(others)} others do," if others else "")

    @functools.cached_property
    def ranks(self) -> list[Json]:
        """One entry per class of identical ranks: what it does and waits for."""
        return report_ranks.rank_entries(self.results, self.memory_uses)

    @functools.cached_property
    def savings(self) -> Savings:
        """What would save how much time, in seconds."""
        found = find_fact(self.analysis, WHAT_IF, WhatIf(), self.target)
        loaded = self.input_pipeline
        return found if loaded is None else report_what_if.behind(found, loaded)

    @property
    def input_pipeline(self) -> LoadedStep | None:
        """The step behind its input pipeline; None without one."""
        if "input-pipeline" not in {p.name for p in self.run.passes}:
            return None
        from perfc.passes.loading import INPUT_PIPELINE

        return self.analysis.find(INPUT_PIPELINE)

    @functools.cached_property
    def chunks(self) -> Json | None:
        """What copying in, computing and copying out in chunks takes; of inference."""
        if self.model.mode == TRAINING or self.target.device.synchronous:
            return None
        return report_what_if.chunked(self.results, self.input_pipeline)

    @functools.cached_property
    def what_if(self) -> Json:
        """What to fix next, and what each node, the host and other changes save."""
        return {
            **report_what_if.what_if_report(
                self.results, self.savings, self._changes, self.to_fix
            ),
            "chunks": self.chunks,
        }

    @functools.cached_property
    def to_fix(self) -> list[Json]:
        """What to fix next, best first."""
        rows = report_what_if.data_rows(self.input_pipeline, self.chunks)
        return report_what_if.ranked(self.results, self.savings, self._changes, rows)

    @functools.cached_property
    def _changes(self) -> list[Json]:
        """What each change that applies saves, or why it cannot be made."""
        possible = variants_of(self.run)
        found = [v for v in possible if v.applies(self.results, self.phases)]
        return [
            {"pass": v.name, "what": v.what, "where": v.where, "reason": v.reason, **s}
            for v, s in zip(found, map(self._saved, found), strict=True)
            if s
        ]

    def _saved(self, variant: Variant) -> Json:
        try:
            changed = variant.changed(self.run)
            if changed is None:
                return {}
            return {"saved_us": self.time_us - changed.time_us()}
        except PerfcError as error:
            return {"refused": str(error)}

    @functools.cached_property
    def coverage(self) -> Json:
        """How much of the model is modelled, and by what kind of number."""
        return report_summary.coverage(self.results, self.target)

    @functools.cached_property
    def summary(self) -> Json:
        """The iteration in a few numbers."""
        low_us, high_us = self.interval_us
        power = report_summary.power(self.results, self._samples, self.target)
        paid = self.target, self.model.ranks, self.results.path.time_s, self._samples
        emitted = self.target, power["energy_j"], self._samples
        return {
            "time_us": self.time_us,
            "time_us_p05": low_us,
            "time_us_p95": high_us,
            **report_summary.totals(self.results),
            **power,
            "usd_per_million_samples": usd_per_million(*paid),
            "gco2e_per_million_samples": gco2e_per_million(*emitted),
            **report_summary.throughput(
                self.results,
                self._samples,
                tokens_per_sample(self.model.program),
                on_cpu=self.target.device.synchronous,
            ),
            "mfu": report_summary.utilization(
                self.results, self._node_phases, self.target
            ),
            "peak_memory_bytes": self.memory_use.peak_bytes,
            "bound": self.bound,
        }

    @property
    def bound(self) -> str:
        """What limits most of the time: `host`, `compute`, `memory` or `network`."""
        return max(self.bound_shares, key=self.bound_shares.__getitem__)

    @property
    def _samples(self) -> int | None:
        """Samples of an iteration, of all batches that are computed at once."""
        batch = self.model.batch
        return None if batch is None else batch * self.model.program.replicas

    @functools.cached_property
    def bound_shares(self) -> dict[str, float]:
        """Share of the critical path of `host`, `compute`, `memory`, `network`."""
        return report_summary.bound_shares(self.results, self.target)

    @property
    def inputs(self) -> Json:
        """Types of the model's inputs by name, dimensions bound."""
        ops = self.analysis.program.classes[0].ops
        bindings = self.analysis.program.bindings
        return {
            value.name: str(value.type.bind(bindings))
            for value in (ops.inputs if ops is not None else ())
            if value.type is not None
        }

    @property
    def header(self) -> Json:
        """What was asked, and the answer in a few numbers."""
        parts = self.model.microbatches
        return {
            "tool": {"name": "perfc", "version": _version()},
            "model": {
                "name": self.model.name,
                "sha256": self.analysis.program.sha256,
                "mode": self.model.mode,
                "batch": self.model.batch,
                "replicas": self.model.program.replicas,
                "dtype": self.dtype,
                **self._cudnn_tf32,
                "inputs": self.inputs,
                "inputs_from": self.run.inputs_from,
                **({"microbatches": parts} if parts > 1 else {}),
            },
            "target": {
                "name": self.target.name,
                "spec_sha256": self.target.spec_sha256,
                "profile": self.run.profile,
                "calibration": self.target.profile or None,
                **rates(self.target),
                **({"preset": self.run.preset} if self.run.preset else {}),
            },
            "runtime": self.runtime,
            "summary": self.summary,
        }

    @property
    def _cudnn_tf32(self) -> Json:
        """Whether cuDNN computes fp32 in TF32, where that is not as `--dtype` says."""
        if self.dtype not in WIDE_DTYPES or self.run.is_given:
            return {}
        if not self.run.allows_tf32:
            return {"cudnn_tf32": False}
        own = self.dtype == "fp32" and report_summary.has_tf32(self.results)
        return {"cudnn_tf32": True} if own else {}

    def _document(self) -> Json:
        return {
            **self._sections(),
            "critical_path": self.critical_path,
            "what_if": self.what_if,
        }

    def _sections(self) -> Json:
        """Return the sections of tables: none is as long as the critical path."""
        slopes = self.sensitivity
        return {
            **self.header,
            **({} if slopes is None else {"sensitivity": slopes.rows}),
            "ranks": self.ranks,
            **self._loading,
            "breakdown": self.breakdown,
            "nodes": self.nodes,
            "memory": self.memory,
            "phases": self.phases,
            "uncertainty": [attrs.asdict(one) for one in self.results.interval.factors],
            "coverage": self.coverage,
        }

    @property
    def _loading(self) -> Json:
        loaded = self.input_pipeline
        return {} if loaded is None else {"input_pipeline": loaded.to_dict()}

    def to_trace(self, path: str | Path | None = None) -> str:
        """Return the schedule as Kineto trace JSON, and write it to *path* if given.

        A *path* that ends in `.gz` is compressed; one that is a folder gets a file for
        each rank, `rank0.json.gz` and so on. Perfetto, chrome://tracing,
        HolisticTraceAnalysis and TraceLens open them.

        Raises:
            PerfcError: the file cannot be written; nothing is left behind.

        """
        return str(self.export("trace", path))

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the report as a page of its own, and write it to *path* if given.

        Raises:
            PerfcError: the file cannot be written; nothing is left behind.

        """
        return str(self.export("html", path))

    @support.paused_collector()
    def export(self, format: str, path: str | Path | None = None) -> str | bytes:
        """Return the report in any format of `--format`, written to *path* if given.

        Raises:
            UsageError: no exporter has this name, or it needs a file.
            PerfcError: it cannot be exported, or the file cannot be written.

        """
        file = None if path is None else Path(support.path_text("path", path))
        alone: list[Any] = [self]  # pyright knows this module by two names
        exporter = find_exporter(support.path_text("format", format), path=file)
        document = exporter.export(alone, file)
        if isinstance(document, str):
            document = support.printable(document)
        if file is not None and file.is_dir():
            exporter.write_split(alone[0], file)
        elif file is not None:
            support.write_file(file, document)
        return document

    def to_pandas(self) -> DataFrame:
        """Return `nodes` as a data frame, one row per op and one column per key.

        Raises:
            PerfcError: pandas is not installed.

        """
        try:
            import pandas as pd
        except ImportError:
            msg = "to_pandas needs pandas: pip install 'perfc[pandas]'"
            raise PerfcError(msg) from None
        return pd.DataFrame(self.nodes, columns=list(NODE_KEYS))

    def to_networkx(self) -> DiGraph[int]:
        """Return the scheduled tasks as a graph; `task_graph` says what is in it."""
        from perfc.tools.reports.task_graph import task_graph

        return task_graph(self.results)

    @property
    def tables(self) -> report_table.Tables:
        """What the report says to people, before it is laid out."""
        return report_table.report_tables(*self._told, self.sensitivity)

    def __repr__(self) -> str:
        low_us, high_us = self.interval_us
        what = f"{self.model.name} on {self.target.name}, {self.runtime}"
        times = f"{self.time_us:.6g} us ({low_us:.6g} to {high_us:.6g})"
        return f"<Report {what}: {times}, bound by {self.bound}>"

    def _repr_html_(self) -> str:
        from perfc.tools.pages import fragment
        from perfc.tools.reports.page_head import report_head

        own: Any = self  # pyright knows this module by two names
        return support.printable(fragment(report_head(own)))

    def _text(self) -> str:
        return report_table.format_report(*self._told, self.sensitivity)

    @property
    def _told(self) -> tuple[Json, Device, float]:
        ranked = {"what_if": {"ranked": self.to_fix}}
        report = {**self._head(), **self._sections(), **ranked}
        return report, self.target.device, max(self.bound_shares.values())


@functools.cache
def _version() -> str:
    import perfc

    return perfc.__version__
