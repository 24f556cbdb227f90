"""Write the kernels of the planned models as the suite `workloads`.

    python benchmarks/collection/kernels.py

Two tables: `measure/workload_kernels.csv` has each call of PyTorch once, those of the
most useful models first; `benchmarks/collection/compositions.csv` says how often each
planned setting makes it. `--check` compares them with what is there instead.

What is printed: how much of the time that the device is predicted to be busy is that of
cases, in each setting, and what no single call of PyTorch runs.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

import perfc
from perfc.measure import WORKLOAD_TABLE, Case, workload_table
from perfc.tools import conversions

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collection.calls import Call, calls_of
from collection.plan import Planned, planned

COMPOSITIONS = Path(__file__).with_name("compositions.csv")
TARGET = "h100-sxm-80g"
_SETTING = ("model", "batch", "mode", "optimizer", "dtype", "runtime")


@attrs.define
class Tables:
    """Cases and compositions of some settings, as they are found.

    Attributes:
        numbers: Of each case, in order of worth.
        compositions: How often each setting makes each call, by the case's number.
        left_out: What each setting launches besides, and how often.
        covered_s: Predicted seconds of the cases of each setting.
        active_s: Predicted seconds of all kernels of each setting.
        seconds: Predicted of each case, where it was seen first.

    """

    numbers: dict[Case, int] = attrs.field(factory=dict)
    compositions: dict[Planned, Counter[int]] = attrs.field(factory=dict)
    left_out: dict[Planned, Counter[str]] = attrs.field(factory=dict)
    covered_s: dict[Planned, float] = attrs.field(factory=dict)
    active_s: dict[Planned, float] = attrs.field(factory=dict)
    seconds: dict[Case, float] = attrs.field(factory=dict)

    @classmethod
    def of(cls, settings: Iterable[Planned]) -> Tables:
        """Lower the models of *settings*, fp32 ones first."""
        tables = cls()
        first = sorted(settings, key=lambda one: one.dtype != "fp32")
        for setting in dict.fromkeys(map(_chosen, first)):
            tables.add(setting, calls_of(analyzed(setting), setting.batch))
        return tables

    def add(self, setting: Planned, calls: Iterable[Call]) -> None:
        """Add the calls of one setting."""
        made, others = Counter[int](), Counter[str]()
        covered_s = active_s = 0.0
        for call in calls:
            active_s += call.seconds
            if call.case is None:
                others[call.name] += 1
                continue
            covered_s += call.seconds
            made[self.numbers.setdefault(call.case, len(self.numbers))] += 1
            self.seconds.setdefault(call.case, call.seconds)
        self.compositions[setting], self.left_out[setting] = made, others
        self.covered_s[setting], self.active_s[setting] = covered_s, active_s

    def cases(self) -> str:
        """Return the table of cases."""
        rows = (
            (case.op, case.dtype, json.dumps(_plain(case.params)))
            for case in self.numbers
        )
        return _csv(("op", "dtype", "params"), rows)

    def counts(self) -> str:
        """Return the table of compositions: `number:count` by case, from 0."""
        names = (*_SETTING, "calls", "left_out")
        return _csv(names, map(self._composition, self.compositions))

    def _composition(self, setting: Planned) -> tuple[object, ...]:
        made, others = self.compositions[setting], self.left_out[setting]
        calls = " ".join(f"{number}:{made[number]}" for number in sorted(made))
        besides = "; ".join(f"{name}:{others[name]}" for name in sorted(others))
        return (*_named(setting).values(), calls, besides)

    def report(self) -> Iterator[str]:
        """Yield what is covered, setting by setting, and what there is to measure."""
        for setting, active_s in self.active_s.items():
            share = self.covered_s[setting] / active_s
            left_out = self.left_out[setting].items()
            others = "".join(f"; without {count} {name}" for name, count in left_out)
            yield f"{share:7.2%} of {active_s * 1e6:9.1f} us  {setting}{others}"
        by_op = Counter(case.op for case in self.numbers)
        for op, count in by_op.most_common():
            total_s = sum(s for case, s in self.seconds.items() if case.op == op)
            yield f"{count:5} {op}, {total_s * 1e3:.1f} ms once each"
        total_s = sum(self.seconds.values())
        yield f"{len(self.numbers)} cases, {total_s * 1e3:.1f} ms once each on {TARGET}"


def composition_of(setting: Planned) -> Counter[Case]:
    """Return how often a planned setting makes each call, as the tables have it.

    Raises:
        LookupError: the tables do not have the setting.

    """
    cases = [Case(*row) for row in workload_table()]
    wanted = _named(_chosen(setting))
    with COMPOSITIONS.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if wanted == {name: row[name] for name in _SETTING}:
                pairs = (pair.split(":") for pair in row["calls"].split())
                return Counter({cases[int(n)]: int(count) for n, count in pairs})
    msg = f"{COMPOSITIONS} has no {setting}"
    raise LookupError(msg)


def _named(setting: Planned) -> dict[str, str]:
    return {name: str(getattr(setting, name)) for name in _SETTING}


def _chosen(setting: Planned) -> Planned:
    """Return the setting without its attention: graphs have what PyTorch chooses."""
    return attrs.evolve(setting, attention="auto")


def analyzed(setting: Planned) -> perfc.Report:
    """Return the report of a setting on the target of the plan."""
    model = perfc.load(
        setting.model,
        batch=setting.batch,
        mode=setting.mode,
        optimizer=setting.optimizer or None,
        transforms=conversions(setting.dtype),
    )
    return perfc.analyze(model, TARGET, dtype=setting.dtype, runtime=setting.runtime)


def _plain(value: Any) -> Any:  # noqa: ANN401 - of JSON
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return (
        {k: _plain(v) for k, v in value.items()} if hasattr(value, "items") else value
    )


def _csv(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return stream.getvalue()


def main() -> int:
    """Write or check the tables; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    tables = Tables.of(planned())
    stale = []
    for path, text in (
        (WORKLOAD_TABLE, tables.cases()),
        (COMPOSITIONS, tables.counts()),
    ):
        if not options.check:
            path.write_text(text, encoding="utf-8", newline="")
        elif path.read_text(encoding="utf-8") != text:
            stale.append(path)
    print("\n".join(tables.report()))
    for path in stale:
        print(f"{path} is stale: python benchmarks/collection/kernels.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
