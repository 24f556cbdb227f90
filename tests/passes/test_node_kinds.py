"""What kind of node one is."""

from __future__ import annotations

import pytest
from tests.passes.lowered import one_op

from perfc.ir import Node
from perfc.ir.node_kinds import (
    has_trait,
    is_free,
    permutation,
)
from perfc.ir.opdef import Trait
from perfc.ir.text import parse_program
from perfc.passes.graphs import (
    find_term,
    parse_term,
)

_PAIR = "%x: f32[4,4], %z: f32[4,4]"


def _only_node(inputs: str, call: str) -> Node:
    (rank,) = parse_program(one_op(inputs, call)).classes
    assert rank.ops is not None
    (node,) = rank.ops
    return node


@pytest.mark.parametrize("trait", Trait)
def test_unknown_ops_have_no_traits(trait: Trait) -> None:
    """Of an op that perfc does not know nothing is taken to be true."""
    assert not has_trait(Node("somebody.else's", (), ()), trait)


def test_only_constants_and_sizes_are_free() -> None:
    """Sizes of tensors run nothing; arithmetic does."""
    assert is_free(_only_node("%x: f32[4,4]", "shape(%x)"))
    assert not is_free(_only_node(_PAIR, "add(%x, %z)"))


def test_permutation() -> None:
    """A transposition says in which order it puts the axes; no other node does."""
    turned = _only_node("%x: f32[4,4]", "transpose(%x) {perm = [1, 0]}")

    assert (1, 0) == permutation(turned)
    assert permutation(_only_node(_PAIR, "add(%x, %z)")) is None
    assert permutation(None) is None


@pytest.mark.parametrize(
    ("op", "orders"), [("add", 2), ("logaddexp", 2), ("not_equal", 2), ("sub", 1)]
)
def test_terms_commute(op: str, orders: int) -> None:
    """A formula is found in either order where the op commutes, else in its own."""
    result = _only_node(_PAIR, f"{op}(%x, %z)").results[0]
    found = [f.values for f in find_term(parse_term(f"{op}(a, b)"), result)]

    assert orders == len(found)
    assert "x" == found[0]["a"].name
