"""What the CPU's terms count: rows of an op, by the way PyTorch goes over them."""

from __future__ import annotations

import pytest

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.cpu.amounts import amounts_of
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
    """Adam calls eight ops for each tensor; fused, it reads and writes seven lists."""
    found = _amounts(
        "optimizer_step", kind="adam", algorithm=algorithm, tensors=12, elements=1200
    )
    calls = 7 if algorithm == "fused" else 8
    for name in ("single", "foreach", "fused"):
        own = float(name == algorithm)

        assert pytest.approx(12 * calls * own) == found[f"{name}_us"]
        assert pytest.approx(1200 * calls * own) == found[f"{name}_item_ns"]
        assert pytest.approx(own) == found[f"{name}_start_us"]


def test_a_step_takes_all_cores_for_large_tensors_alone() -> None:
    """Tensors are taken one after another: many small ones are work of one core."""
    size = {"elements": 1 << 18}
    many, one = (
        _amounts("optimizer_step", kind="sgd", algorithm="single", tensors=n, **size)
        for n in (256, 1)
    )

    assert [0.0, 1.0] == pytest.approx([many["fork_us"], one["fork_us"]])
    assert pytest.approx(CORES) == many["single_item_ns"] / one["single_item_ns"]


def test_a_transposition_that_keeps_rows_moves_rows() -> None:
    """Heads put before positions: whole rows move, not elements."""
    whole = _amounts("transpose", shape=(6, 256, 8, 32), perm=(0, 2, 1, 3))
    turned = _amounts("transpose", shape=(6, 256, 8, 32), perm=(0, 1, 3, 2))

    assert 0.0 == whole["item_ns"]
    assert pytest.approx(6 * 256 * 8 / CORES) == whole["row_ns"]
    assert 0.0 == turned["row_ns"]
    assert pytest.approx(6 * 256 * 8 * 32 / CORES) == turned["item_ns"]


def test_a_matrix_is_transposed_by_one_core() -> None:
    """However large it is."""
    found = _amounts("transpose", shape=(2048, 64), perm=(1, 0))

    assert pytest.approx(2048 * 64) == found["item_ns"]
    assert 0.0 == found["fork_us"]


def test_rows_that_are_gathered_come_in_lines() -> None:
    """Four bytes of a row cost a line of the cache; the table is what is held."""
    narrow, wide = (
        _amounts("gather", kind="gather", axis=0, shape=(100, n), indices=(55_000,))
        for n in (1, 8)
    )

    assert pytest.approx(55_000 / CORES) == narrow["row_ns"]
    assert (64 + 32) / (64 + 4) == pytest.approx(
        wide["cache_passes"] / narrow["cache_passes"], rel=0.2
    )


def test_sums_down_the_columns_are_their_own() -> None:
    """Only where the elements of a result lie apart."""
    along = _amounts("reduction", rows=64, cols=32, kind="sum")
    down = _amounts("reduction", rows=64, cols=32, kind="sum", axis=0)
    single = _amounts("reduction", rows=1, cols=2048, kind="sum", axis=0)
    names = ("down_line_ns", "down_item_ns")

    assert [0.0, 0.0] == [along[name] for name in names]
    assert [0.0, 0.0] == [single[name] for name in names]
    assert [32, 64 * 32] == pytest.approx([down[name] for name in names])


def test_columns_are_split_between_cores_in_blocks() -> None:
    """Fewer than a block of 32 for each core are work of one."""
    narrow = _amounts("reduction", rows=32, cols=1 << 16, kind="sum", axis=0)
    wide = _amounts("reduction", rows=32 * CORES, cols=1 << 16, kind="sum", axis=0)

    assert pytest.approx(narrow["down_item_ns"]) == wide["down_item_ns"]


