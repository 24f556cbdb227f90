"""Sessions of samples in a file, as the pass `dedup` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from perfc.ir import UsageError
from perfc.measurements import read_session_trace
from perfc.passes.embeddings import matched_names
from perfc.passes.graphs import listed


@attrs.frozen(kw_only=True)
class MeasuredSessions:
    """What a file says of the features of a model.

    Attributes:
        path: The file.
        samples: Samples in it.
        whole: Mean samples of a session of the file.
        session: Mean samples of a session, or of a piece of one, inside a batch.
        stays: How often the lists of each group of features stay, by their names with
            `+` between them.

    """

    path: str
    samples: int
    whole: float
    session: float
    stays: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the document."""
        return {
            "file": self.path,
            "samples": self.samples,
            "session_of_file": self.whole,
            "session": self.session,
        }


def measured_stays(
    path: str | Path,
    session_key: str,
    *,
    tables: Sequence[str],
    batch: int,
    groups: Sequence[str] = (),
) -> MeasuredSessions:
    """Measure sessions, and how often lists stay from one sample to the next.

    Columns are features by the names of tables, or in their order where there are as
    many; those of other names are left out.

    Args:
        path: A Parquet or CSV file of samples, in the order of batches.
        session_key: The column that names sessions.
        tables: Names of the tables of the model.
        batch: Samples of a batch of a rank, which cuts sessions.
        groups: Groups of features, patterns with `+` between them, whose lists stay
            together; each feature is one of its own if there are none.

    """
    trace = read_session_trace(path, session_key).of_tables(tables)
    known = [table for table in tables if table in trace.lists]
    members = [_members(group, known) for group in groups] or [[name] for name in known]
    return MeasuredSessions(
        path=str(path),
        samples=len(trace.sessions),
        whole=trace.mean_session(),
        session=trace.mean_session(batch),
        stays={"+".join(names): trace.stay(names, batch) or 0.0 for names in members},
    )


def _members(group: str, known: Sequence[str]) -> list[str]:
    patterns = [part.strip() for part in group.split("+")]
    found = {name for pattern in patterns for name in matched_names(pattern, known)}
    if not found:
        msg = f"--group: no measured feature is {group!r}; there are {listed(known)}"
        raise UsageError(msg)
    return [name for name in known if name in found]
