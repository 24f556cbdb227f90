"""How lists of tensors are packed into launches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.passes.lowered import kernels, launched, lower, one_op

from perfc.passes import LowerKernels
from perfc.passes.lowering.eager.optimizer import (
    CHUNK_ELEMENTS,
    LARGE_ARGUMENTS,
    SMALL_ARGUMENTS,
    Capacity,
    packed,
)
from perfc.passes.lowering.eager.site import MAX_LAUNCHES

HIDDEN, VOCABULARY, POSITIONS, LAYERS = 768, 30522, 512, 12
_INNER = 4 * HIDDEN
BERT = [
    *(VOCABULARY * HIDDEN, POSITIONS * HIDDEN, 2 * HIDDEN, HIDDEN, HIDDEN),
    *[
        *[HIDDEN * HIDDEN, HIDDEN] * 4,
        *(HIDDEN, HIDDEN, _INNER * HIDDEN, _INNER, _INNER * HIDDEN, HIDDEN),
        *(HIDDEN, HIDDEN),
    ]
    * LAYERS,
    *(HIDDEN * HIDDEN, HIDDEN),
]
"""Sizes of BERT-base's 199 parameters."""

DLRM_MLP = [512 * 13, 512, 256 * 512, 256, 128 * 256, 128] + [1024 * 479, 1024] * 5


def _resnet50() -> list[int]:
    """Return the sizes of ResNet-50's 161 parameters, as torchvision lists them."""
    sizes, channels = [64 * 3 * 49, 64, 64], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            sizes += [channels * width, width, width]
            sizes += [width * width * 9, width, width]
            sizes += [width * 4 * width, 4 * width, 4 * width]
            if block == 0:
                sizes += [channels * 4 * width, 4 * width, 4 * width]
            channels = 4 * width
    return [*sizes, 1000 * 2048, 1000]


ROWS_OF_MLPERF = 204_184_588
"""Rows of the 26 tables of DLRM-MLPerf, 128 wide: 26.1 G elements."""


@pytest.mark.parametrize(
    ("sizes", "depth", "launches"),
    [(BERT, 4, 7), (BERT, 5, 8), (BERT, 2, 6), (DLRM_MLP, 2, 1)],
    ids=["fused AdamW", "fused AMSGrad", "foreach add", "foreach add, MLP of DLRM"],
)
def test_launches_of_known_models(sizes: list[int], depth: int, launches: int) -> None:
    """A whole optimizer is a handful of launches."""
    assert launches == len(list(packed(sizes, depth, SMALL_ARGUMENTS)))


@pytest.mark.parametrize(("depth", "chunks"), [(2, [71, 155, 282]), (1, [320, 8, 180])])
def test_packs_are_those_of_a_trace(depth: int, chunks: list[int]) -> None:
    """Thread blocks of `_foreach_add_` and `_foreach_mul_` in traces of ResNet-50."""
    sizes = _resnet50()
    found = [pack.chunks for pack in packed(sizes, depth, SMALL_ARGUMENTS)]

    assert (161, 25_557_032) == (len(sizes), sum(sizes))
    assert sorted(chunks) == sorted(found)


