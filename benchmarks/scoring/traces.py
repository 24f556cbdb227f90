"""Recorded steps of other people: run again, with kernels predicted, on other GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from published.replays import runs, step_errors

from perfc.costmodels import load_target
from perfc.ir import TaskKind
from perfc.tools.replay import (
    Method,
    Rescaling,
    TracePrices,
    read_recorded,
    target_of_trace,
    trace_ops,
    trace_prices,
)
from perfc.tools.replay.kernel_prices import By
from perfc.traces import Recorded
from scoring.group import Group

PRICED: Mapping[str, Sequence[str]] = {
    "linear layers, RTX 2080 Ti": ("linear_2080ti_param", "linear_2080ti_param_et"),
    "ResNet-50, V100": ("resnet50_v100dgxs_tb_nw0_9861",),
    "ResNet-50 again, V100": ("resnet50_v100dgxs_tb_nw4_6351",),
    "Megatron GPT, A100-80G": (
        "megatron_gpt_tp8_8xA100/kineto_r3",
        "megatron_gpt_tp8_8xA100/et_r3",
    ),
    "DLRM, V100": (
        "dlrm_torchrec_8xV100_param/kineto_w0",
        "dlrm_torchrec_8xV100_param/et_0",
    ),
    "DLRM in production, A100-40G": ("dlrmprod_a100_hta_control",),
    "Qwen1.5-0.5B, H100": ("tl_h100_Qwen_Qwen1.5-0.5B-Chat",),
    "ViT-base, H100": ("tl_h100_Falconsai_nsfw_image_detection",),
    "ViT-base, MI300X": ("tl_mi300_Falconsai_nsfw_image_detection",),
    "mixture of experts, B200": ("ao_b200_syncless_ep_moe",),
}
"""Traces that record shapes, one rank of each run, with their execution traces."""

VIT = "Falconsai_nsfw_image_detection"
CNNS = ("v100dgxs_tb_nw0_9861", "v100dgxs_tb_nw4_6351", "v100_hta_ns")
"""Traces of ResNet-50 on a V100, as many images as in the one on an A100."""

WAVES = "wave scaling"


def of_replays(data: Path) -> Iterator[Group]:
    """Yield traces that are run again with their measured kernels."""
    found = list(runs(data / "traces"))
    own = "replay, own kernels and host"
    for name, errors in (
        (own, [[one.error for one in run.alone] for run in found]),
        (f"{own}, steps", [step_errors(run.alone) for run in found]),
        (f"{own}, ranks together", [[one.error for one in run.joint] for run in found]),
        ("replay, host of the other ranks", [run.by_others for run in found]),
        ("replay, host of the steps before", [run.by_steps for run in found]),
    ):
        yield _of_runs(name, errors)


def _of_runs(name: str, errors: Sequence[Sequence[float]]) -> Group:
    units = np.repeat(np.arange(len(errors)), [len(each) for each in errors])
    logs = np.log1p(np.concatenate([np.array(each) for each in errors]))
    return Group("trace", name, logs, units=units)


def of_trace_kernels(data: Path) -> Iterator[Group]:
    """Yield all kernels of a trace that a model of their op prices, as one sum."""
    pairs: dict[str, tuple[float, float]] = {}
    for name, files in PRICED.items():
        prices = _prices(data / "traces", *files)
        stated_s = prices.ops.recorded.graph.stated_s
        by_model = {t: p for t, p in prices.prices.items() if p.by is By.MODEL}
        pairs[name] = (
            sum(price.seconds for price in by_model.values()),
            sum(stated_s[task] for task in by_model),
        )
    for name, pair in pairs.items():
        what = f"kernels of {name}, sum"
        yield Group.of_pairs("trace", what, [pair], family="kernels of a trace, sum")


def of_rescaled(data: Path) -> Iterator[Group]:
    """Yield kernels of a trace carried over to a GPU that has a trace of its own."""
    found: list[tuple[float, float, float]] = []
    for origin, other, target in (
        ("h100", "mi300", "mi300x"),
        ("mi300", "h100", "h100"),
    ):
        prices = _prices(data / "traces", f"tl_{origin}_{VIT}")
        (there,) = _read(data / "traces", f"tl_{other}_{VIT}")
        measured_s = sum(there.graph.stated_s[task] for task in there.works)
        by_method = [
            sum(one.seconds for one in rescaled.scaled.values())
            for method in (Method.MODEL, Method.WAVE)
            for rescaled in [
                Rescaling(prices.ops, prices, method).to(load_target(target))
            ]
        ]
        found.append((by_method[0], by_method[1], measured_s))
    (there,) = _read(data / "traces", "resnet50ddp_a100_hta_nccl")
    measured_s = _kernels_s(there, dict(enumerate(there.graph.stated_s)))
    for name in CNNS:
        prices = _prices(data / "traces", f"resnet50_{name}")
        by_method = [
            _kernels_s(prices.ops.recorded, {t: one.seconds for t, one in scaled})
            for method in (Method.MODEL, Method.WAVE)
            for rescaling in [Rescaling(prices.ops, prices, method, tf32=True)]
            for scaled in [rescaling.to(load_target("a100-sxm-40g")).scaled.items()]
        ]
        found.append((by_method[0], by_method[1], measured_s))
    model_s, wave_s, measured = np.array(found).T
    yield Group(
        "trace",
        "rescale, kernels on the other GPU",
        np.log(model_s / measured),
        units=np.array([0, 1, 2, 2, 2]),
        beside={WAVES: np.log(wave_s / measured)},
    )


def _kernels_s(recorded: Recorded, seconds: Mapping[int, float]) -> float:
    """Return the seconds of the kernels of a step, collectives and copies left out."""
    kinds = recorded.graph.kind
    kernels = [task for task, kind in enumerate(kinds) if kind is TaskKind.KERNEL]
    return sum(seconds[task] for task in kernels) / len(recorded.steps)


def _prices(folder: Path, *names: str) -> TracePrices:
    (recorded,) = _read(folder, *names)
    return trace_prices(
        trace_ops(recorded), target_of_trace(recorded, None, "--target")
    )


def _read(folder: Path, *names: str) -> list[Recorded]:
    return read_recorded([folder / f"{name}.json.gz" for name in names])