@pytest.mark.parametrize(("kind", "left"), [("max", 5), ("sum", 0), ("arg_max", 0)])
def test_columns_that_fill_no_block_are_compared_one_by_one(
    kind: str, left: int
) -> None:
    """Sums have vectors for these, too, and what goes singly has no blocks."""
    found = _amounts("reduction", rows=37, cols=100, kind=kind, axis=0)

    assert pytest.approx(left * 100) == found["down_tail_ns"]


def test_some_kinds_go_from_result_to_result() -> None:
    """An index beside each maximum: no block of columns, and long jumps of many."""
    few = _amounts("reduction", rows=63, cols=100, kind="arg_max", axis=0)
    many = _amounts("reduction", rows=64, cols=100, kind="arg_max", axis=0)
    rows, items, jumps = (f"singly_{name}_ns" for name in ("row", "item", "jump"))

    assert [63, 6300, 0] == pytest.approx([few[rows], few[items], few[jumps]])
    assert [64, 6400, 6400] == pytest.approx([many[rows], many[items], many[jumps]])
    assert 0.0 == few["down_item_ns"] == few["down_line_ns"]


@pytest.mark.parametrize(("cols", "tails"), [(5, 0), (8, 0), (9, 1 << 16)])
def test_short_rows_of_reductions_have_no_tail(cols: int, tails: int) -> None:
    """Those of fewer numbers than a vector has are taken column by column."""
    found = _amounts("reduction", rows=1 << 16, cols=cols, kind="sum")

    assert pytest.approx(tails / CORES) == found["tail_ns"]


@pytest.mark.parametrize(("columns", "pieces"), [(16, 0), (24, 1), (31, 4), (3, 2)])
def test_columns_beyond_registers_are_taken_in_pieces(
    columns: int, pieces: int
) -> None:
    """Of 8, 4, 2 and 1, each of which goes over the left operand."""
    found = _amounts("gemm", b=1, m=512, n=columns, k=64)

    assert pytest.approx(pieces * 512 * 64 / CORES) == found["piece_ns"]


def test_rows_looked_up_again_are_there() -> None:
    """A hundred lookups of one row fetch one; of a large table, as many."""
    one = _amounts("gather", kind="gather", axis=0, shape=(1, 4), indices=(100,))
    many = _amounts(
        "gather", kind="gather", axis=0, shape=(10_000_000, 4), indices=(100,)
    )
    table = Record({"rows": 1, "dim": 16, "pooling": 5})
    bags = _amounts("embedding_bag", batch=32, tables=(table, table))

    assert [1, 100] == pytest.approx([one["miss_ns"], many["miss_ns"]], rel=1e-4)
    assert pytest.approx(2) == bags["miss_ns"]


def test_pieces_that_are_joined() -> None:
    """Side by side every row of every tensor is a piece; one below the other, none."""
    shapes = ((8, 4), (8, 4), (8, 4))

    assert pytest.approx(8 * 3) == _amounts("concat", axis=1, shapes=shapes)["row_ns"]
    assert pytest.approx(3) == _amounts("concat", axis=0, shapes=shapes)["row_ns"]


def test_lookups_are_counted_one_by_one() -> None:
    """A bag's lookups are a term of their own, on however many cores."""
    table = Record({"rows": 1000, "dim": 16, "pooling": 5})
    found = _amounts("embedding_bag", batch=32, tables=(table, table))

    assert pytest.approx(2 * 32 * 5) == found["lookup_ns"]


def test_a_matrix_times_a_vector_is_work_of_one_core() -> None:
    """With one row or one column; a batch of such is a batch of GEMMs."""
    one = _amounts("gemm", b=1, m=4096, n=1, k=512)
    row = _amounts("gemm", b=1, m=1, n=4096, k=512)
    batch = _amounts("gemm", b=8, m=4096, n=1, k=512)

    assert pytest.approx(4096 * 512) == one["vector_ns"] == row["vector_ns"]
    assert (0.0, 0.0) == (one["fork_us"], one["slowdown"])
    assert 0.0 == batch["vector_ns"]
    assert pytest.approx(1.0) == batch["fork_us"]


