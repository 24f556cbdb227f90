"""`perfc calibrate --from` of logs of nccl-tests: profiles that price collectives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.measurements.nccl_logs import nccl_log
from tests.tools.command import Command

from perfc.costmodels import load_target, price
from perfc.costmodels.collectives import COLLECTIVE
from perfc.ir import Kernel, Work, record_of

SLOW = 1.6
"""Of a machine whose short collectives take that much longer than perfc says."""


def _seconds(target: str, size: int, ranks: int = 4, op: str = "all_reduce") -> float:
    params = record_of({"bytes": size, "ranks": ranks, "nodes": 1, "gpus_per_node": 4})
    kernel = Kernel(op, "fp16", "", params, Work(0, size, size))
    return float(price([kernel], load_target(target), [COLLECTIVE]).seconds[0])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two points: 4 KB that take longer than perfc says, 512 MB that do not."""
    small, large = 4096, 1 << 29
    times_us = {
        small: SLOW * 1e6 * _seconds("dgx-b200", small),
        large: 1e6 * _seconds("dgx-b200", large),
    }
    path = tmp_path / "all_reduce.log"
    path.write_text(nccl_log(times_us), encoding="utf-8")
    return path


def test_two_points_sharpen_all_collectives(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """The measured sizes are met; other short ones follow, large ones stay."""
    output = tmp_path / "mine.toml"
    result = command(
        "calibrate", "--from", str(log), "--target", "dgx-b200", "-o", str(output)
    )

    assert (0, "") == (result.code, result.err)
    assert "dgx-b200: 2 rows of collectives" in result.out
    mine = load_target(str(output))
    assert ("dgx-b200", "mine") == (mine.name, mine.profile)

    def ratio(size: int, op: str = "all_reduce") -> float:
        ranks = (size, 4, op)
        return _seconds(str(output), *ranks) / _seconds("dgx-b200", *ranks)

    assert SLOW == pytest.approx(ratio(4096), rel=0.02)
    assert 1.2 < ratio(1024, "all_gather") < SLOW
    assert 1 == pytest.approx(ratio(1 << 28, "reduce_scatter"), rel=0.03)


def test_a_log_names_its_own_gpus(command: Command, log: Path, tmp_path: Path) -> None:
    """Without --target the profile is that of the devices in the log."""
    output = tmp_path / "mine.toml"
    command("calibrate", "--from", str(log), "-o", str(output))

    assert "b200-sxm-180g" == load_target(str(output)).name


@pytest.mark.parametrize("target", ["dgx-h100", "a100", "gb200-nvl72"])
def test_a_log_of_other_gpus_is_refused(
    command: Command, log: Path, tmp_path: Path, target: str
) -> None:
    """The line says what the log ran on, and what the target has."""
    output = tmp_path / "a.toml"
    result = command(
        "calibrate", "--from", str(log), "--target", target, "-o", str(output)
    )

    assert (1, False) == (result.code, output.exists())
    assert "ran on NVIDIA B200, which is b200-sxm-180g; --target" in result.error
    assert load_target(target).device.name in result.error


def test_gpus_that_nobody_knows_may_be_any(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """An engineering sample is what --target says."""
    log.write_text(log.read_text().replace("NVIDIA B200", "NVIDIA PG509-230"))
    output = tmp_path / "a.toml"
    result = command(
        "calibrate", "--from", str(log), "--target", "dgx-h100", "-o", str(output)
    )

    assert (0, "dgx-h100") == (result.code, load_target(str(output)).name)


def test_a_profile_of_collectives_is_scored(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """`perfc validate` takes the profile for rows of its target."""
    output, table = tmp_path / "mine.toml", tmp_path / "rows.csv"
    command("calibrate", "--from", str(log), "--target", "dgx-b200", "-o", str(output))
    time_us = SLOW * 1e6 * _seconds("dgx-b200", 4096)
    table.write_text(
        "target,op,dtype,params,latency_us,timing,source,kernel\n"
        'b200,all_reduce,fp16,"{""bytes"": 4096, ""ranks"": 4, ""nodes"": 1}",'
        f"{time_us},nccl,a test,\n",
        encoding="utf-8",
    )
    groups = command(
        "validate", str(table), "--target", str(output), "--format", "json"
    ).report["groups"]

    assert [(1, 0)] == [(g["rows"], g["skipped"]) for g in groups]
    assert groups[0]["mape"] < 0.02


def test_a_truncated_log_leaves_no_profile(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """Exit code 1, one line that says what is missing, no file."""
    output = tmp_path / "mine.toml"
    text = log.read_text(encoding="utf-8")
    log.write_text(text[: text.index("# Avg")], encoding="utf-8")
    result = command("calibrate", "--from", str(log), "-o", str(output))

    assert 1 == result.code
    assert "the log ends early" in result.error
    assert not output.exists()


def test_a_target_without_a_log_is_a_usage_error(
    command: Command, tmp_path: Path
) -> None:
    """Tables say their own target."""
    result = command(
        "calibrate", "--target", "dgx-b200", "-o", str(tmp_path / "a.toml")
    )

    assert 2 == result.code
    assert "--target says what logs of nccl-tests ran on" in result.error


def test_several_nodes_need_a_network(command: Command, tmp_path: Path) -> None:
    """A log of two hosts of cards says to name a system."""
    log = tmp_path / "all_reduce.log"
    text = nccl_log({4096: 20.0}, hosts=("a", "a", "b", "b"), device="NVIDIA L4")
    log.write_text(text, encoding="utf-8")
    result = command("calibrate", "--from", str(log), "-o", str(tmp_path / "a.toml"))

    assert 1 == result.code
    assert "l4 has no network: name a system" in result.error


@pytest.mark.parametrize("rows", ['["all_reduce fp16 0 2 1 2 0"]', "[]", "3"])
def test_a_damaged_profile_is_refused(
    command: Command, log: Path, tmp_path: Path, rows: str
) -> None:
    """Rows of collectives that cannot be are named."""
    output = tmp_path / "mine.toml"
    command("calibrate", "--from", str(log), "-o", str(output))
    head = output.read_text(encoding="utf-8").partition("[collectives]")[0]
    output.write_text(f"{head}[collectives]\nrows = {rows}\n", encoding="utf-8")
    result = command("targets", "show", str(output))

    assert 1 == result.code
    assert "profile: collectives" in result.error


def test_a_target_may_go_by_another_name(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """Rows of `b200` are not said to be left out of the sheet that it is."""
    output = tmp_path / "mine.toml"
    result = command(
        "calibrate", "--from", str(log), "--target", "b200", "-o", str(output)
    )

    assert (0, "") == (result.code, result.err)
    assert "b200-sxm-180g: 2 rows of collectives" in result.out
    assert "left out" not in result.out


def test_a_cpu_has_no_collectives(command: Command, log: Path, tmp_path: Path) -> None:
    """What GPUs sent each other says nothing of a CPU, nor of its host."""
    output = tmp_path / "mine.toml"
    result = command(
        "calibrate", "--from", str(log), "--target", "cpu", "-o", str(output)
    )

    assert 1 == result.code
    assert "collectives on cpu: only GPUs that NCCL joins are modelled" in result.err
    assert not output.exists()


SHEET = """
name = "ours"
target = "b200-sxm-180g"
[node]
gpus = { value = 4, source = "node" }
topology = { value = "nvswitch", source = "node" }
[network]
fabric = { value = "infiniband", source = "node" }
nics = { value = 4, source = "node" }
nic_gbit_per_s = { value = 400, source = "node" }
[sources]
node = "a rack of our own"
"""


def test_a_profile_of_a_system_of_ones_own(
    command: Command, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sheet is found from where the profile lies, whoever calls from where."""
    sheet, output = tmp_path / "ours.toml", tmp_path / "profiles" / "mine.toml"
    sheet.write_text(SHEET, encoding="utf-8")
    output.parent.mkdir()
    call = ("calibrate", "--from", str(log), "--target", str(sheet), "-o", str(output))
    result = command(*call)
    monkeypatch.chdir(output.parent)

    assert (0, "") == (result.code, result.err)
    assert ("ours", "mine") == (
        load_target("mine.toml").name,
        load_target("mine.toml").profile,
    )


def test_a_log_of_more_gpus_than_a_node_has_is_refused(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """Sixteen GPUs on one host are no DGX."""
    hosts = ("node-a",) * 16
    log.write_text(nccl_log({4096: 14.25}, hosts=hosts, factor=1.875))
    output = tmp_path / "a.toml"
    call = ("calibrate", "--from", str(log), "--target", "dgx-b200", "-o", str(output))
    result = command(*call)

    assert (1, False) == (result.code, output.exists())
    assert "the test ran on 16 GPUs of a node; one of dgx-b200 has 8" in result.error


def test_rows_of_several_nodes_say_something_of_one(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """A profile without a system has its maker's network for such rows."""
    hosts = ("node-a",) * 4 + ("node-b",) * 4
    times_us = {1 << 13: 60.0, 1 << 26: 900.0}
    log.write_text(nccl_log(times_us, hosts=hosts, factor=1.75))
    output = tmp_path / "mine.toml"
    result = command("calibrate", "--from", str(log), "-o", str(output))

    assert 0 == result.code
    assert 0 < _seconds(str(output), 1 << 20) < 1e-3


@pytest.mark.parametrize("sizes", [(1 << 26,), (1 << 13, 1 << 14)])
def test_messages_of_one_size_calibrate_nothing(
    command: Command, log: Path, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """A small message and a large one are needed, and one line says so."""
    log.write_text(nccl_log({size: 1e-3 * size + 20 for size in sizes}))
    output = tmp_path / "a.toml"
    result = command("calibrate", "--from", str(log), "-o", str(output))

    assert (1, False) == (result.code, output.exists())
    assert "expected a small message and a large one" in result.error


def test_what_no_link_carries_is_refused(
    command: Command, log: Path, tmp_path: Path
) -> None:
    """512 MB in 27 us are no microseconds of this GPU."""
    log.write_text(nccl_log({1 << 29: 27.0}))
    output = tmp_path / "a.toml"
    result = command("calibrate", "--from", str(log), "-o", str(output))

    assert (1, False) == (result.code, output.exists())
    assert "GB/s leave each GPU of b200-sxm-180g, whose links have 900" in result.error
