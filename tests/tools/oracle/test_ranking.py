"""`Oracle.rank` and `Oracle.explain`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.oracle.test_oracle import CLOSE, oracle_of

from perfc import Oracle, PerfcError, edits


def test_fastest_first() -> None:
    """Times are those of `ask`; probabilities add up to 1."""
    oracle = oracle_of("dlrm")
    candidates: list[Any] = [
        edits.Duration("gemm", factor=2),
        (edits.Bind(batch=8), edits.Target("h100")),
        (),
        edits.Apply("capture-graph"),
    ]
    found = oracle.rank(candidates)
    times = [ranked.time_us for ranked in found]

    assert sorted(times) == times
    assert sum(ranked.probability for ranked in found) == pytest.approx(1)
    for ranked in found:
        assert oracle.ask(*ranked.edits) == pytest.approx(ranked.time_us, rel=CLOSE)
    assert found == oracle.rank(candidates)


def test_what_is_common_errs_alike() -> None:
    """What only takes longer is never the best, however wide the interval."""
    oracle = oracle_of("dlrm")
    low_us, high_us = oracle.report().interval_us
    slower = edits.Target(**{"host.speed": 0.99})
    first, second = oracle.rank([slower, edits.Target(**{"host.speed": 1})])

    assert high_us > 1.5 * low_us
    assert second.edits == (slower,)
    assert first.probability > 0.99


def test_what_hides_may_hide() -> None:
    """A longer kernel costs nothing where the host is slower than expected."""
    oracle = oracle_of("dlrm")
    longer = edits.Duration("bot_l.0.linear", us=oracle.time_us * 1.01)
    first, second = oracle.rank([longer, ()])

    assert ((), (longer,)) == (first.edits, second.edits)
    assert 0 < second.probability < first.probability


def test_equals_share() -> None:
    """Candidates that are the same are as likely."""
    found = oracle_of("dlrm").rank([(), (), ()])

    assert [1 / 3] * 3 == pytest.approx([ranked.probability for ranked in found])


def test_models_that_err_apart_leave_a_doubt() -> None:
    """Where another cost model decides, the slower candidate may be the faster one."""
    oracle = Oracle(
        "dlrm-default:tables=4,rows=1000000", "a100", batch=8192, runtime="cudagraph"
    )
    oracle.apply(edits.Duration("memcpy", us=0))
    other = edits.Target("h100-sxm")
    found = oracle.rank([(), edits.Bind(batch=8200), other])

    assert found[0].edits == (other,)
    assert all(0 <= ranked.probability <= 1 for ranked in found)
    assert found[1].probability + found[2].probability < 0.5


@pytest.mark.parametrize("candidates", [[], None, "gemm", ["gemm"], [[1]]])
def test_candidates_that_are_none(candidates: object) -> None:
    """One line says what was expected."""
    with pytest.raises(PerfcError, match="expected"):
        oracle_of("dlrm").rank(candidates)  # type: ignore[arg-type]


def test_how_a_question_is_answered() -> None:
    """What is worked out again is said, and why."""
    oracle = oracle_of("dlrm")
    duration = edits.Duration("bot_l.1.relu", us=1)

    assert oracle.explain() == "as it stands"
    assert "through it and around it" in oracle.explain(duration)
    assert "solved again from the first" in oracle.explain(edits.Duration("gemm", us=1))
    assert "the same tasks" in oracle.explain(edits.Bind(batch=63), duration)
    assert "kernels priced again" in oracle.explain(edits.Target("v100"))
    fused = edits.Fuse(["bot_l.0.linear", "bot_l.1.relu"])
    assert oracle.explain(fused).startswith("other tasks, 1 of")
    dtype = edits.Dtype("top_l.0", "bf16")
    assert "analyzed from the graph on" in oracle.explain(fused, dtype)
    ranks = Oracle(
        "dlrm-ddp:tables=2,rows=1000", "dgx-a100", batch=64, mode="training", ranks=2
    )
    assert "contention" in ranks.explain(edits.Duration("gemm", us=1))
