"""Epochs of GraphSAGE, of which data loading is a part: serial and overlapped.

    python benchmarks/published/gnn_pipelines.py FOLDER

FOLDER holds `gnn_epoch_breakdown.csv` (MITIBMxGraph/SALIENT_artifact, arXiv 2110.08450;
a V100, 3 x 256, fanouts 15-10-5, batches of 1024). Of PyG, which loads serially, the
phases are stages: their sum is compared with the epoch. Of SALIENT the table has what
of the stages still blocks, not what they take, so that its epochs only test bounds: no
less than the longest phase, no more than 1.003 times the sum.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path

from perfc.passes.loading import Loading, Stage

Row = Mapping[str, str]

SERIAL = "pyg"
MOST = 1.003
"""Times the sum of what blocks that an overlapped epoch may take."""


def loading_of(row: Row, *, overlapped: bool) -> Loading:
    """Return the stages of a row."""
    sampled = Stage("sample and slice", float(row["sample_slice_ms"]) * 1e3, "cores")
    copied = Stage("transfer", float(row["transfer_ms"]) * 1e3, "h2d")
    return Loading((sampled, copied), overlapped)


def main(folder: Path) -> None:
    """Print each row beside its prediction or its bounds."""
    path = folder / "gnn_epoch_breakdown.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        step_us, measured_us = (float(row[n]) * 1e3 for n in ("train_ms", "total_ms"))
        serial = loading_of(row, overlapped=False)
        summed_us = serial.iteration_us(step_us)
        name = f"{row['system']:8} {row['dataset']:14}"
        if row["system"] == SERIAL:
            error = summed_us / measured_us - 1
            hidden_us = serial.iteration_us(step_us, overlapped=True)
            print(
                f"{name} serial {summed_us / 1e3:10.3f} ms  measured "
                f"{measured_us / 1e3:10.3f} ms  {error:+.2e}  "
                f"hiding alone gains {summed_us / hidden_us:.2f}x"
            )
            continue
        least_us = loading_of(row, overlapped=True).iteration_us(step_us)
        held = least_us <= measured_us <= MOST * summed_us
        print(
            f"{name} from {least_us / 1e3:12.3f} ms  measured "
            f"{measured_us / 1e3:10.3f} ms  to {MOST * summed_us / 1e3:.3f} ms  "
            f"{'held' if held else 'BROKEN'}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
