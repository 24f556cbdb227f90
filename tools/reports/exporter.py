"""What an exporter is, and how one is found by the name of its format."""

from __future__ import annotations

import abc
from collections.abc import Sequence
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

    """

    holds_several: ClassVar[bool] = False
    needs_file: ClassVar[bool] = False

    @abc.abstractmethod
    def export(self, reports: Sequence[Report], path: Path | None) -> str | bytes:
        """Return the document; the caller writes it to *path*, or prints it.

        Args:
            reports: At least one; several only where `holds_several`.
            path: The file it is for; never None where `needs_file`.

        Raises:
            PerfcError: the format cannot hold these reports.

        """

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

    Raises:
        UsageError: no exporter has this name, or it cannot take so many reports,
            or needs a file.
        PerfcError: the plugin of this name cannot be used.

    """
    found = load_plugin(EXPORTERS, name)
    if not (isinstance(found, type) and issubclass(found, Exporter)):
        msg = f"plugin {name!r} of {EXPORTERS} is not a subclass of Exporter: {found!r}"
        raise PerfcError(msg)
    exporter = found()
    if reports > 1 and not exporter.holds_several:
        msg = f"format {name!r} holds one report, not {reports}: give {instead}"
        raise UsageError(msg)
    if exporter.needs_file and path is None:
        msg = f"format {name!r} cannot be printed: give the file with -o FILE"
        raise UsageError(msg)
    return exporter
