"""Networks of GEMMs beside the formula alone, where no row of the fit was measured.

    python benchmarks/corrections.py DATA [--write]

DATA is a folder with `measurements`, `end_to_end` and `dlrm_v100`. A network ships
only where it is nearer than the formula (GMAE) on most of what a GPU has of

- a session of measuring that its fit lacks (`[session]` of `fitted/event.toml`), as
  long as most rows stay;
- another board of the chip: kernels and whole steps of DLRM on V100-SXM2, perfc's own
  rows of H100;
- sizes of layers, measured another day: whole transformers in fp32.

First rows on a rising clock (`COLD`) are scored as they are and with one factor for all
of them, and decide nothing: they say a clock, which no network of sizes can know.
Networks of fp32 are fitted here anew, as one that does not ship is in no file.
`--write` lists what loses in `benchmarks/corrections.toml`, which `make fit` reads, and
takes it out of `costmodels/fitted/gemm_residual.npz`; `make fit FIT_ARGS="--what
intervals"` then sets the intervals.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import numpy as np
from training.gemm import GemmRows
from training.gemm_residual import fit_residuals
from training.network_fit import write_networks
from training.samples import Sample, held_out_samples, samples_of
from training.shipped_gemms import NOT_SHIPPED, shipped

from perfc.costmodels import cost_models, load_target, price
from perfc.costmodels.fitted_files import Network, networks
from perfc.costmodels.fitted_files.fitted_file import fitted
from perfc.costmodels.gemm import RESIDUAL_FILE, Known, simt_parameters
from perfc.costmodels.kernels import Floats
from perfc.fitting.errors import Errors, errors_of
from perfc.measurements import read_columns

PUBLISHED = Path(__file__).parent / "published"
OWN_ROWS = Path(__file__).parent / "rows" / "h100-sxm-80g" / "kernels.parquet"

COLD = {"a100-pcie-40g": 650, "t4": 1800}
"""First batched GEMMs of a table that took longer than later ones of their size."""

SHOWN = 1.5
"""Times of kernels over what the host takes beside them, from which rows show them."""

MOST_LEFT_OUT = 0.5
"""Share of a GPU's rows up to which a session is left out: a fit needs the others."""

FEWEST = 100
"""Rows of a session that are scored."""

V100_BOARD, V100_CLOCK = "v100-sxm2-16g", {"gpu.sm_clock_mhz": "1297"}
"""Board and clock of the traces of DLRM (owensgroup/ml_perf_model)."""

_GEMMS = "product"
"""How families of GEMMs begin in those traces."""


@attrs.frozen
class Score:
    """How far off formula and network are on some rows.

    Attributes:
        target: The GPU that the network is of.
        dtype: Its type.
        rows: What was predicted.
        formula: Errors of the formula alone.
        network: Errors with the network.
        logs: ln(predicted / measured) of both, each of shape (rows,).
        decides: Whether it counts where the network is farther off.

    """

    target: str
    dtype: str
    rows: str
    formula: Errors
    network: Errors
    logs: tuple[Floats, Floats] = attrs.field(eq=False, repr=False)
    decides: bool = True

    @classmethod
    def of(
        cls, where: tuple[str, str, str], predicted: Sequence[Floats], measured: Floats
    ) -> Score:
        """Return the score of two predictions of as many rows."""
        formula, network = (errors_of(seconds, measured) for seconds in predicted)
        assert formula is not None  # there are rows
        assert network is not None  # as many
        logs = np.log(predicted[0] / measured), np.log(predicted[1] / measured)
        return cls(*where, formula, network, logs)

    @property
    def loses(self) -> bool:
        """Whether the network is farther off, where that decides."""
        return self.decides and self.network.gmae > self.formula.gmae

    def line(self) -> str:
        """Return a line of the table."""
        cells = [
            f"{error:.1%}".replace("%", " %")
            for each in (self.formula, self.network)
            for error in (each.mape, each.gmae, each.p90, each.max, each.bias)
        ]
        name = f"{self.dtype}, {self.target}: {self.rows}"
        return f"| {name} | {self.formula.rows:,} | {' | '.join(cells)} |"


@attrs.frozen(eq=False)
class Left:
    """Batched GEMMs of a GPU that a network lacks.

    Attributes:
        target: The GPU.
        name: What they are.
        rows: All GEMMs of the GPU.
        at: Whether each is left out.
        cold: Whether their clock was still rising.

    """

    target: str
    name: str
    rows: GemmRows
    at: np.ndarray
    cold: bool

    def others(self) -> GemmRows:
        """Return the rows that the network is fitted to."""
        return self.rows.take(np.flatnonzero(~self.at))

    def scores(self, network: Network) -> Iterator[Score]:
        """Yield the score on those that show their kernel."""
        rows, kernel_s = self.rows, self.rows.kernel_s(simt_parameters())
        corrected_s = kernel_s.copy()
        known = Known(rows.target, network, own=True)
        known.correct(corrected_s, rows.gemms, np.arange(len(rows)), kernel_s)
        shown = self.at & (kernel_s > SHOWN * rows.beside_s)
        measured = rows.measured_s[shown]
        both = [
            (rows.before_s + np.maximum(seconds, rows.beside_s))[shown]
            for seconds in (kernel_s, corrected_s)
        ]
        where = self.target, "fp32", self.name
        raw = Score.of(where, both, measured)
        yield attrs.evolve(raw, decides=not self.cold)
        if self.cold:
            both = [each * np.median(measured / each) for each in both]
            where = self.target, "fp32", f"{self.name}, one factor"
            yield attrs.evolve(Score.of(where, both, measured), decides=False)


