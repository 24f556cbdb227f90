"""Refit the rows of a CPU that perfc ships: `costmodels/fitted/cpu_rows.npz`.

    python benchmarks/fit_cpu.py TABLE... [--left-out TABLE]

Each table is what `perfc calibrate --device cpu --seed N --rows TABLE` measured, with
another N. Each is calibrated by itself; what its terms leave of the rows that are not
held out is pooled. Shapes that any calibration holds out are in no table's part. With
`--left-out` nothing is written; printed are the errors on that table's held-out rows,
by family, with its own rows alone, and with the others' too.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from training.cpu_rows import FamilyLogs, family_logs, fit_shipped_rows

from perfc.costmodels.cpu import SHIPPED_ROWS_FILE, write_shipped_rows
from perfc.costmodels.machine import Family, NearRows
from perfc.fitting.device import FamilyFit
from perfc.fitting.machine import calibrated_sheet
from perfc.fitting.observations import observe
from perfc.measurements import MEASUREMENTS, read_rows
from perfc.tools.calibration.calibration import calibrate_rows

_HOST_OP = "host_overhead"
_FEWEST = 50
"""Rows of a family in all tables below which nothing is shipped."""


def logs_of(table: Path) -> Mapping[Family, FamilyLogs]:
    """Calibrate one table; return what terms leave of its fitted rows."""
    rows = read_rows(table, MEASUREMENTS)
    found = calibrate_rows(rows)
    if found.device is None or found.host is None:
        msg = f"{table}: no kernel of a CPU"
        raise SystemExit(msg)
    target = calibrated_sheet(found.target, found.fields)
    kernels = [row for row in rows if row.op != _HOST_OP]
    seen, _ = observe(kernels, target, found.host.profile.t2_s.default_s)
    return family_logs(seen, target, found.device.fits)


def pooled(tables: Sequence[Path]) -> dict[Family, NearRows]:
    """Return the rows that are fitted to all tables together, by family."""
    logs: dict[Family, list[FamilyLogs]] = defaultdict(list)
    for table in tables:
        for family, found in logs_of(table).items():
            logs[family].append(found)
    fitted: dict[Family, NearRows] = {}
    for family, parts in sorted(logs.items()):
        if sum(len(part.kernels) for part in parts) < _FEWEST:
            continue
        near = fit_shipped_rows(parts)
        if near is not None:
            fitted[family] = near
            print(family, len(near.weights), near.octaves, near.unlike, flush=True)
    return fitted


def reported(table: Path, shipped: Mapping[Family, NearRows]) -> list[FamilyFit]:
    """Return the errors of a table's held-out rows when so much is shipped."""
    rows = read_rows(table, MEASUREMENTS)
    with (
        patch("perfc.fitting.shipped_rows.shipped_rows", lambda: shipped),
        patch("perfc.costmodels.cpu.shipped_rows", lambda: shipped),
    ):
        device = calibrate_rows(rows).device
    return list(device.families) if device is not None else []


def compared(table: Path, shipped: Mapping[Family, NearRows]) -> Iterator[str]:
    """Yield a line for each family: error without, with, and the share taken."""
    both = zip(reported(table, {}), reported(table, shipped), strict=True)
    for own, all_of in both:
        if own.after is None or all_of.after is None or all_of.fit is None:
            continue
        yield (
            f"{own.family!s:32s} {own.after.rows:4d} {own.after.mape:7.1%} -> "
            f"{all_of.after.mape:6.1%}  bias {own.after.bias:+.1%} -> "
            f"{all_of.after.bias:+.1%}  share {all_of.fit.shipped:g}"
        )


def main() -> None:
    """Fit, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--left-out", action="append", type=Path, default=[])
    given = parser.parse_args()
    fitted = pooled(given.tables)
    if not given.left_out:
        write_shipped_rows(fitted, SHIPPED_ROWS_FILE)
        return
    for table in given.left_out:
        print(table.stem)
        for line in compared(table, fitted):
            print(line, flush=True)


if __name__ == "__main__":
    main()
