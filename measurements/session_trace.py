"""Samples with their sessions, from files: how often the lists of a feature stay.

A line is a sample, in the order that batches have them; one column names its session,
the others are features, a row of a table or a list of rows in each cell. Parquet holds
lists as such; in CSV a cell is compared as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import brief, damage_as, read_whole
from perfc.measurements.index_trace import IndexTraceError, arrow_table, bag_lengths
from perfc.measurements.table import arrow_codes, coded_columns

Ints = NDArray[np.int64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_SHOWN = 5


@attrs.frozen(eq=False)
class SessionTrace:
    """Samples in order.

    Attributes:
        path: The file.
        sessions: Number of each sample's session, shape (samples,).
        lists: By feature, a number for each sample: of equal lists the same.

    """

    __repr__ = brief

    path: Path
    sessions: Ints
    lists: Mapping[str, Ints]

    def mean_session(self, batch: int | None = None) -> float:
        """Return the mean samples of a session inside a batch.

        Args:
            batch: Samples of a batch; None for all as one. A session that batches cut
                counts as its pieces.

        """
        keys = self._keys(batch)
        return len(keys) / len(np.unique(keys))

    def stay(self, features: Sequence[str], batch: int | None = None) -> float | None:
        """Return how often the lists of all features stay as they were.

        That is, of the samples that are not the first of their session in a batch, the
        share whose lists are those of the sample before. None where there are none.
        """
        keys = self._keys(batch)
        order = np.argsort(keys, kind="stable")
        follows = keys[order][1:] == keys[order][:-1]
        if not follows.any():
            return None
        same = follows.copy()
        for feature in features:
            codes = self.lists[feature][order]
            same &= codes[1:] == codes[:-1]
        return float(same.sum() / follows.sum())

    def of_tables(self, tables: Sequence[str]) -> SessionTrace:
        """Return the samples with the features called by their tables.

        Columns are those of tables by name, or in order where there are as many.
        """
        names = [name.removesuffix(".weight") for name in self.lists]
        if not set(names) & set(tables):
            if len(names) != len(tables):
                found, wanted = ", ".join(names[:_SHOWN]), ", ".join(tables[:_SHOWN])
                msg = (
                    f"{self.path} has {len(names)} features ({found}), the model looks "
                    f"{len(tables)} tables up ({wanted}): neither names nor numbers "
                    "agree"
                )
                raise UsageError(msg)
            names = [*tables]
        lists = dict(zip(names, self.lists.values(), strict=True))
        return attrs.evolve(self, lists=lists)

    def _keys(self, batch: int | None) -> Ints:
        count = len(self.sessions)
        batches = np.arange(count) // (batch or count)
        keys: Ints = batches * (int(self.sessions.max()) + 1) + self.sessions
        return keys


def read_session_trace(path: str | Path, session_key: str) -> SessionTrace:
    """Read samples.

    Args:
        path: A `.parquet` or `.csv` file.
        session_key: The column that names sessions.

    """
    path = Path(path)
    readers = {".parquet": _from_parquet, ".csv": _from_csv}
    if path.suffix not in readers:
        msg = f"{path}: expected a .parquet or .csv file of samples"
        raise UsageError(msg)
    columns = readers[path.suffix](path)
    if session_key not in columns:
        listed = ", ".join(columns) or "none"
        msg = f"{path}: no column {session_key!r} (--session-key); it has {listed}"
        raise UsageError(msg)
    sessions = columns.pop(session_key)
    if not len(sessions):
        msg = f"{path}: no samples"
        raise IndexTraceError(msg)
    if not columns:
        msg = f"{path}: no column but {session_key!r}: there are no features"
        raise IndexTraceError(msg)
    if int(sessions.min()) < 0:
        missing = int((sessions < 0).sum())
        msg = f"{path}: {session_key!r} has no value {missing} times"
        raise IndexTraceError(msg)
    return SessionTrace(path, sessions, columns)


def _from_csv(path: Path) -> dict[str, Ints]:
    try:
        columns = coded_columns(read_whole(path, IndexTraceError))
    except PerfcError as error:
        if str(path) in str(error):
            raise
        msg = f"{path}: {error}"
        raise type(error)(msg) from None
    found: dict[str, Ints] = {}
    for name, (cells, at) in columns.items():
        codes = np.array([n if cell.strip() else -1 for n, cell in enumerate(cells)])
        found[name] = codes[np.array(at, np.intp)].astype(np.int64)
    return found


def _from_parquet(path: Path) -> dict[str, Ints]:
    table = arrow_table(path)
    with damage_as(IndexTraceError, str(path), ".parquet"):
        return {name: _codes(table.column(name)) for name in table.column_names}


def _codes(column: Any) -> Ints:  # a `pyarrow.ChunkedArray`
    """Return a number for each cell, the same for equal ones; -1 where it has none."""
    cells = column.combine_chunks()
    if str(cells.type).startswith(("list", "large_list", "fixed_size_list")):
        # Number lists by a hash of 64 bits of their items and places.
        counts = bag_lengths(cells)
        items = _scalar_codes(cells.flatten()).astype(np.uint64)
        ends = np.cumsum(counts)
        places = (np.arange(len(items)) - np.repeat(ends - counts, counts)).astype(
            np.uint64
        )
        mixed = _mixed(items + _mixed(places + np.uint64(1)))
        sums = np.concatenate(([np.uint64(0)], np.cumsum(mixed, dtype=np.uint64)))
        hashed = sums[ends] - sums[ends - counts] + _mixed(counts.astype(np.uint64))
        _, codes = np.unique(hashed, return_inverse=True)
        return codes.astype(np.int64)
    return _scalar_codes(cells)


def _scalar_codes(cells: Any) -> Ints:  # a `pyarrow.Array`
    _, codes = arrow_codes(cells)
    found: Ints = np.from_dlpack(codes.fill_null(-1)).astype(np.int64)
    return found


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits of numbers, which wrap around."""
    spread = (numbers + np.uint64(1)) * _ODD
    spread = (spread ^ (spread >> _SHIFT)) * _ODD
    found: NDArray[np.uint64] = spread ^ (spread >> _SHIFT)
    return found
