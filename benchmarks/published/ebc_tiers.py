"""Training steps of TorchRec's embedding bags, by where the tables are.

Published in TorchRec's `benchmarks/README.md` and `ebc_benchmarks.py` (BSD-3): the 26
tables of MLPerf's DLRM, 128 columns, SGD, 64 samples of 64 uniform lookups a table,
ten batches an epoch, on a V100 of 16 GB in a p3.16xlarge. Times are means of 100
epochs, with their standard deviation. That of tables in host memory is many times the
mean: it is the first epoch's, which touches pages first. Two kinds of epochs, one of
the first and 99 of the others, of that mean and deviation, give the time of the others.

The same ten batches come again in every epoch, so that the cache of the published run
has all their rows after the first; the prediction is of batches that are new.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import attrs

import perfc
from perfc.passes.embeddings import PlaceEmbeddings
from perfc.passes.training import Training

ROWS = (
    *(45833188, 36746, 17245, 7413, 20243, 3, 7114, 1441, 62, 29275261, 1572176),
    *(345138, 10, 2209, 11267, 128, 4, 974, 14, 48937457, 11316796, 40094537),
    *(452104, 12606, 104, 35),
)
LARGE, DIM, SAMPLES, POOLING, BATCHES = 10_000_000, 128, 64, 64, 10
EPOCHS = 100


@attrs.frozen
class Case:
    """A row of the published tables.

    Attributes:
        name: The module.
        fused: Whether one kernel looks all tables up and updates them.
        reduced: What the rows of the five largest tables are divided by.
        tier: Where the tables are.
        mean_s: Published time of an epoch.
        deviation_s: Its standard deviation.

    """

    name: str
    fused: bool
    reduced: int
    tier: str
    mean_s: float
    deviation_s: float

    @property
    def steady_s(self) -> float:
        """Time of an epoch that is not the first, if only that one is unlike."""
        later = self.mean_s - self.deviation_s / math.sqrt(EPOCHS - 1)
        return later if self.deviation_s > self.mean_s else self.mean_s


CASES = (
    Case("EBC", fused=False, reduced=128, tier="hbm", mean_s=0.267, deviation_s=0.002),
    Case("EBC", fused=False, reduced=64, tier="hbm", mean_s=0.332, deviation_s=0.002),
    Case("EBC", fused=False, reduced=32, tier="hbm", mean_s=0.462, deviation_s=0.002),
    Case("fused", fused=True, reduced=128, tier="hbm", mean_s=0.019, deviation_s=0.001),
    Case("fused", fused=True, reduced=64, tier="hbm", mean_s=0.019, deviation_s=0.001),
    Case("fused", fused=True, reduced=32, tier="hbm", mean_s=0.019, deviation_s=0.009),
    Case(
        *("fused, UVM caching", True, 2, "uvm-caching"), mean_s=0.06, deviation_s=0.37
    ),
    Case(*("fused, UVM", True, 1, "uvm"), mean_s=0.62, deviation_s=5.34),
)


def graph_text(case: Case) -> str:
    """Write the lookups of a case in perfc assembly."""
    rows = [r // case.reduced if r >= LARGE else r for r in ROWS]
    tables = [f"{{rows = {r}, dim = {DIM}, pooling = {POOLING}}}" for r in rows]
    weights = ", ".join(
        f"param %t{i}.weight: f32[{r},{DIM}]" for i, r in enumerate(rows)
    )
    names = ", ".join(f"%t{i}.weight" for i in range(len(rows)))
    form = 'mode = "sum", has_offsets = true'
    if case.fused:
        count = len(rows)
        inputs = f"%i: i64[{count * POOLING}*batch], %o: i64[{count}*batch+1]"
        body = (
            f"  %y = embedding_bag({names}, %i, %o) {{tables = [{', '.join(tables)}], "
            f"{form}, include_last_offset = true}} : ?\n"
        )
    else:
        inputs = ", ".join(
            f"%i{i}: i64[{POOLING}*batch], %o{i}: i64[batch]" for i in range(len(rows))
        )
        body = "".join(
            f"  %y{i} = embedding_bag(%t{i}.weight, %i{i}, %o{i}) "
            f"{{tables = [{table}], {form}}} : ?\n"
            for i, table in enumerate(tables)
        )
        joined = ", ".join(f"%y{i}" for i in range(len(rows)))
        body += f"  %y = concat({joined}) {{axis = 1}} : ?\n"
    return f'graph @"ebc"({inputs}, {weights}) {{\n{body}  return %y\n}}\n'


def predicted_s(case: Case) -> float:
    """Predict an epoch of a case."""
    sparse = "auto" if case.fused else "never"
    passes = (PlaceEmbeddings(case.tier), Training(loss="sum", sparse_gradients=sparse))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ebc.perfc"
        path.write_text(graph_text(case), encoding="utf-8")
        model = perfc.load(path, batch=SAMPLES, mode="training", transforms=passes)
    report = perfc.analyze(model, "v100-sxm2-16g", inputs="host-pageable")
    return BATCHES * report.time_us / 1e6


PLACES = ("fused", "fused, UVM caching", "fused, UVM")
"""Places of the fused tables, the fastest first: the last case of each counts."""


def places(found: dict[str, float]) -> list[str]:
    """Say whether the three places keep their order, and how far off the cached is.

    Args:
        found: Predicted seconds of an epoch by the module's name.

    """
    published = {case.name: case.mean_s for case in CASES}
    order = sorted(PLACES, key=lambda name: found[name])
    kept = "kept" if order == sorted(PLACES, key=published.__getitem__) else "LOST"
    cached = PLACES[1]
    return [
        f"order of HBM, cached, host: {kept}",
        f"cached: {found[cached] / published[cached] - 1:+.1%} of the published mean",
        "host: its published mean holds first touches of pages, not predicted",
    ]


def main() -> None:
    """Print predicted and published epochs beside each other."""
    found: dict[str, float] = {}
    for case in CASES:
        found[case.name] = predicted_s(case)
        print(
            f"{case.name:<18} rows / {case.reduced:<4}"
            f" predicted {found[case.name]:.3f}"
            f"  published {case.mean_s:.3f} +/- {case.deviation_s:.3f}"
            f"  (later epochs {case.steady_s:.3f}) s"
        )
    print("\n".join(places(found)))


if __name__ == "__main__":
    main()
