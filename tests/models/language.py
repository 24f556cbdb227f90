"""Transformers of the `transformers` library, from their configurations.

Weights are random and few: a handful of layers shows what a model does.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from collections.abc import Generator

    from torch import Tensor, nn


_FAMILIES = ("Bert", "GPT2", "Llama", "OPT", "SwitchTransformers", "Qwen2", "ViT")


def _tokens(batch: int, length: int) -> Tensor:
    return torch.zeros((batch, length), dtype=torch.int64)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def _made(kind: str, **config: Any) -> nn.Module:
    """Make the model *kind* of the configuration of the same family."""
    family = next(
        name
        for name in (
            "Bert",
            "GPT2",
            "Llama",
            "OPT",
            "SwitchTransformers",
            "Qwen2",
            "ViT",
        )
        if kind.startswith(name)
    )
    with _quiet():
        made: nn.Module = getattr(transformers, kind)(
            getattr(transformers, f"{family}Config")(**config)
        )
    return made


def bert(
    batch: int = 2, length: int = 128, layers: int = 2
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return BERT-base with so many layers, for masked words."""
    model = _made("BertForMaskedLM", num_hidden_layers=layers)
    return model, (_tokens(batch, length),)


def gpt2(
    batch: int = 2, length: int = 128, layers: int = 2
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return GPT-2 with so many layers."""
    model = _made("GPT2LMHeadModel", n_layer=layers, use_cache=False)
    return model, (_tokens(batch, length),)


def llama(
    batch: int = 2, length: int = 128, layers: int = 2
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a small Llama with grouped heads."""
    model = _made(
        "LlamaForCausalLM",
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=4,
        num_hidden_layers=layers,
        use_cache=False,
    )
    return model, (_tokens(batch, length),)


def opt(
    batch: int = 2, length: int = 128, layers: int = 2
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return OPT with so many layers."""
    model = _made("OPTForCausalLM", num_hidden_layers=layers, use_cache=False)
    return model, (_tokens(batch, length),)


def qwen(
    batch: int = 1, length: int = 128, layers: int = 24
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return Qwen1.5-0.5B (hf.co/Qwen/Qwen1.5-0.5B, config.json)."""
    model = _made(
        "Qwen2ForCausalLM",
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_hidden_layers=layers,
        vocab_size=151_936,
        use_cache=False,
    )
    return model, (_tokens(batch, length),)


def switch(
    batch: int = 2, length: int = 32, layers: int = 2
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return Switch with four experts, encoder and decoder."""
    model = _made(
        "SwitchTransformersForConditionalGeneration",
        num_layers=layers,
        num_decoder_layers=layers,
        num_experts=4,
        use_cache=False,
    )
    return model, (_tokens(batch, length), _tokens(batch, length))


def vit(batch: int = 2, layers: int = 12) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return ViT-base over 16x16 patches of 224x224 images, two classes."""
    model = _made("ViTForImageClassification", num_hidden_layers=layers, num_labels=2)
    return model, (torch.zeros(batch, 3, 224, 224),)
