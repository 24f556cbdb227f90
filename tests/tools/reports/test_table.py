"""The report as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perfc
from perfc.tools.reports.numbers import format_bytes, format_quantity, format_us

EMPTY = "graph @e() {\n  return\n}\n"
UNKNOWN = """graph @g(%x: f32[1024,1024]) {
  %a = unknown(%x) {op = "my::op"} : f32[1024,1024]
  return %a
}
"""
LONG = 96


def _text(name: str, target: str, inputs: str = "host-pinned") -> str:
    return str(perfc.analyze(perfc.load(name, batch=2048), target, inputs=inputs))


@pytest.mark.parametrize("target", ["v100", "b200", "t4"])
@pytest.mark.parametrize(
    "name",
    [
        "dlrm-ddp",
        "dlrm-default",
        "dlrm-mlperf",
        "dlrm-mlperf:embedding=batched",
        "gpt2:layers=2,seq=4",
        "switch-xl-4:layers=2,seq=64,vocab=64",
    ],
)
def test_width(name: str, target: str) -> None:
    """No line is wider than a terminal of 100 columns, or ends in spaces."""
    lines = _text(name, target).splitlines()

    assert [] == [line for line in lines if len(line) > LONG or line != line.rstrip()]


def test_sections() -> None:
    """The time comes first, then where it goes, the ops, and why."""
    text = _text("dlrm-default", "v100")

    title = (
        "dlrm-default · batch 2048 · inference · fp32 · v100-sxm2-16g · eager · "
        "host profile server-2017"
    )
    assert [
        title,
        "Where the time goes (critical path)",
        "Top ops by device time",
        "What to fix next",
    ] == [line for line in text.splitlines() if line and line[0] not in " B"]
    assert re.search(
        r"^  time of one iteration +[\d.]+ ms   90 % interval [\d.]+ ms to [\d.]+ ms, "
        r"[\d,]+ samples/s$",
        text,
        re.MULTILINE,
    )


def test_what_the_device_alone_needs() -> None:
    """It stands below the time, and is part of it; a CPU works in the host's calls."""
    text = _text("dlrm-default", "v100")
    row = r"^  of which device alone +[\d.]+ [mu]s   (\d+) % of the time, if"
    share = re.search(row, text, re.MULTILINE)

    assert share is not None
    assert 0 < int(share[1]) <= 100
    assert "alone" not in _text("dlrm-default", "cpu")


def test_shares_add_up() -> None:
    """The shares of the breakdown, the remainder included, are the whole."""
    text = _text("dlrm-default", "v100").partition("Where the time")[2]
    shares = re.findall(r" (\d+) %", text.partition("Top ops")[0])

    assert sum(map(int, shares)) == pytest.approx(100, abs=3)


def test_equal_ops_are_one_row() -> None:
    """The lookups of eight equal tables are one row that counts them."""
    text = _text("dlrm-default", "v100")
    rows = text.partition("Top ops")[2].partition("What to fix")[0]

    assert re.search(r"aten::embedding_bag  emb_l\.\* +x 8 +\d", rows)
    assert 1 == rows.count("aten::embedding_bag")


def test_long_names_fit() -> None:
    """An op loses its end and a place its start, as far as the width demands."""
    text = _text("switch-xl-4:layers=2,seq=64,vocab=64", "a100")
    attention = _text("gpt2:layers=2,seq=4", "a100")

    assert re.search(
        r"^  aten::linear +…\S*block\.0\.layer\.0\.\S+ +x 18 ", text, re.MULTILINE
    )
    assert "  aten::scaled_dot_pr…  transformer.h.*.attn " in attention


def test_what_to_fix_next() -> None:
    """Best first, sites as one row; what is not worth half a percent is left out."""
    text = _text("dlrm-default", "v100")
    rows = text.partition("What to fix next\n")[2].partition("\n\n")[0].splitlines()

    assert re.search(r"^ +where +saves  2x faster  at its bound$", rows[0])
    assert any(re.search(r"embedding_bag  emb_l\.\* +x 8 +\d", row) for row in rows)
    assert 2 <= len(rows) <= 7


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        (
            "dlrm-ddp",
            "v100",
            "the host, 100 % of the critical path; the GPU has nothing",
        ),
        (
            "dlrm-default",
            "t4",
            r"moving bytes, \d+ % of the critical path\. The long",
        ),
    ],
)
def test_bottleneck(name: str, target: str, expected: str) -> None:
    """One sentence says what limits the time."""
    text = " ".join(_text(name, target).split())

    assert re.search(rf"Bottleneck: {expected}", text)


def test_copies_name_their_direction() -> None:
    """Inputs that are copied are a row of their own."""
    assert "  copies: host to device " in _text("dlrm-default", "v100")
    assert "copies:" not in _text("dlrm-default", "v100", inputs="device")


def test_remarks() -> None:
    """Remarks stand below, each with its code."""
    text = " ".join(_text("dlrm-mlperf", "v100").split())

    assert re.search(r"Warning: the model needs .* \[out-of-memory\]$", text)


def test_unknown_ops(tmp_path: Path) -> None:
    """An op without a model is named, and its share is told."""
    path = tmp_path / "g.perfc"
    path.write_text(UNKNOWN)

    text = str(perfc.analyze(str(path), "v100"))

    assert re.search(
        r"device times are .* assumed, 1 x unknown op$", text, re.MULTILINE
    )
    assert re.search(r"^  my::op .* roofline \(assumed\)$", text, re.MULTILINE)
    assert "Warning: no model for op my::op" in text


def test_nothing_to_do(tmp_path: Path) -> None:
    """A graph without ops still takes the host a moment."""
    path = tmp_path / "e.perfc"
    path.write_text(EMPTY)

    lines = str(perfc.analyze(str(path), "v100")).splitlines()

    assert (
        "e · inference · fp32 · v100-sxm2-16g · eager · host profile server-2017"
        == lines[0]
    )
    assert "  none" == lines[lines.index("Top ops by device time") + 1]


@pytest.mark.parametrize(
    ("time_us", "expected"),
    [
        (0.0, "0.00 us"),
        (1.5, "1.50 us"),
        (9.996, "10.0 us"),
        (99.96, "100 us"),
        (999.4, "999 us"),
        (999.6, "1.00 ms"),
        (12345.0, "12.3 ms"),
        (1.5e6, "1.50 s"),
        (7.2e9, "7200 s"),
    ],
)
def test_times(time_us: float, expected: str) -> None:
    """A time has three digits and a unit that fits."""
    assert expected == format_us(time_us)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, "0.00 FLOP"),
        (999.6, "1.00 kFLOP"),
        (2.5e9, "2.50 GFLOP"),
        (3e15, "3.00 PFLOP"),
    ],
)
def test_quantities(amount: float, expected: str) -> None:
    """So has an amount, with a decimal prefix."""
    assert expected == format_quantity(amount, "FLOP")


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (2**20, "1.00 MiB"), (80 * 2**30, "80.0 GiB")],
)
def test_memory(amount: float, expected: str) -> None:
    """Memory is counted in powers of two."""
    assert expected == format_bytes(amount)
