"""The step `collectives` of `make fit`: parameters, rows, intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from training.collectives import (
    CollectiveSample,
    collective_samples,
    corrected_s,
    fit_systems,
    fitted_systems,
    modelled_s,
    off_curve,
    sigma_of,
    untold,
)
from training.fitted_text import Tables

from perfc.costmodels.collectives import (
    CollectiveParameters,
    CollectiveRows,
)
from perfc.costmodels.kernels import Floats
from perfc.measurements import read_columns

SOURCES = (
    "aiconfigurator (Apache-2.0): nccl-tests in nodes of A100 and H100, NCCL 2.23 to "
    "2.29; xxrjun/nccl-tests-cluster (Apache-2.0): H100 nodes on InfiniBand"
)
_OTHER_LINKS = 0.5
"""Uncertainty of links that no rows are of, as PCIe or another network. Chosen: rules
that held on one network were off by 18 to 270 % on others."""

_SWITCH = 0.35
"""Uncertainty of all-reduces that the switch adds up, where none was measured. Chosen:
models that have seen two and four ranks only were off by 34 to 69 %."""


def set_collectives(
    data: Path, write_fitted: Callable[[str, Tables, str], None]
) -> None:
    """Write `fitted/collectives.toml`."""
    files = sorted((data / "measurements").glob("collectives_*.parquet"))
    read = collective_samples(map(read_columns, files))
    samples, p, rows = fitted_systems(read)
    fitted = [sample.of(sample.fitted) for sample in samples]
    tables: dict[str, Mapping[str, object]] = {
        "parameters": attrs.asdict(p),
        "sigma": _sigmas(samples, p, rows),
        "installation": {},
    }
    for sample, known in zip(fitted, rows, strict=True):
        name = f"{sample.target.device.name}, {sample.software}"
        tables[f'installation."{name}{", nodes" if sample.fabric else ""}"'] = {
            "device": f'"{sample.target.device.name}"',
            "software": f'"{sample.software}"',
            "fabric": f'"{sample.fabric}"',
            "ll_by_peer": str(sample.ll_by_peer).lower(),
            "rows": "[\n" + "".join(f'  "{row}",\n' for row in known.texts()) + "]",
        }
    write_fitted("collectives", tables, SOURCES)


def _sigmas(
    samples: Sequence[CollectiveSample],
    p: CollectiveParameters,
    rows: Sequence[CollectiveRows],
) -> Mapping[str, object]:
    """Return shared and own uncertainty, from rows that no table reports.

    Of a measured curve from sums of single bytes that were not fitted; of others of a
    measured system from curves left out one by one; of other systems from the two, each
    left out of the fit.
    """
    known: list[Floats] = []
    seen: list[Floats] = []
    unseen: list[Floats] = []
    nodes = _single_nodes(samples)
    for sample, row in zip(samples, rows, strict=True):
        chosen = sample.of(~sample.fitted & (sample.collectives.dtype == "int8"))
        if len(chosen.measured_s):
            known.append(np.log(corrected_s(chosen, p, row) / chosen.measured_s))
        if sample in nodes:
            seen.append(off_curve(sample, p))
    for sample in nodes:
        others = [s for s in nodes if s.target.name != sample.target.name]
        _, elsewhere = fit_systems(untold(others, fitted=True))
        (asked,) = untold([sample], fitted=True)
        unseen.append(np.log(modelled_s(asked, elsewhere) / asked.measured_s))
    stated: dict[str, object] = {
        name: [round(share * sigma_of(np.concatenate(off)), 3) for share in (0.6, 0.8)]
        for name, off in (("known", known), ("seen", seen), ("unseen", unseen))
    }
    return {**stated, "switch": _SWITCH, "other_links": _OTHER_LINKS}


def _single_nodes(samples: Sequence[CollectiveSample]) -> list[CollectiveSample]:
    return [s for s in samples if s.software.startswith("aiconfigurator")]
