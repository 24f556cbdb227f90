"""Processes of this machine may die: the rows are those of one process."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

import perfc
from perfc.tools.request import Request
from perfc.tools.sweeping import (
    Progress,
    Space,
    find_executor,
    read_varied,
    run_sweep,
)

MODEL = "dlrm-ddp:tables=2,rows=1000"
VARY = {"batch": range(64, 264)}


def test_a_worker_dies_midway() -> None:
    """The rows that came stay, others are priced by processes that are started anew."""
    told: list[Progress] = []

    def kill_once(progress: Progress) -> None:
        if progress.new and not any(one.new for one in told):
            multiprocessing.active_children()[0].kill()
        told.append(progress)

    swept = perfc.sweep(MODEL, "a100", VARY, executor="local:2", progress=kill_once)

    assert [*perfc.sweep(MODEL, "a100", VARY).rows] == [*swept.rows]
    assert 200 == told[-1].new


def test_workers_that_die_at_once(tmp_path: Path) -> None:
    """There is one line, and no endless attempts."""
    plugin = tmp_path / "deadly_plugin.py"
    plugin.write_text("import os\nos._exit(1)\n", encoding="utf-8")
    space = Space.of(
        Request(model=MODEL),
        ["a100"],
        [read_varied("batch=64:263:1")],
        plugins=[str(plugin)],
    )

    with pytest.raises(perfc.PerfcError, match="processes end before they price"):
        run_sweep(space, find_executor("local:2"))
