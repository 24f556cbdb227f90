"""Parameters that are several tensors, as those that torchao has quantised.

Such a parameter has the type and the shape that it stands for; a program that was not
decomposed asks for its parts by the names of attributes. The parts are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfc.frontends.pt2.fields import Fields

PART = "export.access_subclass_inner_tensor.default"
"""What asks for a part."""

_MAX_ATTRIBUTE = 200


def find_parts(graph: Fields, prefix: str) -> dict[str, dict[str, str]]:
    """Return the parts of values of a graph: their names, and of which attribute.

    Args:
        graph: The graph.
        prefix: What stands before the names of ops.

    """
    found: dict[str, dict[str, str]] = {}
    for node in graph.records("nodes"):
        if node.text("target").removeprefix(prefix) != PART:
            continue
        given = {n.text("name"): n.record("arg").values for n in node.records("inputs")}
        inputs = Fields(given, PART)
        whole = inputs.record("src_subclass_tensor").record("as_tensor")
        attribute = inputs.record("attr").text("as_string")
        for made in node.records("outputs"):
            name = made.record("as_tensor").text("name")
            parts = found.setdefault(whole.text("name"), {})
            parts[name] = attribute[:_MAX_ATTRIBUTE]
    return found


def paths(
    parts: dict[str, dict[str, str]], name: str, path: str
) -> Iterator[tuple[str, str]]:
    """Yield the names of all parts of a parameter, and what they are called.

    Parts may have parts; none is gone through twice.
    """
    for part, attribute in parts.pop(name).items():
        inner = f"{path}.{attribute}"
        if part in parts:
            yield from paths(parts, part, inner)
        else:
            yield part, inner