def left_out(target: str, samples: Sequence[Sample]) -> Iterator[Left]:
    """Yield the sessions of a GPU's rows that can be left out, and its cold rows."""
    rows = GemmRows.joined([GemmRows.of(sample) for sample in samples])
    met = np.concatenate([sample.table.param("met", -1.0) for sample in samples])
    batched = np.concatenate(
        [np.full(len(s), (s.table.param("b", 1.0) > 1).any()) for s in samples]
    )
    sessions = fitted("event").get("session", {}).get(target, {}).get("gemm", [])
    ends = [*(first for first, _ in sessions), np.inf]
    for number, (first, last) in enumerate(itertools.pairwise(ends), 1):
        at = batched & (met >= first) & (met < last)
        if FEWEST <= at.sum() <= MOST_LEFT_OUT * len(met):
            yield Left(target, f"session {number} left out", rows, at, cold=False)
    if target in COLD:
        at = batched & (met <= COLD[target])
        yield Left(target, "rising clock left out", rows, at, cold=True)


def of_each(
    predict: Callable[[Path], Floats], data: Path, files: Sequence[Path]
) -> list[Floats]:
    """Return predictions with the networks of each file, each in its own process.

    A process keeps what it has worked out for a target.
    """
    found: list[Floats] = []
    for file in files:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            found.append(pool.submit(_with, file, predict, data).result())
    return found


def _with(file: Path, predict: Callable[[Path], Floats], data: Path) -> Floats:
    with mock.patch("perfc.costmodels.gemm.residual.RESIDUAL_FILE", file):
        return predict(data)


def _published(name: str) -> Any:
    if str(PUBLISHED) not in sys.path:
        sys.path.append(str(PUBLISHED))
    return importlib.import_module(name)


def _clean(data: Path) -> list[Mapping[str, str]]:
    path = data / "end_to_end" / "transformers_fp32_seen_gpus.csv"
    rows = _published("transformers_fp32").labels(path)
    return [row for row in rows if row["label_clean"] == "True"]


def transformers_s(data: Path) -> Floats:
    """Return the seconds of whole transformers, predicted."""
    script = _published("transformers_fp32")
    rows = _clean(data)
    return np.array([script.predicted_s(r, load_target(r["target"])) for r in rows])


def transformer_scores(data: Path, files: Sequence[Path]) -> Iterator[Score]:
    """Yield the scores on whole transformers, by GPU."""
    rows, script = _clean(data), _published("transformers_fp32")
    names = np.array([row["target"] for row in rows])
    measured = np.array([script.measured_s(row) for row in rows])
    both = of_each(transformers_s, data, files)
    for name in sorted({*names.tolist()}):
        at = names == name
        where = name, "fp32", "sizes of layers"
        yield Score.of(where, [seconds[at] for seconds in both], measured[at])


def _dlrm(data: Path) -> list[Any]:
    rows, _ = _published("dlrm_traces").read(data / "dlrm_v100")
    return [row for row in rows if row.family.startswith(_GEMMS)]


def dlrm_s(data: Path) -> Floats:
    """Return the seconds of DLRM's GEMMs on another board of V100, predicted."""
    target, models = load_target(V100_BOARD, V100_CLOCK), cost_models()
    priced = [price(r.kernels, target, models).seconds.sum() for r in _dlrm(data)]
    return np.array(priced)


def _steps(data: Path) -> list[Mapping[str, str]]:
    path = data / "end_to_end" / "dlrm_lin_v100.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def steps_s(data: Path) -> Floats:
    """Return the seconds of DLRM's whole steps on that board, predicted."""
    script = _published("lin_steps")
    return np.array([script.report(row).time_us * 1e-6 for row in _steps(data)])


_OF_V100 = "v100-pcie-32g", "fp32"


def dlrm_gemms(data: Path, files: Sequence[Path]) -> Score:
    """Return the score on DLRM's GEMMs."""
    measured = np.array([row.us * 1e-6 for row in _dlrm(data)])
    where = *_OF_V100, "board of DLRM"
    return Score.of(where, of_each(dlrm_s, data, files), measured)


def dlrm_steps(data: Path, files: Sequence[Path]) -> Score:
    """Return the score on DLRM's whole steps."""
    measured = np.array([float(row["measured_e2e_ms"]) for row in _steps(data)]) * 1e-3
    where = *_OF_V100, "whole steps of DLRM there"
    return Score.of(where, of_each(steps_s, data, files), measured)


