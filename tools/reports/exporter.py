"""What an exporter is, and how one is found by the name of its format."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from perfc.ir import EXPORTERS, PerfcError, UsageError
from perfc.ir.support import load_plugin

if TYPE_CHECKING:
    from perfc.tools.reports.report import Report


class Exporter(abc.ABC):
    """Writes reports in one format; registered under the format's name.

    Attributes:
        holds_several: Whether one document can hold several reports.
        needs_file: Whether it is of use only in a file: it is not text, or it
            refers to other files by where it lies.
        splits: Whether one report can be the files of a folder.

    """

    holds_several: ClassVar[bool] = False
    needs_file: ClassVar[bool] = False
    splits: ClassVar[bool] = False

    @abc.abstractmethod
    def export(self, reports: Sequence[Report], path: Path | None) -> str | bytes:
        """Return the document; the caller writes it to *path*, or prints it.

        Args:
            reports: At least one; several only where `holds_several`.
            path: The file it is for; never None where `needs_file`.

        """

    def split(self, report: Report) -> Iterator[tuple[str, str | bytes]]:
        """Return the names of files and what is in them; only where `splits`."""
        raise NotImplementedError

    def write_split(self, report: Report, folder: Path) -> None:
        """Write the files of a report into *folder*, over files of the same names."""
        from perfc.ir.support import write_file

        for name, document in self.split(report):
            write_file(folder / name, document)

    def compared(self, reports: Sequence[Report]) -> str | None:
        """Return a comparison of several reports, where it is enough without them.

        Args:
            reports: At least two.

        Returns:
            None for a format that always holds the reports themselves.

        """
        return None


def find_exporter(
    name: str,
    *,
    reports: int = 1,
    path: Path | None = None,
    instead: str = "one --target",
) -> Exporter:
    """Return the exporter of a format that can take what it is going to get.

    Args:
        name: Name of the format.
        reports: How many reports there are.
        path: The file that the document is for; None for none.
        instead: What to give to have one report.

    """
    found = load_plugin(EXPORTERS, name)
    if not (isinstance(found, type) and issubclass(found, Exporter)):
        msg = f"plugin {name!r} of {EXPORTERS} is not a subclass of Exporter: {found!r}"
        raise PerfcError(msg)
    exporter = found()
    if reports > 1 and not exporter.holds_several:
        msg = f"format {name!r} holds one report, not {reports}: give {instead}"
        raise UsageError(msg)
    if path is not None and path.is_dir() and not exporter.splits:
        msg = f"format {name!r} writes one file, and {path} is a folder: name a file"
        raise UsageError(msg)
    if exporter.needs_file and path is None:
        msg = f"format {name!r} cannot be printed: give the file with -o FILE"
        raise UsageError(msg)
    return exporter
