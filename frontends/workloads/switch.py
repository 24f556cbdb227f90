"""Switch Transformers: Fedus et al. (arXiv 2101.03961), as transformers builds it.

`switch-xl-4` has the sizes of T5-3B ("XL"), with the feed-forward layer of every
second block, in encoder and decoder, replaced by four experts: the model of NeuSight
(Lee et al., arXiv 2407.13853). 5,267,615,744 parameters.

Routing: each token goes to the one expert of the greatest probability. An expert
takes at most `capacity` tokens of a sequence (64 in the published configurations of
Hugging Face, whatever the length); others pass by. Which tokens those are depends
on data; every expert is taken to be given its full capacity.

Attention has a bias of relative positions and is spelled out: there is no other.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.workloads.attention import (
    MINIMUM,
    TRANSFORMER_CHOICES,
    TRANSFORMER_LIMITS,
    Heads,
    attend,
    split_heads,
    transformer,
)
from perfc.frontends.workloads.builder import BATCH, I64, Builder
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Program, UsageError, Value, single

_EPSILON = 1e-6
_BUCKETS = 32
"""Distances that have a bias of their own."""

_SPARSE_STEP = 2
"""Every second block has experts."""

_MAX_EXPERTS = 4_000
"""Experts of all layers; a graph of more would not fit into memory."""

_T5_NORM = ("pow(x)", "mean(x)", "add(r)", "rsqrt(r)", "mul(x, r)", "mul(x, w)")
"""The calls of T5's layer norm, which neither centres nor adds a bias."""


@attrs.frozen(kw_only=True)
class SwitchConfig:
    """Sizes of a Switch Transformer.

    Attributes:
        layers: Blocks of the encoder, and of the decoder.
        hidden: Elements of a token's vector.
        heads: Heads of attention, together wider than `hidden`.
        ffn: Width of the feed-forward layers and of each expert.
        experts: Experts of every second block.
        capacity: Tokens of a sequence that one expert takes.
        seq: Tokens of a sequence.
        vocab: Rows of the token table.

    """

    layers: int
    hidden: int
    heads: Heads
    ffn: int
    experts: int
    capacity: int
    seq: int
    vocab: int


def build_switch(name: str, values: Mapping[str, int | str]) -> Program:
    """Build encoder and decoder over `seq` tokens each."""
    number = {key: value for key, value in values.items() if isinstance(value, int)}
    if number["layers"] * number["experts"] > _MAX_EXPERTS:
        msg = f"{name!r}: layers x experts is more than {_MAX_EXPERTS}"
        raise UsageError(msg)
    config = SwitchConfig(
        layers=number["layers"],
        hidden=number["hidden"],
        heads=Heads(count=number["heads"], size=number["head_dim"], spelled_out=True),
        ffn=number["ffn"],
        experts=number["experts"],
        capacity=min(number["capacity"], number["seq"]),
        seq=number["seq"],
        vocab=number["vocab"],
    )
    builder = transformer(name, values)
    sources = builder.input("input_ids", config.seq, dtype=I64)
    mask = builder.input("attention_mask", config.seq, dtype=I64)
    targets = builder.input("decoder_input_ids", config.seq, dtype=I64)
    stack = _Stack(builder, config)
    x = builder.embedding(sources, "shared", config.vocab, config.hidden)
    # The addends to the scores of tokens that the mask leaves out.
    kept = builder.op("cast", "mask.to", mask, dtype=builder.dtype)
    one = builder.scalar("mask.one", 1.0)
    out = builder.op(
        "sub", "mask.sub", one, builder.reshape(kept, "mask.view", -1, 1, 1, config.seq)
    )
    blocked = builder.op("mul", "mask.mul", out, builder.scalar("mask.least", MINIMUM))
    encoded = stack.encode(x, blocked)
    table = builder.graph.value("shared.weight")
    y = builder.op("gather", "shared.embedding", table, targets, axis=0)
    y = stack.decode(y, encoded, blocked)
    if values["head"] == "lm":
        y = builder.op("mul", "scale", y, builder.scalar("d", config.hidden**-0.5))
        y = builder.op("linear", "lm_head.linear", y, table)
    builder.graph.outputs.append(y)
    return single(builder.graph)


