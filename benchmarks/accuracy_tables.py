"""The tables of docs/accuracy.md, which `make fit` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from perfc.costmodels import CostModel, cost_models
from perfc.fitting import errors_of, left_out
from perfc.fitting.baselines import lin_formula_s
from perfc.fitting.intervals import PricedRows, named, unseen_coverage
from perfc.fitting.samples import TEST, Floats, Sample
from perfc.fitting.unseen import Unseen

ACCURACY = Path(__file__).parents[1] / "docs" / "accuracy.md"

KNOWN, UNSEEN, PRODUCTS = "make fit", "make fit, unseen", "make fit, left out"
"""Marks of what is written there."""


def write_tables(samples: Sequence[Sample], unseen: Unseen) -> None:
    """Put all tables into docs/accuracy.md."""
    write_table("\n".join(known_lines(samples)), KNOWN)
    write_table("\n".join(unseen_lines(samples, unseen)), UNSEEN)
    write_table("\n".join(product_lines(samples, unseen)), PRODUCTS)


def write_table(text: str, name: str) -> None:
    """Put a table into docs/accuracy.md, between its marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = ACCURACY.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    ACCURACY.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def known_lines(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the table of GPUs with rows: those that are only reported."""
    yield (
        "| rows | n | MAPE | GMAE | p90 | max | bias | in 90 % | width | "
        "roofline/0.8 + 3 µs: MAPE | formulas of Lin et al.: MAPE |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    models = cost_models()
    for sample in samples:
        rows = sample.of(TEST)
        if len(rows):
            yield _known_line(rows, models)


def _known_line(rows: Sample, models: Sequence[CostModel]) -> str:
    seconds, inside, width = rows.stated(models)
    formula_s = lin_formula_s(rows)
    cells = [
        *_errors(seconds, rows),
        inside,
        width,
        _mape(rows.roofline_s(), rows),
        None if formula_s is None else _mape(formula_s, rows),
    ]
    key = rows.key
    return _line(f"{key.op} {key.dtype}, {key.target}, {key.timing}", rows, cells)


def unseen_lines(samples: Sequence[Sample], unseen: Unseen) -> Iterator[str]:
    """Yield the table of GPUs left out of the fit, and of its interval."""
    yield "| left out | n | MAPE | GMAE | p90 | max | bias | in 90 % | width |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    calibrating = unseen.calibrating()
    for sample in samples:
        priced = unseen.priced(sample, TEST)
        if priced is None:
            continue
        for name, at in named(priced.sample):
            yield _unseen_line(name, priced.take(at), calibrating.get(name, {}))


def _unseen_line(name: str, priced: PricedRows, same: Mapping[str, PricedRows]) -> str:
    rows = priced.sample
    others = [part for gpu, part in same.items() if gpu != rows.target.name]
    stated = unseen_coverage(priced, others) if others else (None, None)
    cells = [*_errors(rows.timed_s(priced.kernel_s), rows), *stated]
    return _line(f"{name}, {rows.target.name}", rows, cells)


def product_lines(samples: Sequence[Sample], unseen: Unseen) -> Iterator[str]:
    """Yield the table of GPUs that are left out of the fit of products."""
    yield "| left out | n | MAPE | GMAE | p90 | max | bias | 10 rows: MAPE |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for found in left_out(samples, unseen.products):
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
