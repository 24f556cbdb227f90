"""Kernels measured in other sessions and on other boards than those that set intervals.

A user's kernels run on another board of the chip, on another day, with another library,
between others that leave caches and clocks as they are. Public traces of whole steps,
and perfc's own rows of an H100, are such: nothing is fitted to them of the kernels that
are compared here, or little. Rows of one op in one session are off alike, and each on
its own; what all rows of a session lie off is the session's and the board's.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

import attrs
import numpy as np

from perfc.costmodels import KernelTable, Target, cost_models, load_target, price
from perfc.costmodels.kernels import Floats
from perfc.costmodels.pricing import interval_sizes, intervals
from perfc.fitting.scores import Z90
from perfc.measurements import read_columns
from perfc.tools.replay import (
    read_recorded,
    target_of_trace,
    trace_ops,
    trace_prices,
)
from perfc.tools.replay.kernel_prices import By
from training.priced_rows import LEVEL, PricedRows
from training.samples import samples_of

sys.path.append(str(Path(__file__).parents[1] / "published"))
DLRM = import_module("dlrm_kernels")  # a script, whose neighbours are its imports


GEMM, OTHERS = "gemm", "default"
"""Kinds of kernels: those of GEMMs, and all others."""

BOARDS: Mapping[str, str] = {
    "dlrm_torchrec_8xV100_param/kineto_w0.json.gz": "V100-SXM2, PARAM",
    "dlrmprod_a100_hta_control.json.gz": "A100-PG509, HTA",
    "megatron_gpt_tp8_8xA100/kineto_r0.json.gz": "A100-SXM4, Megatron",
    "resnet50_v100dgxs_tb_nw0_9861.json.gz": "V100 DGX Station",
    "resnet50_v100dgxs_tb_nw4_6351.json.gz": "V100 DGX Station",
    "tl_h100_Falconsai_nsfw_image_detection.json.gz": "H100, TraceLens",
    "tl_h100_Qwen_Qwen1.5-0.5B-Chat.json.gz": "H100, TraceLens",
}
"""Traces with kernels whose sizes are told, on chips with rows, and their boards."""

LIN, OWN, SAME = "V100-SXM2, Lin et al.", "H100, perfc", "aiconfigurator"

SHORTEST_S = 1.5e-6
"""Kernels below which a profiler that counts whole microseconds says nothing."""

LONG = 1.0
"""Size from which on what software does to a kernel is small beside its board."""

FEWEST = 4
"""Kernels of a session that tell what it is off."""

_LIBRARIES = "elementwise"
"""The op of which several libraries' sessions measured the same shapes on one GPU."""

_ROWS = Path(__file__).parents[1] / "rows"


@attrs.frozen(eq=False)
class Session:
    """Kernels of one kind in one session, each distinct one once.

    Attributes:
        name: The session.
        board: The board that it ran on.
        kind: `GEMM` or `OTHERS`.
        logs: ln(predicted / measured), shape (kernels,); so are the others.
        sigma: What they are uncertain by in the session that was fitted.
        sizes: As `interval_sizes`.

    """

    name: str
    board: str
    kind: str
    logs: Floats
    sigma: Floats
    sizes: Floats

    @property
    def scaled(self) -> Floats:
        """What kernels are off, scaled to size 1."""
        found: Floats = self.logs * np.sqrt(self.sizes)
        return found


@attrs.frozen
class Errors:
    """What kernels of a kind are off elsewhere, standard deviations of logarithms.

    Attributes:
        session: In another session alike, at size 1.
        board: On another board alike.
        own: Each alone, at size 1.

    """

    session: float
    board: float
    own: float

    def sigma(self, rows: Session) -> Floats:
        """Return the uncertainty of rows of another board and session."""
        sized = (self.session**2 + self.own**2) / rows.sizes
        found: Floats = np.sqrt(np.square(rows.sigma) + self.board**2 + sized)
        return found


_Row: TypeAlias = tuple[float, float, float]
"""Predicted and measured seconds, and the sigma that is stated."""


def sessions_elsewhere(data: Path) -> list[Session]:
    """Return the sessions of a folder of public data, and those of perfc's own rows.

    What is stated of kernels is as in the sessions that were fitted.
    """
    with patch.object(intervals, "elsewhere_of", _nowhere):
        found = [*_of_traces(data / "traces"), *_of_lin(data / "dlrm_v100"), *_of_own()]
    return [session for session in found if len(session.logs)]


def _nowhere(_: str) -> intervals.Elsewhere:
    """Return no error of sessions and boards, of any op."""
    return intervals.NOWHERE


def _of_traces(folder: Path) -> Iterator[Session]:
    for file, board in BOARDS.items():
        recorded, *_ = read_recorded((folder / file,), steps=None, max_events=10**8)
        target = target_of_trace(recorded, None, "--target")
        prices = trace_prices(trace_ops(recorded), target).prices
        stated_s = recorded.graph.stated_s
        launches: dict[tuple[str, object, float], list[_Row]] = defaultdict(list)
        for task, one in prices.items():
            if one.by is By.MODEL and not one.is_spread:
                sigma = float(np.hypot(one.sigma_shared, one.sigma_own))
                row = one.seconds, stated_s[task], sigma
                launches[one.model, one.work, one.seconds].append(row)
        kinds: dict[str, list[_Row]] = defaultdict(list)
        for (model, _, seconds), rows in launches.items():
            measured_s = float(np.median([row[1] for row in rows]))
            kind = GEMM if model == GEMM else OTHERS
            kinds[kind].append((seconds, measured_s, rows[0][2]))
        for kind, rows in kinds.items():
            yield _session(file, board, kind, rows, target)


