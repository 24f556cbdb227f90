"""The verifier of communicators: every collective meets all of its members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from perfc.ir.core import Graph, Node
from perfc.ir.ops.collective import COLLECTIVES, communicator_ranks
from perfc.ir.program import Program, RankClass
from perfc.ir.support import VerifyError

_PAIR = frozenset({"send", "recv"})
_SHOWN = 8


def verify_communicators(program: Program) -> None:
    """Check that whoever takes part in a collective finds the others there.

    The n-th collective of a group on one class of ranks meets the n-th on every other
    class that has the group. A program of one rank stands for any one of a larger job,
    whose others run the same: there is nothing to check.
    """
    if program.recorded or sum(len(rank.ranks) for rank in program.classes) == 1:
        return
    world = 1 + max(rank.ranks[-1] for rank in program.classes)
    groups: dict[str, dict[RankClass, list[Node]]] = {}
    for rank in program.classes:
        for node in _collectives(rank.ops):
            users = groups.setdefault(node.attributes.text("group"), {})
            users.setdefault(rank, []).append(node)
    for group, users in groups.items():
        for nodes in users.values():
            for node in nodes:
                _check_members(group, node, users, world)
        _check_meetings(group, users)


def _collectives(graph: Graph | None) -> Iterator[Node]:
    for node in graph or ():
        if node.op in COLLECTIVES:
            yield node
        for region in node.regions:
            yield from _collectives(region)


def _check_members(
    group: str, node: Node, users: Mapping[RankClass, Sequence[Node]], world: int
) -> None:
    wanted = _members(node)
    there = sorted(rank for one in users for rank in one.ranks)
    if wanted > len(there) or len(there) % wanted:
        msg = (
            f"{node} is a collective of {wanted} ranks, but {len(there)} run those of "
            f"group {group!r}: {_listed(there)}; give it as many ranks as run it, or a "
            "multiple of them"
        )
        raise VerifyError(msg)
    stride = node.attributes.integer("stride", 1)
    if (wanted - 1) * stride >= world:
        msg = (
            f"{node} is a collective of {wanted} ranks {stride} apart, which takes "
            f"{(wanted - 1) * stride + 1} ranks; the program has {world}"
        )
        raise VerifyError(msg)


def _check_meetings(group: str, users: Mapping[RankClass, Sequence[Node]]) -> None:
    """Check the n-th collectives of all classes, for each n."""
    for number, met in enumerate(zip_longest(*users.values())):
        nodes = [node for node in met if node is not None]
        where = f"{nodes[0]} is collective {number + 1} of group {group!r}"
        missing = [rank for rank, node in zip(users, met, strict=True) if node is None]
        if missing:
            absent = sorted(rank for one in missing for rank in one.ranks)
            msg = (
                f"{where}; ranks {_listed(absent)} run {number} of them, and the "
                "others would wait forever"
            )
            raise VerifyError(msg)
        said = sorted({f"{_name(n)} of {_members(n)} ranks" for n in nodes})
        ops = {node.op for node in nodes}
        if len(ops) == 1 and ops <= _PAIR:
            msg = f"{where}, and nobody takes the other side of a {nodes[0].op}"
            raise VerifyError(msg)
        if len(said) > 1:
            msg = f"{where}, which ranks run as {' and as '.join(said)}"
            raise VerifyError(msg)
        if unlike := _unlike(nodes):
            msg = f"{where}, {unlike}"
            raise VerifyError(msg)


def _unlike(nodes: Sequence[Node]) -> str:
    """Say which tensors of other sizes meet; empty if none do, or sizes are open."""
    if nodes[0].op in _PAIR or nodes[0].op == "all_to_all":
        return ""
    types = [node.operands[0].type for node in nodes]
    sizes = {
        (str(type_.dtype), type_.numel): str(type_)
        for type_ in types
        if type_ is not None and isinstance(type_.numel, int)
    }
    return f"which ranks run with {' and with '.join(sizes.values())}" * (
        len(sizes) > 1
    )


def _name(node: Node) -> str:
    return "send and recv" if node.op in _PAIR else node.op


def _members(node: Node) -> int:
    return communicator_ranks(node.attributes)


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    more = len(ranks) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
