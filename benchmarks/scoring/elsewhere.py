"""What other scripts score: DLRM's kernels, GEMMs of other sessions and of 8 bits."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import corrections
import numpy as np
from eight_bits import OWN_ROWS, eight_bit_samples, ways_of
from training.elsewhere import DLRM, lin_target
from training.gemm import GemmRows
from training.priced_rows import different
from training.shipped_gemms import NOT_SHIPPED

from scoring.group import Group

FORMULA, NETWORK = "formula alone", "network"


def of_dlrm_kernels(data: Path) -> Iterator[Group]:
    """Yield kernels of DLRM's training on a V100 (Lin et al.) that no fit may have."""
    rows = [row for row in DLRM.read(data / "dlrm_v100")[0] if not row.fitted]
    predicted_us = DLRM.predicted_us(rows, lin_target())
    logs = np.log(predicted_us / np.array([row.us for row in rows]))
    families = np.array([row.family for row in rows])
    for family in sorted(set(families.tolist())):
        name = f"DLRM's kernels, V100: {family}"
        at = families == family
        yield Group("board", name, logs[at], family="DLRM's kernels, V100")


def of_other_sessions(data: Path) -> Iterator[Group]:
    """Yield GEMMs of a session, or of a board, that the network's fit lacks.

    By the network where it ships, else by the formula; the other stands beside.
    """
    left_out = tomllib.loads(NOT_SHIPPED.read_text(encoding="utf-8"))["not_shipped"]
    for score in corrections.gemm_scores(data):
        formula, network = score.logs
        name = f"gemm {score.dtype}, {score.target}: {score.rows}"
        kind = "board" if "board" in score.rows else "session"
        if f"{score.target}/{score.dtype}" in left_out:
            yield Group(kind, name, formula, beside={NETWORK: network})
        else:
            yield Group(kind, name, network, beside={FORMULA: formula})


def of_eight_bits(data: Path) -> Iterator[Group]:
    """Yield GEMMs of 8 bits by the formula alone, whose rows are of other (n, k)."""
    for sample in eight_bit_samples(data):
        rows, units = GemmRows.of(sample), different(sample)
        for way, parameters in ways_of(sample).items():
            logs = np.log(rows.predicted_s(parameters) / rows.measured_s)
            what = f"gemm {sample.key.dtype}, {sample.target.name}, formula of {way}"
            kind = "size" if way == OWN_ROWS else "architecture"
            family = f"gemm of 8 bits, formula of {way}"
            yield Group(kind, what, logs, units=units, family=family)
