"""Ranks of one run, together."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import Made

from perfc.tools.replay.replay import replay_alone, replay_joint
from perfc.traces.collectives import align_collectives, read_ranks
from perfc.traces.events import TraceError

NAMES = ("ncclAllReduce", "ncclSendRecv", "ncclAllReduce")


def _rank(
    begin_us: float, host_us: float, ends_us: tuple[float, ...], *, first: int = 0
) -> Made:
    """Make a rank that comes to each collective after *host_us* of its own work."""
    made = Made()
    now = begin_us
    for name, end_us in list(zip(NAMES, ends_us, strict=True))[first:]:
        made.op("aten::mm", now, host_us)
        now += host_us
        made.op("record_param_comms", now, 10)
        made.launch(now, 5, now + 8, end_us - now - 8, stream=20, name=name)
        now += 10
        start = now
        now = end_us + 5
        made.call("cudaDeviceSynchronize", start, now - start)
    return made


ENDS = (1000.0, 2000.0, 3000.0)


def _files(tmp_path: Path, *ranks: Made) -> list[Path]:
    return [
        rank.write(tmp_path / f"r{n}.json", distributedInfo={"rank": n})
        for n, rank in enumerate(ranks)
    ]


def test_the_last_rank_decides_when_a_collective_begins(tmp_path: Path) -> None:
    """A slow host delays every rank, and costs the others waiting, not bandwidth."""
    files = _files(tmp_path, _rank(0, 100, ENDS), _rank(0, 900, ENDS))
    ranks = read_ranks(files)

    joint = align_collectives(ranks)
    again = replay_joint(ranks)

    assert [{0, 1}] * 3 == [set(group) for group in joint.groups]
    for one in again:
        assert one.simulated_us == pytest.approx(one.measured_us, abs=2)
    alone = replay_alone(ranks)
    assert alone[0].simulated_us == pytest.approx(again[0].simulated_us, abs=2)


def _exchanged(ends_us: tuple[float, ...], host_us: float) -> Made:
    """Make a rank of a run of all-reduces, with an exchange as the second to last."""
    made = Made()
    for number, end_us in enumerate(ends_us):
        name = "ncclSendRecv" if number == len(ends_us) - 2 else "ncclAllReduce"
        begin_us = 1000.0 * number + host_us
        made.op("record_param_comms", begin_us, 10)
        made.launch(begin_us + 1, 5, begin_us + 8, end_us - begin_us - 8, name=name)
    return made


def test_an_exchange_ends_when_a_rank_has_its_own_part(tmp_path: Path) -> None:
    """Which is not when all have theirs, if clocks tell: they may be 20 us apart."""
    ends = (500.0, 1500.0, 2500.0, 3500.0, 4500.0)
    files = _files(
        tmp_path,
        _exchanged(ends, 100),
        _exchanged(tuple(us + 20 - 200 * (us == 3500) for us in ends), 220),
    )

    joint = align_collectives(read_ranks(files))

    taken_us = [
        [joint.ranks[rank].graph.stated_s[task] * 1e6 for rank, task in group.items()]
        for group in joint.groups
    ]
    # The second rank is there 108 us after the first one, by a clock 20 us ahead.
    assert [292, 292] == pytest.approx(taken_us[0], abs=0.01)
    assert [292, 92] == pytest.approx(taken_us[3], abs=0.01)


def test_clocks_that_do_not_agree_tell_nothing(tmp_path: Path) -> None:
    """Then a collective takes on all what it took on the rank that waited least."""
    ends = (500.0, 1500.0, 2500.0, 3500.0)
    apart = (-200.0, 150.0, -90.0, 200.0)
    files = _files(
        tmp_path,
        _exchanged(ends, 100),
        _exchanged(tuple(us + by for us, by in zip(ends, apart, strict=True)), 150),
    )

    joint = align_collectives(read_ranks(files))

    for group in joint.groups:
        own = [joint.ranks[rank].graph.stated_s[t] for rank, t in group.items()]
        assert own[0] == own[1]


def test_a_rank_that_recorded_later_lacks_the_first(tmp_path: Path) -> None:
    """Sequences of different length lie where their ends agree."""
    files = _files(tmp_path, _rank(0, 100, ENDS), _rank(1010, 200, ENDS, first=1))

    joint = align_collectives(read_ranks(files))

    assert [{0, 1}] * 2 == [set(group) for group in joint.groups]
    kernels = [
        {
            joint.ranks[r].graph.kernels[joint.ranks[r].graph.kernel[t]].op
            for r, t in g.items()
        }
        for g in joint.groups
    ]
    assert [{"ncclSendRecv"}, {"ncclAllReduce"}] == kernels


def test_collectives_that_have_a_name_need_no_order(tmp_path: Path) -> None:
    """Newer traces say of each which group it is of, and its number there."""
    ranks = [_rank(0, 100, ENDS), _rank(0, 100, ENDS)]
    for rank, shift in zip(ranks, (0, 1), strict=True):
        kernels = [e for e in rank.events if e["cat"] == "kernel"]
        for number, event in enumerate(kernels, shift):
            event["args"] |= {"Process Group Name": "0", "Seq": number}

    joint = align_collectives(read_ranks(_files(tmp_path, *ranks)))

    ends = [
        [joint.ranks[rank].end_us[task] for rank, task in group.items()]
        for group in joint.groups
    ]
    assert [[2000, 1000], [3000, 2000]] == ends


def test_groups_of_some_ranks_are_tied_too(tmp_path: Path) -> None:
    """Ranks 2 and 3 may share what rank 0 lacks; two kernels may have one name."""
    ranks = [_rank(0, 100, ENDS) for _ in range(4)]
    for number, rank in enumerate(ranks):
        for event in (e for e in rank.events if e["cat"] == "kernel"):
            event["args"] |= {"Process Group Name": str(number // 2), "Seq": 5}

    joint = align_collectives(read_ranks(_files(tmp_path, *ranks)))

    assert [{0, 1}] * 3 + [{2, 3}] * 3 == [set(group) for group in joint.groups]


def test_a_rank_that_recorded_much_later(tmp_path: Path) -> None:
    """Sequences are laid against each other by their ends, however far apart."""
    made = [Made(), Made()]
    for rank, first in zip(made, (0, 30), strict=True):
        for number in range(first, 60):
            now = 100.0 * number
            rank.op("record_param_comms", now, 20)
            rank.launch(now + 1, 5, now + 10, 50, stream=20, name="ncclAllReduce")

    joint = align_collectives(read_ranks(_files(tmp_path, *made)))

    assert len(joint.groups) == 30
    for group in joint.groups:
        ends = [joint.ranks[rank].end_us[task] for rank, task in group.items()]
        assert ends[0] == ends[1]


def test_ranks_that_are_not_here_are_counted(tmp_path: Path) -> None:
    """A run of more ranks than there are traces is said to be one."""
    file = _rank(0, 100, ENDS).write(
        tmp_path / "r.json", distributedInfo={"rank": 0, "world_size": 8}
    )

    (rank,) = read_ranks([file])

    assert "7 other ranks" in rank.diagnostics[-1].message


def test_ranks_of_different_runs_are_refused(tmp_path: Path) -> None:
    """Other collectives, another day, the same rank twice."""
    other = Made()
    for start in (0.0, 100.0, 200.0):
        other.op("record_param_comms", start, 20)
        other.launch(start + 1, 5, start + 10, 30, stream=20, name="ncclBroadcast")
    one = _rank(0, 100, ENDS)

    ranks = read_ranks(_files(tmp_path, one, other))
    with pytest.raises(TraceError, match="collectives are not those of"):
        align_collectives(ranks)
    late = _rank(90e6, 100, tuple(end + 90e6 for end in ENDS))
    files = _files(tmp_path, one, late)
    with pytest.raises(TraceError, match=r"begins .* s after"):
        read_ranks(files)
    with pytest.raises(TraceError, match="two traces of one rank"):
        read_ranks([files[0], files[0]])
