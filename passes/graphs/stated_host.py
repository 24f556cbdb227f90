"""Ops of the host that state how long they keep it."""

from __future__ import annotations

from perfc.ir import Node
from perfc.ir.node_kinds import has_trait
from perfc.ir.opdef import Trait

_S_PER_US = 1e-6


def stated_host_s(node: Node) -> float | None:
    """Return the seconds that an op `host` states (`us`), or None if it states none."""
    us = node.attributes.get("us") if has_trait(node, Trait.HOST) else None
    return us * _S_PER_US if isinstance(us, int | float) else None
