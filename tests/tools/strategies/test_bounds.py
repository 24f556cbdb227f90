"""Bounds of strategies are bounds: of what the whole pipeline says, for any model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.ir import PerfcError
from perfc.planning.strategies import Strategy, StrategySpace
from perfc.tools.request import Request
from perfc.tools.strategies.models import StrategyModels
from perfc.tools.strategies.pricer import Pricer

_GPT = "gpt2:layers={},hidden=64,heads=4,seq=32,vocab=503"
_BERT = "bert-base:layers={},hidden=64,heads=4,seq=32,vocab=503"
_MODELS = (
    *(text.format(layers) for text in (_GPT, _BERT) for layers in (1, 3, 6)),
    "dlrm-ddp:tables=3,rows=5000",
    "deepfm:tables=3,rows=5000",
    "resnet50:image=64",
)
_OPTIMIZERS = st.sampled_from(("sgd", "adam", "rowwise_adagrad"))


def _pricer(model: str, batch: int, optimizer: str | None, **how: Any) -> Pricer:
    target = load_target("dgx-a100", {})
    mode = "inference" if optimizer is None else "training"
    asked = Request(model=model, mode=mode, optimizer=optimizer, **how)
    return Pricer(
        models=StrategyModels.read(asked),
        target=target,
        batch=batch,
        fixed=None,
        limit_bytes=float(target.device.memory.usable_bytes),
    )


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(_MODELS),
    st.sampled_from((2, 3, 4, 6, 8)),
    st.sampled_from((1, 4, 64)),
    st.sampled_from((None, 2, 4)),
    st.one_of(st.none(), _OPTIMIZERS),
    st.sampled_from(("fp32", "amp-bf16", "bf16")),
    st.sampled_from(("eager", "cudagraph")),
    st.data(),
)
def test_no_strategy_takes_less_than_its_bound(
    model: str,
    ranks: int,
    own: int,
    accumulate: int | None,
    optimizer: str | None,
    dtype: str,
    runtime: str,
    data: st.DataObject,
) -> None:
    """Neither time nor memory, on any number of GPUs: fast finds what all would."""
    pricer = _pricer(model, ranks * own, optimizer, dtype=dtype, runtime=runtime)
    space = StrategySpace(
        ranks=ranks,
        gpus_per_node=8,
        tables=model.startswith(("dlrm", "deepfm")),
        training=optimizer is not None,
        batch=ranks * own,
        accumulate=accumulate,
    )
    strategies = [one for one in space if isinstance(one, Strategy)]
    assume(strategies)
    strategy = data.draw(st.sampled_from(strategies))

    try:
        price = pricer.price(strategy)
    except PerfcError:
        return  # it cannot be, which the search says
    bound = pricer.bound(strategy)

    assert price.step_s >= bound.step_s
    assert price.peak_bytes >= bound.peak_bytes
    assert price.samples == bound.samples


@pytest.mark.parametrize(
    "strategy",
    [Strategy(replicas=4), Strategy(replicas=1, stages=4, microbatches=8)],
)
def test_a_bound_is_worth_its_name(strategy: Strategy) -> None:
    """It is no less than half of what a step takes where the host is no limit."""
    pricer = _pricer(_GPT.format(6), 64, "adam", dtype="fp32", runtime="cudagraph")

    assert pricer.bound(strategy).step_s > 0.5 * pricer.price(strategy).step_s
