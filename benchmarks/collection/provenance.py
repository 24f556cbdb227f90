"""What made a table: the commit of the checkout, the day, and the versions."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from perfc.ir import PerfcError

ROOT = Path(__file__).parents[2]


def provenance(root: Path = ROOT) -> dict[str, str]:
    """Return the commit, date and versions that make tables in an unchanged checkout.

    Raises:
        PerfcError: it has changes that no commit has, or no commit.

    """
    return {
        "perfc_commit": commit_of(root),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }


def commit_of(root: Path) -> str:
    """Return the commit of a checkout that has no changes beside it.

    Raises:
        PerfcError: it has some, or there is no commit.

    """
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        msg = (
            f"{changed[0][3:]}{more}: not committed; predictions name the commit that "
            "made them, so commit first"
        )
        raise PerfcError(msg)
    return _git(root, "rev-parse", "HEAD").strip()


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607
            cwd=root,
            capture_output=True,
            check=True,
            text=True,
        )
    except OSError as error:
        msg = f"git, which says what commit predicts: {error.strerror or error}"
        raise PerfcError(msg) from None
    except subprocess.CalledProcessError as error:
        msg = f"git {arguments[0]} in {root}: {str(error.stderr).strip()}"
        raise PerfcError(msg) from None
    return done.stdout