def test_dense_gradients_of_tables_are_many_launches() -> None:
    """320 chunks a launch: SGD with dense gradients of 26 G elements needs 1247."""
    elements = ROWS_OF_MLPERF * 128
    launches = len(list(packed([elements], 2, SMALL_ARGUMENTS)))

    assert -(-elements // (320 * CHUNK_ELEMENTS)) == launches


def test_larger_arguments_need_fewer_launches() -> None:
    """PyTorch built with CUDA 13 hands 32 KB of arguments to a kernel."""
    assert 1 == len(list(packed(BERT, 2, LARGE_ARGUMENTS)))


@given(
    st.lists(st.integers(0, 40 * CHUNK_ELEMENTS), max_size=60),
    st.integers(1, 5),
    st.sampled_from([SMALL_ARGUMENTS, Capacity((7, 5, 4, 3, 2), 9)]),
)
def test_every_element_is_in_one_launch(
    sizes: list[int], depth: int, capacity: Capacity
) -> None:
    """The launches cover each tensor once, in order, and none is over its capacity."""
    covered: dict[int, int] = dict.fromkeys(range(len(sizes)), 0)
    for pack in packed(sizes, depth, capacity):
        assert len(pack.parts) <= capacity.tensors[depth - 1]
        assert 0 < pack.chunks <= capacity.chunks
        for index, start, end in pack.parts:
            assert covered[index] == start < end
            covered[index] = end
    assert sizes == list(covered.values())


@given(st.lists(st.integers(1, 3 * CHUNK_ELEMENTS), min_size=1, max_size=200))
def test_launches_are_full(sizes: list[int]) -> None:
    """A launch ends only where its tensors or its chunks are full."""
    *full, _ = packed(sizes, 3, SMALL_ARGUMENTS)
    for pack in full:
        tensors = len(pack.parts) == SMALL_ARGUMENTS.tensors[2]
        assert tensors or pack.chunks == SMALL_ARGUMENTS.chunks


def _lists(kind: str, lists: int, tensors: int, options: str = "") -> str:
    names = [f"%v{i}" for i in range(lists * tensors)]
    arguments = ", ".join(f"state {name}: f32[65536]" for name in names)
    results = ", ".join(f"%r{i}" for i in range(tensors))
    made = f"{results} = " if not options else ""
    types = " : " + ", ".join(["?"] * tensors) if not options else ""
    return (
        f"graph @g({arguments}) {{ {made}foreach({', '.join(names)}) "
        f'{{kind = "{kind}", lists = {lists}{options}}}{types} return %v0 }}'
    )


def test_new_results_are_a_list_more() -> None:
    """Out of place, 64 tensors of a unary op are one launch and 65 are two."""
    assert 1 == len(kernels(lower(_lists("sqrt", 1, 64))))
    assert 2 == len(kernels(lower(_lists("sqrt", 1, 65))))
    in_place = _lists("sqrt", 1, 65, ", in_place = true")
    assert {"aten::_foreach_sqrt_": ["foreach"]} == launched(lower(in_place))


def test_option_of_larger_arguments() -> None:
    """`large-arguments` is an option of the pass."""
    text = _lists("add", 2, 130, ", in_place = true")
    options = LowerKernels(inputs="device", large_arguments=True)

    assert 3 == len(kernels(lower(text)))
    assert 1 == len(kernels(lower(text, options)))


def test_lists_of_steps_are_no_depth() -> None:
    """The step of each parameter is handed over apart from the lists of elements."""
    parameters = [f"%p{i}" for i in range(40)]
    steps = [f"%s{i}" for i in range(40)]
    arguments = [
        *(f"state {name}: f32[8]" for name in parameters * 0 + parameters),
        *(f"state {name}: f32[1]" for name in steps),
    ]
    operands = ", ".join([*parameters * 4, *steps])
    text = (
        f"graph @g({', '.join(arguments)}) {{ optimizer_step({operands}) "
        '{kind = "adamw", lists = 5} return %p0 }'
    )

    assert {"aten::_fused_adamw_": ["optimizer_step"] * 2} == launched(lower(text))


def test_the_packs_share_the_bytes() -> None:
    """All launches of a step together move what the op does."""
    graph = lower(_lists("addcdiv", 3, 100, ", in_place = true"))
    moved = sum(kernel.work.bytes for kernel in kernels(graph))

    assert 4 * 100 * 65536 * 4 == moved


ROWS = 100_000_000_000
"""Of a table that no memory holds: it would fill a hundred thousand packs."""


@pytest.mark.parametrize("kind", ["sqrt", "norm"])
def test_lists_of_too_many_packs_are_one_kernel(kind: str) -> None:
    """It moves the bytes that they would, and is said to be priced by them."""
    node = f'foreach(%x) {{lists = 1, kind = "{kind}"}}'
    (found,) = kernels(lower(one_op(f"%x: f32[{ROWS},64]", node)))

    assert (False, 64 * ROWS * 4) == (found.known, found.work.bytes_read)


@pytest.mark.parametrize("more", [0, 1])
def test_packs_up_to_the_limit_are_launched(more: int) -> None:
    """A list that fills as many launches as an op may have is packed as any other."""
    elements = MAX_LAUNCHES * SMALL_ARGUMENTS.chunks * CHUNK_ELEMENTS + more
    node = 'foreach(%x) {lists = 1, kind = "sqrt"}'
    found = kernels(lower(one_op(f"%x: f32[{elements}]", node)))

    assert (1 if more else MAX_LAUNCHES) == len(found)
