"""BERT in plain PyTorch, with the calls of Hugging Face's transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfc.twins.attention import AS_STORED, Dropout, attend, join_heads, split_heads
from perfc.twins.twin import Made, Twin, Values

_EPSILON = 1e-12
_POSITIONS = 512


class BertEmbeddings(nn.Module):
    """What token, segment and position stand for, added."""

    def __init__(self, vocab: int, hidden: int) -> None:
        """Make the tables; all tokens are of the first segment."""
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(_POSITIONS, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=_EPSILON)
        places, first = torch.arange(_POSITIONS)[None], torch.zeros(1, _POSITIONS)
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("first", first.long(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return vectors [batch, length, hidden]."""
        batch, length = tokens.shape
        places = self.get_buffer("places")[:, :length]
        first = torch.gather(self.get_buffer("first"), 1, places).expand(batch, length)
        x = self.words(tokens) + self.segments(first)
        out: Tensor = self.norm(x + self.positions(places))
        return out


class BertLayer(nn.Module):
    """Attention and a feed-forward layer, each normalised afterwards."""

    def __init__(
        self, hidden: int, heads: int, *, spelled_out: bool, dropout: float
    ) -> None:
        """Make the projections."""
        super().__init__()
        self.drop = Dropout(dropout)
        self.heads, self.spelled_out = heads, spelled_out
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.mixed = nn.Linear(hidden, hidden)
        self.mixed_norm = nn.LayerNorm(hidden, eps=_EPSILON)
        self.wide = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)
        self.norm = nn.LayerNorm(hidden, eps=_EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Transform [batch, length, hidden]."""
        q, k, v = (
            split_heads(project(x), self.heads)
            for project in (self.query, self.key, self.value)
        )
        y = attend(
            *(q, k, v, mask), spelled_out=self.spelled_out, dropout=self.drop.now
        )
        x = self.mixed_norm(self.drop(self.mixed(join_heads(y))) + x)
        y = self.narrow(functional.gelu(self.wide(x)))
        out: Tensor = self.norm(self.drop(y) + x)
        return out


class Bert(nn.Module):
    """BERT with the logits of the vocabulary, a pooled vector, or two classes."""

    def __init__(
        self,
        layers: int,
        sizes: tuple[int, int, int],
        *,
        head: str = "mlm",
        spelled_out: bool = False,
        dropout: float = 0.0,
    ) -> None:
        """Make embeddings, blocks and the head `mlm`, `pooler` or `classifier`.

        *sizes*: rows of the token table, width, heads.
        """
        vocab, hidden, heads = sizes
        super().__init__()
        self.embeddings = BertEmbeddings(vocab, hidden)
        self.drop = Dropout(dropout)
        self.layers = nn.ModuleList(
            BertLayer(hidden, heads, spelled_out=spelled_out, dropout=dropout)
            for _ in range(layers)
        )
        self.head = (
            MaskedWords(hidden, vocab)
            if head == "mlm"
            else Pooler(hidden, classes=head == "classifier", dropout=dropout)
        )

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Run; the mask, [batch, length], is 1 for what counts."""
        x = self.drop(self.embeddings(tokens))
        added = scores_of(mask, x.dtype)
        for layer in self.layers:
            x = layer(x, added)
        out: Tensor = self.head(x, self.embeddings.words.weight)
        return out


def scores_of(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask to add to the scores of pairs, [batch, 1, length, length]."""
    batch, length = mask.shape
    kept = mask.to(torch.bool)
    rows = torch.arange(batch, device=mask.device)[:, None, None, None]
    columns = torch.arange(length, device=mask.device)[None, None, None]
    every = torch.ones((1, 1, length, 1), dtype=torch.bool, device=mask.device)
    shown = every & kept[rows, columns]
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(shown, zero, torch.finfo(dtype).min)


class MaskedWords(nn.Module):
    """Score every word at every position; the weights are the embeddings."""

    def __init__(self, hidden: int, vocab: int) -> None:
        """Make the transform."""
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, eps=_EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Return logits [batch, length, vocab]."""
        x = self.norm(functional.gelu(self.dense(x)))
        return functional.linear(x, words, self.bias)


class Pooler(nn.Module):
    """Project the first position; two classes after it, if asked for."""

    def __init__(self, hidden: int, *, classes: bool, dropout: float = 0.0) -> None:
        """Make the layers."""
        super().__init__()
        self.drop = Dropout(dropout if classes else 0.0)
        self.dense = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, 2) if classes else nn.Identity()

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        """Return [batch, hidden], or [batch, 2]."""
        out: Tensor = self.classifier(self.drop(torch.tanh(self.dense(x[:, 0]))))
        return out


def _twin(name: str) -> Twin:
    def make(values: Values, batch: int) -> Made:
        layers, hidden, heads, vocab, seq = (
            int(values[key]) for key in ("layers", "hidden", "heads", "vocab", "seq")
        )
        model = Bert(
            layers,
            (vocab, hidden, heads),
            head=str(values["head"]),
            spelled_out=values["attention"] == "eager",
            dropout=float(values["dropout"]),
        )
        tokens = torch.randint(vocab, (batch, seq))
        return model, (tokens, torch.ones(batch, seq, dtype=torch.int64))

    return Twin(name=name, batch=16, make=make, fixed=AS_STORED)


bert_base = _twin("bert-base")
bert_large = _twin("bert-large")

BERT_TWINS = (bert_base, bert_large)
