"""Refit the shipped parameters, and write the table of docs/accuracy.md: `make fit`.

    python benchmarks/fit.py DATA [--what STEP]

DATA is a folder with `measurements/*.parquet` in `perfc.measurements/1`. The same data
give the same files: nothing is random, and rows are split by a hash of their sizes.
Half of them are fitted, a quarter sets the intervals, a quarter is only reported; the
shares are others for products on tensor cores (`perfc.fitting.samples`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import (
    ATTENTION_RESIDUAL_FILE,
    RESIDUAL_FILE,
    STREAMING,
    cost_models,
)
from perfc.costmodels.fitted_file import FOLDER, Parameters, fitted
from perfc.fitting import errors_of, fit_products, left_out, write_networks
from perfc.fitting.attention import (
    fit_attention,
    fit_attention_residual,
    formula_s,
)
from perfc.fitting.calls import fit_calls
from perfc.fitting.conv import conv_seconds, fit_convolutions
from perfc.fitting.fitted_text import Tables, fitted_text
from perfc.fitting.intervals import call_sigmas, kernel_sigmas, unseen_sigmas
from perfc.fitting.observations import LONG_EVENT_US
from perfc.fitting.samples import CALIBRATION, FITTED, TEST, Sample, samples_of
from perfc.fitting.streams import fit_stream
from perfc.measurements import read_columns

ACCURACY = Path(__file__).parents[1] / "docs" / "accuracy.md"
TABLE, LEFT_OUT = "make fit", "make fit, left out"
"""Marks of what is written there."""

STEPS = (
    *("event", "streams", "products", "attention", "convolutions"),
    *("intervals", "table"),
)
STREAMS = ("softmax", "layer_norm")
EVENT_SOURCES = (
    "NeuSight (MIT): fp32 operators on P4, P100, V100, T4, A100; torch 2.1, 25 calls "
    "without warm-up, mean of the 5 fastest"
)
SOURCES = (
    "NeuSight (MIT): fp32 on P4, P100, V100, T4, A100; "
    "aiconfigurator (Apache-2.0): CUDA graphs on A100, H100, L40S"
)
PRODUCT_SOURCE = (
    "NeuSight (MIT): fp32, event pairs, torch 2.1, of P100, V100, T4, A100; "
    "aiconfigurator (Apache-2.0): CUDA graphs, A100, H100, L40S (bf16: sglang 0.5.10)"
)


def long_rows(sample: Sample) -> Sample:
    """Return the rows that say more of the kernel than of the host."""
    least_s = LONG_EVENT_US * 1e-6 if sample.key.timing == "event" else 0.0
    return sample.take(np.flatnonzero(sample.measured_s > least_s))


def set_event(samples: Sequence[Sample]) -> None:
    """Write `fitted/event.toml`."""
    found = fit_calls(samples)
    single = {
        name: _rounded(value)
        for name, value in attrs.asdict(found).items()
        if isinstance(value, float)
    }
    tables = {
        name: {key: _rounded(value) for key, value in values.items()}
        for name, values in (("call_us", found.call_us), ("host", found.host))
    }
    print(single, tables)
    write_fitted("event", {"": single, **tables}, EVENT_SOURCES)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def fit_streams(samples: Sequence[Sample]) -> None:
    """Write `fitted/streaming.toml`."""
    tables: dict[str, Mapping[str, object]] = {}
    for op in STREAMS:
        chosen = [long_rows(s).of(FITTED) for s in samples if s.key.op == op]
        found = fit_stream(op, chosen)
        tables[op] = {name: float(f"{value:.4g}") for name, value in found.items()}
        print(op, tables[op])
    write_fitted("streaming", tables)


def fit_attentions(samples: Sequence[Sample]) -> None:
    """Write `fitted/attention.toml` and the networks beside it."""
    chosen = [s.of(FITTED) for s in samples if s.key.op == "attention"]
    groups = {s.target.device.architecture: [s] for s in chosen}
    tables: dict[str, Mapping[str, float]] = {}
    for name, group in {**groups, "all": chosen}.items():
        found = fit_attention(group)
        tables[name] = {key: float(f"{value:.4g}") for key, value in found.items()}
        print("attention", name, tables[name])
    networks = {
        (s.target.name, s.key.dtype): fit_attention_residual(
            s, tables[s.target.device.architecture]
        )
        for s in chosen
    }
    write_networks(networks, ATTENTION_RESIDUAL_FILE)
    write_fitted("attention", {f'"{name}"': found for name, found in tables.items()})


def fit_convs(samples: Sequence[Sample]) -> None:
    """Write `fitted/conv.toml`."""
    found = fit_convolutions([s.of(FITTED) for s in samples if s.key.op == "conv2d"])
    met_s = {**found.met_s, "other": float(np.median(list(found.met_s.values())))}
    tables = {
        name: {key: float(f"{value:.4g}") for key, value in values.items()}
        for name, values in (("kernel", found.kernel), ("met_s", met_s))
    }
    print("conv2d", tables)
    write_fitted("conv", tables)


def set_products(samples: Sequence[Sample]) -> None:
    """Write `fitted/gemm.toml` and the networks beside it."""
    found, networks = fit_products(samples)
    tables = {
        name: {key: float(f"{value:.4g}") for key, value in attrs.asdict(p).items()}
        for name, p in sorted(found.items())
    }
    write_fitted("gemm", tables, PRODUCT_SOURCE)
    write_networks(networks, RESIDUAL_FILE)


def left_out_lines(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the table of GPUs that are left out of the fit of products."""
    yield "| left out | n | MAPE | GMAE | p90 | max | bias | 10 rows: MAPE |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for found in left_out(samples):
        errors = found.errors
        cells = [errors.mape, errors.gmae, errors.p90, errors.max, errors.bias]
        cells.append(found.with_few)
        shown = " | ".join(f"{cell:.1%}".replace("%", " %") for cell in cells)
        yield f"| gemm {found.dtype}, {found.target} | {errors.rows:,} | {shown} |"


