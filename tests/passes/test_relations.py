"""Relations between times of whole models, whatever the model, target and runtime."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

import perfc
from perfc.costmodels import load_target, target_names
from perfc.frontends import WORKLOADS

BATCHES: Mapping[str, Sequence[int]] = {
    "bert-base:layers=1": (1, 2, 3, 4, 6, 8, 12, 16, 32, 96),
    "gpt2:layers=1": (1, 2, 3, 4, 5, 8),
    "resnet50": (1, 2, 3, 4, 8, 16, 64),
    "inception-v3": (1, 2, 4, 8, 32, 64),
    "dlrm-ddp": (64, 128, 256, 512, 1024, 4096),
    "dlrm-default": (7, 64, 100, 512, 2048, 8192),
}

JOINED = ("dlrm-ddp", "dlrm-default")
"""Models that join more than eight lookups. Inductor writes each into its place by a
kernel of its own (`cat` in `lowering.py`, `max_pointwise_cat_inputs`; `ConcatKernel` in
`ir.py`, which makes one kernel of a graph's inputs only; PyTorch 2.13); eager PyTorch
has one for all, so that compiled kernels may take longer."""

SAMPLED = [
    ("bert-base:layers=1", "inference", "h100"),
    ("bert-base:layers=1", "training", "a100"),
    ("dlrm-ddp", "inference", "l4"),
]

MODES = ("inference", "training")
GPUS = [name for name in target_names() if load_target(name).device.runs_cuda]
ALL = list(itertools.product(BATCHES, MODES, GPUS))

FALLS = 0.985
"""How far a time may fall with the batch: of few rows Inductor cuts a sum into parts,
which cost a launch (`Reduction.num_splits`)."""

NEAR = 1.005
"""How near two ways of doing the same are alike."""

Key = tuple[str, str]
"""Runtime and type."""

Times = Mapping[Key, tuple[float, float]]
"""Time of an iteration, and that in which the GPU is busy, in microseconds."""


def times_us(name: str, mode: str, gpu: str, batch: int) -> Times:
    """Predict a model in all runtimes and types."""
    model, target = perfc.load(name, batch=batch, mode=mode), load_target(gpu)
    found: dict[Key, tuple[float, float]] = {}
    for key in itertools.product(("eager", "cudagraph", "compiled"), ("fp32", "tf32")):
        report = perfc.analyze(model, target, runtime=key[0], dtype=key[1])
        found[key] = report.time_us, report.summary["gpu_active_us"]
    return found


def faults(name: str, mode: str, gpu: str) -> list[str]:
    """Return what cannot be in the times of a model by batch."""
    by_batch = {batch: times_us(name, mode, gpu, batch) for batch in BATCHES[name]}
    found = [
        f"{key}: {after} samples take {later[key][0]:.1f} us, {before} take "
        f"{earlier[key][0]:.1f}"
        for (before, earlier), (after, later) in itertools.pairwise(by_batch.items())
        for key in later
        if later[key][0] < FALLS * earlier[key][0]
    ]
    for batch, times in by_batch.items():
        for (runtime, dtype), (us, busy_us) in times.items():
            if us > NEAR * times[runtime, "fp32"][0]:
                found.append(f"{runtime}, {batch}: TF32 is slower than fp32")
            eager_us, eager_busy_us = times["eager", dtype]
            if runtime == "eager" or name in JOINED:
                continue
            if us > NEAR * eager_us or busy_us > NEAR * eager_busy_us:
                found.append(f"{dtype}, {batch}: {runtime} is slower than eager")
    return found


@pytest.mark.parametrize(("name", "mode", "gpu"), SAMPLED)
def test_relations_hold_for_some_models(name: str, mode: str, gpu: str) -> None:
    """A larger batch, fp32 in place of TF32, and eager in place of compiled: slower."""
    assert faults(name, mode, gpu) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode", "gpu"), ALL)
def test_relations_hold(name: str, mode: str, gpu: str) -> None:
    """The same of every model, on every GPU that is known."""
    assert faults(name, mode, gpu) == []


@pytest.mark.parametrize(
    ("name", "mode", "target", "batches"),
    [
        ("dlrm-zion", "inference", "2s-icelake", (1, 2, 63, 64)),
        ("dlrm-ddp", "inference", "2s-icelake", (1, 2, 63, 64, 255, 256)),
        ("deeprecsys-rm3", "inference", "cpu", (1, 2, 31, 32, 63, 64, 127, 128)),
        ("wide-and-deep", "inference", "1s-server", (1, 2, 63, 64)),
        ("gpt2:layers=1", "training", "a100", (64, 65)),
        ("gpt3-2.7b:layers=1", "inference", "a100", (32, 33)),
        ("switch-xl-4:layers=2", "inference", "a100", (128, 129)),
    ],
)
def test_no_larger_batch_is_faster(
    name: str, mode: str, target: str, batches: tuple[int, ...]
) -> None:
    """Also not where a model's GEMMs become those of other kernels, or of all cores."""
    oracle = perfc.Oracle(name, target, batch=8, mode=mode)
    times_us = oracle.batch({"batch": batches})["time_us"].tolist()

    assert all(after > 0.99 * before for before, after in itertools.pairwise(times_us))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_compiled_is_no_slower(name: str, mode: str) -> None:
    """Any built-in model, whose lookups are joined few at a time (`JOINED`)."""
    parameters = WORKLOADS[name].parameters
    small = {"layers": "2", "embedding": "batched"}
    chosen = ",".join(f"{n}={value}" for n, value in small.items() if n in parameters)
    model = perfc.load(f"{name}:{chosen}" if chosen else name, batch=4, mode=mode)
    eager, compiled = (
        perfc.analyze(model, "h100", runtime=runtime).time_us
        for runtime in ("eager", "compiled")
    )

    assert compiled <= 1.01 * eager


@pytest.mark.parametrize("gpu", ["a100", "l4"])
def test_a_convolution_that_fp32_does_sooner_stays_in_fp32(gpu: str) -> None:
    """Of few images layouts are not turned for tensor cores; of many they are."""
    launches: list[list[int]] = []
    for batch in (1, 64):
        model = perfc.load("inception-v3", batch=batch)
        reports = [
            perfc.analyze(model, gpu, passes=[f"lower-kernels{{cudnn-tf32={allowed}}}"])
            for allowed in ("false", "true")
        ]
        launches.append([report.summary["launches"] for report in reports])

    (few_fp32, few_tf32), (many_fp32, many_tf32) = launches
    assert few_tf32 <= few_fp32
    assert many_tf32 > many_fp32