@pytest.mark.parametrize(("k", "alone"), [(16, True), (48, False)])
def test_a_small_gemm_is_left_to_one_core(k: int, alone: bool) -> None:
    """Below 24,000 flops for each of the eight lanes; others wait for both cores."""
    found = _amounts("gemm", b=1, m=64, n=64, k=k)
    missed = found["slowdown"] * (CORES - 1) if alone else 0.0

    assert [missed, float(not alone)] == pytest.approx(
        [found["alone"], found["joined_us"]]
    )


def test_columns_are_computed_in_whole_vectors() -> None:
    """12 columns in two vectors of eight, a third more."""
    found, whole = (_amounts("gemm", b=1, m=64, n=n, k=64) for n in (12, 16))

    assert pytest.approx(1 / 3) == found["padded"] / found["slowdown"]
    assert 0.0 == whole["padded"]


@pytest.mark.parametrize(
    ("m", "layout", "read"), [(3, "nt", 0), (16, "nt", 1), (16, "nn", 0), (48, "nt", 0)]
)
def test_few_rows_read_a_turned_right_operand_as_it_lies(
    m: int, layout: str, read: int
) -> None:
    """From four rows on, until it pays to pack it."""
    found = _amounts("gemm", b=1, m=m, n=512, k=256, layout=layout)

    assert pytest.approx(read * 512 * 256 / CORES) == found["right_turned_ns"]


@pytest.mark.parametrize(
    ("m", "n", "k", "handed"),
    [(64, 256, 64, 64 * 256), (64, 256, 4, 0), (256, 256, 64, 0)],
)
def test_a_small_bias_is_handed_to_other_cores(
    m: int, n: int, k: int, handed: int
) -> None:
    """Which take it out of the first one's cache: not where they did not come in."""
    found = _amounts("gemm", b=1, m=m, n=n, k=k, layout="nt", bias=True)

    assert pytest.approx(handed * 2 * (1 - 1 / CORES)) == found["bias_handed_ns"]


@pytest.mark.parametrize(
    ("n", "bias", "rows"), [(20, True, 64), (24, True, 0), (20, False, 0)]
)
def test_rows_of_a_bias_end_with_single_elements(
    n: int,
    bias: bool,
    rows: int,
) -> None:
    """Unless they are whole vectors."""
    found = _amounts("gemm", b=1, m=64, n=n, k=64, bias=bias)

    assert pytest.approx(rows) == found["bias_tail_ns"]


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


def test_images_are_gone_over_by_vectors_and_what_is_left_of_them() -> None:
    """Batch norm of 3 images of 9 pixels: a vector of 8 and one pixel, 3 x 6 times."""
    found = _amounts("batch_norm", rows=27, cols=6, batch=3)
    lone = _amounts("batch_norm", rows=3, cols=6, batch=3)
    names = ("image_ns", "image_tail_ns", "lone_ns", "lone_row_ns", "lone_channel_ns")

    left = [18 / CORES, 18 / CORES, 0, 0, 0]
    assert left == pytest.approx([found[n] for n in names])
    rows = [0, 0, 18 / CORES, 3 / CORES, 6]
    assert rows == pytest.approx([lone[n] for n in names])
    assert (found["lone_start_us"], lone["lone_start_us"]) == pytest.approx((0, 1))


def test_images_smaller_than_a_vector_go_pixel_by_pixel() -> None:
    """Four pixels are no vector's rest; sixteen leave none, on AVX-512 and on AVX2."""
    small = _amounts("batch_norm", rows=12, cols=6, batch=3)
    whole = _amounts("batch_norm", rows=48, cols=6, batch=3)
    names = ("image_ns", "image_tail_ns", "short_pixel_ns")

    assert [18 / CORES, 0, 72 / CORES] == pytest.approx([small[n] for n in names])
    assert [18 / CORES, 0, 0] == pytest.approx([whole[n] for n in names])


