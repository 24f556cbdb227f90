"""The pass `dedup`: lists of sessions looked up once."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import perfc
from perfc.costmodels.locality import kept_share
from perfc.ir import PerfcError
from perfc.passes import PassManager
from perfc.passes.embeddings import Dedup
from perfc.passes.facts import LAUNCHES, TYPED
from perfc.passes.pipeline_spec import parse_pipeline

MODEL = "dlrm-ddp:tables=4,rows=100000"
SHARDED = "shard-embeddings{ranks=4}"


@functools.cache
def _report(*passes: str, model: str = MODEL, batch: int = 512) -> perfc.Report:
    several = SHARDED in passes
    return perfc.analyze(
        model,
        "dgx-a100" if several else "v100",
        mode="training",
        batch=batch,
        ranks=4 if several else None,
        passes=passes,
    )


def _bytes(report: perfc.Report, word: str, rank: int = 0) -> dict[str, int]:
    return {
        node["id"]: node["bytes"]
        for node in report.nodes
        if word in node["op"] and node["rank"] == rank
    }


def _dedup(session: float, stay: float, *more: str) -> str:
    return f"dedup{{session={session},stay=emb_l.*:{stay}{''.join(more)}}}"


@pytest.mark.parametrize(
    ("session", "stay"), [(4.0, 1.0), (16.5, 0.95), (3.7, 0.31), (1.0, 0.9)]
)
def test_exchanges_are_of_what_is_kept(session: float, stay: float) -> None:
    """The bytes of each all-to-all, times the share; read and written to a byte."""
    whole = _bytes(_report(SHARDED), "alltoall")
    kept = _bytes(_report(SHARDED, _dedup(session, stay)), "alltoall")
    share = kept_share(session, stay)

    assert whole.keys() == kept.keys()
    for name, size in whole.items():
        expected = size if "splits" in name else size * share
        assert expected == pytest.approx(kept[name], abs=2)


def test_features_without_sessions_are_sent_with_the_others() -> None:
    """In the same exchanges, whose bytes are the sums of both."""
    model = "dlrm-ddp:tables=8,rows=1000"
    some = "dedup{session=16.5,stay=emb_l.[0-3]:0.95}"
    whole = _bytes(_report(SHARDED, model=model), "alltoall")
    kept = _bytes(_report(SHARDED, some, model=model), "alltoall")
    share = (kept_share(16.5, 0.95) + 1) / 2

    assert whole.keys() == kept.keys()
    for name, size in whole.items():
        expected = size if "splits" in name else size * share
        assert expected == pytest.approx(kept[name], abs=2)


@pytest.mark.parametrize("session", [2.0, 16.5])
def test_lists_that_never_stay_cost_their_nodes(session: float) -> None:
    """With d = 0 each kernel of the plain step is there, as long as it was."""
    plain = _report(SHARDED)
    found = _report(SHARDED, _dedup(session, 0.0))

    def times(report: perfc.Report) -> list[tuple[str, float]]:
        return sorted(
            (node["id"].replace(".distinct", ""), node["duration_us"])
            for node in report.nodes
            if not node["id"].startswith("dedup.") and node["stream"]
        )

    before, after = times(plain), times(found)
    assert [name for name, _ in before] == [name for name, _ in after]
    assert [us for _, us in before] == pytest.approx([us for _, us in after])
    assert found.time_us > plain.time_us


@pytest.mark.parametrize("model", [MODEL, f"{MODEL},embedding=batched"])
@pytest.mark.parametrize("passes", [(), (SHARDED,)])
def test_sessions_alone_of_nothing(model: str, passes: tuple[str, ...]) -> None:
    """A step that is told of sessions in which nothing stays is the plain one."""
    told = _report(*passes, _dedup(8, 0.0, ",apply=false"), model=model)

    assert _report(*passes, model=model).time_us == told.time_us


def test_the_rows_of_a_step_are_the_same() -> None:
    """The kernels that update rows touch as many with and without it."""

    def touched(report: perfc.Report) -> list[int]:
        (launches,) = report.analysis.get(LAUNCHES)
        return sorted(
            kernel.work.bytes_written
            for kernel in launches.kernels
            if kernel.op == "embedding_bag"
            and kernel.params.get("optimizer") == "sgd"
            and kernel.params.get("algorithm") in ("warp_per_row", "cta_per_row")
        )

    model = f"{MODEL},embedding=batched"
    before = touched(_report(_dedup(4, 0.75, ",apply=false"), model=model))
    after = touched(_report(_dedup(4, 0.75), model=model))

    assert before
    assert before == after


def test_repeated_rows_are_found_in_caches() -> None:
    """Where nothing is deduplicated, lookups of sessions are faster than others."""
    model = "dlrm-default:embedding=batched"
    told = _report(_dedup(16.5, 0.95, ",apply=false"), model=model, batch=2048)

    assert told.time_us < _report(model=model, batch=2048).time_us


def test_only_some_tables() -> None:
    """Tables of a batched lookup that are in no group are looked up as before."""
    text = "dedup{session=4,stay=emb_l.0:1,emb_l.2:0.5}"
    model = perfc.load(f"{MODEL},embedding=batched", batch=64, transforms=_made(text))
    graph = model.program.classes[0].ops
    assert graph is not None
    lookups = [node for node in graph if node.op == "embedding_bag"]
    inverses = [value for value in graph.inputs if "inverse" in value.name]

    assert [1, 2, 1] == [len(node.attributes.records("tables")) for node in lookups]
    assert 2 == len(inverses)
    assert 2 == sum(
        node.op == "gather" and "atomic" in node.attributes for node in graph
    )


def _made(text: str) -> list[Any]:
    return parse_pipeline(text)


def test_inverse_indices_are_copied_in() -> None:
    """Four bytes a sample for each group."""
    report = _report("dedup{session=4,stay=emb_l.0:1,emb_l.2:0.5}")
    copies = [n for n in report.nodes if n["id"].endswith(".inverse")]

    assert [4 * 512, 4 * 512] == [node["bytes"] // 2 for node in copies]


def test_gradients_are_added_without_a_sort() -> None:
    """Backward is `index_add_`, forward `index_select`, of each group once."""
    ops = [node["op"] for node in _report(_dedup(4, 0.5)).nodes]

    assert 1 == ops.count("aten::index_select")
    assert 1 == ops.count("aten::index_add_")


def test_memory_is_freed() -> None:
    """Indices and pooled rows of fewer lists take less."""
    before = _report(SHARDED).memory_use.peak_bytes
    after = _report(SHARDED, _dedup(16.5, 0.95)).memory_use.peak_bytes

    assert after < before


def test_groups() -> None:
    """What an entry matches is a group; groups that are written join entries."""
    program = perfc.load(MODEL, batch=8).program
    (one,) = Dedup(4, "emb_l.*:0.5").found(program)
    joined, alone = Dedup(
        4, "emb_l.0:0.5;emb_l.1:0.5;emb_l.2:0.9", "emb_l.0+emb_l.1;emb_l.2"
    ).found(program)
    (exact, rest) = Dedup(4, "emb_l.3:0.1,*:0.5").found(program)

    assert ("emb_l.0", "emb_l.1", "emb_l.2", "emb_l.3") == one.tables
    assert (0.5, kept_share(4, 0.5)) == (one.stay, one.kept)
    assert (0.25, ("emb_l.0", "emb_l.1")) == (joined.stay, joined.tables)
    assert (0.9, 1 / kept_share(4, 0.9)) == (alone.stay, alone.factor)
    assert (("emb_l.3",), 3) == (exact.tables, len(rest.tables))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("session=0.5,stay=emb_l.0:1", "expected the mean samples of a session"),
        ("session=nan,stay=emb_l.0:1", "expected the mean samples of a session"),
        ("session=2,stay=emb_l.0:1.5", "expected a probability from 0 to 1"),
        ("session=2,stay=emb_l.0:-0.1", "expected a probability from 0 to 1"),
        ("session=2,stay=emb_l.0:x", "expected a probability from 0 to 1"),
        ("session=2,stay=user:1", "no feature is 'user'"),
        ("session=2,stay=emb_l.0", "expected FEATURE:d"),
        ("session=2,stay=", "says nothing"),
        ("session=2,stay=emb_l.0:1,groups=emb_l.1", "of which stay says nothing"),
        ("session=2,stay=emb_l.*:1,*:1", "has one inverse index: name it once"),
        ("session=2,stay=emb_l.*:1,emb_l.*:1", "given twice"),
    ],
)
def test_what_cannot_be(options: str, message: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(PerfcError, match=message):
        perfc.analyze(MODEL, "v100", batch=8, passes=[f"dedup{{{options}}}"])


def test_tables_that_ranks_hold_already() -> None:
    """Behind the sharding, lists of a group are on ranks without a common inverse."""
    program = perfc.load(MODEL, batch=8, transforms=_made(SHARDED)).program
    manager = PassManager([Dedup(4, "emb_l.*:0.5")], given=frozenset({TYPED}))

    with pytest.raises(PerfcError, match="no inverse index in common"):
        manager.run(program)


def test_lists_that_are_shared() -> None:
    """Features with one list are one group, or are refused."""
    model = "wide-and-deep:tables=2,rows=1000"
    whole = perfc.analyze(
        model, "v100", batch=64, mode="training", passes=["dedup{session=4,stay=*:0.5}"]
    )
    assert 1 == [n["op"] for n in whole.nodes].count("aten::index_add_")
    with pytest.raises(PerfcError, match="shares its indices"):
        perfc.analyze(
            model, "v100", batch=64, passes=["dedup{session=4,stay=deep.*:0.5}"]
        )
