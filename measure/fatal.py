"""What made a GPU fail, so that the run that continues leaves it out.

After such an error (an illegal address, say) a process cannot use the GPU any more, and
the next one would only come as far.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import torch

from perfc.ir import PerfcError


class DeviceFailedError(PerfcError):
    """The GPU does nothing any more in this process; another may use it."""


_SUFFIX = ".failed.txt"
"""Added to the name of the table."""


@attrs.frozen
class Fatal:
    """A list beside a table of what is not tried again, one line each.

    Attributes:
        table: The table.

    """

    table: Path

    @property
    def path(self) -> Path:
        """Path of the list; without it everything is tried again."""
        return self.table.with_name(self.table.name + _SUFFIX)

    def known(self) -> frozenset[str]:
        """Return the lines of the list; none without one."""
        try:
            return frozenset(self.path.read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            msg = f"cannot read {self.path}: {error}; remove it, then measure again"
            raise PerfcError(msg) from None

    def nothing_left(self) -> PerfcError:
        """Return the error of a run that has no row, and nothing else to measure."""
        msg = f"nothing could be measured: all of it is in {self.path}; remove that"
        return PerfcError(f"{msg} to try again")

    def check(self, what: str, why: str, line: str) -> None:
        """Find out whether the GPU still works after *what* did not run."""
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError:
            msg = f"the GPU failed at {what}: {why}; the same command continues"
            try:
                with self.path.open("a", encoding="utf-8") as stream:
                    stream.write(f"{line}\n")
            except OSError as error:
                reason = error.strerror or error
                msg += f" there again, for {self.path} cannot be written: {reason}"
            raise DeviceFailedError(msg) from None
