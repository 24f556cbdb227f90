"""Write the kernels of the planned models as the suite `workloads`.

    python benchmarks/collection/kernels.py

`measure/workload_kernels.csv` has each call of PyTorch once, those of the most useful
models first. `--check` compares it with what is there instead.

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
from perfc.measure.case import Case
from perfc.measure.kernel_table import WORKLOAD_TABLE
from perfc.tools import conversions

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collection.calls import Call, calls_of
from collection.plan import Planned, passes, planned

TARGET = "h100-sxm-80g"


@attrs.define
class Table:
    """Cases of some settings, as they are found.

    Attributes:
        numbers: Of each case, in order of worth.
        left_out: What each setting launches besides, and how often.
        covered_s: Predicted seconds of the cases of each setting.
        active_s: Predicted seconds of all kernels of each setting.
        seconds: Predicted of each case, where it was seen first.

    """

    numbers: dict[Case, int] = attrs.field(factory=dict)
    left_out: dict[Planned, Counter[str]] = attrs.field(factory=dict)
    covered_s: dict[Planned, float] = attrs.field(factory=dict)
    active_s: dict[Planned, float] = attrs.field(factory=dict)
    seconds: dict[Case, float] = attrs.field(factory=dict)

    @classmethod
    def of(cls, settings: Iterable[Planned]) -> Table:
        """Lower the models of *settings*, fp32 ones first."""
        table = cls()
        first = sorted(settings, key=lambda one: one.dtype != "fp32")
        for setting in dict.fromkeys(map(_chosen, first)):
            table.add(setting, calls_of(analyzed(setting), setting.batch))
        return table

    def add(self, setting: Planned, calls: Iterable[Call]) -> None:
        """Add the calls of one setting."""
        others = Counter[str]()
        covered_s = active_s = 0.0
        for call in calls:
            active_s += call.seconds
            if call.case is None:
                others[call.name] += 1
                continue
            covered_s += call.seconds
            self.numbers.setdefault(call.case, len(self.numbers))
            self.seconds.setdefault(call.case, call.seconds)
        self.left_out[setting] = others
        self.covered_s[setting], self.active_s[setting] = covered_s, active_s

    def cases(self) -> str:
        """Return the table of cases."""
        rows = (
            (case.op, case.dtype, json.dumps(_plain(case.params)))
            for case in self.numbers
        )
        return _csv(("op", "dtype", "params"), rows)

    def report(self) -> Iterator[str]:
        """Yield lines: the share covered of each setting, then the cases to measure."""
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
    return perfc.analyze(
        *(model, TARGET),
        dtype=setting.dtype,
        runtime=setting.runtime,
        passes=passes(setting.dtype),
    )


def _plain(value: Any) -> Any:
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
    """Write or check the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    table = Table.of(planned())
    print("\n".join(table.report()))
    if not options.check:
        WORKLOAD_TABLE.write_text(table.cases(), encoding="utf-8", newline="")
    elif WORKLOAD_TABLE.read_text(encoding="utf-8") != table.cases():
        print(f"{WORKLOAD_TABLE} is stale: python benchmarks/collection/kernels.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
