"""What perfc says of the kernels of a trace, and what it says it cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.traced_ops import MIB, TracedOps

from perfc.costmodels import cost_models as installed
from perfc.costmodels import load_target, price
from perfc.ir import Kernel, Record, Work
from perfc.tools.replay.kernel_prices import By, Price, TracePrices, trace_prices
from perfc.tools.replay.recorded_ops import trace_ops
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

V100 = load_target("v100")
SIZE = 1024


def _priced(made: TracedOps, tmp_path: Path, target: str = "v100") -> TracePrices:
    recorded = record(read_trace(made.write(tmp_path / "t.json")))
    return trace_prices(trace_ops(recorded), load_target(target))


def _gemm_seconds(math: str = "fp32", target: str = "v100") -> float:
    n = SIZE
    params = Record({"b": 1, "m": n, "n": n, "k": n, "layout": "nn"})
    work = Work(2 * n**3, 8 * n * n, 4 * n * n)
    kernel = Kernel("gemm", "fp32", math, params, work)
    return float(price([kernel], load_target(target), installed()).seconds[0])


def _by_name(prices: TracePrices) -> dict[str, list[Price]]:
    works = prices.ops.recorded.works
    found: dict[str, list[Price]] = {}
    for task, one in sorted(prices.prices.items()):
        found.setdefault(works[task].name, []).append(one)
    return found


def _messages(prices: TracePrices) -> dict[str, str]:
    return {d.code: d.message for d in prices.diagnostics}


def test_a_gemm_costs_what_perfc_says_of_it(tmp_path: Path) -> None:
    """An op of a trace is lowered and priced as an op of any model."""
    made = TracedOps()
    made.gemm()

    prices = _priced(made, tmp_path)

    ((one,),) = _by_name(prices).values()
    assert (By.MODEL, False) == (one.by, one.is_spread)
    assert one.seconds == pytest.approx(_gemm_seconds(), rel=0.02)
    assert one.work.flops == 2 * SIZE**3
    assert not prices.diagnostics


def test_kernels_that_say_tf32_are_priced_as_such(tmp_path: Path) -> None:
    """CuBLAS chooses call by call; the name of the kernel tells."""
    made = TracedOps()
    made.gemm()
    tf32 = "cutlass_80_tensorop_s1688gemm_128x128"
    made.op("aten::mm", [[SIZE, SIZE]] * 2, [(tf32, 100)])

    found = _by_name(_priced(made, tmp_path, "a100"))

    (exact,), (fast,) = found["volta_sgemm_128x64_nn"], found[tf32]
    assert exact.seconds == pytest.approx(_gemm_seconds("fp32", "a100"), rel=0.05)
    assert fast.seconds == pytest.approx(_gemm_seconds("tf32", "a100"), rel=0.05)
    assert fast.seconds < exact.seconds


def test_more_kernels_than_expected_share_the_total(tmp_path: Path) -> None:
    """Their shares are those measured, and a remark names the op."""
    made = TracedOps()
    made.gemm()
    kernels = [("volta_sgemm", 150.0), ("splitKreduce", 50.0)]
    made.op("aten::mm", [[SIZE, SIZE]] * 2, kernels)

    prices = _priced(made, tmp_path)

    found = _by_name(prices)
    (whole,), (first,), (second,) = found.values()
    assert first.is_spread
    assert second.is_spread
    assert first.seconds + second.seconds == pytest.approx(whole.seconds)
    assert first.seconds == pytest.approx(3 * second.seconds)
    assert first.work.flops == pytest.approx(0.75 * whole.work.flops)
    assert _messages(prices)["kernels-spread"].endswith("perfc expects: aten::mm")


def test_copies_and_memsets_are_priced_by_their_bytes(tmp_path: Path) -> None:
    """The trace tells their bytes, whatever op they are of."""
    made = TracedOps()
    made.copy()

    prices = _priced(made, tmp_path)

    (one,) = prices.prices.values()
    link = V100.host_link
    assert one.by is By.FACTS
    assert one.seconds == pytest.approx(link.latency_s + MIB / link.h2d_bytes_per_s)


def test_what_has_no_price_is_named(tmp_path: Path) -> None:
    """Ops that perfc does not know, or of which something is missing; collectives."""
    made = TracedOps()
    made.op("fbgemm::permute", [[4, 4]], [("permute", 10)])
    types = ["float", "", "Scalar", ""]
    made.op("aten::sum", [[4, 4], [], [], []], [("reduce", 10)], types=types)
    made.made.add("cpu_op", "aten::mm", made.at_us, 50)
    made.made.launch(made.at_us + 5, 5, made.at_us + 20, 10)
    made.at_us += 1000
    made.collective()

    prices = _priced(made, tmp_path)

    assert not prices.prices
    said = [d.message for d in prices.diagnostics]
    assert any("perfc does not know it: fbgemm::permute" in line for line in said)
    assert any("arguments are not recorded: aten::mm" in line for line in said)
    assert any("'dim' is not recorded: aten::sum" in line for line in said)
    assert any("1 collectives (0.50 ms) keep what they took" in line for line in said)


def test_lost_launches_are_like_equal_ones(tmp_path: Path) -> None:
    """Work launched before the trace began runs blocks that an op of it runs, too."""
    made = TracedOps()
    made.gemm()
    made.made.work(9999, 500, 200, name="volta_sgemm_128x64_nn")
    shape = {"grid": [640, 1, 1], "block": [256, 1, 1], "registers per thread": 64}
    made.made.events[-1]["args"] |= shape
    made.made.work(9998, 700, 50, name="unlike any other")

    prices = _priced(made, tmp_path)

    ((first, second),) = _by_name(prices).values()
    assert first == second
    assert "no op around the launch" in _messages(prices)["kernels-measured"]


def test_a_trace_of_nothing_known_has_no_prices(tmp_path: Path) -> None:
    """Not even an op graph."""
    made = TracedOps()
    made.op("mine::op", [[4]], [("kernel", 10)])

    prices = _priced(made, tmp_path)

    assert prices.ops.program is None
    assert not prices.seconds


def test_the_known_op_around_an_unknown_one(tmp_path: Path) -> None:
    """What an op launches that perfc does not know is of the known one around it.

    Not where that one has launched something of its own by another op that is known.
    """
    made = TracedOps()
    for inner in ("aten::mystery", "aten::mm"):
        begin_us = made.at_us
        made.op("aten::mm", [[SIZE, SIZE]] * 2, [])
        made.made.events[-1]["dur"] = 500
        for place, name in enumerate(("aten::mystery", inner)):
            made.at_us = begin_us + 100 + 150 * place
            made.op(name, [[SIZE, SIZE]] * 2, [(f"kernel of {name}", 20)])
        made.at_us = begin_us + 1000

    prices = _priced(made, tmp_path)

    names = {task: work.name for task, work in prices.ops.recorded.works.items()}
    priced = [(names[task], one.is_spread) for task, one in prices.prices.items()]
    unknown = ("kernel of aten::mystery", True)
    assert sorted(priced) == [unknown, unknown, ("kernel of aten::mm", False)][::-1]
