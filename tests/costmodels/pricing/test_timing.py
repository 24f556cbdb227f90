"""What is around kernels in measured rows: calls, gaps, clocks of an idle GPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.costmodels.signatures import gemm, over_rows

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.fitted_files.fitted_file import fitted
from perfc.costmodels.kernels import SOFTWARE
from perfc.costmodels.pricing import MET, as_timed
from perfc.costmodels.streaming import IDLE, STREAMING


def _event_us(op: str, target: str) -> float:
    """Return what a kernel that takes no time would measure between two events."""
    table, none = KernelTable([over_rows(op, 64, 64)]), np.zeros(1)
    timed = as_timed(none, none, table, load_target(target), "event")
    return float(timed.seconds[0]) * 1e6


def test_calls_of_a_known_host() -> None:
    """A call that was measured with a GPU is known; another has the host's factor."""
    event = fitted("event")
    host = event["host"]["p100-pcie-16g"]

    measured = event["call"]["p100-pcie-16g"]["layer_norm"]

    assert measured == pytest.approx(_event_us("layer_norm", "p100-pcie-16g"))
    assert measured != pytest.approx(host * event["call_us"]["layer_norm"], rel=0.2)
    assert host * event["call_us"]["default"] == pytest.approx(
        _event_us("reduction", "p100-pcie-16g")
    )
    assert event["other_host"] * event["call_us"]["softmax"] == pytest.approx(
        _event_us("softmax", "h200")
    )


def test_calls_of_a_session() -> None:
    """V100's table of GEMMs was measured in sessions; other rows have no session."""
    sessions = fitted("event")["session"]["v100-pcie-32g"]["gemm"]
    target, kernel = load_target("v100-pcie-32g"), gemm(8, 8, 8, b=2)
    place = np.array([first + 1 for first, _ in sessions])
    table = KernelTable([kernel] * len(place))

    placed, plain = (
        as_timed(
            np.zeros(len(each)), np.zeros(len(each)), each, target, "event"
        ).seconds
        for each in (table.with_param(MET, place), table)
    )

    assert [us for _, us in sessions] == pytest.approx(placed * 1e6)
    assert np.ptp(placed) > 0.1 * placed.min()
    assert np.ptp(plain) == 0


def test_gaps_of_software() -> None:
    """Graphs have the gap of who replayed them, elsewhere that of the GPU."""
    gaps_us = fitted("event")["graph_gap_us"]
    software = "aiconfigurator vllm/0.24.0"
    table = KernelTable([over_rows("elementwise", 64, 64)] * 2)
    table = table.with_param(SOFTWARE, np.array([software, "someone else"]))
    none = np.zeros(2)

    seen, unseen = (
        as_timed(none, none, table, load_target(name), "graph").seconds * 1e6
        for name in ("l40s", "b200")
    )

    assert gaps_us[f"{software}, l40s"] == pytest.approx(seen[0])
    assert gaps_us[software] == pytest.approx(unseen[0])
    for name, found in (("l40s", seen), ("b200", unseen)):
        assert load_target(name).device.graph_gap_s == pytest.approx(found[1] * 1e-6)


@pytest.mark.parametrize(
    ("name", "measured"), [("h200", "h100-sxm-80g"), ("l4", "l40s"), ("4090", "l40s")]
)
def test_gaps_of_software_by_capability(name: str, measured: str) -> None:
    """A GPU without rows has the gap of one whose kernels are compiled alike."""
    software = "aiconfigurator trtllm/1.3.0rc20"
    table = KernelTable([over_rows("elementwise", 64, 64)])
    table = table.with_param(SOFTWARE, np.array([software]))
    none = np.zeros(1)

    timed = as_timed(none, none, table, load_target(name), "graph")

    gaps_us = fitted("event")["graph_gap_us"]
    assert gaps_us[f"{software}, {measured}"] == pytest.approx(timed.seconds[0] * 1e6)


@pytest.mark.parametrize("op", ["softmax", "layer_norm"])
def test_clocks_of_an_idle_gpu(op: str) -> None:
    """Short kernels are slower where it was idle, long ones are not.

    Nor are any on a GPU without a published base clock.
    """
    kernels = [over_rows(op, rows, 2048) for rows in (512, 262_144)]
    table = KernelTable(kernels)
    idle = table.with_param(IDLE, np.ones(2, dtype=np.bool_))

    slower = {
        name: STREAMING.estimate(idle, target).seconds
        / STREAMING.estimate(table, target).seconds
        for name, target in ((n, load_target(n)) for n in ("t4", "h100-sxm-80g"))
    }

    assert slower["t4"][0] > 1.2
    assert slower["t4"][1] == pytest.approx(1, abs=0.01)
    assert slower["h100-sxm-80g"].tolist() == [1, 1]


def test_columns_that_fill_every_load() -> None:
    """Layer norm takes longer where threads load four times at once to the end."""
    full, rest = (
        STREAMING.estimate(
            KernelTable([over_rows("layer_norm", 8192, columns)]),
            load_target("p100-pcie-16g"),
        ).seconds[0]
        for columns in (2048, 2052)
    )

    assert full > 1.1 * rest
