"""The step `collectives` of `make fit`: parameters, rows, intervals, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from fits.accuracy_tables import write_table
from training.collectives import (
    OTHERS,
    CollectiveSample,
    Floats,
    collective_samples,
    corrected_s,
    fit_rows,
    fit_systems,
    line_s,
    modelled_s,
    off_curve,
    sigma_of,
    two_of_each,
    two_points,
    two_sums,
)
from training.fitted_text import Tables

from perfc.costmodels.collectives import (
    CollectiveParameters,
    CollectiveRows,
    exchanges_by_peer,
)
from perfc.fitting.errors import errors_of
from perfc.measurements import read_columns

SOURCES = (
    "aiconfigurator (Apache-2.0): nccl-tests in nodes of A100 and H100, NCCL 2.23 to "
    "2.29; xxrjun/nccl-tests-cluster (Apache-2.0): H100 nodes on InfiniBand"
)
MARK = "make fit, collectives"

_OTHER_LINKS = 0.5
"""Uncertainty of links that no rows are of, as PCIe or another network. Chosen: rules
that held on one network were off by 18 to 270 % on others."""

_SWITCH = 0.35
"""Uncertainty of all-reduces that the switch adds up, where none was measured. Chosen:
models that have seen two and four ranks only were off by 34 to 69 %."""

_LARGE, _LARGEST = 2**20, 2**24
"""Bytes above which errors are told apart."""


def set_collectives(
    data: Path, write_fitted: Callable[[str, Tables, str], None]
) -> None:
    """Write `fitted/collectives.toml` and the table of docs/accuracy.md."""
    files = sorted((data / "measurements").glob("collectives_*.parquet"))
    samples = collective_samples(map(read_columns, files))
    used = [s for s in samples if not s.software.startswith(OTHERS)]
    told, p = fit_systems([s.of(s.fitted) for s in used])
    samples = [
        *(
            attrs.evolve(s, ll_by_peer=t.ll_by_peer)
            for s, t in zip(used, told, strict=True)
        ),
        *(s for s in samples if s.software.startswith(OTHERS)),
    ]
    fitted = [sample.of(sample.fitted) for sample in samples]
    rows = [fit_rows(sample, p) for sample in fitted]
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
    write_table("\n".join(_lines(samples, p, rows)), MARK)


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
        _, elsewhere = fit_systems(_untold(others, fitted=True))
        (asked,) = _untold([sample], fitted=True)
        unseen.append(np.log(modelled_s(asked, elsewhere) / asked.measured_s))
    stated: dict[str, object] = {
        name: [round(share * sigma_of(np.concatenate(off)), 3) for share in (0.6, 0.8)]
        for name, off in (("known", known), ("seen", seen), ("unseen", unseen))
    }
    return {**stated, "switch": _SWITCH, "other_links": _OTHER_LINKS}


def _single_nodes(samples: Sequence[CollectiveSample]) -> list[CollectiveSample]:
    return [s for s in samples if s.software.startswith("aiconfigurator")]


def _untold(
    samples: Sequence[CollectiveSample], *, fitted: bool = False
) -> list[CollectiveSample]:
    """Return rows of systems whose NCCL chooses as its number says."""
    told = [attrs.evolve(s, ll_by_peer=exchanges_by_peer(s.software)) for s in samples]
    return [s.of(s.fitted) for s in told] if fitted else told


def _lines(
    samples: Sequence[CollectiveSample],
    p: CollectiveParameters,
    rows: Sequence[CollectiveRows],
) -> Iterator[str]:
    heads = ["rows", "n", "GMAE", "up to 1 MB", "above 1 MB", "above 16 MB", "MAPE"]
    heads += ["p90", "max", "bias", "alpha + s/B"]
    yield f"| {' | '.join(heads)} |"
    yield f"|---{'|--:' * (len(heads) - 1)}|"
    for sample, known in zip(samples, rows, strict=True):
        asked = sample.of(~sample.fitted)
        line = line_s(sample.of(sample.fitted), asked)
        name = f"{sample.target.device.name}, {sample.software}"
        name += ", several nodes" if sample.fabric else ""
        predicted = corrected_s(asked, p, known)
        yield _line(f"held-out sizes: {name}", asked, predicted, line)
    nodes = _single_nodes(samples)
    names = sorted({s.target.device.name for s in nodes})
    for name in names:
        if sum(sample.target.device.name == name for sample in nodes) > 1:
            yield _together(name, samples, p, rows)
    for name in names:
        mine = [s for s in nodes if s.target.device.name == name]
        others = [s for s in nodes if s.target.device.name != name]
        _, elsewhere = fit_systems(_untold(others, fitted=True))
        yield from _left_out(name, _untold(mine), elsewhere)


def _together(
    name: str,
    samples: Sequence[CollectiveSample],
    p: CollectiveParameters,
    rows: Sequence[CollectiveRows],
) -> str:
    """Return the line of one node of a GPU, all its installations together."""
    nodes = _single_nodes(samples)
    mine = [
        (sample.of(~sample.fitted), known)
        for sample, known in zip(samples, rows, strict=True)
        if sample in nodes and sample.target.device.name == name
    ]
    return _cells(
        f"held-out sizes: {name}, the {len(mine)} of aiconfigurator together",
        np.concatenate([corrected_s(asked, p, known) for asked, known in mine]),
        np.concatenate([asked.measured_s for asked, _ in mine]),
        np.concatenate([asked.collectives.bytes for asked, _ in mine]),
        None,
    )


def _left_out(
    name: str, mine: Sequence[CollectiveSample], elsewhere: CollectiveParameters
) -> Iterator[str]:
    """Yield the lines of a system that was left out, with none and with two points."""
    asked = [sample.of(~sample.fitted) for sample in mine]
    measured_s = np.concatenate([sample.measured_s for sample in asked])
    sizes = np.concatenate([sample.collectives.bytes for sample in asked])
    points = next(found for s in mine if len((found := two_sums(s)).measured_s) > 1)
    sums = fit_rows(points, elsewhere)
    two = [fit_rows(two_points(sample), elsewhere) for sample in mine]
    each = [fit_rows(two_of_each(sample), elsewhere) for sample in mine]
    for what, predicted in (
        ("zero-shot", [modelled_s(sample, elsewhere) for sample in asked]),
        ("two all-reduces", [corrected_s(s, elsewhere, sums) for s in asked]),
        ("two points", _told(asked, elsewhere, two)),
        ("two of each curve", _told(asked, elsewhere, each)),
    ):
        text = f"left out, {what}: {name}"
        yield _cells(text, np.concatenate(predicted), measured_s, sizes, None)


def _told(
    asked: Sequence[CollectiveSample],
    p: CollectiveParameters,
    rows: Sequence[CollectiveRows],
) -> list[Floats]:
    """Return the seconds of each installation as its own rows say."""
    return [corrected_s(s, p, own) for s, own in zip(asked, rows, strict=True)]


def _line(
    text: str, asked: CollectiveSample, predicted: Floats, line: Floats | None
) -> str:
    return _cells(text, predicted, asked.measured_s, asked.collectives.bytes, line)


def _cells(
    text: str,
    predicted: Floats,
    measured_s: Floats,
    sizes: Floats,
    line: Floats | None,
) -> str:
    errors = errors_of(predicted, measured_s)
    parts = (sizes > 0, sizes <= _LARGE, sizes > _LARGE, sizes > _LARGEST)
    cells = [_gmae(predicted[part], measured_s[part]) for part in parts]
    if errors is not None:
        cells += [errors.mape, errors.p90, errors.max, errors.bias]
    cells.append(None if line is None else _gmae(line, measured_s))
    shown = ("-" if cell is None else f"{100 * cell:.1f} %" for cell in cells)
    return f"| {text} | {len(measured_s)} | {' | '.join(shown)} |"


def _gmae(predicted: Floats, measured_s: Floats) -> float | None:
    told = np.isfinite(predicted)
    errors = errors_of(predicted[told], measured_s[told])
    return None if errors is None else errors.gmae
