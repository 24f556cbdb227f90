"""Decoders in the manner of GPT, as Hugging Face's transformers builds them.

- gpt2, gpt2-large: Radford et al., "Language Models are Unsupervised Multitask
  Learners" (2019), 124,439,808 and 774,030,080 parameters.
- gpt3-xl, gpt3-2.7b: Brown et al., "Language Models are Few-Shot Learners" (arXiv
  2005.14165), table 2.1, built as GPT-2 with 2048 positions. Attention is dense in
  every layer; the paper alternates it with a sparse one. The paper's 24 heads of 128
  do not fit the 2048 of gpt3-xl; here it has 16, which gives its 1.3 B parameters.
- opt-1.3b: Zhang et al., "OPT" (arXiv 2205.01068), 1,315,758,080 parameters.

The logits share the weights of the token embedding, and leave at every position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from perfc.frontends.workloads import attention
from perfc.frontends.workloads.builder import I64, Builder
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import Program, Value, single

_EPSILON = 1e-5
_FFN = 4
"""Width of the feed-forward layer over that of the hidden one."""

_OPT_OFFSET = 2
"""Rows of OPT's position table before the first position."""

_GELU_NEW = (
    *("pow(x)", "mul(x)", "add(x, x)", "mul(x)", "tanh(x)", "add(x)", "mul(x)"),
    "mul(x, x)",
)
"""The calls of `NewGELUActivation`: GELU by tanh, spelled out."""


@attrs.frozen(kw_only=True)
class GptConfig:
    """Sizes of one decoder.

    Attributes:
        name: What the workload is called.
        layers: Blocks.
        hidden: Elements of a position's vector.
        heads: Heads of attention.
        positions: Rows of the position table, the longest sequence.
        vocab: Rows of the token table.
        source: Where the sizes come from.

    """

    name: str
    layers: int
    hidden: int
    heads: int
    positions: int
    vocab: int
    source: str


_Build: TypeAlias = Callable[[GptConfig, Mapping[str, int | str]], Program]


