"""Hosts of nodes and their watts: read, checked, and as the systems differ."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfc.costmodels import load_target
from perfc.costmodels.machine import HostResources, TargetError
from perfc.costmodels.sheets import catalog, system_names
from perfc.ir import PerfcError

SYSTEMS = Path(catalog.__file__).parents[1].joinpath("systems")


def _host(name: str, **overrides: str) -> HostResources:
    found = load_target(name, {k.replace("__", "."): v for k, v in overrides.items()})
    assert found.resources is not None
    return found.resources


def _edited(folder: Path, old: str, new: str) -> str:
    """Write zion's sheet with one line replaced; return its path."""
    text = SYSTEMS.joinpath("zion.toml").read_text(encoding="utf-8")
    assert old in text
    path = folder / "zion.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return str(path)


def test_a_host_is_read_in_si_units() -> None:
    """Of all sockets together; a single socket has no way to others to wait for."""
    zion, single = _host("zion"), _host("1s-server")

    assert (8, 20, 160) == (zion.sockets, zion.cores_per_socket, zion.cores)
    assert 2199e9 == pytest.approx(zion.dram_bytes)
    assert 249.6e9 == pytest.approx(zion.inter_socket_bytes_per_s)
    assert (1, 15.76e9) == (zion.ranks_per_uplink, zion.uplink_bytes_per_s)
    assert 7 / 8 == zion.remote_share
    assert (0, math.inf) == (single.remote_share, single.inter_socket_bytes_per_s)
    assert 5e12 == _host("zion", host__dram_gb="5000").dram_bytes


def test_the_systems_of_the_study_differ_as_they_do() -> None:
    """Zion has more of all that a host gives; Grand Teton four times Zion's uplinks."""
    basin, zion, teton = map(_host, ("big-basin", "zion", "grand-teton"))

    assert zion.dram_bytes > basin.dram_bytes
    assert zion.dram_bytes_per_s == pytest.approx(4 * basin.dram_bytes_per_s, rel=1e-3)
    assert zion.cores == 4 * basin.cores
    assert zion.ranks_per_uplink < basin.ranks_per_uplink
    assert 4 == pytest.approx(teton.uplink_bytes_per_s / zion.uplink_bytes_per_s, 1e-3)
    zionex = load_target("zionex").system
    grand = load_target("grand-teton").system
    assert zionex is not None
    assert grand is not None
    assert 2 * zionex.nic_bytes_per_s == grand.nic_bytes_per_s


@pytest.mark.parametrize("name", system_names())
def test_a_host_that_a_system_names_is_a_target(name: str) -> None:
    """`host.cpu` can be loaded, and has the cores that the system says."""
    resources = load_target(name).resources
    if resources is None or not resources.cpu:
        return

    assert _host(resources.cpu).cores == resources.cores


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sockets = { value = 8,", "sockets = { value = 0,", "whole number from 1"),
        ('dram_gb = { value = 2199, source = "memory" }\n', "", "host.dram_gb: expec"),
        (
            'inter_socket_gb_per_s = { value = 249.6, source = "upi" }\n',
            "",
            "expected a value beside host.sockets = 8",
        ),
        (
            'uplink_gb_per_s = { value = 15.76, source = "pcie" }\n',
            "",
            "host.uplink_gb_per_s: expected a value beside host.gpus_per_uplink",
        ),
        ("host_w =", "tdp_w =", "power.tdp_w: expected a field that the target's"),
        (
            "host_w =",
            'host_idle_w = { value = 1901, source = "watts" }\nhost_w =',
            "power.host_idle_w: expected at most power.host_w = 1900 W, found 1901",
        ),
    ],
)
def test_a_host_that_cannot_be_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """The line names the field, what was expected and what was found."""
    with pytest.raises(TargetError) as caught:
        load_target(_edited(tmp_path, old, new))

    assert message in str(caught.value)


def test_a_cpu_has_the_cores_of_its_host(tmp_path: Path) -> None:
    """Where the device is the host's processor, both say the same."""
    text = SYSTEMS.with_name("targets").joinpath("2s-skylake.toml").read_text("utf-8")
    path = tmp_path / "2s.toml"
    path.write_text(text.replace("_socket = { value = 20", "_socket = { value = 10"))

    with pytest.raises(TargetError, match=r"gpu\.sm_count: expected 20 \(host\.sock"):
        load_target(str(path))


def test_watts_of_a_node_are_those_of_its_parts() -> None:
    """Its host's and its GPUs', or what the sheet says of all of it."""
    zion = load_target("zion").node_power
    set_ = load_target("zion", {"power.node_w": "5000"}).node_power
    server = load_target("2s-skylake").node_power
    assert zion is not None
    assert set_ is not None
    assert server is not None

    assert 1900 + 8 * 300 == zion.active("zion")
    assert 5000 == set_.active("zion")
    assert (400, 150) == (server.active("2s"), server.idle("2s"))


def test_watts_that_are_missing_are_asked_for() -> None:
    """A line says which fields give them."""
    zion = load_target("zion").node_power
    assert zion is not None

    with pytest.raises(PerfcError, match=r"zion: idle watts of a node are not known"):
        zion.idle("zion")
    assert load_target("dgx-a100").node_power is None
