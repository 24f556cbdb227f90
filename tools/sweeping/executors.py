"""Executors by what `--executor` says."""

from __future__ import annotations

import re

from perfc.ir import UsageError
from perfc.tools.sweeping.executor import Executor
from perfc.tools.sweeping.local_executor import LocalExecutor, processors

_MOST = 1024
"""Processes of one machine."""

_LOCAL = re.compile(r"local(?::(\d{1,5}))?")
_DASK = re.compile(r"dask://(\S+:\d{1,5})")


def find_executor(text: str) -> Executor:
    """Return the executor of `local`, `local:N` or `dask://HOST:PORT`."""
    if local := _LOCAL.fullmatch(text):
        count = int(local[1]) if local[1] else processors()
        if 1 <= count <= _MOST:
            return LocalExecutor(count)
    elif dask := _DASK.fullmatch(text):
        from perfc.tools.sweeping.dask_executor import DaskExecutor

        return DaskExecutor.of(dask[1])
    msg = f"executor {text!r}: expected local, local:N (N up to {_MOST}) or "
    raise UsageError(msg + "dask://HOST:PORT")
