"""Network files: links, ways over others, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfc.ir import PerfcError
from perfc.planning.networks import Link, Network, read_network

_NODES = """
[[nodes]]
name = "a"
target = "t4"
[[nodes]]
name = "b"
target = "a100"
"""


def _read(folder: Path, text: str) -> Network:
    path = folder / "lab.toml"
    path.write_text(text, encoding="utf-8")
    return read_network(str(path))


def _link(a: str, b: str, more: str) -> str:
    return f'[[links]]\na = "{a}"\nb = "{b}"\n{more}\n'


def test_a_link_is_for_both_directions(tmp_path: Path) -> None:
    """GPT-2's activation of one sample takes 3.146 s over 8 Mb/s, either way."""
    network = _read(tmp_path, _NODES + _link("a", "b", "mbit_per_s = 8"))

    activation_bytes = 1024 * 768 * 4
    for a, b in ((0, 1), (1, 0)):
        taken_s = network.link(a, b).seconds(activation_bytes)
        assert taken_s == pytest.approx(3.146, abs=5e-4)


def test_directions_may_differ(tmp_path: Path) -> None:
    """A second link names the ends the other way round."""
    links = _link("a", "b", "mbit_per_s = 8") + _link(
        "b", "a", "mbit_per_s = 80\nlatency_ms = 5"
    )
    network = _read(tmp_path, _NODES + links)

    assert network.link(0, 1) == Link(1e6)
    assert network.link(1, 0) == Link(1e7, 0.005)


def test_the_default_joins_the_rest(tmp_path: Path) -> None:
    """It holds where no link is named."""
    text = _NODES + "[default]\nmbit_per_s = 80\nlatency_ms = 1\n"

    assert _read(tmp_path, text).link(0, 1) == Link(1e7, 0.001)


def test_a_way_leads_over_other_nodes(tmp_path: Path) -> None:
    """Its rate is the least, its latency the sum."""
    nodes = _NODES + '[[nodes]]\nname = "c"\ntarget = "t4"\ncount = 4\n'
    links = _link("a", "b", "mbit_per_s = 80\nlatency_ms = 2")
    links += _link("b", "c", "mbit_per_s = 8\nlatency_ms = 3")
    network = _read(tmp_path, nodes + links)

    assert network.link(0, 2).bytes_per_s == 1e6
    assert network.link(0, 2).latency_s == pytest.approx(0.005)
    assert network.gpus == 6


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_NODES, "network is disconnected: no way leads from 'a' to 'b'"),
        ('[[nodes]]\nname = "a"', "node 'a' has no target"),
        (_NODES + _link("a", "b", "mbit_per_s = 0"), "mbit_per_s 0, expected more"),
        (_NODES + _link("a", "b", "mbit_per_s = -1"), "mbit_per_s -1, expected more"),
        (_NODES + _link("a", "b", "mbit_per_s = 1e-9"), "1e-09, expected 1e-06 or"),
        (
            _NODES
            + _link("a", "b", "mbit_per_s = 8")
            + _link("a", "b", "mbit_per_s = 8\nlatency_ms = 3"),
            "link 'a' to 'b' is named twice, with different latencies",
        ),
        (_NODES + _link("a", "b", "latency_ms = 1"), "has no mbit_per_s"),
        (
            _NODES
            + _link("a", "b", "mbit_per_s = 8")
            + _link("a", "b", "mbit_per_s=9"),
            "link 'a' to 'b' is named twice, with different rates",
        ),
        (_NODES + _link("a", "c", "mbit_per_s = 8"), "there is no node 'c'"),
        (_NODES + _link("a", "b", "rate = 8"), "unknown key 'rate'"),
        (_NODES + "[extra]\n", "unknown key 'extra'"),
        ('[[nodes]]\nname = "a"\ntarget = "t4"\ncount = 0', "count 0, expected"),
        (_NODES + _NODES, "node 'a' is named twice"),
        ("", "has no [[nodes]]"),
        ("nodes = 3", "nodes: expected tables"),
        ('[[nodes]]\nname = "a"\ntarget = "t44"', "t44"),
        ("[[", "network file"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    """The line names the file and what is wrong in it."""
    with pytest.raises(PerfcError) as caught:
        _read(tmp_path, text)

    assert problem in str(caught.value)
    assert "lab.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(PerfcError, match=r"cannot read .*none\.toml"):
        read_network(str(tmp_path / "none.toml"))
