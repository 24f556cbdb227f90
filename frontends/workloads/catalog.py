"""All built-in workloads, and how one is found by its name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from perfc.ir import Program, UsageError
from perfc.lazy_table import LazyTable

if TYPE_CHECKING:
    from perfc.frontends.workloads.protocol import Workload

WORKLOADS: LazyTable[Workload] = LazyTable(
    "perfc.frontends.workloads",
    {
        "dlrm:DLRM_WORKLOADS": (
            "dlrm-default dlrm-mlperf dlrm-ddp criteo-terabyte-small deeprecsys-rm1 "
            "deeprecsys-rm2 deeprecsys-rm3 dlrm-zion"
        ),
        "recommenders:RECOMMENDER_WORKLOADS": "dcnv2-mlperf wide-and-deep deepfm",
        "resnet:RESNET_WORKLOADS": "resnet18 resnet50 resnet101",
        "inception:INCEPTION_WORKLOADS": "inception-v3",
        "googlenet:GOOGLENET_WORKLOADS": "googlenet",
        "mobile:MOBILE_WORKLOADS": "mobilenet-v2 mnasnet",
        "squeezenet:SQUEEZENET_WORKLOADS": "squeezenet",
        "bert:BERT_WORKLOADS": "bert-base bert-large",
        "gpt:GPT_WORKLOADS": "gpt2 gpt2-large gpt3-xl gpt3-2.7b opt-1.3b",
        "switch:SWITCH_WORKLOADS": "switch-xl-4",
    },
)
"""Every built-in workload by name."""


def find_workload(text: str) -> Workload | None:
    """Return the workload that `NAME` or `NAME:key=value,…` names, if any."""
    return WORKLOADS.get(text.partition(":")[0])


def build_workload(text: str) -> Program:
    """Build `NAME` or `NAME:key=value,…`."""
    name, _, options = text.partition(":")
    workload = WORKLOADS.get(name)
    if workload is None:
        close = difflib.get_close_matches(name, WORKLOADS, n=1)
        others = "see `perfc models`, or give a model file or FILE.py:NAME"
        hint = f"did you mean {close[0]!r}?" if close else others
        msg = f"no file and no built-in workload {name!r}; {hint}"
        raise UsageError(msg)
    return workload.build(options)
