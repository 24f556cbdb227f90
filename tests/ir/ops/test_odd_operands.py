"""An operand in the place of another: a time, or one line, whatever the op."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perfc
from perfc.ir import PerfcError

GOLDEN = Path(__file__).parents[2] / "golden" / "ops"
_NODE = re.compile(r"(\s+%[^=]*= *[\w.]+\()([^)]*)(\)[^:]*)(: .*)?$")
_VALUE = re.compile(r"%[\w.]+")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_TYPES = re.compile(r"[a-z0-9]+\[([^\]]*)\]")
_OF_A_NODE = 6


def _odd(text: str, chance: random.Random) -> Iterator[str]:
    """Yield graphs with an operand of one node exchanged, or left out."""
    lines = [_untyped(line) for line in text.partition("// ----")[0].splitlines()]
    for number, line in enumerate(lines):
        node = _NODE.match(line)
        if node is None or not node[2]:
            continue
        operands = node[2].split(", ")
        known = sorted(set(_VALUE.findall("\n".join(lines[:number]))))
        changed = [
            [*operands[:at], *other, *operands[at + 1 :]]
            for at in range(len(operands))
            for other in [[], *([value] for value in known if value != operands[at])]
        ]
        for odd in chance.sample(changed, min(len(changed), _OF_A_NODE)):
            made = f"{node[1]}{', '.join(odd)}{node[3]}{node[4] or ''}"
            yield "\n".join([*lines[:number], made, *lines[number + 1 :]])


def _untyped(line: str) -> str:
    """Return a line whose results have the types that their op gives them."""
    node = _NODE.match(line)
    if node is None or not node[4]:
        return line
    count = len(_VALUE.findall(node[1]))
    return f"{node[1]}{node[2]}{node[3]}: {', '.join('?' * count)}"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.perfc")), ids=lambda p: p.stem)
def test_exchanged_operands(tmp_path: Path, path: Path) -> None:
    """None is a bug of perfc."""
    file, text = tmp_path / "odd.perfc", path.read_text(encoding="utf-8")
    sizes = dict.fromkeys(_SYMBOL.findall(" ".join(_TYPES.findall(text))), 8)
    for odd in _odd(text, random.Random(path.stem)):
        file.write_text(odd, encoding="utf-8")
        try:
            found = perfc.analyze(perfc.load(file, dims=sizes), "v100").time_us
        except PerfcError:
            continue
        assert 0 <= found < float("inf"), odd
