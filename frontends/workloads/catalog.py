"""All built-in workloads, and how one is found by its name."""

from __future__ import annotations

import difflib

from perfc.frontends.workloads.bert import BERT_WORKLOADS
from perfc.frontends.workloads.dlrm import DLRM_WORKLOADS
from perfc.frontends.workloads.gpt import GPT_WORKLOADS
from perfc.frontends.workloads.inception import INCEPTION_WORKLOADS
from perfc.frontends.workloads.protocol import Workload
from perfc.frontends.workloads.recommenders import RECOMMENDER_WORKLOADS
from perfc.frontends.workloads.resnet import RESNET_WORKLOADS
from perfc.frontends.workloads.switch import SWITCH_WORKLOADS
from perfc.ir import Program, UsageError

WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        *(*DLRM_WORKLOADS, *RECOMMENDER_WORKLOADS),
        *(*RESNET_WORKLOADS, *INCEPTION_WORKLOADS),
        *(*BERT_WORKLOADS, *GPT_WORKLOADS, *SWITCH_WORKLOADS),
    )
}
"""Every built-in workload by name."""


def find_workload(text: str) -> Workload | None:
    """Return the workload that `NAME` or `NAME:key=value,…` names, if any."""
    return WORKLOADS.get(text.partition(":")[0])


def build_workload(text: str) -> Program:
    """Build `NAME` or `NAME:key=value,…`.

    Raises:
        UsageError: the name, a key or a value is unknown or out of range.

    """
    name, _, options = text.partition(":")
    workload = WORKLOADS.get(name)
    if workload is None:
        close = difflib.get_close_matches(name, WORKLOADS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "see `perfc models`"
        msg = f"no file and no built-in workload {name!r}; {hint}"
        raise UsageError(msg)
    return workload.build(options)
