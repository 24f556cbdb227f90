"""What the transformers share: heads, attention, and the parameters of both."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.workloads.builder import Builder
from perfc.ir import DTYPES, AttrValue, Graph, UsageError, Value

TRANSFORMER_CHOICES: Mapping[str, tuple[str, ...]] = {
    "attention": ("sdpa", "eager"),
    "dtype": ("f32", "f16", "bf16"),
}
"""`attn_implementation` of Hugging Face's models, and how they store numbers."""

DROPOUT = frozenset({"dropout"})
"""The parameter that says which share of elements training zeroes."""

TRANSFORMER_LIMITS: Mapping[str, int] = {"layers": 1_000}
"""A graph of more would not fit into memory."""

MINIMUM = -3.4028234663852886e38
"""What a mask adds to the scores that shall not count."""


@attrs.frozen(kw_only=True)
class Heads:
    """How a hidden vector is cut into heads.

    Attributes:
        count: Heads.
        size: Elements of one.
        dropout: Share of the weights that training zeroes.
        spelled_out: Whether attention is written in matmuls and a softmax, as
            Hugging Face's `eager` does, not as the one call `sdpa`.

    """

    count: int
    size: int
    dropout: float = 0.0
    spelled_out: bool = False

    @property
    def width(self) -> int:
        """Elements of all heads."""
        return self.count * self.size


def heads_of(name: str, values: Mapping[str, int | str]) -> Heads:
    """Return the heads of the workload *name*, `hidden` elements in all."""
    hidden, heads = int(values["hidden"]), int(values["heads"])
    if hidden % heads:
        msg = (
            f"parameter heads={heads} of {name!r} does not divide hidden={hidden}; "
            "give both"
        )
        raise UsageError(msg)
    spelled_out = values["attention"] == "eager"
    return Heads(
        count=heads,
        size=hidden // heads,
        dropout=float(values["dropout"]),
        spelled_out=spelled_out,
    )


def transformer(name: str, values: Mapping[str, int | str]) -> Builder:
    """Return the builder of a graph in the element type asked for."""
    return Builder(Graph(name), DTYPES[str(values["dtype"])])


def split_heads(builder: Builder, x: Value, path: str, heads: Heads, seq: int) -> Value:
    """View [batch, seq, width] as [batch, heads, seq, size]."""
    apart = builder.reshape(x, f"{path}.view", -1, seq, heads.count, heads.size)
    return builder.transpose(apart, f"{path}.transpose", 0, 2, 1, 3)


def attend(  # noqa: PLR0913 - attention has these parts
    builder: Builder,
    path: str,
    qkv: tuple[Value, Value, Value],
    heads: Heads,
    seq: int,
    *,
    mask: Value | None = None,
    causal: bool = False,
    scaled: bool = True,
) -> Value:
    """Attend head by head, and join the heads to [batch, seq, width].

    Spelled out, a causal mask is a tensor that is added like any other.
    """
    masks = () if mask is None else (mask,)
    attributes: dict[str, AttrValue] = {} if scaled else {"scale": 1.0}
    if causal:
        attributes["causal"] = True
    if heads.dropout:
        attributes["dropout"] = heads.dropout
    if heads.spelled_out:
        attributes["spelled_out"] = (
            "matmul(q, k)",
            *(("mul(s)",) if scaled else ()),
            *(("add(s, m)",) if causal or masks else ()),
            *("softmax(s)", "matmul(s, v)"),
        )
    mixed = builder.op("attention", f"{path}.attention", *qkv, *masks, **attributes)
    joined = builder.transpose(mixed, f"{path}.joined", 0, 2, 1, 3)
    return builder.reshape(joined, f"{path}.flat", -1, seq, heads.width)
