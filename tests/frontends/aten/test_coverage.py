"""What of PyTorch's own list of ops the maps have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from perfc.frontends.aten.op_map.registry import HANDLERS, find_handler


def _core_ops() -> Iterator[str]:
    """Every overload with the tag `core`, as `aten.add.Tensor`."""
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                yield f"aten.{name}.{overload}"


def test_core_ops() -> None:
    """Every op of the core ATen set is in the maps."""
    ops = set(_core_ops())
    missing = {op for op in ops if find_handler(op) is None}

    assert len(ops) > 150
    assert set() == missing


@pytest.mark.parametrize("name", sorted(HANDLERS))
def test_names_exist(name: str) -> None:
    """What the maps name is an op of PyTorch, or of Python."""
    namespace, _, op = name.partition(".")
    if namespace not in ("aten", "profiler"):
        return
    packets = [op, f"{op}_"]

    assert any(hasattr(getattr(torch.ops, namespace), p) for p in packets)
