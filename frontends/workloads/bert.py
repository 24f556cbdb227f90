"""BERT: Devlin et al. (arXiv 1810.04805), as Hugging Face's transformers builds it.

109,482,240 and 335,141,888 parameters with the pooler, which the paper rounds to
110 M and 340 M. With `head=mlm`, the vocabulary's logits leave at every position
and there is no pooler, as in `BertForMaskedLM`.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.workloads import attention
from perfc.frontends.workloads.builder import BATCH, I64, Builder
from perfc.frontends.workloads.protocol import Workload, by_name
from perfc.ir import DTYPES, Program, Value, single

_BOOL = DTYPES["bool"]
_EPSILON = 1e-12
_POSITIONS = 512
_SEGMENTS = 2
_LABELS = 2
_FFN = 4
"""Width of the feed-forward layer over that of the hidden one."""


def build_bert(name: str, values: Mapping[str, int | str]) -> Program:
    """Build the forward pass over token ids and their mask, [batch, seq]."""
    heads = attention.heads_of(name, values)
    builder, seq = attention.transformer(name, values), int(values["seq"])
    tokens = builder.input("input_ids", seq, dtype=I64)
    attention_mask = builder.input("attention_mask", seq, dtype=I64)
    x = _embeddings(builder, tokens, seq, (int(values["vocab"]), heads.width))
    x = builder.dropout(x, "bert.embeddings", heads.dropout)
    mask = _mask(builder, attention_mask, seq)
    for layer in range(int(values["layers"])):
        x = _layer(builder, x, f"bert.encoder.layer.{layer}", (heads, mask, seq))
    if values["head"] == "mlm":
        x = _masked_lm(builder, x, heads.width, int(values["vocab"]))
    else:
        x = _pooled(builder, x, heads.width)
    if values["head"] == "classifier":
        x = builder.dropout(x, "dropout", heads.dropout)
        x = builder.linear(x, "classifier", (heads.width, _LABELS))
    builder.graph.outputs.append(x)
    return single(builder.graph)


def _embeddings(
    builder: Builder, tokens: Value, seq: int, sizes: tuple[int, int]
) -> Value:
    """Add what token, segment and position stand for; *sizes*: rows and columns."""
    path, (vocab, hidden) = "bert.embeddings", sizes
    positions = builder.integers(f"{path}.position_ids", range(seq), 1, seq)
    zeros = (0,) * _POSITIONS
    buffer = builder.integers(f"{path}.token_type_ids", zeros, 1, _POSITIONS)
    picked = builder.op("gather_elements", f"{path}.gather", buffer, positions, axis=1)
    shape = builder.integers(f"{path}.shape", (BATCH, seq))
    segments = builder.op("expand", f"{path}.expand", picked, shape)
    x = builder.embedding(tokens, f"{path}.word_embeddings", vocab, hidden)
    kinds = f"{path}.token_type_embeddings"
    y = builder.embedding(segments, kinds, _SEGMENTS, hidden)
    x = builder.op("add", f"{path}.add", x, y)
    places = f"{path}.position_embeddings"
    y = builder.embedding(positions, places, _POSITIONS, hidden)
    x = builder.op("add", f"{path}.add", x, y)
    return builder.layer_norm(x, f"{path}.LayerNorm", hidden, _EPSILON)


def _mask(builder: Builder, mask: Value, seq: int) -> Value:
    """Return the addends to the scores of each pair: [batch, 1, seq, seq]."""
    kept = builder.op("cast", "bert.to", mask, dtype=_BOOL)
    places = builder.buffer("bert.places", I64, BATCH, 1, 1, seq, 2)
    picked = builder.op("gather_nd", "bert.index", kept, places, batch_dims=0)
    every = builder.buffer("bert.every", _BOOL, 1, 1, seq, 1)
    shown = builder.op("and", "bert.and", every, picked)
    zero = builder.scalar("bert.zero", 0.0)
    least = builder.scalar("bert.min", attention.MINIMUM)
    return builder.op("where", "bert.where", shown, zero, least)


def _layer(
    builder: Builder, x: Value, path: str, sizes: tuple[attention.Heads, Value, int]
) -> Value:
    heads, mask, seq = sizes
    hidden, inner = heads.width, heads.width * _FFN
    own = f"{path}.attention.self"
    q, k, v = (
        attention.split_heads(
            builder,
            builder.linear(x, f"{own}.{name}", (hidden, hidden)),
            own,
            heads,
            seq,
        )
        for name in ("query", "key", "value")
    )
    y = attention.attend(builder, own, (q, k, v), heads, seq, mask=mask)
    share = heads.dropout
    at = f"{path}.attention.output"
    x = _output(builder, (y, x), at, (hidden, hidden), share)
    y = builder.linear(x, f"{path}.intermediate.dense", (hidden, inner))
    y = builder.op("gelu", f"{path}.intermediate.intermediate_act_fn.gelu", y)
    return _output(builder, (y, x), f"{path}.output", (inner, hidden), share)


def _output(
    builder: Builder,
    pair: tuple[Value, Value],
    path: str,
    sizes: tuple[int, int],
    dropout: float,
) -> Value:
    """Project the first of *pair*, drop elements, add the second, normalise."""
    y = builder.linear(pair[0], f"{path}.dense", sizes)
    y = builder.dropout(y, path, dropout)
    y = builder.op("add", f"{path}.add", y, pair[1])
    return builder.layer_norm(y, f"{path}.LayerNorm", sizes[1], _EPSILON)


def _masked_lm(builder: Builder, x: Value, hidden: int, vocab: int) -> Value:
    """Transform, and compare with every word: the weights are the embeddings."""
    path = "cls.predictions"
    x = builder.linear(x, f"{path}.transform.dense", (hidden, hidden))
    x = builder.op("gelu", f"{path}.transform.transform_act_fn.gelu", x)
    x = builder.layer_norm(x, f"{path}.transform.LayerNorm", hidden, _EPSILON)
    words = builder.graph.value("bert.embeddings.word_embeddings.weight")
    bias = builder.parameter(f"{path}.decoder.bias", vocab)
    return builder.op("linear", f"{path}.decoder.linear", x, words, bias)


def _pooled(builder: Builder, x: Value, hidden: int) -> Value:
    """Project the first position."""
    x = builder.pick(x, "bert.pooler.first", axis=1, index=0)
    x = builder.linear(x, "bert.pooler.dense", (hidden, hidden))
    return builder.op("tanh", "bert.pooler.activation.tanh", x)


def _workload(name: str, layers: int, hidden: int, heads: int) -> Workload:
    def make(values: Mapping[str, int | str]) -> Program:
        return build_bert(name, values)

    return Workload(
        name=name,
        summary=f"encoder of {layers} layers x {hidden}, {heads} heads",
        source="arXiv 1810.04805, transformers",
        parameters={
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "seq": 128,
            "vocab": 30522,
            "head": "mlm",
            "attention": "sdpa",
            "dropout": "0",
            "dtype": "f32",
        },
        choices={
            **attention.TRANSFORMER_CHOICES,
            "head": ("mlm", "pooler", "classifier"),
        },
        limits={**attention.TRANSFORMER_LIMITS, "seq": _POSITIONS},
        shares=attention.DROPOUT,
        make=make,
    )


BERT_WORKLOADS = by_name(
    _workload("bert-base", 12, 768, 12),
    _workload("bert-large", 24, 1024, 16),
)
