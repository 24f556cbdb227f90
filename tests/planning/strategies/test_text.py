"""Strategies as people write them."""

from __future__ import annotations

import math
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from tests.planning.strategies.drawn import any_strategy

from perfc.ir import UsageError
from perfc.planning.strategies import Refused, Strategy, StrategySpace, read_strategy

SPACE = StrategySpace(
    ranks=8, gpus_per_node=8, tables=False, training=True, batch=5040 * 8
)
WITH_TABLES = attrs.evolve(SPACE, tables=True)


def _read(text: str, space: StrategySpace = SPACE) -> list[str]:
    return [str(one) for one in read_strategy(text, space) if isinstance(one, Strategy)]


@given(any_strategy(tables=False))
def test_what_is_written_is_read(strategy: Strategy) -> None:
    """A strategy is read as what it was, but that one replica shares nothing."""
    space = attrs.evolve(
        SPACE, ranks=strategy.ranks, batch=strategy.replicas * strategy.microbatches
    )

    (found,) = read_strategy(str(strategy), space)

    if isinstance(found, Refused):
        found = attrs.evolve(
            found.strategy,
            microbatches=strategy.microbatches,
            schedule=strategy.schedule,
            chunks=strategy.chunks,
        )
    if strategy.replicas == 1 and strategy.ranks > 1:
        strategy = attrs.evolve(strategy, data="dp")
    assert strategy == found


@given(any_strategy(tables=True))
def test_what_is_written_of_tables_is_read(strategy: Strategy) -> None:
    """Classes of layers come back, too."""
    (found, *_) = read_strategy(
        str(strategy), attrs.evolve(WITH_TABLES, ranks=strategy.ranks, batch=None)
    )

    read = found.strategy if isinstance(found, Refused) else found
    assert strategy.tables == read.tables
    assert (strategy.replicas, strategy.tensor) == (read.replicas, read.tensor)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("dp", "dp:8"),
        ("ddp:8", "dp:8"),
        ("tp", "tp:8"),
        ("tp:4", "dp:2 tp:4"),
        ("tp:2 fsdp", "fsdp:4 tp:2"),
        ("fsdp-full:2+tp:4", "fsdp:2 tp:4"),
        ("blocks=fsdp-grad-op:8", "fsdp-grad-op:8"),
        ("dp:2,pp:4,mb:6,gpipe", "dp:2 pp:4 mb:6 gpipe"),
        ("  pp:8   mb:3 1f1b ", "pp:8 mb:3 1f1b"),
        ("dp:8 tp:1 pp:1", "dp:8"),
        ("pp:2 mb:8 interleaved:3", "dp:4 pp:2 mb:8 interleaved:3"),
        ("pp:4 interleaved mb:8", "dp:2 pp:4 mb:8 interleaved:2"),
        ("mb:4 fsdp", "fsdp:8 mb:4"),
        ("tp:8 mb:1", "tp:8"),
    ],
)
def test_one_strategy(text: str, read: str) -> None:
    """One kind without a degree takes what is left, replicas if there is none."""
    assert [read] == _read(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("mlp=ddp emb=table-wise", "dense=dp:8 emb=table-wise"),
        ("dense=fsdp emb=rw", "dense=fsdp:8 emb=row-wise"),
        ("emb=grid", "dense=dp:8 emb=grid"),
        ("dense=tp:4+dp:2 emb=dp", "dense=dp:2+tp:4 emb=dp"),
        ("tp:4", "dense=dp:2+tp:4 emb=dp"),
    ],
)
def test_classes_of_layers(text: str, read: str) -> None:
    """Tables go their own way, and stay with every replica if nothing is said."""
    assert [read] == _read(text, WITH_TABLES)


def test_a_plan_file(tmp_path: Path) -> None:
    """A file says where each table goes."""
    plan = tmp_path / "plan.json"
    plan.write_text("{}")

    assert [f"dense=dp:8 emb={plan}"] == _read(f"emb={plan}", WITH_TABLES)


def test_what_is_left_open_is_tried() -> None:
    """Microbatches up to four times the stages, in all orders."""
    found = _read("pp:2")

    assert [
        f"dp:4 pp:2 mb:{count} {schedule}"
        for count in (2, 4, 8)
        for schedule in ("1f1b", "gpipe", "interleaved:2")
    ] == found
    assert ["dp:4 pp:2 mb:6 1f1b"] == _read("pp:2 mb:6 1f1b")
    chosen = attrs.evolve(SPACE, microbatches=(3, 5))
    assert 4 == len(_read("pp:2", chosen))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it says nothing"),
        ("dp:3 tp:2", "is for 6 GPUs, but there are 8"),
        ("tp:3", "is for 3 GPUs, but there are 8"),
        ("dp:16", "is for 16 GPUs"),
        ("dp:4 fsdp:2", "dp and fsdp exclude each other"),
        ("tp:2 tp:4", "tp is said twice"),
        ("dp tp", "dp and tp have no degrees"),
        ("mb:4", "it says nothing"),
        ("dp:8 gpipe", "are for stages: add pp:N"),
        ("pp:8 gpipe 1f1b", "two schedules"),
        ("pp:8 gpipe interleaved:2", "two schedules"),
        ("pp:8 interleaved:1", "interleaved:1 is one chunk of a stage, which is 1f1b"),
        ("pp:8 interleaved:", "'' is not a number from 1 on"),
        ("dp:8 interleaved:2", "are for stages: add pp:N"),
        ("pp:8 mb:2 mb:4", "mb is said twice"),
        ("pp:8 mb", "'' is not a number from 1 on"),
        ("dp:x", "'x' is not a number from 1 on"),
        ("dp:0", "'0' is not a number from 1 on"),
        ("dp:-8", "'-8' is not a number from 1 on"),
        ("dp:", "'' is not a number from 1 on"),
        ("dp:\uff18", "'\uff18' is not a number from 1 on"),
        ("dp:" + "9" * 5000, "is not a number from 1 on"),
        ("zp:8", "'zp' is none of dp, fsdp,"),
        ("emb=table-wise", "the model has no tables of embedding bags"),
        ("attention=tp:8", "'attention' is no class of layers: expected dense, mlp"),
        ("dense=", "'' is none of"),
    ],
)
def test_what_cannot_be_read(text: str, says: str) -> None:
    """The text, and what is wrong with it."""
    with pytest.raises(UsageError) as caught:
        list(read_strategy(text, SPACE))

    assert str(caught.value).startswith(f"strategy {text!r}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("emb=tables", "'tables' is neither a plan file nor one of dp, table-wise"),
        ("emb=grid emb=dp", "emb is said twice"),
        ("emb=" + "x" * 5000, "is neither a plan file"),
    ],
)
def test_tables_that_cannot_be_read(text: str, says: str) -> None:
    """Neither a way of tables, nor a file."""
    with pytest.raises(UsageError, match="strategy") as caught:
        list(read_strategy(text, WITH_TABLES))

    assert says in str(caught.value)


def test_all_that_a_space_has_is_read() -> None:
    """Every strategy of a space is read as itself."""
    for space in (SPACE, WITH_TABLES, attrs.evolve(SPACE, ranks=96, batch=96 * 8)):
        listed = [one for one in space if isinstance(one, Strategy)]
        assert listed
        for one in listed:
            assert [one] == list(read_strategy(str(one), space))
            assert space.ranks == math.prod((one.replicas, one.tensor, one.stages))
