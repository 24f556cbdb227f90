"""The built-in workloads once more, as PyTorch modules: their twins.

    perfc analyze examples/twins/bert.py:bert_base --target a100
    perfc measure workload bert-base --device cuda -o rows.parquet

A twin takes the parameters of its workload (`perfc models`) and the batch, and returns
the module with example arguments: `resnet50(batch=8, image=64)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.twins.bert import BERT_TWINS, Bert
from perfc.twins.dlrm import DLRM_TWINS, DlrmNet
from perfc.twins.gpt import GPT_TWINS
from perfc.twins.lookups import bags_of
from perfc.twins.recommenders import RECOMMENDER_TWINS, Dcnv2, DeepFm, WideAndDeep
from perfc.twins.small_convnets import SMALL_CONVNET_TWINS, resnet18
from perfc.twins.switch import SWITCH_TWINS
from perfc.twins.twin import Twin
from perfc.twins.vision import VISION_TWINS, InceptionV3, ResNet50

__all__ = [
    "TWINS",
    "Bert",
    "Dcnv2",
    "DeepFm",
    "DlrmNet",
    "InceptionV3",
    "ResNet50",
    "Twin",
    "WideAndDeep",
    "bags_of",
]

TWINS: Mapping[str, Twin] = {
    twin.name: twin
    for twin in (
        *(*DLRM_TWINS, *RECOMMENDER_TWINS),
        *(resnet18, *VISION_TWINS, *SMALL_CONVNET_TWINS),
        *(*BERT_TWINS, *GPT_TWINS, *SWITCH_TWINS),
    )
}
"""The twin of every built-in workload, by name."""
