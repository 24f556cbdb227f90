"""The option `--popularity`, as a user types it."""

from __future__ import annotations

import pytest
from tests.tools.command import Command

ANALYZE = ("analyze", "dlrm-default:tables=2", "--batch", "4096", "--target", "a100")


def test_popular_rows_are_faster(command: Command) -> None:
    """Skewed lookups of all tables take less than of one, and that than of none."""
    times = [
        command(*ANALYZE, "--format", "json", *options).report["summary"]["time_us"]
        for options in (
            ("--popularity", "zipf(1.2)"),
            ("--popularity", "emb_l.0=zipf(1.2)"),
            ("--popularity", "uniform"),
            (),
        )
    ]

    assert times[0] < times[1] < times[2] == times[3]


@pytest.mark.parametrize("text", ["", "=zipf(1)", "emb_l.0=", " "])
def test_nothing_said(command: Command, text: str) -> None:
    """An option that leaves the table or the popularity out is refused."""
    done = command(*ANALYZE, "--popularity", text)

    assert 2 == done.code
    assert f"--popularity {text!r}: expected TEXT, FILE or NAME=TEXT" == done.error


def test_said_twice(command: Command) -> None:
    """A table has one popularity."""
    twice = ("--popularity", "emb_l.0=zipf(1)", "--popularity", "emb_l.0=zipf(2)")
    done = command(*ANALYZE, *twice)

    assert (2, "--popularity of table 'emb_l.0' is given twice; give it once") == (
        done.code,
        done.error,
    )


def test_no_popularity(command: Command) -> None:
    """A text that is neither a popularity nor a file is refused."""
    done = command(*ANALYZE, "--popularity", "zopf(1)")

    assert 1 == done.code
    assert done.error.startswith("'zopf(1)' is no popularity; expected uniform, ")
