"""Whole workloads that are measured on a GPU, in order of worth.

A run that is cut off has measured a beginning of the list: each is useful. What is
measured here is never fitted to: every row is `test`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import attrs


def passes(dtype: str) -> tuple[str]:
    """Return passes for `perfc analyze`, as PyTorch runs where these are measured.

    It is built with CUDA 13, and `perfc measure` leaves TF32 on for *dtype* tf32 only.
    """
    tf32 = str(dtype == "tf32").lower()
    return (f"lower-kernels{{large-arguments=true,cudnn-tf32={tf32}}}",)


_MODES = ("training", "inference")
_RUNTIMES = ("eager", "cudagraph")

_MLPERF = "dlrm-mlperf:max_rows=1000000"
"""Criteo's tables as they are take more memory than a GPU has."""

_RESNET, _INCEPTION = (
    f"{model}:batch_norm=separate" for model in ("resnet50", "inception-v3")
)
"""CNNs as PyTorch runs them; by default, batch norm is folded into convolutions."""

_DCNV2 = "dcnv2-mlperf:max_rows=1000000"


@attrs.frozen(kw_only=True)
class Planned:
    """One iteration of a model, as `perfc analyze` and `perfc measure` name it.

    Attributes:
        model: A built-in workload with its parameters, `NAME:key=value,...`.
        batch: Samples in the batch.
        mode: training or inference.
        runtime: eager or cudagraph.
        dtype: What it computes in, as `--dtype` says.
        optimizer: Of a training step; empty in inference.
        attention: `auto`, or the only algorithm that PyTorch may choose.

    """

    model: str
    batch: int
    mode: str
    runtime: str = "eager"
    dtype: str = "fp32"
    optimizer: str = attrs.field()
    attention: str = "auto"

    @optimizer.default
    def _sgd(self) -> str:
        return "sgd" if self.mode == "training" else ""

    @property
    def name(self) -> str:
        """The workload without its parameters."""
        return self.model.partition(":")[0]

    def __str__(self) -> str:
        mode = f"{self.mode} {self.optimizer}".strip()
        forced = [] if self.attention == "auto" else [f"{self.attention} attention"]
        words = (self.model, f"batch {self.batch}", mode, self.dtype, self.runtime)
        return ", ".join([*words, *forced])


def planned() -> tuple[Planned, ...]:
    """Return all settings, the most useful first, each once."""
    groups = (_recommenders(), _transformers(), _narrow(), _others())
    return tuple(dict.fromkeys(setting for group in groups for setting in group))


def _both(model: str, *batches: int, dtype: str = "fp32") -> Iterator[Planned]:
    """Yield every batch in both modes and both runtimes."""
    for batch, mode, runtime in product(batches, _MODES, _RUNTIMES):
        yield Planned(model=model, batch=batch, mode=mode, runtime=runtime, dtype=dtype)


def _training(model: str, batch: int, optimizer: str, dtype: str = "fp32") -> Planned:
    return Planned(
        model=model, batch=batch, mode="training", optimizer=optimizer, dtype=dtype
    )


def _recommenders() -> Iterator[Planned]:
    for batch in (2048, 512, 4096):
        for model in ("dlrm-default", _MLPERF, "dlrm-ddp"):
            yield from _both(model, batch)
    yield _training("dlrm-ddp", 2048, "adagrad")
    yield _training("dlrm-ddp", 2048, "rowwise_adagrad")
    yield _training(_MLPERF, 2048, "rowwise_adagrad")
    yield _training(_MLPERF, 2048, "sgd", "tf32")
    yield Planned(model=_MLPERF, batch=2048, mode="inference", dtype="tf32")
    yield _training("dlrm-ddp:places=host", 2048, "sgd")


def _transformers() -> Iterator[Planned]:
    for batches in ((16, 4, 128), (1, 1, 32)):
        for model, batch in zip(("bert-base", "gpt2", _RESNET), batches, strict=True):
            yield from _both(model, batch)


def _narrow() -> Iterator[Planned]:
    """Yield tensor cores, with the attention that PyTorch chooses and with flash."""
    for dtype, mode in product(("tf32", "bf16"), _MODES):
        for model, batch in (("bert-base", 16), ("gpt2", 4), (_RESNET, 128)):
            chosen = "amp-bf16" if (dtype, mode) == ("bf16", "training") else dtype
            one = Planned(model=model, batch=batch, mode=mode, dtype=chosen)
            yield one
            if dtype == "bf16" and model != _RESNET:
                yield attrs.evolve(one, attention="flash")
    yield _training("gpt2", 4, "adamw")


def _others() -> Iterator[Planned]:
    yield from _both(_DCNV2, 2048)
    for model in ("deeprecsys-rm1", "deeprecsys-rm2", "deeprecsys-rm3"):
        yield Planned(model=model, batch=256, mode="inference")
    for model, batch in (("wide-and-deep", 2048), ("deepfm", 2048)):
        for mode in _MODES:
            yield Planned(model=model, batch=batch, mode=mode)
    for mode in _MODES:
        yield Planned(model=_INCEPTION, batch=32, mode=mode)
        yield Planned(model="bert-large", batch=8, mode=mode)
    yield _training("bert-large", 8, "sgd", "amp-bf16")


def planned_on_cpu() -> tuple[Planned, ...]:
    """Return settings for a rehearsal and a selfcheck: a minute or two on a CPU."""
    sizes = (
        ("dlrm-ddp:rows=10000", 128),
        ("gpt2:layers=2,hidden=128,heads=4,seq=64,vocab=1000", 4),
        ("resnet50:image=64", 4),
        ("deeprecsys-rm3:rows=10000", 64),
    )
    return tuple(
        Planned(model=model, batch=batch, mode=mode)
        for model, batch in sizes
        for mode in _MODES
    )
