"""The intervals of kernels, and whose rows set them, in a step of `make fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from training.intervals import call_sigmas, kernel_sigmas
from training.priced_rows import named
from training.samples import Sample, samples_of
from training.unseen import Unseen
from training.unseen_intervals import unseen_sigmas

from perfc.costmodels import COLLECTIVES, cost_models, load_target
from perfc.measurements import MeasuredColumns

Write: TypeAlias = Callable[[str, Mapping[str, Mapping[str, object]]], None]
"""Function that writes a file of fitted parameters."""


def set_intervals(
    samples: Sequence[Sample], unseen: Unseen, shipped: Mapping[str, Any], write: Write
) -> None:
    """Write `fitted/intervals.toml`, with the models as they are.

    Args:
        samples: All rows.
        unseen: What GPUs left out take.
        shipped: The file as it is: what it has of kernels that no sample is of stays.
        write: Writes the file.

    """
    models = cost_models()
    calls = {
        f'call."{name}"': found
        for name, found in sorted(call_sigmas(samples, models).items())
    }
    none: dict[str, Mapping[str, object]] = {"kernel": {}, "call": {}}
    write("intervals", {**none, "chip": {}, "unseen": {}, **calls})
    sigmas = unseen_sigmas(unseen.calibrating())
    found = kernel_sigmas(samples, models)
    kept: Mapping[str, Mapping[str, object]] = shipped.get("kernel", {})
    gpus = sorted({*found, *kept})
    kernels = {
        f'kernel."{gpu}"': {**kept.get(gpu, {}), **found.get(gpu, {})} for gpu in gpus
    }
    tables = {**none, "chip": {gpu: _chip(gpu) for gpu in gpus}, "unseen": sigmas}
    write("intervals", {**tables, **kernels, **calls})


def _chip(gpu: str) -> list[object]:
    """Return capability and SMs, by which GPUs of one chip are known."""
    device = load_target(gpu).device
    return [device.compute_capability, device.sm_count]


def set_interval_rows(
    tables: Sequence[MeasuredColumns], shipped: Mapping[str, Any], write: Write
) -> None:
    """Write `fitted/interval_rows.toml`: the sources of rows that set each interval.

    Args:
        tables: All rows.
        shipped: The file as it is: what it has of kernels that no table has stays.
        write: Writes the file.

    """
    found: dict[str, dict[str, set[str]]] = {}
    for rows in tables:
        for sample in samples_of(rows):
            if sample.key.op in COLLECTIVES:
                continue
            sources = _sources(rows, sample)
            for name, _ in named(sample):
                of_gpu = found.setdefault(sample.key.target, {})
                of_gpu.setdefault(name, set()).update(sources)
    kept: Mapping[str, Mapping[str, object]] = shipped.get("rows", {})
    of_gpus = {
        f'rows."{gpu}"': {
            **kept.get(gpu, {}),
            **{name: sorted(each) for name, each in found.get(gpu, {}).items()},
        }
        for gpu in sorted({*found, *kept})
    }
    none: dict[str, Mapping[str, object]] = {"rows": {}}
    write("interval_rows", {**none, **of_gpus})


def _sources(rows: MeasuredColumns, sample: Sample) -> set[str]:
    """Return who measured the rows of a table that are like a sample's."""
    key = sample.key
    wanted = ((rows.target, key.target), (rows.op, key.op), (rows.dtype, key.dtype))
    mine = rows.timing.at == rows.timing.values.index(key.timing)
    for column, value in wanted:
        mine &= column.at == column.values.index(value)
    return {rows.source.values[number] for number in set(rows.source.at[mine].tolist())}