@attrs.define(eq=False)
class _Stack:
    """Blocks of attention and of feed-forward layers.

    Attributes:
        builder: Where nodes are added.
        config: Sizes.

    """

    builder: Builder
    config: SwitchConfig

    def encode(self, x: Value, blocked: Value) -> Value:
        """Let every token attend to all that are not blocked."""
        bias = self.position_bias("encoder.block.0.layer.0.SelfAttention", blocked)
        for block in range(self.config.layers):
            path = f"encoder.block.{block}"
            x = self.attention(x, x, f"{path}.layer.0", "SelfAttention", bias)
            x = self.feed_forward(x, f"{path}.layer.1", block)
        return self.norm(x, "encoder.final_layer_norm")

    def decode(self, y: Value, encoded: Value, blocked: Value) -> Value:
        """Let every token attend to those before it, then to the encoded ones."""
        seq, heads = self.config.seq, self.config.heads.count
        later = self.builder.buffer(
            "decoder.causal", self.builder.dtype, 1, 1, seq, seq
        )
        bias = self.position_bias("decoder.block.0.layer.0.SelfAttention", later)
        shape = self.builder.integers("decoder.zeros_shape", (1, heads, seq, seq))
        zeros = self.builder.op(
            "fill", "decoder.zeros", shape, dtype=self.builder.dtype, value=0.0
        )
        cross = self.builder.op("add", "decoder.cross_bias", zeros, blocked)
        for block in range(self.config.layers):
            path = f"decoder.block.{block}"
            y = self.attention(y, y, f"{path}.layer.0", "SelfAttention", bias)
            y = self.attention(y, encoded, f"{path}.layer.1", "EncDecAttention", cross)
            y = self.feed_forward(y, f"{path}.layer.2", block)
        return self.norm(y, "decoder.final_layer_norm")

    def norm(self, x: Value, path: str) -> Value:
        """Divide by the root mean square, as T5 spells it."""
        weight = self.builder.parameter(f"{path}.weight", self.config.hidden)
        return self.builder.op(
            "rms_norm",
            f"{path}.rms_norm",
            x,
            weight,
            axis=-1,
            epsilon=_EPSILON,
            spelled_out=_T5_NORM,
        )

    def position_bias(self, path: str, mask: Value) -> Value:
        """Return a bias per head and pair of positions, the mask added to it.

        Which bucket a distance falls into depends on the lengths alone.
        """
        seq, heads = self.config.seq, self.config.heads.count
        buckets = self.builder.buffer(f"{path}.buckets", I64, seq, seq)
        name = f"{path}.relative_attention_bias"
        found = self.builder.embedding(buckets, name, _BUCKETS, heads)
        turned = self.builder.transpose(found, f"{path}.permute", 2, 0, 1)
        bias = self.builder.op("unsqueeze", f"{path}.unsqueeze", turned, axes=(0,))
        return self.builder.op("add", f"{path}.masked_bias", bias, mask)

    def attention(
        self, x: Value, source: Value, path: str, name: str, bias: Value
    ) -> Value:
        """Normalise *x*, attend to *source* (or to *x* itself), and add *x*."""
        config, builder, own = self.config, self.builder, f"{path}.{name}"
        normed = self.norm(x, f"{path}.layer_norm")
        read = normed if source is x else source
        q, k, v = (
            split_heads(
                builder,
                builder.linear(
                    y,
                    f"{own}.{letter}",
                    (config.hidden, config.heads.width),
                    bias=False,
                ),
                own,
                config.heads,
                config.seq,
            )
            for letter, y in (("q", normed), ("k", read), ("v", read))
        )
        y = attend(
            builder, own, (q, k, v), config.heads, config.seq, mask=bias, scaled=False
        )
        y = builder.linear(
            y, f"{own}.o", (config.heads.width, config.hidden), bias=False
        )
        return builder.op("add", f"{path}.add", x, y)

    def feed_forward(self, x: Value, path: str, block: int) -> Value:
        """Normalise, widen and narrow, and add *x*."""
        normed = self.norm(x, f"{path}.layer_norm")
        sparse = block % _SPARSE_STEP == _SPARSE_STEP - 1
        mlp = self.experts if sparse else self.dense
        return self.builder.op("add", f"{path}.add", x, mlp(normed, f"{path}.mlp"))

    def dense(self, x: Value, path: str) -> Value:
        """Widen, cut off below 0, narrow."""
        hidden, ffn = self.config.hidden, self.config.ffn
        y = self.builder.linear(x, f"{path}.wi", (hidden, ffn), bias=False)
        y = self.builder.op("relu", f"{path}.act.relu", y)
        return self.builder.linear(y, f"{path}.wo", (ffn, hidden), bias=False)

    def experts(self, x: Value, path: str) -> Value:
        """Send each token to one expert, and scale by the router's probability."""
        config, builder = self.config, self.builder
        mask, probability = self.route(x, f"{path}.router")
        tokens = builder.reshape(x, f"{path}.tokens", -1, config.hidden)
        states = tokens
        for expert in range(config.experts):
            rows = self.rows_of(mask, expert, f"{path}.experts")
            given = builder.op("gather", f"{path}.given", tokens, rows, axis=0)
            y = self.dense(given, f"{path}.experts.expert_{expert}")
            places = builder.op("unsqueeze", f"{path}.places", rows, axes=(1,))
            states = builder.op("scatter_nd", f"{path}.put", states, places, y)
        states = builder.reshape(
            states, f"{path}.states", -1, config.seq, config.hidden
        )
        return builder.op("mul", f"{path}.mul", probability, states)

    def route(self, x: Value, path: str) -> tuple[Value, Value]:
        """Return who takes which token, and with what probability.

        The mask is [batch, seq, experts], 1 where an expert takes a token.
        """
        config, builder = self.config, self.builder
        sizes = (config.hidden, config.experts)
        logits = builder.linear(x, f"{path}.classifier", sizes, bias=False)
        shares = builder.op("softmax", f"{path}.softmax", logits, axis=-1)
        best = builder.op("argmax", f"{path}.argmax", shares, axis=-1)
        count = builder.integers(f"{path}.experts", (config.experts,))
        values = builder.integers(f"{path}.off_on", (0, 1))
        chosen = builder.op("one_hot", f"{path}.one_hot", best, count, values, axis=-1)
        order = builder.op("cumsum", f"{path}.cumsum", chosen, axis=1)
        capacity = builder.integers(f"{path}.capacity", (config.capacity,))
        fits = builder.op("less_equal", f"{path}.le", order, capacity)
        mask = builder.op("mul", f"{path}.mul", chosen, fits)
        top = builder.op(
            "reduce", f"{path}.max", shares, kind="max", axes=(-1,), keepdims=True
        )
        return mask, top

    def rows_of(self, mask: Value, expert: int, path: str) -> Value:
        """Return the rows of the tokens that *expert* takes: [batch x capacity]."""
        config, builder = self.config, self.builder
        own = builder.pick(mask, f"{path}.select", axis=2, index=expert)
        count = builder.integers(f"{path}.count", (config.capacity,))
        names = (f"{path}.topk", f"{path}.topk_places")
        _, places = builder.ops("topk", names, own, count, axis=1)
        starts = builder.buffer(f"{path}.starts", I64, BATCH, 1)
        rows = builder.op("add", f"{path}.rows", places, starts)
        return builder.reshape(rows, f"{path}.flat_rows", -1)


def _make(values: Mapping[str, int | str]) -> Program:
    return build_switch("switch-xl-4", values)


SWITCH_WORKLOADS = by_name(
    Workload(
        name="switch-xl-4",
        summary="encoder and decoder of 24 layers x 1024, 4 experts in every second",
        source="arXiv 2101.03961, sizes of arXiv 2407.13853",
        parameters={
            "layers": 24,
            "hidden": 1024,
            "heads": 32,
            "head_dim": 128,
            "ffn": 16384,
            "experts": 4,
            "capacity": 64,
            "seq": 512,
            "vocab": 32128,
            "head": "lm",
            "dtype": "f32",
        },
        choices={"dtype": TRANSFORMER_CHOICES["dtype"], "head": ("lm", "none")},
        limits={**TRANSFORMER_LIMITS, "experts": _MAX_EXPERTS},
        make=_make,
    ),
)
