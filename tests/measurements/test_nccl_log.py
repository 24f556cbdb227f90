"""Logs of nccl-tests become rows, or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.measurements.nccl_logs import nccl_log

from perfc.measurements import NcclLogError, read_nccl_log

TIMES = {4096: 14.25, 1 << 20: 41.5, 1 << 29: 2700.0}


def _written(folder: Path, text: str, name: str = "test.log") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_log_becomes_rows(tmp_path: Path) -> None:
    """Sizes, times out of place, ranks, nodes, the GPU's target and NCCL's version."""
    rows = read_nccl_log(_written(tmp_path, nccl_log(TIMES)))

    assert list(TIMES.values()) == [row.latency_us for row in rows]
    first = rows[0]
    assert ("b200-sxm-180g", "all_reduce", "fp16", "nccl") == (
        first.target,
        first.op,
        first.dtype,
        first.timing,
    )
    sizes = {"bytes": 4096, "ranks": 4, "nodes": 1, "gpus_per_node": 4}
    assert sizes == dict(first.params.items())
    assert ("nccl-tests, nccl 2.21.5", 20) == (first.source, first.n)


def test_hosts_are_nodes(tmp_path: Path) -> None:
    """Ranks on two hosts are two nodes; --target names the system."""
    text = nccl_log(TIMES, hosts=("a", "a", "b", "b"))
    row = read_nccl_log(_written(tmp_path, text), "dgx-b200")[0]

    assert (4, 2, 2) == tuple(
        row.params.integer(key) for key in ("ranks", "nodes", "gpus_per_node")
    )
    assert "dgx-b200" == row.target


def test_an_old_log_has_other_columns(tmp_path: Path) -> None:
    """Versions without redop and root, with an error for wrong results, are read."""
    text = nccl_log(TIMES, program="", redop="none", factor=0.75, old=True, shared=True)
    rows = read_nccl_log(_written(tmp_path, text, "alltoall_perf.txt"))

    assert ["all_to_all"] * 3 == [row.op for row in rows]
    assert list(TIMES.values()) == [row.latency_us for row in rows]


@pytest.mark.parametrize("said", ["", "# srun ./run_perf.sh, home /data/nccl_perf\n"])
def test_rates_tell_where_no_name_does(tmp_path: Path, said: str) -> None:
    """A name that is no program's, of the log or in it, says nothing."""
    text = said + nccl_log(TIMES, program="")
    rows = read_nccl_log(_written(tmp_path, text, "h100_perf.log"))

    assert ["all_reduce"] * 3 == [row.op for row in rows]


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[1,0]<stdout>: ", " 3: "])
def test_what_launchers_put_before_lines_is_left_out(tmp_path: Path, tag: str) -> None:
    """As `mpirun --tag-output` and `srun --label` do."""
    plain = nccl_log(TIMES)
    tagged = "".join(tag + line for line in plain.splitlines(keepends=True))

    assert read_nccl_log(_written(tmp_path, plain)) == read_nccl_log(
        _written(tmp_path, tagged)
    )


def test_sizes_of_nothing_are_left_out(tmp_path: Path) -> None:
    """A test of few bytes and many ranks begins with rows of 0 bytes."""
    text = nccl_log({0: 9.5, **TIMES})

    assert read_nccl_log(_written(tmp_path, nccl_log(TIMES))) == read_nccl_log(
        _written(tmp_path, text)
    )


@pytest.mark.parametrize(
    ("factor", "op"), [(1.5, "all_reduce"), (0.75, "reduce_scatter")]
)
def test_sums_are_told_by_their_bus_factor(
    tmp_path: Path, factor: float, op: str
) -> None:
    """A log that names no program is known by busbw over algbw, if that is enough."""
    text = nccl_log(TIMES, program="", factor=factor, shared=factor < 1)

    assert op == read_nccl_log(_written(tmp_path, text))[0].op


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "expected the log of an nccl-tests program"),
        (nccl_log(TIMES, end=""), "the log ends early: no line '# Avg bus bandwidth'"),
        (nccl_log(TIMES, unit="ms"), r"line \d+: expected times in \(us\), found ms"),
        (nccl_log(TIMES, hosts=("a",)), "for each of at least 2 GPUs, found 1"),
        (nccl_log({}), "a table without rows"),
        (nccl_log({0: 9.5}), "a table without rows"),
        *(
            (
                nccl_log(TIMES, program=f"{name}_perf"),
                f"{name}_perf tests none of what is modelled: all_reduce, all_gather",
            )
            for name in ("reduce", "gather", "scatter", "hypercube")
        ),
        (nccl_log(TIMES) + nccl_log(TIMES), "found a second table at line"),
        (nccl_log(TIMES, device="Abacus 3000"), "no target is known for Abacus 3000"),
        (
            nccl_log(TIMES, program="", redop="none", factor=0.75, shared=True),
            "cannot tell the collective",
        ),
        (
            nccl_log(TIMES).replace("2097152", "2097153").replace(" 2048 ", " 2049 "),
            "expected 2049 elements of fp16 in each of 4 ranks or in all, found 4096",
        ),
        (nccl_log(TIMES).replace("half", "quad"), "expected a type of .*'quad'"),
        (nccl_log(TIMES).replace("14.25", "nan", 1), "expected a time above 0 us"),
        (nccl_log(TIMES).replace("    0 ", "    7 ", 1), "7 wrong results"),
        (nccl_log(TIMES).replace("    0\n", "\n", 1), "expected 13 columns"),
        (
            nccl_log(TIMES).replace("#  Rank  2", "# "),
            "of 4 GPUs, found none of rank 2",
        ),
        (
            nccl_log(TIMES, hosts=("a", "a", "a", "b")),
            "expected as many GPUs on each node, found 3 on a, 1 on b",
        ),
        (
            nccl_log(TIMES, program="all_gather_perf"),
            "a table of all_gather with redop sum",
        ),
        (
            nccl_log(TIMES, redop="none"),
            "a table of all_reduce with no redop",
        ),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """One line names the file and the line, what was expected and what was found."""
    with pytest.raises(NcclLogError, match=message) as caught:
        read_nccl_log(_written(tmp_path, text))

    assert "\n" not in str(caught.value)
    assert "test.log" in str(caught.value)