def build_gpt2(config: GptConfig, values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over token ids, [batch, seq]."""
    heads = attention.heads_of(config.name, values)
    builder, seq = attention.transformer(config.name, values), int(values["seq"])
    tokens = builder.input("input_ids", seq, dtype=I64)
    vocab, rows = int(values["vocab"]), config.positions
    places = builder.integers("transformer.position_ids", range(seq), 1, seq)
    x = builder.embedding(tokens, "transformer.wte", vocab, heads.width)
    y = builder.embedding(places, "transformer.wpe", rows, heads.width)
    x = builder.op("add", "transformer.add", x, y)
    x = builder.dropout(x, "transformer.drop", heads.dropout)
    for layer in range(int(values["layers"])):
        x = _gpt2_block(builder, x, f"transformer.h.{layer}", heads, seq)
    x = builder.layer_norm(x, "transformer.ln_f", heads.width, _EPSILON)
    return _finish(builder, x, "transformer.wte.weight", values)


def _finish(
    builder: Builder, x: Value, tokens: str, values: Mapping[str, int | str]
) -> Program:
    """Compare with the vectors of all tokens, unless the head is not wanted."""
    if values["head"] == "lm":
        x = builder.op("linear", "lm_head.linear", x, builder.graph.value(tokens))
    builder.graph.outputs.append(x)
    return single(builder.graph)


def _gpt2_block(
    builder: Builder, x: Value, path: str, heads: attention.Heads, seq: int
) -> Value:
    hidden, inner = heads.width, heads.width * _FFN
    own = f"{path}.attn"
    y = builder.layer_norm(x, f"{path}.ln_1", hidden, _EPSILON)
    y = _conv1d(builder, y, f"{own}.c_attn", (hidden, 3 * hidden))
    q, k, v = (
        attention.split_heads(builder, piece, own, heads, seq)
        for piece in builder.split(y, f"{own}.split", hidden, hidden, hidden)
    )
    y = attention.attend(builder, own, (q, k, v), heads, seq, causal=True)
    y = _conv1d(builder, y, f"{own}.c_proj", (hidden, hidden))
    y = builder.dropout(y, f"{own}.resid_dropout", heads.dropout)
    x = builder.op("add", f"{path}.add", y, x)
    y = builder.layer_norm(x, f"{path}.ln_2", hidden, _EPSILON)
    y = _conv1d(builder, y, f"{path}.mlp.c_fc", (hidden, inner))
    name = f"{path}.mlp.act.gelu"
    y = builder.op("gelu", name, y, approximate="tanh", spelled_out=_GELU_NEW)
    y = _conv1d(builder, y, f"{path}.mlp.c_proj", (inner, hidden))
    y = builder.dropout(y, f"{path}.mlp", heads.dropout)
    return builder.op("add", f"{path}.add", x, y)


def _conv1d(builder: Builder, x: Value, path: str, sizes: tuple[int, int]) -> Value:
    """Apply a linear layer whose weight is stored [in, out]."""
    weight = builder.parameter(f"{path}.weight", *sizes)
    bias = builder.parameter(f"{path}.bias", sizes[1])
    return builder.op("linear", f"{path}.addmm", x, weight, bias, weight_is_kn=True)


def build_opt(config: GptConfig, values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over token ids, [batch, seq], at given positions."""
    heads = attention.heads_of(config.name, values)
    builder, seq = attention.transformer(config.name, values), int(values["seq"])
    tokens = builder.input("input_ids", seq, dtype=I64)
    path, vocab = "model.decoder", int(values["vocab"])
    rows = config.positions + _OPT_OFFSET
    behind = range(_OPT_OFFSET, _OPT_OFFSET + seq)
    places = builder.integers(f"{path}.position_ids", behind, 1, seq)
    x = builder.embedding(tokens, f"{path}.embed_tokens", vocab, heads.width)
    y = builder.embedding(places, f"{path}.embed_positions", rows, heads.width)
    x = builder.op("add", f"{path}.add", x, y)
    for layer in range(int(values["layers"])):
        x = _opt_layer(builder, x, f"{path}.layers.{layer}", heads, seq)
    x = builder.layer_norm(x, f"{path}.final_layer_norm", heads.width, _EPSILON)
    return _finish(builder, x, f"{path}.embed_tokens.weight", values)


def _opt_layer(
    builder: Builder, x: Value, path: str, heads: attention.Heads, seq: int
) -> Value:
    hidden, inner = heads.width, heads.width * _FFN
    own = f"{path}.self_attn"
    norm = builder.layer_norm(x, f"{path}.self_attn_layer_norm", hidden, _EPSILON)
    q, k, v = (
        attention.split_heads(
            builder,
            builder.linear(norm, f"{own}.{name}_proj", (hidden, hidden)),
            own,
            heads,
            seq,
        )
        for name in "qkv"
    )
    y = attention.attend(builder, own, (q, k, v), heads, seq, causal=True)
    y = builder.linear(y, f"{own}.out_proj", (hidden, hidden))
    y = builder.dropout(y, own, heads.dropout)
    x = builder.op("add", f"{path}.add", x, y)
    y = builder.layer_norm(x, f"{path}.final_layer_norm", hidden, _EPSILON)
    y = builder.linear(y, f"{path}.fc1", (hidden, inner))
    y = builder.op("relu", f"{path}.activation_fn.relu", y)
    y = builder.linear(y, f"{path}.fc2", (inner, hidden))
    y = builder.dropout(y, path, heads.dropout)
    return builder.op("add", f"{path}.add", x, y)


def _workload(config: GptConfig, build: _Build) -> Workload:
    def make(values: Mapping[str, int | str]) -> Program:
        return build(config, values)

    return Workload(
        name=config.name,
        summary=f"decoder of {config.layers} layers x {config.hidden}, "
        f"{config.heads} heads",
        source=config.source,
        parameters={
            "layers": config.layers,
            "hidden": config.hidden,
            "heads": config.heads,
            "seq": config.positions,
            "vocab": config.vocab,
            "head": "lm",
            "attention": "sdpa",
            "dropout": "0",
            "dtype": "f32",
        },
        choices={**attention.TRANSFORMER_CHOICES, "head": ("lm", "none")},
        limits={**attention.TRANSFORMER_LIMITS, "seq": config.positions},
        shares=attention.DROPOUT,
        make=make,
    )


_GPT2 = GptConfig(
    name="gpt2",
    layers=12,
    hidden=768,
    heads=12,
    positions=1024,
    vocab=50257,
    source="Radford et al. 2019, transformers",
)
_GPT3 = attrs.evolve(_GPT2, positions=2048, source="arXiv 2005.14165")
_OPT = attrs.evolve(_GPT3, vocab=50272, source="arXiv 2205.01068, transformers")

GPT_WORKLOADS = by_name(
    _workload(_GPT2, build_gpt2),
    _workload(
        attrs.evolve(_GPT2, name="gpt2-large", layers=36, hidden=1280, heads=20),
        build_gpt2,
    ),
    _workload(
        attrs.evolve(_GPT3, name="gpt3-xl", layers=24, hidden=2048, heads=16),
        build_gpt2,
    ),
    _workload(
        attrs.evolve(_GPT3, name="gpt3-2.7b", layers=32, hidden=2560, heads=32),
        build_gpt2,
    ),
    _workload(
        attrs.evolve(_OPT, name="opt-1.3b", layers=24, hidden=2048, heads=32),
        build_opt,
    ),
)