def _own() -> list[Sample]:
    wanted = "gemm", "bf16", "graph"
    return [
        sample
        for sample in held_out_samples(read_columns(OWN_ROWS))
        if (sample.key.op, sample.key.dtype, sample.key.timing) == wanted
    ]


def own_s(_: Path) -> Floats:
    """Return the seconds of perfc's own rows of H100, predicted."""
    return np.concatenate([sample.predicted_s(cost_models()) for sample in _own()])


def own_score(data: Path, files: Sequence[Path]) -> Score:
    """Return the score on them, of another board and library."""
    measured = np.concatenate([sample.measured_s for sample in _own()])
    where = "h100-sxm-80g", "bf16", "board and library"
    return Score.of(where, of_each(own_s, data, files), measured)


@attrs.frozen(eq=False)
class Fits:
    """Networks of fp32 as they are fitted here.

    Attributes:
        parts: Rows that are left out.
        without: The network of the others, for each part.
        whole: The network of all rows, by GPU and type.

    """

    parts: Sequence[Left]
    without: Sequence[Network]
    whole: Mapping[tuple[str, str], Network]


def fitted_here(data: Path) -> Fits:
    """Fit the networks of fp32 anew."""
    file = data / "measurements" / "ops_fp32_seen_gpus.parquet"
    groups: dict[str, list[Sample]] = {}
    for sample in samples_of(read_columns(file)):
        if sample.key.op == "gemm":
            groups.setdefault(sample.key.target, []).append(sample)
    parts = [part for name, group in groups.items() for part in left_out(name, group)]
    wholes = [GemmRows.joined([GemmRows.of(s) for s in g]) for g in groups.values()]
    fits = [*(part.others() for part in parts), *wholes]
    found = fit_residuals([(rows, simt_parameters()) for rows in fits])
    keys = [(name, "fp32") for name in groups]
    known = dict(zip(keys, found[len(parts) :], strict=True))
    return Fits(parts, found[: len(parts)], known)


def gemm_scores(data: Path) -> Iterator[Score]:
    """Yield the scores on GEMMs alone, of other sessions and boards."""
    fits = fitted_here(data)
    yield from _of_sessions(fits)
    with _both_files(fits) as files:
        yield dlrm_gemms(data, files)
        yield own_score(data, files)


def scores(data: Path) -> Iterator[Score]:
    """Yield all scores."""
    fits = fitted_here(data)
    yield from _of_sessions(fits)
    with _both_files(fits) as files:
        yield dlrm_gemms(data, files)
        yield dlrm_steps(data, files)
        yield own_score(data, files)
        yield from transformer_scores(data, files)


def _of_sessions(fits: Fits) -> Iterator[Score]:
    for part, network in zip(fits.parts, fits.without, strict=True):
        yield from part.scores(network)


@contextmanager
def _both_files(fits: Fits) -> Generator[list[Path]]:
    """Write no network to a file, and all that there are to another."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "formula.npz", Path(folder) / "networks.npz"]
        write_networks({}, files[0])
        write_networks({**networks(RESIDUAL_FILE), **fits.whole}, files[1])
        yield files


def losing(found: Sequence[Score]) -> dict[str, list[Score]]:
    """Return where networks lose, of those that lose on half of what decides or more.

    Of each as `GPU/type`; a network that wins on most stays, wherever it loses.
    """
    deciding: dict[str, list[Score]] = {}
    for score in (each for each in found if each.decides):
        deciding.setdefault(f"{score.target}/{score.dtype}", []).append(score)
    lost = {name: [s for s in own if s.loses] for name, own in deciding.items()}
    return {name: s for name, s in lost.items() if 2 * len(s) >= len(deciding[name])}


def write(found: Sequence[Score]) -> None:
    """List the networks that lose, and take them out of what is shipped."""
    lines = [
        "# Written by `benchmarks/corrections.py DATA --write`: networks that are",
        "# farther off than the formula on half or more of the sets of rows elsewhere.",
        "[not_shipped]",
    ]
    for name, lost in sorted(losing(found).items()):
        why = [
            f"{s.rows}: GMAE {s.network.gmae:.1%}, formula {s.formula.gmae:.1%}"
            for s in lost
        ]
        lines.append(f'"{name}" = "{"; ".join(why)}"')
    NOT_SHIPPED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_networks(shipped(networks(RESIDUAL_FILE)), RESIDUAL_FILE)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    errors = "MAPE | GMAE | p90 | max | bias"
    print(f"| GEMMs | n | formula: {errors} | network: {errors} |", flush=True)
    print(f"|---|{'--:|' * 11}")
    found: list[Score] = []
    for score in scores(options.data):
        print(score.line(), flush=True)
        found.append(score)
    if options.write:
        write(found)


if __name__ == "__main__":
    main()
