"""Refit the shipped parameters: `make fit`. How far off they are says `make accuracy`.

    python benchmarks/fit.py DATA [--what STEP]

DATA is a folder with `measurements/*.parquet` in `perfc.measurements/1`, and for host
profiles `traces` and `dlrm_v100`. The same data give the same files: nothing is random,
and rows are split by a hash of their sizes. Half of them are fitted, a quarter sets
the intervals, a quarter is only reported; the shares are others for GEMMs on tensor
cores (`training.samples`). Networks of GEMMs are fitted to all rows, which are
reported as networks say that lack them (`training.cross_fit`). GEMMs without tensor
cores on SMs of 128 lanes, and in tf32, are fitted to perfc's own rows in
`benchmarks/rows`. Rows that a table marks `split=test` are only reported, whatever the
hash says.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from fits.collectives import set_collectives
from fits.errors import set_errors
from fits.hosts import set_hosts
from fits.intervals import set_interval_rows, set_intervals
from training.attention import fit_attention, fit_attention_residual
from training.calls import Sessions, fit_calls, fit_gaps
from training.conv import fit_convolutions
from training.cross_fit import cross_fitted
from training.fitted_text import Tables, fitted_text
from training.gemm_calls import fit_gemm_shares
from training.network_fit import write_networks
from training.samples import Sample, samples_of, to_fit
from training.shipped_gemms import fit_shipped_gemms, shipped
from training.streams import APART, KINDS, fit_kind, fit_memory
from training.unseen import MEMORY_OPS, Unseen, of_ops

from perfc.costmodels import COLLECTIVES
from perfc.costmodels.attention import ATTENTION_RESIDUAL_FILE
from perfc.costmodels.fitted_files.fitted_file import FITTED_FOLDER, Parameters, fitted
from perfc.costmodels.gemm import RESIDUAL_FILE
from perfc.measurements import MeasuredColumns, read_columns

STEPS = (
    *("hosts", "streams", "gemms", "attention", "convolutions", "collectives"),
    *("intervals", "errors"),
)
SOURCES = (
    "NeuSight (MIT): fp32 on P4, P100, V100, T4, A100; "
    "aiconfigurator (Apache-2.0): CUDA graphs on A100, H100, L40S"
)
ROWS = Path(__file__).parent / "rows"

GEMM_SOURCE = (
    "NeuSight (MIT): fp32, event pairs, torch 2.1, of P100, V100, T4, A100; "
    "aiconfigurator (Apache-2.0): CUDA graphs, A100, H100, L40S (bf16: sglang 0.5.10); "
    "perfc: fp32, tf32 and fp8, CUDA graphs, torch 2.11, H100"
)


def set_streams(samples: Sequence[Sample]) -> None:
    """Write `fitted/event.toml`, `memory.toml` and `streaming.toml`."""
    found = fit_calls(samples)
    around: dict[str, Mapping[str, object]] = {
        "": _shortened(
            {
                "other_host": found.other_host,
                "sigma": found.sigma,
                "sigma_other_host": found.sigma_other_host,
            }
        ),
        "call_us": _shortened(found.call_us),
        "host": _shortened(found.host),
        "graph_gap_us": _shortened(fit_gaps(samples)),
        "call": {},
        **{f'call."{name}"': _shortened(us) for name, us in found.known_us.items()},
        "session": {},
        **{
            f'session."{name}"': {call: _listed(each) for call, each in calls.items()}
            for name, calls in found.sessions.items()
        },
    }
    write_fitted("event", {**around, "share": {"default": 0.5}}, SOURCES)
    memory = fit_memory(of_ops(samples, MEMORY_OPS))
    kinds = {op: fit_kind(op, of_ops(samples, {op}), memory.model) for op in KINDS}
    shares = {op: kind.share for op, kind in kinds.items()}
    shares["default"] = memory.share
    shares |= fit_gemm_shares(samples)
    write_fitted("event", {**around, "share": _shortened(shares)})
    write_fitted("memory", {"rates": _shortened(memory.values)})
    streams = {op: _shortened(kind.values) for op, kind in kinds.items()}
    for op, capabilities in APART.items():
        for capability in sorted(capabilities):
            rows = _on_capability(of_ops(samples, {op}), capability)
            own = fit_kind(op, rows, memory.model)
            streams[f'"{capability}"."{op}"'] = _shortened(own.values)
    write_fitted("streaming", {**streams, **_own_streams()})
    print(_shortened(shares), memory.values, [kind.values for kind in kinds.values()])


def _on_capability(samples: Sequence[Sample], capability: str) -> list[Sample]:
    return [s for s in samples if s.target.device.compute_capability == capability]


def _own_streams() -> dict[str, Mapping[str, object]]:
    """Return the tables of architectures, from perfc's own rows: they stay as they are.

    They hold uncertainties that those rows say, and start at no shipped number.
    """
    known: Mapping[str, object] = _shipped("streaming")
    return {
        f'{name}."{kind}"': values
        for name, kinds in known.items()
        if isinstance(kinds, Mapping) and not name[:1].isdigit()
        for kind, values in kinds.items()
        if isinstance(values, Mapping)
    }


def _shortened(values: Mapping[str, float]) -> dict[str, object]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def _listed(sessions: Sessions) -> list[list[float]]:
    return [[first, float(f"{us:.4g}")] for first, us in sessions]


def fit_attentions(samples: Sequence[Sample]) -> None:
    """Write `fitted/attention.toml` and the networks beside it."""
    chosen = to_fit(samples, "attention")
    groups: dict[str, list[Sample]] = {}
    for sample in chosen:
        groups.setdefault(sample.target.device.architecture, []).append(sample)
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
    found = fit_convolutions(to_fit(samples, "conv2d"))
    met_s = {**found.met_s, "other": float(np.median(list(found.met_s.values())))}
    tables = {
        name: {key: float(f"{value:.4g}") for key, value in values.items()}
        for name, values in (("kernel", found.kernel), ("met_s", met_s))
    }
    print("conv2d", tables)
    write_fitted("conv", tables)


def set_gemms(samples: Sequence[Sample]) -> None:
    """Write `fitted/gemm.toml` and the networks beside it."""
    found, networks = fit_shipped_gemms(samples)
    tables = {
        name: {key: float(f"{value:.4g}") for key, value in attrs.asdict(p).items()}
        for name, p in sorted(found.items())
    }
    write_fitted("gemm", tables, GEMM_SOURCE)
    write_networks(shipped(networks), RESIDUAL_FILE)


def write_fitted(name: str, tables: Tables, source: str = SOURCES) -> None:
    """Write a file of fitted parameters, which models then read."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    text = fitted_text(tables, source, today, _shipped(name))
    (FITTED_FOLDER / f"{name}.toml").write_text(text, encoding="utf-8")
    fitted.cache_clear()


