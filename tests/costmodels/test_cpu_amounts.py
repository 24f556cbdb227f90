"""What the CPU's terms count: rows of an op, by the way PyTorch goes over them."""

from __future__ import annotations

import pytest

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.cpu_amounts import amounts_of  # not public
from perfc.ir import AttrValue, Kernel, Record, Work
from perfc.measurements import Measurement, kernel_of

TARGET = load_target("cpu")
CORES = TARGET.device.sm_count


def _amounts(op: str, **params: AttrValue) -> dict[str, float]:
    """Return how many of each term a measured row has: in its unit, not in seconds."""
    row = Measurement(
        target="cpu",
        op=op,
        dtype="fp32",
        params=Record(params),
        latency_us=1.0,
        timing="event",
        source="made up",
    )
    amounts = amounts_of(KernelTable([kernel_of(row)]), TARGET)
    units = {"us": 1e-6, "ns": 1e-9}
    return {
        name: float(amount[0]) / units.get(name.rpartition("_")[2], 1.0)
        for name, amount in amounts.items()
    }


@pytest.mark.parametrize("algorithm", ["single", "foreach", "fused"])
def test_a_step_counts_its_tensors(algorithm: str) -> None:
    """Each tensor of an optimizer's step is a call of that algorithm, and no other."""
    found = _amounts(
        "optimizer_step", kind="adam", algorithm=algorithm, tensors=12, elements=1200
    )
    steps = {name: found[f"{name}_us"] for name in ("single", "foreach", "fused")}

    assert {name: 12.0 * (name == algorithm) for name in steps} == pytest.approx(steps)


def test_a_transposition_that_keeps_rows_moves_rows() -> None:
    """Heads put before positions: whole rows move, not elements."""
    whole = _amounts("transpose", shape=(2, 64, 8, 32), perm=(0, 2, 1, 3))
    turned = _amounts("transpose", shape=(2, 64, 8, 32), perm=(0, 1, 3, 2))

    assert 0.0 == whole["item_ns"]
    assert pytest.approx(2 * 64 * 8 / CORES) == whole["row_ns"]
    assert 0.0 == turned["row_ns"]
    assert pytest.approx(2 * 64 * 8 * 32 / CORES) == turned["item_ns"]


def test_a_matrix_is_transposed_by_one_core() -> None:
    """However large it is."""
    found = _amounts("transpose", shape=(2048, 64), perm=(1, 0))

    assert pytest.approx(2048 * 64) == found["item_ns"]
    assert 0.0 == found["fork_us"]


def test_rows_that_are_gathered_come_in_lines() -> None:
    """Four bytes of a row cost a line of the cache; the table is what is held."""
    narrow = _amounts(
        "gather", kind="gather", axis=0, shape=(100, 1), indices=(100_000,)
    )
    wide = _amounts(
        "gather", kind="gather", axis=0, shape=(100, 16), indices=(100_000,)
    )

    assert pytest.approx(100_000 / CORES) == narrow["row_ns"]
    assert (64 + 64) / (64 + 4) == pytest.approx(
        wide["cache_passes"] / narrow["cache_passes"], rel=0.2
    )


def test_sums_down_the_columns_are_their_own() -> None:
    """Only where the elements of a result lie apart."""
    along = _amounts("reduction", rows=64, cols=32, kind="sum")
    down = _amounts("reduction", rows=64, cols=32, kind="sum", axis=0)
    names = ("down_row_ns", "down_line_ns", "down_item_ns")

    assert [0.0, 0.0, 0.0] == [along[name] for name in names]
    assert [64, 32, 64 * 32] == pytest.approx([down[name] for name in names])


def test_pieces_that_are_joined() -> None:
    """Side by side every row of every tensor is a piece; one below the other, none."""
    shapes = ((8, 4), (8, 4), (8, 4))

    assert pytest.approx(8 * 3) == _amounts("concat", axis=1, shapes=shapes)["row_ns"]
    assert pytest.approx(3) == _amounts("concat", axis=0, shapes=shapes)["row_ns"]


def test_look_ups_are_counted_one_by_one() -> None:
    """A bag's look-ups are a term of their own, on however many cores."""
    table = Record({"rows": 1000, "dim": 16, "pooling": 5})
    found = _amounts("embedding_bag", batch=32, tables=(table, table))

    assert pytest.approx(2 * 32 * 5) == found["lookup_ns"]


def test_a_matrix_times_a_vector_is_work_of_one_core() -> None:
    """With one row or one column; a batch of such is a batch of products."""
    one = _amounts("gemm", b=1, m=4096, n=1, k=512)
    row = _amounts("gemm", b=1, m=1, n=4096, k=512)
    batch = _amounts("gemm", b=8, m=4096, n=1, k=512)

    assert pytest.approx(4096 * 512) == one["vector_ns"] == row["vector_ns"]
    assert (0.0, 0.0) == (one["fork_us"], one["slowdown"])
    assert 0.0 == batch["vector_ns"]
    assert pytest.approx(1.0) == batch["fork_us"]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_few_columns_cost_rows_of_the_left_operand(layout: str) -> None:
    """By how the operands lie, however few they are; with more of them nothing."""
    three = _amounts("gemm", b=2, m=512, n=3, k=64, layout=layout)
    many = _amounts("gemm", b=2, m=512, n=12, k=64, layout=layout)
    names = [name for name in three if name.startswith("narrow_")]

    assert [f"narrow_{layout}_ns"] == [name for name in names if three[name]]
    assert pytest.approx(2 * 512 * 64 / CORES) == three[f"narrow_{layout}_ns"]
    assert [] == [name for name in names if many[name]]


@pytest.mark.parametrize(("cols", "tails"), [(64, 0), (65, 4096), (15, 4096)])
def test_rows_that_vectors_do_not_fill_have_a_tail(cols: int, tails: int) -> None:
    """Eight numbers of fp32 are a vector."""
    found = _amounts("softmax", rows=4096, cols=cols)

    assert pytest.approx(tails / CORES) == found["tail_ns"]


def test_elements_that_two_indices_name_are_looked_up_one_by_one() -> None:
    """`x[:, i, j]` of 256 matrices and 36 pairs is 9216 elements."""
    named = Kernel(
        "gather",
        "fp32",
        "fp32",
        Record({"kind": "index", "axis": 1, "shape": (256, 9, 9), "indices": (36, 2)}),
        Work(0, 4 * 9216 + 8 * 72, 4 * 9216),
    )
    found = amounts_of(KernelTable([named]), TARGET)

    assert pytest.approx(9216e-9) == found["row_ns"][0]


@pytest.mark.parametrize(
    ("op", "extra", "pages"),
    [
        ("elementwise", {"kind": "add"}, 16384.0),
        ("elementwise", {"kind": "add", "in_place": True}, 0.0),
        ("elementwise", {"kind": "fill"}, 0.0),
        ("optimizer_step", {"kind": "sgd"}, 0.0),
    ],
)
def test_only_large_results_lie_in_new_pages(
    op: str, extra: dict[str, AttrValue], pages: float
) -> None:
    """What is written over an operand has its pages already."""
    size = 64 << 20
    kernel = Kernel(op, "fp32", "fp32", Record(extra), Work(0, size, size))

    found = amounts_of(KernelTable([kernel]), TARGET)

    assert pytest.approx(pages * 1e-6) == found["page_us"][0]
