"""Small models of many families of the `transformers` library, from configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
import transformers
from torch import Tensor, nn

_TEXT: Mapping[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_GROUPED: Mapping[str, Any] = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}
_STAGES: Mapping[str, Any] = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 16, 32, 64],
}
_VISION: Mapping[str, Any] = {**_TEXT, "image_size": 32, "patch_size": 8}


@attrs.frozen
class Family:
    """A model class, its configuration, and what it is called with.

    Attributes:
        model: Name of the model's class.
        config: Arguments of its configuration, whose class has the family's name.
        inputs: Names and shapes of its arguments; a shape of two numbers is of tokens.

    """

    model: str
    config: Mapping[str, Any]
    inputs: Mapping[str, tuple[int, ...]] = {"input_ids": (2, 16)}

    def made(self, family: str) -> tuple[nn.Module, dict[str, Tensor]]:
        """Make the model and its arguments."""
        config = getattr(transformers, f"{family}Config")(**self.config)
        module: nn.Module = getattr(transformers, self.model)(config)
        return module, {name: _zeros(shape) for name, shape in self.inputs.items()}


def _zeros(shape: tuple[int, ...]) -> Tensor:
    tokens = len(shape) == 2 and shape[1] < _SAMPLES
    return torch.zeros(shape, dtype=torch.int64 if tokens else torch.float32)


_SAMPLES = 1000
"""More numbers than this in a row are sound."""

_IMAGES = {"pixel_values": (2, 3, 32, 32)}
_PAIR = {"input_ids": (2, 16), "decoder_input_ids": (2, 16)}
_RESNET: Any = transformers.ResNetConfig  # its arguments have no names for checkers
FAMILIES: Mapping[str, Family] = {
    "T5": Family(
        "T5ForConditionalGeneration",
        {
            "vocab_size": 64,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "use_cache": False,
        },
        _PAIR,
    ),
    "Roberta": Family("RobertaForMaskedLM", _TEXT),
    "DistilBert": Family(
        "DistilBertForMaskedLM",
        {"vocab_size": 64, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    ),
    "Electra": Family("ElectraForPreTraining", {**_TEXT, "embedding_size": 16}),
    "DebertaV2": Family(
        "DebertaV2ForMaskedLM",
        {**_TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        {"input_ids": (2, 16), "attention_mask": (2, 16)},
    ),
    "Bart": Family(
        "BartForConditionalGeneration",
        {
            "vocab_size": 64,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "use_cache": False,
        },
        _PAIR,
    ),
    "GPTNeoX": Family("GPTNeoXForCausalLM", {**_TEXT, "use_cache": False}),
    "Mistral": Family("MistralForCausalLM", _GROUPED),
    "Mixtral": Family("MixtralForCausalLM", {**_GROUPED, "num_local_experts": 4}),
    "Qwen3": Family("Qwen3ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "Gemma": Family("GemmaForCausalLM", {**_GROUPED, "head_dim": 8}),
    "Gemma2": Family("Gemma2ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "Phi": Family("PhiForCausalLM", {**_TEXT, "use_cache": False}),
    "Phi3": Family("Phi3ForCausalLM", {**_GROUPED, "pad_token_id": 0}),
    "Falcon": Family("FalconForCausalLM", {**_TEXT, "use_cache": False}),
    "Bloom": Family(
        "BloomForCausalLM",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
            "use_cache": False,
        },
    ),
    "Mamba": Family(
        "MambaForCausalLM",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "use_cache": False,
        },
    ),
    "CLIP": Family(
        "CLIPModel",
        {"text_config": dict(_TEXT), "vision_config": dict(_VISION)},
        {"input_ids": (2, 16), **_IMAGES},
    ),
    "Whisper": Family(
        "WhisperForConditionalGeneration",
        {
            "vocab_size": 64,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 20,
            "num_mel_bins": 8,
            "use_cache": False,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        {"input_features": (2, 8, 40), "decoder_input_ids": (2, 16)},
    ),
    "Wav2Vec2": Family(
        "Wav2Vec2Model",
        {
            **_TEXT,
            "conv_dim": (8, 8),
            "conv_stride": (5, 2),
            "conv_kernel": (10, 3),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "apply_spec_augment": False,
        },
        {"input_values": (2, 2000)},
    ),
    "Swin": Family(
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        _IMAGES,
    ),
    "ConvNext": Family("ConvNextForImageClassification", _STAGES, _IMAGES),
    "DeiT": Family("DeiTForImageClassification", _VISION, _IMAGES),
    "Segformer": Family(
        "SegformerForSemanticSegmentation",
        {**_STAGES, "decoder_hidden_size": 16, "num_attention_heads": [1, 2, 4, 8]},
        _IMAGES,
    ),
    "Detr": Family(
        "DetrForObjectDetection",
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": _RESNET(
                embedding_size=8,
                hidden_sizes=[8, 16],
                depths=[1, 1],
                out_features=["stage2"],
            ),
            "num_queries": 5,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
        },
        {"pixel_values": (2, 3, 64, 64)},
    ),
}
"""Models by the names of their configurations."""