def test_many_images_are_more_than_a_prefetcher_follows() -> None:
    """Twenty are followed; of 32 half of the lines come late, of 64 all."""
    names = ("stray_image_ns", "stray_line_ns")
    for images, share in ((20, 0.0), (32, 0.5), (64, 1.0)):
        found = _amounts("batch_norm", rows=64 * images, cols=6, batch=images)
        late = share * images * 6 / CORES
        assert [late, 4 * late] == pytest.approx([found[n] for n in names])


def _convolution(**params: int) -> dict[str, float]:
    return _amounts("conv2d", **{"stride": 1, "padding": 0, **params})


def test_one_small_image_is_no_librarys() -> None:
    """PyTorch takes its own for up to 20480 numbers and windows of 3 x 3."""
    small = _convolution(n=1, c_in=16, c_out=32, kernel=3, size=32)
    wide = _convolution(n=1, c_in=16, c_out=32, kernel=5, size=32)
    large = _convolution(n=1, c_in=32, c_out=32, kernel=3, size=32)
    two = _convolution(n=2, c_in=16, c_out=32, kernel=3, size=32)

    found = [each["library_us"] for each in (small, wide, large, two)]
    assert [0, 1, 1, 1] == pytest.approx(found)


def test_channels_of_a_convolution_are_padded_to_vectors() -> None:
    """Twelve in vectors of eight are sixteen; three of images stay as they are."""
    odd = _convolution(n=2, c_in=12, c_out=16, kernel=3, size=32)
    image = _convolution(n=2, c_in=3, c_out=16, kernel=3, size=32)
    even = _convolution(n=2, c_in=16, c_out=12, kernel=3, size=32)

    assert pytest.approx(1 / 3) == odd["padded_in"] / odd["slowdown"]
    assert pytest.approx(1 / 3) == even["padded_out"] / even["slowdown"]
    assert 0.0 == image["padded_in"] == image["reorder_us"] == odd["padded_out"]
    assert [1, 1] == pytest.approx([odd["reorder_us"], even["reorder_us"]])


def test_groups_are_no_gemms() -> None:
    """A channel each: taps are multiplied by vectors of channels, if they fill some."""
    full, odd = (
        _convolution(n=2, c_in=c, c_out=c, kernel=3, size=32, groups=c)
        for c in (16, 12)
    )

    assert 0.0 == full["slowdown"] == full["m_half"] == full["grouped_rest"]
    assert full["grouped"] > odd["grouped"] == odd["grouped_rest"] > 0


@pytest.mark.parametrize(
    ("rows", "cores"), [(32, 1), (33, 2), (64, 2), (65, 3), (6 * 32, 6), (999, 6)]
)
def test_each_core_has_a_grain_at_least(rows: int, cores: int) -> None:
    """Of 32768 elements, 32 rows of 1024."""
    found = _amounts("elementwise", kind="relu", rows=rows, cols=1024, tensor_inputs=1)

    assert pytest.approx(rows * 1024 / min(cores, CORES)) == found["item_ns"]


@pytest.mark.parametrize(("cols", "short"), [(7, 7 * 4096), (8, 0)])
def test_softmax_of_rows_without_a_vector_goes_number_by_number(
    cols: int, short: int
) -> None:
    """Exponentials of eight numbers come together, those of seven one by one."""
    found = _amounts("softmax", rows=4096, cols=cols)

    assert pytest.approx(short / CORES) == found["short_item_ns"]


@pytest.mark.parametrize(
    ("op", "rows", "cols", "shared"),
    [
        ("softmax", 16, 128, False),
        ("softmax", 17, 128, True),
        ("layer_norm", 1, 4096, False),
        ("layer_norm", 2, 4096, True),
        ("batch_norm", 4096, 1, False),
        ("batch_norm", 4, 2, True),
    ],
)
def test_ops_are_shared_by_rules_of_their_own(
    op: str, rows: int, cols: int, *, shared: bool
) -> None:
    """Softmax from 2048 numbers on, norms by two rows or two channels."""
    batch = {"batch": 1} if op == "batch_norm" else {}
    found = _amounts(op, rows=rows, cols=cols, **batch)

    assert float(shared) == pytest.approx(found["fork_us"])


