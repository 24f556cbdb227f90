"""Strategies as people write them: `dp:8 tp:4`, `dense=fsdp emb=row-wise`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import attrs

from perfc.ir import UsageError
from perfc.ir.program import MAX_RANKS
from perfc.planning.strategies.space import Order, Refused, StrategySpace
from perfc.planning.strategies.strategy import (
    CHUNKS,
    DATA,
    DP,
    INTERLEAVED,
    SCHEDULES,
    SHARDINGS,
    Strategy,
)

TENSOR, STAGES, MICROBATCHES = "tp", "pp", "mb"

_SYNONYMS: Mapping[str, str] = {
    "ddp": DP,
    "data-parallel": DP,
    "tensor-parallel": TENSOR,
    "pipeline-parallel": STAGES,
    "fsdp-full": "fsdp",
    "tw": "table-wise",
    "rw": "row-wise",
    "cw": "column-wise",
    "twrw": "table-row-wise",
}
_DENSE = ("dense", "mlp", "blocks")
"""What all layers but tables are called; they go one way."""

_TABLES = "emb"
_KINDS = (*DATA, TENSOR, STAGES)


def read_strategy(text: str, space: StrategySpace) -> Iterator[Strategy | Refused]:
    """Yield the strategies that a text names: several where it leaves something open.

    Terms are separated by spaces or `+`: `KIND` or `KIND:DEGREE` with one of `dp`,
    `fsdp`, `fsdp-grad-op`, `fsdp-hybrid`, `tp`, `pp`; `mb:N` for microbatches; a
    schedule, `1f1b`, `gpipe`, or `interleaved:N` with N chunks of layers a stage, two
    if no number is given. `dense=` (or `mlp=`, `blocks=`) may stand in front, `emb=`
    says what is done with tables. One kind without a degree takes all GPUs that are
    left; replicas (`dp`) do if none is.
    """
    found = _Reader(text, space)
    for word in text.replace(",", " ").split():
        found.read(word)
    yield from found.strategies()


@attrs.define
class _Reader:
    """What has been read of a text so far.

    Attributes:
        text: It.
        space: What the strategies are for.
        degrees: By kind; 0 for what is left.
        tables: What is done with tables; "" if nothing is said.
        microbatches: How many; 0 if nothing is said.
        orders: The order of them; none if nothing is said.

    """

    text: str
    space: StrategySpace
    degrees: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    tables: str = attrs.field(default="", init=False)
    microbatches: int = attrs.field(default=0, init=False)
    orders: tuple[Order, ...] = attrs.field(default=(), init=False)

    def read(self, word: str) -> None:
        """Read a word."""
        layers, equals, value = word.partition("=")
        if not equals:
            self._terms(word)
        elif layers == _TABLES:
            self._read_tables(value)
        elif layers in _DENSE:
            self._terms(value)
        else:
            known = ", ".join((*_DENSE, _TABLES))
            self._refuse(f"{layers!r} is no class of layers: expected {known}")

    def _terms(self, value: str) -> None:
        for term in value.split("+"):
            name, colon, number = term.partition(":")
            kind = _SYNONYMS.get(name, name)
            if kind == INTERLEAVED:
                self._order(kind, self._number(number) if colon else CHUNKS)
            elif kind in SCHEDULES and not colon:
                self._order(kind, 1)
            elif kind == MICROBATCHES:
                if self.microbatches:
                    self._refuse(f"{MICROBATCHES} is said twice")
                self.microbatches = self._number(number)
            elif kind in _KINDS:
                self._kind(kind, self._number(number) if colon else 0)
            else:
                known = ", ".join(
                    (*_KINDS, f"{MICROBATCHES}:N", *SCHEDULES, f"{INTERLEAVED}:N")
                )
                self._refuse(f"{name!r} is none of {known}")

    def _order(self, schedule: str, chunks: int) -> None:
        if self.orders:
            self._refuse("two schedules")
        if schedule == INTERLEAVED and chunks < CHUNKS:
            self._refuse(
                f"{INTERLEAVED}:{chunks} is one chunk of a stage, which is 1f1b"
            )
        self.orders = ((schedule, chunks),)

    def _kind(self, kind: str, degree: int) -> None:
        if kind in self.degrees:
            self._refuse(f"{kind} is said twice")
        data = [other for other in self.degrees if other in DATA]
        if kind in DATA and data:
            self._refuse(f"{data[0]} and {kind} exclude each other")
        self.degrees[kind] = degree

    def _number(self, text: str) -> int:
        short = len(text) <= len(str(MAX_RANKS))
        if not (text.isascii() and text.isdecimal() and short and int(text)):
            self._refuse(f"{text[:40]!r} is not a number from 1 on")
        return int(text)

    def _read_tables(self, value: str) -> None:
        if self.tables:
            self._refuse(f"{_TABLES} is said twice")
        kind = _SYNONYMS.get(value, value)
        if kind not in (DP, *SHARDINGS) and not _is_file(kind):
            known = ", ".join((DP, *SHARDINGS))
            self._refuse(f"{value!r} is neither a plan file nor one of {known}")
        if not self.space.tables:
            self._refuse("the model has no tables of embedding bags")
        self.tables = kind

    def strategies(self) -> Iterator[Strategy | Refused]:
        """Yield the strategies that the words name, or why they are refused."""
        if not (self.degrees or self.tables):
            self._refuse("it says nothing; expected as 'dp:8 tp:2'")
        if self.orders and STAGES not in self.degrees:
            self._refuse("schedules are for stages: add pp:N")
        degrees = self._filled()
        (data,) = (kind for kind in degrees if kind in DATA)
        strategy = Strategy(
            replicas=degrees[data],
            data=data,
            tensor=degrees.get(TENSOR, 1),
            stages=degrees.get(STAGES, 1),
            microbatches=self.microbatches,
            tables=self.tables or (DP if self.space.tables else ""),
        )
        yield from self.space.completed(strategy, given=True, orders=self.orders)

    def _filled(self) -> dict[str, int]:
        """Return all degrees."""
        degrees = dict(self.degrees)
        if not any(kind in DATA for kind in degrees):
            whole = all(degrees.values())
            degrees[DP] = 0 if whole else 1
        left = [kind for kind, degree in degrees.items() if not degree]
        if len(left) > 1:
            self._refuse(f"{' and '.join(left)} have no degrees: one may take the rest")
        product = math.prod(degree or 1 for degree in degrees.values())
        ranks = self.space.ranks
        if (product != ranks and not left) or ranks % product:
            self._refuse(f"is for {product:,} GPUs, but there are {ranks:,}")
        return {kind: degree or ranks // product for kind, degree in degrees.items()}

    def _refuse(self, problem: str) -> NoReturn:
        msg = f"strategy {self.text!r}: {problem}"
        raise UsageError(msg)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # no name of a file at all
        return False
