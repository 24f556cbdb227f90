"""What the pass `resolve-control-flow` refuses, and what it keeps its hands off."""

from __future__ import annotations

import pytest

from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import PassManager
from perfc.passes.control_flow import ResolveControlFlow

ONE = "%one = constant() {dtype = !i64, shape = [], elements = [1]} : ?"
ZERO = "%z = constant() {dtype = !i64, shape = [], elements = [0]} : ?"
TWO = "%two = constant() {dtype = !i64, shape = [], elements = [2]} : ?"
LOOP = "region(%i: i64[], %c: bool[], %a: f32[4]) { return %c, %a } : ?"
SEQUENCE = f"{ONE}\n{TWO}\n%s = sequence_construct(%x) : ?\n"


def _resolved(body: str, returned: str = "%y") -> list[str]:
    """Return the ops that are left."""
    program = parse_program(
        f"graph @g(%x: f32[4], %m: f32[2,3], %b: bool[], %n: i64[]) {{\n{body}\n"
        f"return {returned}\n}}"
    )
    PassManager([ResolveControlFlow()]).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    verify(graph, BUILTIN_OPS)
    return [node.op for node in graph]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (f"%y = loop(%n) {LOOP}", "it has no trip count and condition"),
        (
            f"{TWO}\n%y = loop(%two, %two) {LOOP}",
            "the graph of loop has 3 inputs, expected 2",
        ),
        (
            f"{TWO}\n%y, %z = loop(%two, %two, %x) {LOOP}, ?",
            "2 results, its graph has 1",
        ),
        (
            "%y = if(%b) region() { return %x } region() { return } : ?",
            "1 results, its graph has 0",
        ),
        (
            "%y = scan(%x) {inputs = 2} region(%a: f32[]) { return %a } : ?",
            "2 scan inputs, but 1 operands",
        ),
        (
            (
                "%y = scan(%x) {inputs = 1, input_axes = [1]} region(%a: f32[]) "
                "{ return %a } : ?"
            ),
            "%x has no axis 1 to scan",
        ),
        (
            (
                "%y = scan(%x) {inputs = 1, input_axes = [0, 0]} region(%a: f32[]) "
                "{ return %a } : ?"
            ),
            "input_axes has 2 numbers, expected 1",
        ),
        (
            (
                "%y = scan(%x, %m) {inputs = 2} region(%a: f32[], %r: f32[3]) "
                "{ return %a } : ?"
            ),
            "the lengths to scan differ: 2, 4",
        ),
        (f"{SEQUENCE}%y = sequence_at(%s, %two) : ?", "position 2 in a sequence of 1"),
        (
            f"{SEQUENCE}%y = sequence_at(%s, %one) : ?",
            "no element 1 in a sequence of 1",
        ),
        (
            (
                f"{SEQUENCE}%t = sequence_erase(%s) : ?\n%u = sequence_erase(%t) : ?\n"
                "%y = sequence_length(%u) : ?"
            ),
            "no element -1 in a sequence of 0",
        ),
        (
            "%s = sequence_empty() : ?\n%y = concat_from_sequence(%s) {axis = 0} : ?",
            "the sequence to join is empty",
        ),
        (
            "%s = optional_empty() : ?\n%y = sequence_length(%s) : ?",
            "operand 0 is nothing, expected a sequence",
        ),
        (
            "%y = split_to_sequence(%x, %n) {axis = 0} : ?",
            "the sizes to split into, %n, depend on data",
        ),
        (
            "%y = split_to_sequence(%x) {axis = 3} : ?",
            "%x has no axis 3 to split",
        ),
        (
            "%y = sequence_map(%x) region(%a: f32[]) { return %a } : ?",
            "operand 0 is a tensor, expected a sequence",
        ),
        (
            f"{SEQUENCE}%y = split_to_sequence(%s) {{axis = 0}} : ?",
            "operand 0 is a sequence, expected a tensor",
        ),
        (
            (
                f"{ONE}\n{ZERO}\n"
                "%y = loop(%z, %one) region(%i: i64[], %c: bool[]) "
                "{ %r = relu(%x) : ?\n return %c, %r } : ?"
            ),
            (
                "it runs 0 times, and the type of its result %r is not declared; "
                "add it to the model (an ONNX value_info)"
            ),
        ),
    ],
)
def test_refuses(body: str, problem: str) -> None:
    """Each contradiction is said, with the node that it is in."""
    with pytest.raises(UnsupportedModelError) as caught:
        _resolved(body)

    assert str(caught.value).endswith(f": {problem}") or problem == str(caught.value)


def test_a_loop_of_no_turns_stacks_nothing() -> None:
    """The rows that it would stack have a declared type: there are none of them."""
    body = (
        f"{ONE}\n{ZERO}\n"
        "%y = loop(%z, %one) region(%i: i64[], %c: bool[]) "
        "{ %r = relu(%x) : f32[4]\n return %c, %r } : ?"
    )

    assert ["constant"] == _resolved(body)


def test_a_bag_that_was_not_raised_stays() -> None:
    """Its loop is costed as one op, which the raising pass has said."""
    body = f'%y = loop(%n, %b, %x) {LOOP} loc{{origin = "aten.embedding_bag(x)"}}'

    assert ["loop"] == _resolved(body)


def test_an_unknown_op_reads_the_tensors_of_a_sequence() -> None:
    """So that its bytes are counted."""
    body = (
        "%s = sequence_construct(%x, %x) : ?\n"
        '%y = unknown(%s, %x) {op = "Mystery"} : f32[4]'
    )

    assert ["unknown"] == _resolved(body)


def test_what_waits_in_a_branch_not_taken_goes() -> None:
    """The host waits for the conditions of the branches that run only."""
    inner = "%p = if(%b) region() { return %x } region() { return %x } : ?"
    body = (
        f"%y = if(%b) region() {{ {inner}\n return %p }} "
        "region() { %r = relu(%x) : ?\n return %r } : ?"
    )

    assert ["item", "relu"] == _resolved(body)
