"""A result of each verb whose results have one form, made in Python."""

from __future__ import annotations

import perfc
from perfc.costmodels import load_target
from perfc.costmodels.reference import madmax_model, madmax_system
from perfc.frontends.reference import MadMaxStep, strategies
from perfc.planning.plans import Tiers
from perfc.tools.dedup import Deduplication, DedupQuestion, dedup
from perfc.tools.placing import (
    Placement,
    QueriedModel,
    place,
    read_plans,
    read_tiers,
)
from perfc.tools.placing import Question as PlaceQuestion
from perfc.tools.quantizing import Precision, Quantization, quantize
from perfc.tools.request import Request
from perfc.tools.sharding import (
    COSTS,
    PlanSearch,
    Sharding,
    ShardModel,
    shard,
    world_of,
)
from perfc.tools.strategies import (
    Comparison,
    MadMaxComparison,
    Question,
    StrategyModels,
    compare,
)


def report() -> perfc.Report:
    """Return a report of a training step."""
    name = "dlrm-ddp:tables=4,rows=1000"
    return perfc.analyze(name, "v100", mode="training", batch=64)


def sharding() -> Sharding:
    """Return plans of many tables, of which the best is analyzed whole."""
    target = load_target("dgx-a100")
    asked = Request(model="dlrm-ddp:tables=26,rows=1000", batch=64, mode="training")
    search = PlanSearch(
        types=("table_wise",),
        memory_bytes=None,
        tiers=Tiers(("hbm",)),
        method="greedy",
        seconds=1.0,
        given={},
        full=1,
        cost=COSTS["physical"],
    )
    model = ShardModel(request=asked, target=target, world=world_of(target, 2))
    return shard(model, search)


def placement() -> Placement:
    """Return tables in memory and on drives, and a plan with no drive."""
    question = PlaceQuestion(
        request=Request(model="dlrm-ddp:tables=4,rows=100000"),
        target=load_target("1s-server"),
        tiers=read_tiers("dram=40MB,optane=x2"),
        candidates=16,
        compare=read_plans("greedy,dram"),
    )
    return place(QueriedModel(question=question))


def comparison() -> Comparison:
    """Return strategies of a small transformer."""
    small = "gpt2:layers=2,hidden=64,heads=4,seq=32,vocab=503"
    asked = Request(model=small, batch=8, mode="training", target="dgx-a100")
    question = Question(
        models=StrategyModels.read(asked),
        target=load_target("dgx-a100"),
        ranks=(2,),
        method="fast",
    )
    return compare(question)


def madmax() -> MadMaxComparison:
    """Return strategies by the rules of MAD-Max."""
    system = madmax_system("zionex")
    return MadMaxComparison.of(
        MadMaxStep(
            model=madmax_model("dlrm_i"),
            system=system,
            ranks=8,
            strategy=strategy,
            batch=4096,
            training=True,
        )
        for strategy in strategies(8, system.gpus_per_node)
    )


def quantization() -> Quantization:
    """Return a model in 8 bits, beside the original and 16 bits."""
    asked = Request(model="dlrm-ddp:tables=2,rows=1000", batch=64, target="a100")
    types = Precision(embeddings="int8", linear="int8", compare=["fp16"])
    return quantize(asked, types)


def deduplication() -> Deduplication:
    """Return a step of sharded tables with lists of sessions deduplicated."""
    asked = Request(
        model="dlrm-ddp:tables=4,rows=1000",
        target="dgx-a100",
        batch=64,
        ranks=2,
        mode="training",
    )
    question = DedupQuestion(request=asked, session=4.0, stay="emb_l.*:0.9")
    return dedup(question)


def sweep() -> perfc.Sweep:
    """Price a workload at two batches, and in a type that a target has not."""
    return perfc.sweep(
        "dlrm-ddp:tables=2,rows=1000",
        "v100",
        {"batch": [64, 128], "dtype": ["fp32", "bf16"]},
    )
