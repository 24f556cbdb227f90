"""Public traces with shapes: how much of them perfc prices, and how far off it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfc.costmodels import load_target
from perfc.ir import TaskKind
from perfc.tools.replay.kernel_prices import By, TracePrices, trace_prices
from perfc.tools.replay.recorded_ops import trace_ops
from perfc.tools.replay.rescale import Method, Rescaling
from perfc.tools.replay.trace_files import read_recorded
from perfc.tools.replay.trace_target import target_of_trace
from perfc.traces import Recorded

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACES = DATA / "traces"

pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the public traces are not here; set PERFC_DATA"
)

PARAM = "dlrm_torchrec_8xV100_param"
VIT = "Falconsai_nsfw_image_detection"


def _prices(*names: str) -> TracePrices:
    (recorded,) = read_recorded([TRACES / f"{name}.json.gz" for name in names])
    target = target_of_trace(recorded, None, "--target")
    return trace_prices(trace_ops(recorded), target)


@pytest.mark.parametrize(
    ("names", "share", "error"),
    [
        (("linear_2080ti_param", "linear_2080ti_param_et"), 0.95, 0.15),
        (("resnet50_v100dgxs_tb_nw4_6351",), 0.94, 0.10),
        (("megatron_gpt_tp8_8xA100/kineto_r3", "megatron_gpt_tp8_8xA100/et_r3"), 0.65,
         0.10),
        ((f"{PARAM}/kineto_w0", f"{PARAM}/et_0"), 0.70, 0.45),
        (("tl_h100_Qwen_Qwen1.5-0.5B-Chat",), 0.88, 0.10),
        (("ao_b200_syncless_ep_moe",), 0.31, 0.15),
        ((f"tl_h100_{VIT}",), 0.98, 0.45),
        ((f"tl_mi300_{VIT}",), 0.98, 0.45),
        (("dlrmprod_a100_hta_control",), 0.42, 0.45),
    ],
)  # fmt: skip
def test_predicted_kernels(names: tuple[str, ...], share: float, error: float) -> None:
    """At least a share of the device's time without collectives is priced by models."""
    prices = _prices(*names)

    recorded = prices.ops.recorded
    stated_s = recorded.graph.stated_s
    by_model = {t: p for t, p in prices.prices.items() if p.by is By.MODEL}
    measured_s = sum(stated_s[task] for task in by_model)
    predicted_s = sum(price.seconds for price in by_model.values())
    own = [task for task, work in recorded.works.items() if not work.is_collective]
    assert measured_s / sum(stated_s[task] for task in own) > share
    assert abs(predicted_s / measured_s - 1) < error


@pytest.mark.parametrize(
    ("origin", "other", "target"),
    [("h100", "mi300", "mi300x"), ("mi300", "h100", "h100")],
)
def test_one_model_on_two_gpus(origin: str, other: str, target: str) -> None:
    """ViT on H100 and MI300X: by ratios within 14 %, by waves far off."""
    prices = _prices(f"tl_{origin}_{VIT}")
    (there,) = read_recorded([TRACES / f"tl_{other}_{VIT}.json.gz"])
    measured_s = sum(there.graph.stated_s[task] for task in there.works)
    device = load_target(target)

    errors = {
        method: sum(one.seconds for one in rescaled.scaled.values()) / measured_s - 1
        for method in (Method.MODEL, Method.WAVE)
        for rescaled in [Rescaling(prices.ops, prices, method).to(device)]
    }

    assert abs(errors[Method.MODEL]) < 0.14
    assert abs(errors[Method.WAVE]) > 0.25


@pytest.mark.parametrize(
    "name",
    [
        "v100dgxs_tb_nw0_9861",
        pytest.param("v100dgxs_tb_nw4_6351", marks=pytest.mark.slow),  # its neighbour
        "v100_hta_ns",
    ],
)
def test_a_cnn_goes_to_a_gpu_with_tf32(name: str) -> None:
    """ResNet-50 from V100 to A100, each with 32 images: kernels within 8 %.

    In fp32, in which PyTorch does not run it there, they would take 1.6 times as long
    or more. The last one does not tell sizes: its convolutions are typical ones.
    """
    prices = _prices(f"resnet50_{name}")
    (there,) = read_recorded([TRACES / "resnet50ddp_a100_hta_nccl.json.gz"])
    device = load_target("a100-sxm-40g")
    measured_s = _kernels_s(there, dict(enumerate(there.graph.stated_s)))

    predicted_s = {
        tf32: _kernels_s(prices.ops.recorded, {t: one.seconds for t, one in scaled})
        for tf32 in (True, False)
        for rescaling in [Rescaling(prices.ops, prices, tf32=tf32)]
        for scaled in [rescaling.to(device).scaled.items()]
    }

    assert abs(predicted_s[True] / measured_s - 1) < 0.08
    assert predicted_s[False] / measured_s > 1.6


def _kernels_s(recorded: Recorded, seconds: Mapping[int, float]) -> float:
    """Return the seconds of the kernels of a step, collectives and copies left out."""
    kinds = recorded.graph.kind
    kernels = [task for task, kind in enumerate(kinds) if kind is TaskKind.KERNEL]
    return sum(seconds[task] for task in kernels) / len(recorded.steps)
