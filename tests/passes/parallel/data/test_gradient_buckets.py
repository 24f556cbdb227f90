"""Buckets of gradients are those of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.ir import DTYPES, Graph, TensorType
from perfc.ir.dims import symbol
from perfc.ir.support import UnsupportedModelError
from perfc.passes.parallel.data.gradient_buckets import Limits, fill_buckets

torch: Any = pytest.importorskip("torch")

_KIB = 1024
_TYPES = ("bf16", "f32")
_sizes = st.lists(
    st.tuples(st.sampled_from(_TYPES), st.integers(1, 4 * _KIB)),
    min_size=1,
    max_size=30,
)


def _gradients(sizes: list[tuple[str, int]]) -> Graph:
    graph = Graph("g")
    for number, (dtype, elements) in enumerate(sizes):
        graph.add_input(f"g{number}", TensorType(DTYPES[dtype], (elements,)))
    return graph


@settings(max_examples=50)
@given(_sizes, st.integers(1, 8), st.integers(1, 32))
def test_gradients_are_bucketed_as_by_pytorch(
    sizes: list[tuple[str, int]], first_kib: int, kib: int
) -> None:
    """`_compute_bucket_assignment_by_size` puts the same tensors together."""
    limits = Limits(first_kib * _KIB, kib * _KIB)
    dtypes = {"f32": torch.float32, "bf16": torch.bfloat16}
    tensors = [torch.empty(n, dtype=dtypes[dtype]) for dtype, n in sizes]
    wanted, _ = torch.distributed._compute_bucket_assignment_by_size(
        tensors, [limits.first_bytes, limits.bytes]
    )

    values = _gradients(sizes).inputs
    found = [
        [values.index(gradient) for gradient in bucket.tensors]
        for bucket in fill_buckets(values, limits)
    ]
    assert sorted(wanted) == sorted(found)


def test_offsets_follow_one_another() -> None:
    """Gradients lie in their bucket without holes."""
    values = _gradients([("f32", 3), ("f32", 5), ("f32", 7)]).inputs

    (bucket,) = fill_buckets(values, Limits(1 << 20, 1 << 20))

    assert [0, 3, 8] == list(bucket.tensors.values())
    assert (15, values[-1]) == (bucket.elements, bucket.last)


def test_a_gradient_of_unknown_size() -> None:
    """Buckets need numbers, and the message says so."""
    graph = Graph("g")
    value = graph.add_input("w", TensorType(DTYPES["f32"], (symbol("N"), 4)))

    with pytest.raises(UnsupportedModelError, match="fix the sizes of parameters"):
        fill_buckets([value], Limits(1, 1))