def test_few_joined_numbers_are_one_loop_and_many_a_copy_of_each_tensor() -> None:
    """From 32768 in all; a copy is shared if its tensor has more than that itself."""
    few = _amounts("concat", axis=0, shapes=((64, 64),) * 4)
    many = _amounts("concat", axis=0, shapes=((64, 128),) * 4)
    large = _amounts("concat", axis=0, shapes=((512, 128),) * 4)
    names = ("tensor_us", "copied_us", "fork_us")

    assert [4, 0, 0] == pytest.approx([few[name] for name in names])
    assert [4, 4, 0] == pytest.approx([many[name] for name in names])
    assert [4, 4, 1] == pytest.approx([large[name] for name in names])


def test_first_flops_of_a_gemm_are_slower_than_those_after() -> None:
    """2 x 64 x 32 x 32 flops: all of the first piece of the ramp, part of the next."""
    rate = TARGET.device.flops_per_s["fp32"]
    small = _amounts("gemm", b=1, m=64, n=32, k=32)
    names = ("ramp_10k", "ramp_30k", "ramp_100k")

    pieces = [2e4 / rate, 7e4 / rate, 31072 / rate]
    assert pieces == pytest.approx([small[name] for name in names])


@pytest.mark.parametrize(
    ("m", "n", "layout", "dots", "added"),
    [(500, 1, "nn", 500, 0), (500, 1, "tn", 0, 300), (1, 500, "nn", 0, 300)],
)
def test_a_vector_meets_rows_or_adds_them(
    m: int, n: int, layout: str, dots: int, added: int
) -> None:
    """Where the matrix lies along the depth, each result is one product of vectors."""
    found = _amounts("gemm", b=1, m=m, n=n, k=300, layout=layout)

    assert [dots, added] == pytest.approx([found["dot_ns"], found["added_row_ns"]])
    assert pytest.approx(1e4) == found["first_vector_ns"]
    assert 0.0 == found["slowdown"] == found["padded"]


@pytest.mark.parametrize(
    ("kind", "primitives"), [("gelu", 1), ("gelu_backward", 2), ("tanh", 0)]
)
def test_onednn_describes_what_it_runs_first(kind: str, primitives: int) -> None:
    """A gradient's primitive is described by the forward one."""
    found = _amounts("elementwise", kind=kind, rows=8, cols=8, tensor_inputs=1)

    assert pytest.approx(primitives) == found["primitive_us"]


def test_a_mean_is_a_sum_that_another_op_divides() -> None:
    """A maximum is not."""
    mean, largest = (
        _amounts("reduction", rows=8, cols=64, kind=kind) for kind in ("mean", "max")
    )

    assert [1.0, 0.0] == pytest.approx([mean["divided_us"], largest["divided_us"]])


def test_one_result_with_an_index_is_one_cores() -> None:
    """Results are shared, and a sum of one is not held so."""
    index, total = (
        _amounts("reduction", rows=1, cols=1 << 20, kind=kind)
        for kind in ("arg_max", "sum")
    )

    assert [0.0, 1.0] == pytest.approx([index["fork_us"], total["fork_us"]])
    assert pytest.approx(1.0) == index["indexed_row_ns"]


@pytest.mark.parametrize("size", ["m", "n", "k"])
def test_a_gemm_of_no_size_has_amounts(size: str) -> None:
    """A size of 0 leaves no flops to divide, and no warning."""
    sizes: dict[str, AttrValue] = {"b": 4, "m": 512, "n": 2, "k": 64, size: 0}

    found = _amounts("gemm", layout="tn", **sizes)

    assert all(amount >= 0 for amount in found.values())