def lin_target() -> Target:
    """Return the V100 of Lin et al., whose clock was locked."""
    return load_target(DLRM.TARGET, DLRM.LOCKED)


def _of_lin(folder: Path) -> Iterator[Session]:
    target = lin_target()
    kinds: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for one in DLRM.read(folder)[0]:
        if len(one.kernels) == 1 and one.kernels[0].op != "memcpy":
            cost = price(one.kernels, target, cost_models())
            row = float(cost.seconds[0]), one.us * 1e-6, float(cost.sigma[0])
            kind = GEMM if one.kernels[0].op == GEMM else OTHERS
            kinds[one.trace, kind].append(row)
    for (trace, kind), rows in kinds.items():
        yield _session(f"{LIN}, {trace}", LIN, kind, rows, target)


def _of_own() -> Iterator[Session]:
    """Yield perfc's own rows of types whose intervals other rows set."""
    for file in sorted(_ROWS.glob("*/kernels.parquet")):
        for sample in samples_of(read_columns(file)):
            key = sample.key
            if (key.op, key.dtype, key.timing) != ("elementwise", "bf16", "graph"):
                continue
            timed = sample.predicted_s(cost_models())
            sigma = price(sample.table.kernels, sample.target, cost_models()).sigma
            rows = zip(timed, sample.measured_s, sigma, strict=True)
            yield _session(OWN, OWN, OTHERS, [*rows], sample.target)


def _session(
    name: str, board: str, kind: str, rows: Sequence[_Row], target: Target
) -> Session:
    seconds, measured_s, sigma = np.array(rows).reshape(-1, 3).T
    shown = measured_s >= SHORTEST_S
    seconds, measured_s, sigma = seconds[shown], measured_s[shown], sigma[shown]
    sizes = interval_sizes(seconds, target)
    return Session(name, board, kind, np.log(seconds / measured_s), sigma, sizes)


def library_pairs(data: Path) -> list[float]:
    """Return how far sessions of one board are off each other, scaled to size 1.

    Of each two libraries that measured the same streams on a GPU, the median.
    """
    found: list[float] = []
    for sample in samples_of(read_columns(data / "measurements/streaming.parquet")):
        if sample.key.op != _LIBRARIES:
            continue
        rows = PricedRows.of(sample, sample.kernel_s(cost_models()))
        timed_s = sample.timed_s(rows.kernel_s)
        scaled = np.log(timed_s / sample.measured_s)
        scaled *= np.sqrt(interval_sizes(rows.kernel_s, sample.target))
        shapes = _shapes(sample.table)
        by_library: dict[str, dict[object, float]] = defaultdict(dict)
        libraries = sample.table.text("software").tolist()
        for library, shape, log in zip(libraries, shapes, scaled, strict=True):
            by_library[library][shape] = log
        for one, other in itertools.combinations(by_library.values(), 2):
            both = [one[shape] - other[shape] for shape in one.keys() & other.keys()]
            if len(both) >= FEWEST:
                found.append(float(np.median(both)))
    return found


def _shapes(table: KernelTable) -> list[object]:
    columns = (table.param(name) for name in ("rows", "cols", "tensor_inputs"))
    return [*zip(*(column.tolist() for column in columns), strict=True)]


def fit_errors(sessions: Collection[Session], pairs: Sequence[float]) -> Errors:
    """Return how far kernels of a kind are off elsewhere.

    Of each session the median, scaled to size 1, says what it is off alike; two
    sessions of one board say it of each other. Boards are told apart by long kernels.
    The rest, each kernel's own, is the least with which nine in ten kernels are inside,
    every session counting alike.

    Args:
        sessions: Of one kind.
        pairs: As `library_pairs`.

    """
    medians = [np.median(s.scaled) for s in sessions if len(s.logs) >= FEWEST]
    squares = [*np.square(medians), *(np.square(pairs) / 2)]
    session = float(np.sqrt(np.mean(squares)))
    long: dict[str, list[float]] = defaultdict(list)
    for one in sessions:
        long[one.board] += one.logs[one.sizes >= LONG].tolist()
    of_boards = [np.median(logs) for logs in long.values() if len(logs) >= FEWEST]
    board = float(np.sqrt(np.mean(np.square(of_boards)))) if of_boards else 0.0
    low, high = 1e-4, 4.0
    while high - low > 1e-4:  # four digits
        own = (low + high) / 2
        inside = covered(sessions, Errors(session, board, own))
        low, high = (low, own) if inside >= LEVEL else (own, high)
    return Errors(session, board, high)


def covered(sessions: Collection[Session], errors: Errors) -> float:
    """Return the share of kernels inside 90 %, every session counting alike."""
    shares = [np.mean(np.abs(s.logs) <= Z90 * errors.sigma(s)) for s in sessions]
    return float(np.mean(shares))
