"""A recurrent network in plain PyTorch."""

from __future__ import annotations

from torch import Tensor, nn


class Tagger(nn.Module):
    """Words, an LSTM of two layers in both directions, a class for each word."""

    def __init__(self, words: int = 1000, dim: int = 64, classes: int = 10) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, dim, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, length, classes]."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states)
        return logits
