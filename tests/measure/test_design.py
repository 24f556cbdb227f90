"""The design: always the same, without duplicates, within limits, split by shape."""

from __future__ import annotations

import functools
import itertools
import math

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.ir import UsageError
from perfc.measure.case import Case, Family
from perfc.measure.design import Choice, Size, Space, points
from perfc.measure.device import Device
from perfc.measure.suites import SUITES, suite
from perfc.measurements import TEST, split_of

GPU = Device(
    kind="cuda",
    target="h100-sxm-80g",
    name="NVIDIA H100 80GB HBM3",
    driver="driver 570",
    dtypes=("fp32", "fp16", "tf32", "bf16", "fp8"),
    memory_bytes=80 << 30,
    cache_bytes=50 << 20,
)
CPU = attrs.evolve(
    GPU, kind="cpu", target="cpu", dtypes=("fp32", "bf16"), memory_bytes=8 << 30
)


@functools.cache
def _suite(name: str, device: Device) -> list[tuple[Family, Case]]:
    return suite(name, device)


@given(low=st.integers(1, 1000), factor=st.integers(1, 1000), exact=st.booleans())
def test_sizes_stay_in_their_range(low: int, factor: int, *, exact: bool) -> None:
    """Wherever a point falls, the size is one of those asked for."""
    size = Size(low, low * factor)

    for share in (0.0, 0.3, 0.999_999):
        assert low <= size.at(share, exact=exact) <= low * factor


def test_most_sizes_are_usual() -> None:
    """Three quarters of the points are sizes that people use, spread by logarithm."""
    space: Space = {"m": Size(1, 4096), "n": Size(1, 4096, (1000, 2000))}
    drawn = [point["m"] for point in itertools.islice(points(space), 512)]
    usual = [m for m in drawn if isinstance(m, int) and m in Size(1, 1).usual]
    small = [m for m in drawn if isinstance(m, int) and m < 64]

    assert 0.75 < len(usual) / len(drawn) < 0.9
    assert pytest.approx(0.5, abs=0.05) == len(small) / len(drawn)
    assert {1000, 2000} < {p["n"] for p in itertools.islice(points(space), 64)}


def test_choices_come_equally_often() -> None:
    """Any beginning has every value about as often as the others."""
    space: Space = {"kind": Choice(("a", "b", "c")), "m": Size(1, 99)}
    drawn = [point["kind"] for point in itertools.islice(points(space), 90)]

    assert {27 <= drawn.count(kind) <= 33 for kind in "abc"} == {True}


def test_the_design_is_the_same_every_time() -> None:
    """Nothing but the names of suite, device and ops decides."""
    first, again = (suite("quick", CPU) for _ in range(2))

    assert [case for _, case in first] == [case for _, case in again]


@pytest.mark.parametrize("name", ["quick", "full"])
@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "cuda"])
def test_a_suite(name: str, device: Device) -> None:
    """No case twice, none beyond the limits; a third is held out, as are models'."""
    limits = SUITES[device.kind, name]
    found = _suite(name, device)
    cases = [case for _, case in found]

    assert len(cases) == len(set(cases))
    assert pytest.approx(1 / 3, abs=0.05) == sum(
        case.split == TEST for case in cases
    ) / len(cases)
    assert {case.split for case in cases[:30]} == {"fit", "test"}
    for family, case in found:
        assert case.split in {TEST, split_of(case.op, case.params)}
        assert case.work.flops <= limits.flops
        assert case.work.bytes <= limits.bytes
        assert family.memory_bytes(case) <= limits.memory


@given(gigabytes=st.integers(1, 64))
@settings(max_examples=5, deadline=None)
def test_a_small_device_gets_small_shapes(gigabytes: int) -> None:
    """One set of operands takes no more than a quarter of the device's memory."""
    small = attrs.evolve(GPU, memory_bytes=gigabytes << 28)
    found = suite("quick", small)

    assert max(f.memory_bytes(case) for f, case in found) <= small.memory_bytes // 4


def test_any_beginning_has_all_ops() -> None:
    """The first round has every op, and two have both splits of most."""
    found = _suite("full", GPU)
    rounds = SUITES["cuda", "full"].rounds
    ops = {case.op for _, case in found}
    first = {case.op for _, case in found[: math.ceil(len(found) / rounds)]}

    assert ops == first


def test_dtypes_of_a_gpu() -> None:
    """GEMMs come in every dtype that has hardware; fp8 in sizes it can have."""
    gemms = [case for _, case in _suite("full", GPU) if case.op == "gemm"]
    fp8 = [case.params for case in gemms if case.dtype == "fp8"]

    assert set(GPU.dtypes) == {case.dtype for case in gemms}
    assert {(0, 0, "nt")} == {
        (p.integer("n") % 16, p.integer("k") % 16, p["layout"]) for p in fp8
    }


def test_phases_and_algorithms() -> None:
    """Every gradient, optimizer, algorithm and direction that is asked for is there."""
    cases = [case for _, case in _suite("full", GPU)]
    phases = {(c.op, c.params.get("phase", "forward")) for c in cases}
    bags = {c.params.get("optimizer") for c in cases if c.op == "embedding_bag"}
    attention = {c.params["algorithm"] for c in cases if c.op == "attention"}
    copies = {
        (c.params["kind"], c.params.get("pinned")) for c in cases if c.op == "memcpy"
    }
    steps = {c.params["algorithm"] for c in cases if c.op == "optimizer_step"}

    assert {
        ("conv2d", "backward_data"),
        ("conv2d", "backward_weight"),
        ("softmax", "backward"),
        ("layer_norm", "backward"),
        ("batch_norm", "backward"),
        ("attention", "backward"),
        ("embedding_bag", "backward"),
    } == {(op, phase) for op, phase in phases if phase != "forward"}
    assert {None, "sgd", "adagrad", "rowwise_adagrad"} == bags
    assert {"flash", "efficient", "cudnn", "math"} == attention
    assert {
        *((kind, pinned) for kind in ("h2d", "d2h") for pinned in (True, False)),
        ("d2d", None),
    } == copies
    assert {"single", "foreach", "fused"} == steps


def test_cudnn_has_no_gradients_of_one_query_on_one_key() -> None:
    """It refuses them, and is not asked for them; all that is beside them is asked."""
    cases = [case for _, case in _suite("full", GPU) if case.op == "attention"]
    lengths = ("q_len", "kv_len")
    short = {
        (case.params["algorithm"], case.params.get("phase", "forward"))
        for case in cases
        if (1, 1) == tuple(case.params[length] for length in lengths)
    }
    others = {
        (case.params["algorithm"], case.params.get("phase", "forward"))
        for case in cases
        if 1 == case.params["q_len"] != case.params["kv_len"]
    }

    assert {("cudnn", "backward")} == others - short
    assert set() == short - others


def test_ops_that_are_asked_for() -> None:
    """Only those; a name that is none, and a suite that is none, are refused."""
    assert {"softmax"} == {case.op for _, case in suite("quick", CPU, ["softmax"])}
    with pytest.raises(UsageError, match="no op softmx is measured; known: attention"):
        suite("quick", CPU, ["softmax", "softmx"])
    with pytest.raises(UsageError, match="suite 'long': expected full, large, quick"):
        suite("long", CPU)
