"""Targets by the names that drivers give GPUs, and that traces hold."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.costmodels.sheets.catalog import target_names

DEVICE_TARGETS: Mapping[str, str] = {
    "amd instinct mi100": "mi100",
    "amd instinct mi210": "mi210",
    "amd instinct mi250x / mi250": "mi250",
    "amd instinct mi300x": "mi300x",
    "amd instinct mi300x vf": "mi300x",
    "nvidia a10": "a10",
    "nvidia a100 80gb pcie": "a100-pcie-80g",
    "nvidia a100-pcie-40gb": "a100-pcie-40g",
    "nvidia a100-pg509-200": "a100-sxm-40g",
    "nvidia a100-sxm4-40gb": "a100-sxm-40g",
    "nvidia a100-sxm4-80gb": "a100-sxm-80g",
    "nvidia a30": "a30",
    "nvidia b200": "b200-sxm-180g",
    "nvidia gb200": "gb200",
    "nvidia geforce rtx 2080 ti": "rtx-2080ti",
    "nvidia geforce rtx 3080": "rtx-3080",
    "nvidia geforce rtx 4090": "rtx-4090",
    "nvidia h100 80gb hbm3": "h100-sxm-80g",
    "nvidia h100 pcie": "h100-pcie-80g",
    "nvidia h200": "h200-sxm-141g",
    "nvidia l4": "l4",
    "nvidia l40s": "l40s",
    "nvidia rtx pro 6000 blackwell server edition": "rtx-pro-6000",
    "nvidia tegra x2": "jetson-tx2",
    "nvidia titan xp": "titan-xp",
    "tesla p100-pcie-16gb": "p100-pcie-16g",
    "tesla p4": "p4",
    "tesla t4": "t4",
    "tesla v100-dgxs-32gb": "v100-sxm2-32g",
    "tesla v100-pcie-32gb": "v100-pcie-32g",
    "tesla v100-sxm2-16gb": "v100-sxm2-16g",
    "tesla v100-sxm2-32gb": "v100-sxm2-32g",
    "xavier": "jetson-xavier",
}
"""In lower case. A virtual function (`VF`) is the GPU; PG509 is an A100 of 40 GB on a
board of SXM's kind; the V100 of a DGX Station has NVLink and SXM2's memory."""


def target_of_device(name: str) -> str | None:
    """Return the target of a GPU by its driver's name; None if there is none.

    In traces that perfc itself wrote, maker and target are the name.
    """
    words = name.lower().split()
    found = DEVICE_TARGETS.get(" ".join(words))
    if found is None and words and words[-1] in target_names():
        return words[-1]
    return found
