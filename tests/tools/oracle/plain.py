"""What an oracle answers, by analyses from the start, one for each edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfc import analyze, edits, load
from perfc.ir.launch import BUSY_KINDS
from perfc.passes.timing import finish_s
from perfc.tools import Report


class Plain:
    """A model under edits, analyzed anew whenever anybody asks.

    Attributes:
        name: What `perfc.load` takes.
        options: Of `perfc.load`.
        target: Of `perfc.analyze`.
        overrides: Fields of the target that are set.
        durations: Seconds that are set, by node and number of its task.

    """

    def __init__(self, name: str, target: str, **options: Any) -> None:
        """Note what is asked for."""
        self.name, self.target, self.options = name, target, options
        self.overrides: dict[str, str] = {}
        self.durations: dict[tuple[int, str, int], float] = {}

    def report(self) -> Report:
        """Return the report of `perfc.analyze`, without the durations that are set."""
        model = load(self.name, **self.options)
        return analyze(model, self.target, overrides=self.overrides)

    def edit(self, edit: object) -> None:
        """Make an edit."""
        if isinstance(edit, edits.Bind):
            if edit.batch is not None:
                self.options["batch"] = edit.batch
            known = self.options.get("dims", {})
            self.options["dims"] = {**known, **dict(edit.dims)}
        elif isinstance(edit, edits.Target):
            fields = dict(edit.fields)
            self.overrides = fields if edit.name else {**self.overrides, **fields}
            self.target = edit.name or self.target
        elif isinstance(edit, edits.Dtype):
            self.options["dtype"] = edit.dtype
        elif isinstance(edit, edits.Duration):
            self._time(edit)
        else:
            raise TypeError(edit)

    def time_us(self) -> float:
        """Return the time."""
        return self._solved(self.report())[0] * 1e6

    def ask(self, asked: Sequence[object]) -> float:
        """Return the time under edits."""
        other = Plain(self.name, self.target, **self.options)
        other.overrides, other.durations = dict(self.overrides), dict(self.durations)
        for edit in asked:
            other.edit(edit)
        return other.time_us()

    def _solved(self, report: Report) -> tuple[float, list[float]]:
        results = report.results
        seconds = list(results.schedule.duration_s)
        for node, tasks in timed_tasks(report).items():
            for number, task in enumerate(tasks):
                seconds[task] = self.durations.get((*node, number), seconds[task])
        return finish_s(results.timeline, seconds), seconds

    def _time(self, edit: edits.Duration) -> None:
        report = self.report()
        _, seconds = self._solved(report)
        modules = {node["id"]: node["module"] for node in report.nodes}
        for node, tasks in timed_tasks(report).items():
            total = sum(seconds[task] for task in tasks)
            for number, task in enumerate(tasks):
                of_kernel = report.results.kernel(task)
                kernel = of_kernel is not None and of_kernel.op == edit.where
                if node[1] != edit.where and not kernel:
                    module = modules.get(node[1], "")
                    if not f"{module}.".startswith(f"{edit.where}."):
                        continue
                share = seconds[task] / total if total else 1 / len(tasks)
                share = 1.0 if kernel else share
                taken = (
                    seconds[task] * edit.factor
                    if edit.factor is not None
                    else (edit.us or 0.0) * 1e-6 * share
                )
                self.durations[*node, number] = taken


def timed_tasks(report: Report) -> dict[tuple[int, str], list[int]]:
    """Return the tasks of each node that its duration is about."""
    results = report.results
    device: dict[tuple[int, str], list[int]] = {}
    host: dict[tuple[int, str], list[int]] = {}
    for task in range(len(results.schedule.duration_s)):
        rank, index = results.place(task)
        busy = results.graphs[rank].kind[index] in BUSY_KINDS
        found = device if busy else host
        found.setdefault((rank, results.node_of(task)), []).append(task)
    return {**host, **device}
