"""What tests of placed embedding tables share: the study's workload, and its places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import perfc
from perfc.costmodels import load_target
from perfc.passes import Pass
from perfc.passes.embeddings import PlaceEmbeddings
from perfc.passes.parallel.data import DataParallel
from perfc.tools import Report, load

BIG_BASIN, ZION = "big-basin", "zion"
NODE = 8


def analyze(
    *transforms: Pass,
    target: str = ZION,
    batch: int = 2048,
    ranks: int = 1,
    mode: str = "training",
    fields: Mapping[str, str] | None = None,
    **sizes: object,
) -> Report:
    """Analyze the workload of the study."""
    model = "dlrm-zion:" + ",".join(f"{k}={v}" for k, v in sizes.items())
    replicas = (DataParallel(ranks),) if ranks > 1 else ()
    loaded = load(
        model.rstrip(":"), batch=batch, mode=mode, transforms=(*transforms, *replicas)
    )
    return perfc.analyze(loaded, target=load_target(target, dict(fields or {})))


def place(tier: str, **more: Any) -> PlaceEmbeddings:
    """Return the pass that puts all tables somewhere."""
    return PlaceEmbeddings(tier, **more)


def lookups_us(report: Report) -> float:
    """Return the time of kernels of tables outside of device memory."""
    return math.fsum(
        node["duration_us"]
        for node in report.nodes
        if node["cost_model"] == "embedding-tiers"
    )
