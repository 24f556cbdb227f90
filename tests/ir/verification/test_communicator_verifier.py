"""Collectives that meet all of their members, and those that do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfc.ir import Program
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_program, print_program
from perfc.ir.verification import verify_communicators


def _program(*classes: tuple[Sequence[int], Sequence[str]]) -> Program:
    """Return a program whose rank classes run these lines."""
    text = "program @p {\n"
    for number, (ranks, lines) in enumerate(classes):
        body = "".join(f"{line}\n" for line in lines)
        text += (
            f"ranks [{', '.join(map(str, ranks))}] {{\n"
            f"graph @g{number}(%x: f32[8,8]) {{\n{body}return %x\n}}\n}}\n"
        )
    return parse_program(text + "}\n")


def _reduce(name: str, group: str = "dp", ranks: int = 2, stride: int = 1) -> str:
    attributes = f'group = "{group}", ranks = {ranks}, stride = {stride}'
    return f"%{name} = all_reduce(%x) {{{attributes}}} : ?"


def _gather(name: str) -> str:
    return f'%{name} = all_gather(%x) {{group = "dp", ranks = 2}} : ?'


SEND = 'send(%x) {group = "pp"}'
RECV = '%r = recv() {group = "pp", dtype = !f32, shape = [8, 8]} : ?'


@pytest.mark.parametrize(
    "program",
    [
        _program(((0, 1), [_reduce("a"), _reduce("b")])),
        _program(((0,), [_reduce("a")]), ((1,), [_reduce("a")])),
        _program(((0, 1, 2, 3), [_reduce("a"), _reduce("b", "tp", 2, 2)])),
        _program(((0, 1), [_reduce("a", "one")]), ((2, 3), [_reduce("a", "two")])),
        _program(((0,), [SEND]), ((1,), [RECV])),
        _program(((0, 1), [SEND]), ((2, 3), [RECV])),
        _program(((0,), [_reduce("a", ranks=8)])),
        _program(((0, 1), [])),
    ],
)
def test_who_meets_all_members_passes(program: Program) -> None:
    """Also pairs, several communicators of a name, and one rank of a larger job."""
    verify_communicators(program)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (_program(((0, 1), [_reduce("a", ranks=4)])), "of 4 ranks, but 2 run .*: 0, 1"),
        (
            _program(((0, 1, 2), [_reduce("a")])),
            "of 2 ranks, but 3 run those of group 'dp'",
        ),
        (
            _program(((0,), [_reduce("a", ranks=3)]), ((1, 2), [])),
            "of 3 ranks, but 1 run",
        ),
        (
            _program(((0,), [_reduce("a"), _reduce("b")]), ((1,), [_reduce("a")])),
            "%b .*collective 2 of group 'dp'; ranks 1 run 1 of them",
        ),
        (
            _program(((0,), [_reduce("a")]), ((1,), [_gather("a")])),
            "run as all_gather of 2 ranks and as all_reduce of 2 ranks",
        ),
        (_program(((0,), [SEND]), ((1,), [SEND])), "the other side of a send"),
        (_program(((0,), [RECV]), ((1,), [RECV])), "the other side of a recv"),
        (_program(((0, 1), [SEND])), "the other side of a send"),
        (
            _program(((0,), [_reduce("a", "pp")]), ((1,), [SEND])),
            "run as all_reduce of 2 ranks and as send and recv",
        ),
        (
            _program(((0, 1, 2, 3), [_reduce("a", ranks=2, stride=4)])),
            "4 apart, which takes 5 ranks; the program has 4",
        ),
    ],
)
def test_who_would_wait_forever_is_refused(program: Program, says: str) -> None:
    """The line names the collective, the group, and who is missing."""
    with pytest.raises(VerifyError, match=says):
        verify_communicators(program)


def test_tensors_of_other_sizes_do_not_meet() -> None:
    """NCCL would hang, or write beyond the smaller one."""
    small = _program(((0,), [_reduce("a")]), ((1,), [_reduce("a")]))
    text = print_program(small).replace("%x: f32[8,8]", "%x: f32[16,8]", 1)

    with pytest.raises(VerifyError, match=r"run with f32\[16,8\] and with f32\[8,8\]"):
        verify_communicators(parse_program(text))
