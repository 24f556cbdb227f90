"""How MAD-Max spreads the layers and the tables of a model over GPUs."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence

import attrs

from perfc.ir import UsageError

_LEVELS = 2


class Parallelism(enum.Enum):
    """How a class of layers is spread over the GPUs of a level."""

    DDP = "ddp"
    FSDP = "fsdp"
    TP = "tp"
    MP = "mp"


_OF_LAYERS = (Parallelism.DDP, Parallelism.FSDP, Parallelism.TP)
_OF_TABLES = (Parallelism.MP, Parallelism.DDP)


@attrs.frozen
class Level:
    """One level of a strategy: in the node, or across nodes.

    Attributes:
        kind: What is done there.
        degree: Over how many GPUs, or nodes.

    """

    kind: Parallelism
    degree: int

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.degree}"


@attrs.frozen
class Strategy:
    """How layers and tables are spread, each at one level or two, in the node first."""

    mlp: tuple[Level, ...]
    emb: tuple[Level, ...]

    def __str__(self) -> str:
        mlp, emb = ("+".join(map(str, levels)) for levels in (self.mlp, self.emb))
        return f"mlp={mlp} emb={emb}"


def read_strategy(text: str, ranks: int, gpus_per_node: int) -> Strategy:
    """Read `mlp=tp:8+ddp:16 emb=mp:128`; a level alone needs no degree.

    Args:
        text: What the user writes.
        ranks: GPUs in all.
        gpus_per_node: The degree of the first of two levels.

    """
    parts = dict(_assignments(text))
    if set(parts) != {"mlp", "emb"}:
        msg = f"strategy {text!r}: expected both mlp and emb, as 'mlp=ddp emb=mp'"
        raise UsageError(msg)
    found: dict[str, tuple[Level, ...]] = {}
    for name, kinds in (("mlp", _OF_LAYERS), ("emb", _OF_TABLES)):
        levels = tuple(_levels(parts[name], kinds, ranks))
        _check_levels(f"{name}={parts[name]}", levels, ranks, gpus_per_node)
        found[name] = levels
    return Strategy(found["mlp"], found["emb"])


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for part in text.replace(",", " ").split():
        name, equals, value = part.partition("=")
        if not equals or not value:
            msg = f"strategy {text!r}: {part!r} is not NAME=VALUE, as mlp=ddp"
            raise UsageError(msg)
        yield name, value


def _levels(text: str, kinds: Sequence[Parallelism], ranks: int) -> Iterator[Level]:
    for part in text.split("+"):
        name, colon, degree = part.partition(":")
        kind = next((kind for kind in kinds if kind.value == name), None)
        if kind is None:
            known = ", ".join(kind.value for kind in kinds)
            msg = f"strategy {text!r}: {name!r} is none of {known}"
            raise UsageError(msg)
        if colon and not (degree.isdecimal() and int(degree)):
            msg = f"strategy {text!r}: {degree!r} is not a number of GPUs"
            raise UsageError(msg)
        yield Level(kind, int(degree) if colon else ranks)


def _check_levels(
    text: str, levels: Sequence[Level], ranks: int, gpus_per_node: int
) -> None:
    if len(levels) > _LEVELS:
        msg = f"strategy {text!r} has {len(levels)} levels; there are two"
        raise UsageError(msg)
    whole = math.prod(level.degree for level in levels)
    if whole != ranks:
        msg = f"strategy {text!r} is for {whole} GPUs, but there are {ranks}"
        raise UsageError(msg)
    if len(levels) == _LEVELS and levels[0].degree != gpus_per_node:
        msg = (
            f"strategy {text!r}: the first level is in the node, which has "
            f"{gpus_per_node} GPUs, not {levels[0].degree}"
        )
        raise UsageError(msg)
    if any(level.kind is Parallelism.FSDP for level in levels[1:]):
        msg = f"strategy {text!r}: fsdp is for the first level"
        raise UsageError(msg)


def strategies(ranks: int, gpus_per_node: int) -> list[Strategy]:
    """Return those that the studies compare: seven of layers, three of tables.

    Of one node there is one level, so there are three of layers and one of tables.
    """
    nodes = ranks // gpus_per_node
    layers: list[tuple[Level, ...]] = [(Level(kind, ranks),) for kind in _OF_LAYERS]
    tables: list[tuple[Level, ...]] = [(Level(Parallelism.MP, ranks),)]
    if nodes > 1:
        pairs = [(a, b) for a in _OF_LAYERS for b in _OF_LAYERS if a is not b]
        layers += [
            (Level(inside, gpus_per_node), Level(outside, nodes))
            for inside, outside in pairs
            if outside is not Parallelism.FSDP
        ]
        tables += [
            (Level(inside, gpus_per_node), Level(outside, nodes))
            for inside, outside in (_OF_TABLES, _OF_TABLES[::-1])
        ]
    return [Strategy(mlp, emb) for mlp in layers for emb in tables]