def set_intervals(samples: Sequence[Sample]) -> None:
    """Write `fitted/intervals.toml`, with the models as they are."""
    models = cost_models()
    calls = {
        f'call."{name}"': found
        for name, found in sorted(call_sigmas(samples, models).items())
    }
    write_fitted("intervals", {"kernel": {}, "call": {}, "unseen": {}, **calls})
    unseen = unseen_sigmas(left_out_logs(samples))
    kernels = {
        f'kernel."{name}"': found
        for name, found in sorted(kernel_sigmas(samples, models).items())
    }
    tables = {"kernel": {}, "call": {}, "unseen": unseen}
    write_fitted("intervals", {**tables, **kernels, **calls})


def left_out_logs(
    samples: Sequence[Sample],
) -> dict[str, list[NDArray[np.float64]]]:
    """Return ln(predicted / measured) by op and dtype, of each GPU left out.

    Not of attention: two GPUs with two libraries do not say how far off a third is.
    """
    found: dict[str, list[NDArray[np.float64]]] = {}
    for sample in samples:
        if sample.key.op == "attention":
            continue
        rows = long_rows(sample).of(CALIBRATION)
        seconds = left_out_seconds(sample, rows, samples)
        if seconds is not None:
            name = f"{sample.key.op} {sample.key.dtype}"
            found.setdefault(name, []).append(np.log(seconds / rows.measured_s))
    return found


def write_fitted(name: str, tables: Tables, source: str = SOURCES) -> None:
    """Write a file of fitted parameters, which models then read."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    text = fitted_text(tables, source, today, _shipped(name))
    (FOLDER / f"{name}.toml").write_text(text, encoding="utf-8")
    fitted.cache_clear()


@functools.cache
def _shipped(name: str) -> Parameters:
    """Return what a file holds before this step writes it, perhaps in two goes."""
    return fitted(name)


def table_lines(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the table of docs/accuracy.md: rows that are only reported."""
    yield (
        "| rows | n | MAPE | GMAE | p90 | max | bias | in 90 % | width | "
        "roofline/0.8 + 3 µs: MAPE | without this GPU: MAPE |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    models = cost_models()
    for sample in samples:
        rows = sample.of(TEST)
        if not len(rows):
            continue
        seconds, inside, width = rows.stated(models)
        errors = errors_of(seconds, rows.measured_s)
        roofline = errors_of(rows.roofline_s(), rows.measured_s)
        if errors is None or roofline is None:
            continue
        key = rows.key
        cells = [errors.mape, errors.gmae, errors.p90, errors.max, errors.bias]
        cells += [inside, width, roofline.mape]
        shown = " | ".join(f"{cell:.1%}".replace("%", " %") for cell in cells)
        left_out = left_out_error(sample, samples)
        yield (
            f"| {key.op} {key.dtype}, {key.target}, {key.timing} | {errors.rows:,} | "
            f"{shown} | {left_out} |"
        )


def set_tables(samples: Sequence[Sample]) -> None:
    """Put both tables into docs/accuracy.md."""
    write_table("\n".join(table_lines(samples)), TABLE)
    write_table("\n".join(left_out_lines(samples)), LEFT_OUT)


def write_table(text: str, name: str) -> None:
    """Put a table into docs/accuracy.md, between its marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = ACCURACY.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    ACCURACY.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def left_out_error(sample: Sample, samples: Sequence[Sample]) -> str:
    """Return the error on a GPU whose rows were left out of the fit."""
    rows = sample.of(TEST)
    seconds = left_out_seconds(sample, rows, samples)
    errors = None if seconds is None else errors_of(seconds, rows.measured_s)
    return "" if errors is None else f"{errors.mape:.1%}".replace("%", " %")


def left_out_seconds(
    sample: Sample, rows: Sample, samples: Sequence[Sample]
) -> NDArray[np.float64] | None:
    """Predict *rows* of *sample*, whose GPU is left out of the fit; None: no fit."""
    op = sample.key.op
    others = [
        long_rows(s).of(FITTED)
        for s in samples
        if s.key.op == op and s.key.target != sample.key.target
    ]
    if op in STREAMS:
        return rows.predicted_s(STREAMING.with_fit(op, fit_stream(op, others)))
    if op == "attention":
        return rows.timed_s(formula_s(rows, fit_attention(others)))
    if op == "conv2d":
        # What a call takes belongs to the host, which is not left out.
        return rows.timed_s(conv_seconds(rows, fit_convolutions(others).kernel))
    return None


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--what", choices=STEPS)
    options = parser.parse_args()
    if options.what is None:
        # Each step begins anew with the models that the one before has fitted.
        for step in STEPS:
            command = [sys.executable, __file__, str(options.data), "--what", step]
            subprocess.run(command, check=True)  # noqa: S603 - our own
        return
    files = sorted((options.data / "measurements").glob("*.parquet"))
    samples = [s for file in files for s in samples_of(read_columns(file))]
    steps = {
        "event": set_event,
        "streams": fit_streams,
        "products": set_products,
        "attention": fit_attentions,
        "convolutions": fit_convs,
        "intervals": set_intervals,
        "table": set_tables,
    }
    steps[options.what](samples)


if __name__ == "__main__":
    main()
