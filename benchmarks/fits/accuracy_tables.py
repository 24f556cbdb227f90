"""The tables of docs/accuracy.md, which `make fit` writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from training.baselines import lin_formula_s
from training.priced_rows import LEVEL, PricedRows, different
from training.samples import TEST, Flags, Floats, Sample
from training.shipped_gemms import left_out
from training.unseen import Unseen
from training.unseen_intervals import unseen_coverage, unseen_sigmas

from perfc.costmodels import cost_models
from perfc.costmodels.kernels import CostModel
from perfc.fitting.errors import errors_of

ACCURACY = Path(__file__).parents[2] / "docs" / "accuracy.md"

KNOWN, UNSEEN, GEMMS = "make fit", "make fit, unseen", "make fit, left out"
"""Marks of what is written there."""


_HELD_OUT = ", split=test"
"""Suffix of the names of rows that their table marks so."""


def write_tables(
    samples: Sequence[Sample], held_out: Sequence[Sample], unseen: Unseen
) -> None:
    """Put all tables into docs/accuracy.md; of rows held out lines of their own."""
    write_table("\n".join(known_lines(samples, held_out)), KNOWN)
    write_table("\n".join(unseen_lines(samples, held_out, unseen)), UNSEEN)
    write_table("\n".join(gemm_lines(samples, unseen)), GEMMS)


def write_table(text: str, name: str) -> None:
    """Put a table into docs/accuracy.md, between its marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = ACCURACY.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    ACCURACY.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def known_lines(samples: Sequence[Sample], held_out: Sequence[Sample]) -> Iterator[str]:
    """Yield the table of GPUs with rows: those that are only reported."""
    yield (
        "| rows | n | MAPE | GMAE | p90 | max | bias | in 90 % | chance | width | "
        "roofline/0.8 + 3 µs: MAPE | formulas of Lin et al.: MAPE |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    models = cost_models()
    for sample in samples:
        rows = sample.of(TEST)
        if len(rows):
            yield _known_line(rows, models)
    for rows in held_out:
        yield _known_line(rows, models, _HELD_OUT)


def _known_line(rows: Sample, models: Sequence[CostModel], what: str = "") -> str:
    seconds, inside, width = rows.stated(models)
    formula_s = lin_formula_s(rows)
    cells = [
        *_errors(seconds, rows),
        float(inside.mean()),
        chance(rows, inside),
        width,
        _mape(rows.roofline_s(), rows),
        None if formula_s is None else _mape(formula_s, rows),
    ]
    key = rows.key
    name = f"{key.op} {key.dtype}, {key.target}, {key.timing}{what}"
    return _line(name, rows, cells)


def unseen_lines(
    samples: Sequence[Sample], held_out: Sequence[Sample], unseen: Unseen
) -> Iterator[str]:
    """Yield the table of GPUs left out of the fit, and of its interval."""
    yield "| left out | n | MAPE | GMAE | p90 | max | bias | in 90 % | chance | width |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    stated = {
        gpu: unseen_sigmas(unseen.calibrating(frozenset({gpu})))
        for gpu in sorted({sample.key.target for sample in (*samples, *held_out)})
    }
    for these, what in ((samples, ""), (held_out, _HELD_OUT)):
        for sample in these:
            priced = unseen.priced(sample, {TEST})
            known = stated[sample.key.target]
            for name, rows in priced.named() if priced else ():
                yield _unseen_line(name, rows, known.get(name), what)


def _unseen_line(
    name: str, priced: PricedRows, known: Sequence[float] | None, what: str
) -> str:
    rows = priced.sample
    cells = _errors(rows.timed_s(priced.kernel_s), rows)
    if known is None:
        cells += [None] * 3
    else:
        inside, width = unseen_coverage(priced, known)
        cells += [float(inside.mean()), chance(rows, inside), width]
    return _line(f"{name}, {rows.target.name}{what}", rows, cells)


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


def gemm_lines(samples: Sequence[Sample], unseen: Unseen) -> Iterator[str]:
    """Yield the table of GPUs that are left out of the fit of GEMMs."""
    yield "| left out | n | MAPE | GMAE | p90 | max | bias | 10 rows: MAPE |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for found in left_out(samples, unseen.gemms):
        errors = found.errors
        cells = [errors.mape, errors.gmae, errors.p90, errors.max, errors.bias]
        shown = " | ".join(map(_percent, [*cells, found.with_few]))
        yield f"| gemm {found.dtype}, {found.target} | {errors.rows:,} | {shown} |"


def _errors(seconds: Floats, rows: Sample) -> list[float | None]:
    found = errors_of(seconds, rows.measured_s)
    if found is None:
        return [None] * 5
    return [found.mape, found.gmae, found.p90, found.max, found.bias]


def _mape(seconds: Floats, rows: Sample) -> float:
    return float(np.abs(seconds / rows.measured_s - 1).mean())


def _line(name: str, rows: Sample, cells: Sequence[float | None]) -> str:
    return f"| {name} | {len(rows):,} | {' | '.join(map(_percent, cells))} |"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}".replace("%", " %")
