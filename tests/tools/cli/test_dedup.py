"""`perfc dedup` as it is typed."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command, Outcome

from perfc.costmodels.locality import kept_share

MODEL = "dlrm-ddp:tables=4,rows=1000"
ON = ("--target", "dgx-a100", "--ranks", "2", "--batch", "256")
SESSIONS = ("--session", "16.5", "--stay", "emb_l.[01]=0.95", "--stay", "emb_l.3=0.5")


def _dedup(command: Command, *arguments: str) -> Outcome:
    return command("dedup", MODEL, *ON, "-q", *arguments)


def _json(outcome: Outcome) -> dict[str, Any]:
    assert "" == outcome.err
    assert 0 == outcome.code
    found: dict[str, Any] = outcome.report
    assert "perfc.dedup/1" == found["schema"]
    return found


def test_groups_and_plans(command: Command) -> None:
    """Each entry is a group; a step with and without, the faster first."""
    found = _json(_dedup(command, *SESSIONS, "--format", "json"))
    first, second = found["groups"]
    times = [plan["time_us"] for plan in found["plans"]]

    assert ["emb_l.0", "emb_l.1"] == first["tables"]
    assert kept_share(16.5, 0.95) == first["kept"]
    assert 1 / kept_share(16.5, 0.5) == second["factor"]
    assert {"dedup", "without"} == {plan["name"] for plan in found["plans"]}
    assert sorted(times) == times
    assert found["session"] == 16.5


def test_memory_and_batches(command: Command) -> None:
    """What is freed lets more samples in; one more than the largest does not fit."""
    found = _json(_dedup(command, *SESSIONS, "--format", "json"))
    plans = {plan["name"]: plan for plan in found["plans"]}
    with_it, without = plans["dedup"], plans["without"]
    usable = 79.2 * 2**30

    assert with_it["peak_memory_bytes"] < without["peak_memory_bytes"] < usable
    assert with_it["largest_batch"] > without["largest_batch"] > 256
    for batch, fits in ((0, True), (1, False)):
        size = str(without["largest_batch"] + batch)
        report = command(
            *("analyze", MODEL, *ON[:4], "--batch", size, "--mode", "training"),
            *("--pass", "shard-embeddings", "--strict", "--format", "json"),
        )
        assert (0 if fits else 5) == report.code


def test_a_gpu_alone_gains_little(command: Command) -> None:
    """With batched tables in its own memory; the report says so."""
    outcome = command(
        *("dedup", "dlrm-ddp:embedding=batched", "--target", "v100"),
        *("--session", "16.5", "--stay", "*=0.95", "--batch", "512", "-q"),
    )

    assert 0 == outcome.code
    assert "[little-gain]" in outcome.out
    assert "in the GPU's own memory" in outcome.out


def _trace(path: Path, features: int = 4) -> Path:
    """Write samples of sessions of 16 on average, of which 0.9 of the lists stay."""
    rng, lines, number = random.Random(5), list[str](), 0
    while len(lines) < 40_000:
        number += 1
        user = rng.randrange(10**9)
        for place in range(rng.randint(1, 31)):
            if place and rng.random() >= 0.9:
                user = rng.randrange(10**9)
            lines.append(f"{number},{user},{user},{len(lines)},7")
    names = ["sid", *(f"emb_l.{n}" for n in range(features))]
    path.write_text("\n".join([",".join(names), *lines]) + "\n", "utf-8")
    return path


def test_sessions_are_measured(command: Command, tmp_path: Path) -> None:
    """Features that stay together are a group; a batch cuts sessions."""
    path = str(_trace(tmp_path / "t.csv"))
    measure = ("--measure", path, "--session-key", "sid", "--format", "json")
    groups = ("--group", "emb_l.0+emb_l.1", "--group", "emb_l.2", "--group", "emb_l.3")
    found = _json(_dedup(command, *measure, *groups))
    stays = {tuple(group["tables"]): group["stay"] for group in found["groups"]}
    session = found["session"]

    assert found["measured"]["session_of_file"] == pytest.approx(16, rel=0.02)
    assert 256 / (256 / 16 + 1) == pytest.approx(session, rel=0.02)
    assert stays["emb_l.0", "emb_l.1"] == pytest.approx(0.9, rel=0.02)
    assert 0.0 == stays["emb_l.2",]
    assert 1.0 == stays["emb_l.3",]
    assert 4 == len(_json(_dedup(command, *measure))["groups"])


@pytest.mark.parametrize("form", ["csv", "md", "html", "table"])
def test_formats(command: Command, tmp_path: Path, form: str) -> None:
    """Each is written; a table of rows for programs, text for people."""
    path = tmp_path / f"found.{form}"
    outcome = _dedup(command, *SESSIONS, "--format", form, "-o", str(path))
    text = path.read_text("utf-8")

    assert 0 == outcome.code
    assert "dedup" in text
    if form == "csv":
        names = [row["name"] for row in csv.DictReader(io.StringIO(text))]
        assert {"dedup", "without"} == set(names)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "--session is missing"),
        (("--session", "4"), 2, "--stay is missing"),
        (("--session", "0.5", "--stay", "emb_l.0=1"), 2, "0.5"),
        (("--session", "4", "--stay", "emb_l.0=1.5"), 2, "from 0 to 1"),
        (("--session", "4", "--stay", "user=1"), 2, "no feature is 'user'"),
        (("--session", "4", "--stay", "emb_l.0"), 2, "expected NAME=VALUE"),
        (("--measure", "t.csv"), 2, "go together"),
        (("--session-key", "sid", "--session", "2"), 2, "--stay is missing"),
        (
            ("--measure", "t.csv", "--session-key", "sid", "--session", "2"),
            *(2, "exclude each other"),
        ),
        (("--measure", "no.csv", "--session-key", "sid"), 1, "no.csv"),
        (
            ("--session", "4", "--stay", "emb_l.0=1", "--group", "emb_l.1"),
            *(2, "of which stay says nothing"),
        ),
    ],
)
def test_what_cannot_be(
    command: Command, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """One line says what is wrong, and how to go on."""
    outcome = _dedup(command, *arguments)

    assert code == outcome.code
    assert message in outcome.err
    assert 1 == len(outcome.err.splitlines())


def test_a_session_column_that_is_missing(command: Command, tmp_path: Path) -> None:
    """The columns that there are are named."""
    path = str(_trace(tmp_path / "t.csv"))
    outcome = _dedup(command, "--measure", path, "--session-key", "session")

    assert 2 == outcome.code
    assert "no column 'session' (--session-key); it has sid, emb_l.0" in outcome.err


def test_features_of_another_model(command: Command, tmp_path: Path) -> None:
    """Neither their names nor their number agree."""
    path = tmp_path / "t.csv"
    path.write_text("sid,a,b\n1,2,3\n", "utf-8")
    outcome = _dedup(command, "--measure", str(path), "--session-key", "sid")

    assert 2 == outcome.code
    assert "neither names nor numbers agree" in outcome.err
