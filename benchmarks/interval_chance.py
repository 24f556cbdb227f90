"""How many lines of `make accuracy` hold if intervals are exactly right.

    python benchmarks/interval_chance.py DATA

A line of a known GPU holds if 87 to 93 % of its rows are inside 90 %, one of a GPU
left out if 85 to 95 % are. No reported row is looked at, only how many there are.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from training.cross_fit import cross_fitted
from training.intervals import FEWEST, WITHOUT_NETWORK
from training.priced_rows import LEVEL, different, power_of
from training.samples import CALIBRATION, FITTED, TEST, Sample, samples_of
from training.unseen import Unseen
from training.unseen_intervals import between, spread_of, widening

from perfc.costmodels import COLLECTIVES, cost_models
from perfc.costmodels.kernels import CostModel, Flags, Floats
from perfc.fitting.scores import Z90
from perfc.measurements import read_columns

KNOWN_OFF, UNSEEN_OFF = 0.03, 0.05
"""How far off 90 % the share of rows inside may be."""

DRAWS = 400

SPREADS = (0.08, 0.2, 0.4)
"""Spreads of GPUs to compare with: standard deviations of the logarithm."""


def chance(rows: Sample, inside: Flags) -> float:
    """Return how far off nine in ten the share of rows inside is by chance alone.

    Twice the standard deviation. Rows of one (n, k) are inside together, so they count
    as fewer: by the ratio of what their sums vary to what as many rows would.
    """
    off = inside - inside.mean()
    alone = float(np.square(off).sum())
    together = float(np.square(np.bincount(different(rows), off)).sum())
    more = max(together / alone, 1.0) if alone else 1.0
    return 2 * math.sqrt(LEVEL * (1 - LEVEL) * more / len(inside))


def counts(sample: Sample) -> list[int]:
    """Return how many rows are fitted, set apart for intervals, and reported."""
    return [int((sample.part == part).sum()) for part in (FITTED, CALIBRATION, TEST)]


def known_chance(sample: Sample, models: Sequence[CostModel]) -> float:
    """Return how likely the line of a known GPU holds.

    Rows that set the interval and those that are reported are both few: the share is
    off by what both vary by.
    """
    fitted, apart, reported = counts(sample)
    key = sample.key
    crossed = sample.apart_s is not None
    setting = apart + (fitted if crossed or key.op in WITHOUT_NETWORK else 0)
    rows = sample.of(CALIBRATION)
    _, inside, _ = rows.stated(models)
    one = chance(rows, inside) / 2 * math.sqrt(len(rows))
    off = one * math.sqrt(1 / setting + 1 / reported)
    return math.erf(KNOWN_OFF / off / math.sqrt(2))


def needs_of(unseen: Unseen) -> dict[str, dict[str, float]]:
    """Return the scales that nine in ten rows of GPUs left out need, by name, then GPU.

    Logarithms; of ops that two GPUs or more have.
    """
    found: dict[str, dict[str, float]] = {}
    for name, gpus in unseen.calibrating().items():
        enough = {gpu: each for gpu, each in gpus.items() if len(each) >= FEWEST}
        if len(enough) > 1:
            power = power_of(list(enough.values()))
            found[name] = {g: math.log(m.least(power)) for g, m in enough.items()}
    return found


def lines_inside(
    needs: Mapping[str, Mapping[str, float]], spreads: Mapping[str, float]
) -> Floats:
    """Return how many lines of GPUs left out hold, shape (draws,).

    Args:
        needs: Whose ops and GPUs there are.
        spreads: Of each op's GPUs, standard deviations of the logarithm. Their rows
            are normal, and without end.

    """
    random = np.random.default_rng(0)
    found: list[int] = []
    for _ in range(DRAWS):
        drawn = {
            name: dict(
                zip(
                    gpus,
                    random.normal(0, spreads[name], len(gpus)).tolist(),
                    strict=True,
                )
            )
            for name, gpus in needs.items()
        }
        names = sorted({gpu for gpus in drawn.values() for gpu in gpus})
        found.append(sum(_held(drawn, gpu) for gpu in names))
    return np.array(found, dtype=np.float64)


def _held(drawn: Mapping[str, Mapping[str, float]], gpu: str) -> int:
    """Return how many lines of one GPU hold by what the others say."""
    others = {
        name: np.array([need for other, need in gpus.items() if other != gpu])
        for name, gpus in drawn.items()
        if set(gpus) != {gpu}
    }
    variance = between(list(others.values()))
    held = 0
    for name, known in others.items():
        if gpu in drawn[name]:
            wider = widening(known, variance)
            factor = wider * math.exp(known.mean() - drawn[name][gpu])
            share = math.erf(factor * Z90 / math.sqrt(2))
            held += abs(share - 0.9) <= UNSEEN_OFF
    return held


def print_unseen(needs: Mapping[str, Mapping[str, float]]) -> None:
    """Print how many lines of GPUs left out hold, by how different GPUs are."""
    variance = between([np.array(list(gpus.values())) for gpus in needs.values()])
    of_ops = {
        name: spread_of(np.array(list(gpus.values())), variance)
        for name, gpus in needs.items()
    }
    drawn = {f"as fitted, {math.sqrt(variance):.2f} of all": of_ops}
    drawn |= {f"{spread:g} of each": dict.fromkeys(needs, spread) for spread in SPREADS}
    lines = sum(map(len, needs.values()))
    for name, spreads in drawn.items():
        held = lines_inside(needs, spreads)
        found = f"{held.mean():.1f} ± {held.std():.1f} of {lines}"
        print(f"GPUs left out, spread {name}: {found}")


def main() -> None:
    """Print what is expected of known GPUs, then of those left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    files = sorted((parser.parse_args().data / "measurements").glob("*.parquet"))
    samples = [s for file in files for s in samples_of(read_columns(file))]
    samples = cross_fitted([s for s in samples if s.key.op not in COLLECTIVES])
    models = cost_models()
    enough = [sample for sample in samples if counts(sample)[2] >= FEWEST]
    known = sum(known_chance(sample, models) for sample in enough)
    print(f"known GPUs: {known:.1f} of {len(enough)} lines of {FEWEST} rows or more")
    print_unseen(needs_of(Unseen(samples)))


if __name__ == "__main__":
    main()