@functools.cache
def _shipped(name: str) -> Parameters:
    """Return a file's parameters before this step writes it, perhaps in two goes."""
    return fitted(name) if (FITTED_FOLDER / f"{name}.toml").is_file() else {}


def set_all_intervals(
    samples: Sequence[Sample], tables: Sequence[MeasuredColumns]
) -> None:
    """Write `fitted/intervals.toml`, and whose rows set them."""
    shipped, rows = _shipped("intervals"), _shipped("interval_rows")
    samples = cross_fitted(samples)
    set_intervals(samples, Unseen(samples), shipped, write_fitted)
    set_interval_rows(tables, rows, write_fitted)


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
            # Networks are fitted in processes, one to a core.
            alone = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, env=alone)
        return
    if options.what == "hosts":
        set_hosts(options.data)
        return
    if options.what == "collectives":
        set_collectives(options.data, write_fitted)
        return
    if options.what == "errors":
        set_errors(options.data)
        return
    files = sorted((options.data / "measurements").glob("*.parquet"))
    if options.what == "gemms":
        files += sorted(ROWS.glob("*/kernels.parquet"))
    tables = [read_columns(file) for file in files]
    samples = _of_kernels(s for rows in tables for s in samples_of(rows))
    if options.what == "intervals":
        set_all_intervals(samples, tables)
        return
    steps = {
        "streams": set_streams,
        "gemms": set_gemms,
        "attention": fit_attentions,
        "convolutions": fit_convs,
    }
    steps[options.what](samples)


def _of_kernels(samples: Iterable[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.key.op not in COLLECTIVES]


if __name__ == "__main__":
    main()
