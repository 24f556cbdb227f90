"""GEMMs in fp32 on a board by what other boards say of its power and its lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from training.gemm import GemmRows
from training.samples import TEST, Sample, samples_of
from training.shipped_gemms import fit_simt, fit_wide, shown_rows

from perfc.costmodels.gemm import GemmParameters, is_wide, simt_parameters
from perfc.costmodels.kernels import Floats
from perfc.measurements import read_columns
from scoring.group import Group
from scoring.kernels import kernel_samples
from scoring.steps import OWN_ROWS

SHIPPED = "all boards"
"""Title of the line of what ships, whose parameters are fitted to rows of the board."""

LANES = 128
"""Lanes of SMs whose GEMMs have parameters of their own."""

SCALES = np.geomspace(0.5, 2.0, 25)
"""Powers of FMAs that are tried, over the one that ships."""

ROWS = 500
"""Most rows of a group that choose among them."""


def of_other_boards(data: Path) -> Iterator[Group]:
    """Yield the rows of each board by a power law, or by lanes, of the others.

    What one board says by itself, as its power beside its arithmetic or what its lanes
    do, may be wrong of every other: boards without rows have it all the same.
    """
    samples = [s for s in (*kernel_samples(data), *_own_rows()) if _is_simt(s)]
    for board in sorted({sample.key.target for sample in samples}):
        mine = [sample for sample in samples if sample.key.target == board]
        others = [sample for sample in samples if sample.key.target != board]
        narrow, target = fit_simt(others), mine[0].target
        if not is_wide(target):
            watts = _power_of(shown_rows(others), narrow)
            yield _group("power law of other boards", mine, narrow, watts)
        wide = [sample for sample in others if _has_lanes(sample)]
        if _has_lanes(mine[0]) and wide:
            what = f"{LANES} lanes of other boards"
            yield _group(what, mine, fit_wide(wide, narrow))


def _own_rows() -> Iterator[Sample]:
    for file in sorted(OWN_ROWS.glob("*/kernels.parquet")):
        yield from samples_of(read_columns(file))


def _is_simt(sample: Sample) -> bool:
    return (sample.key.op, sample.key.dtype) == ("gemm", "fp32") and len(sample) > 0


def _has_lanes(sample: Sample) -> bool:
    return sample.target.device.lanes_per_sm >= LANES


def _power_of(rows: Sequence[GemmRows], parameters: GemmParameters) -> float:
    """Return the power of FMAs on boards, over what ships, by the rows of all alike."""
    some = [part.take(np.arange(len(part))[:ROWS]) for part in rows if len(part)]

    def error(watts: float) -> float:
        logs = [_logs([part], parameters, watts) for part in some]
        return float(np.mean([np.abs(each).mean() for each in logs]))

    return float(min(SCALES.tolist(), key=error))


def _logs(
    rows: Sequence[GemmRows], parameters: GemmParameters, watts: float = 1.0
) -> Floats:
    """Return ln(predicted / measured) where FMAs draw *watts* times what ships."""
    found: list[Floats] = []
    for part in rows:
        target = attrs.evolve(part.target, watts=part.target.watts / watts)
        seconds = attrs.evolve(part, target=target).predicted_s(parameters)
        found.append(np.log(seconds / part.measured_s))
    return np.concatenate(found)


def _group(
    what: str, samples: Sequence[Sample], parameters: GemmParameters, watts: float = 1.0
) -> Group:
    rows, target = shown_rows(samples, TEST), samples[0].target
    shipped = simt_parameters(wide=is_wide(target))
    return Group(
        "architecture",
        f"gemm fp32, {what}, {target.name}",
        _logs(rows, parameters, watts),
        beside={SHIPPED: _logs(rows, shipped)},
        family=f"gemm fp32, {what}",
    )
