"""Strategies that tests are made of."""

from __future__ import annotations

from hypothesis import strategies as st

from perfc.planning.strategies import Strategy

DATA = ("dp", "fsdp", "fsdp-grad-op", "fsdp-hybrid")
TABLES = ("dp", "table-wise", "row-wise", "column-wise", "table-row-wise", "grid")


@st.composite
def any_strategy(draw: st.DrawFn, *, tables: bool) -> Strategy:
    """Strategies that can be written, whether passes accept them or not."""
    stages = draw(st.integers(1, 9))
    staged = stages > 1
    schedule = draw(st.sampled_from(("gpipe", "1f1b", "interleaved")))
    chunked = staged and schedule == "interleaved"
    rounds = st.integers(1, 9).map(lambda n: n * stages if chunked else n)
    return Strategy(
        replicas=draw(st.integers(1, 99)),
        data=draw(st.sampled_from(DATA)),
        tensor=draw(st.integers(1, 9)),
        stages=stages,
        microbatches=draw(rounds),
        schedule=schedule if staged else "1f1b",
        chunks=draw(st.integers(2, 4)) if chunked else 1,
        tables=draw(st.sampled_from(TABLES)) if tables else "",
    )
