"""`--ranks`, and the ranks of passes that share a model."""

from __future__ import annotations

import pytest

import perfc
from perfc.ir import UsageError
from perfc.passes import Fsdp, Pass, ShardEmbeddings, TensorParallel
from perfc.tools.models import split_passes


@pytest.mark.parametrize(
    ("ranks", "text", "found"),
    [
        (8, "fsdp", [Fsdp(8)]),
        (8, "fsdp{ranks=4}", [Fsdp(4)]),
        (4, "tensor-parallel", [TensorParallel(4)]),
        (8, "tensor-parallel{ranks=2},fsdp", [TensorParallel(2), Fsdp(4)]),
        (8, "tensor-parallel,fsdp{ranks=2}", [TensorParallel(4), Fsdp(2)]),
        (8, "shard-embeddings,fsdp", [ShardEmbeddings(8), Fsdp(8)]),
    ],
)
def test_ranks_are_what_others_leave(ranks: int, text: str, found: list[Pass]) -> None:
    """A pass that does not say its ranks has those of `--ranks` that others leave."""
    assert found == split_passes([text], ranks)[0]


def test_stages_and_replicas_are_others() -> None:
    """Layers are shared inside a stage, and inside a replica."""
    text = (
        "tensor-parallel,pipeline-parallel{stages=2,microbatches=4},"
        "data-parallel{ranks=2}"
    )

    assert TensorParallel(4) == split_passes([text], 16)[0][0]


@pytest.mark.parametrize(
    ("ranks", "text", "said"),
    [
        (None, "fsdp", r"needs more: fsdp\{ranks=…\}"),
        (8, "tensor-parallel,fsdp", "does not say how many are of tensor-parallel"),
        (8, "tensor-parallel{ranks=3},fsdp", "expected a multiple of 3, for fsdp"),
        (1, "fsdp", "ranks=1 of fsdp: expected at least 2"),
    ],
)
def test_ranks_that_nobody_says(ranks: int | None, text: str, said: str) -> None:
    """Where `--ranks` does not decide it, one line says what to give."""
    with pytest.raises(UsageError, match=said):
        split_passes([text], ranks)


@pytest.mark.parametrize(
    ("ranks", "early", "said"),
    [
        (
            16,
            [Fsdp(8)],
            r"or fsdp\{ranks=16,strategy=hybrid,per-node=8\}, which shares among 8",
        ),
        (4, [Fsdp(8)], r"fsdp shares among 8: expected fsdp\{ranks=4\}$"),
        (
            8,
            [TensorParallel(2), Fsdp(8)],
            r"among 8, times 2 of tensor-parallel: expected fsdp\{ranks=4\}$",
        ),
        (
            16,
            [ShardEmbeddings(8)],
            r"shard-embeddings shares among 8: expected shard-embeddings\{ranks=16\}$",
        ),
    ],
)
def test_ranks_that_are_others(ranks: int, early: list[Pass], said: str) -> None:
    """A pass of other ranks than `--ranks` is refused, and what fits is said."""
    with pytest.raises(UsageError, match=said):
        perfc.load("gpt2:layers=1", batch=1, ranks=ranks, transforms=early)


def test_what_is_advised_works() -> None:
    """Hybrid of the ranks that were asked for is taken."""
    early = [Fsdp(16, strategy="hybrid", per_node=8)]
    model = perfc.load("gpt2:layers=1,seq=16", batch=1, ranks=16, transforms=early)

    assert 16 == model.ranks
