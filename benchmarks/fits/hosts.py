"""The host profiles `shared` and `lin-v100`, a step of `make fit`."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from fits.host_profile import profile_lines
from training.shared_host import (
    is_stalled,
    shared_profile,
)

from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.trace_host import HostTime, host_times
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record

PROFILES = Path(__file__).parents[2] / "costmodels" / "profiles"
HOSTS: Mapping[str, str] = {
    "DLRM, 8 V100-SXM2, 2023-09": "dlrm_torchrec_8xV100_param/kineto_*.json.gz",
    "DLRM, 4 V100-SXM2, 2023-11": "dlrm_torchrec_4xV100/*.json.gz",
    "GPT, 8 A100-SXM4, 2024-02": "megatron_gpt_tp8_8xA100/kineto_*.json.gz",
    "DLRM, A100-PG509, 2022-08": "dlrmprod_a100_*.json.gz",
    "linear layers, RTX 2080 Ti, 2023-07": "linear_2080ti_param.json.gz",
    "ResNet-50, V100-SXM2, 2024-04": "resnet50_v100_hta_*.json.gz",
    "ResNet-50, V100 DGX Station, 2021-06": "resnet50_v100dgxs_*.json.gz",
    "ResNet-50, 2 A100-PG509, 2024-05": "resnet50ddp_a100_*.json.gz",
    "mixture of experts, B200": "ao_b200_*.json.gz",
    "ViT and Qwen, H100": "tl_h100_*.json.gz",
    "ViT, MI300X": "tl_mi300_*.json.gz",
}
"""Patterns of the traces in the folder that are of one host, by the host's name."""

SOURCE = (
    "Kineto traces published with PARAM, HolisticTraceAnalysis, TraceLens (MIT), "
    "torchrec and ao (BSD-3)"
)
SOFTWARE = (
    "PyTorch 1.9 to 2.7, CUDA and ROCm, Kineto; profiled times, not corrected for "
    "the profiler"
)
NOTE = """\
# Written by `make fit`; do not edit. Microseconds, at the speed of the median host:
# see `benchmarks/training/shared_host.py`, and docs/evidence.md for each host.
"""


def set_hosts(data: Path) -> None:
    """Write the profiles."""
    lin = PROFILES / "lin-v100.toml"
    lin.write_text("\n".join(profile_lines(data / "dlrm_v100")) + "\n", "utf-8")
    times = times_of_hosts(data / "traces")
    at_work = {name: us for name, us in times.items() if not is_stalled(us)}
    path = PROFILES / "shared.toml"
    path.write_text(_shared_text(at_work, path), "utf-8")


def times_of_hosts(traces: Path) -> dict[str, list[HostTime]]:
    """Return the host times of each host in a folder of traces."""
    return {name: _times(traces, where) for name, where in HOSTS.items()}


def _times(traces: Path, where: str) -> list[HostTime]:
    files = sorted(traces.glob(where))
    return [time for file in files for time in host_times(record(read_trace(file)))]


def _shared_text(hosts: Mapping[str, Sequence[HostTime]], shipped: Path) -> str:
    """Return the file; if nothing else changes its date stays."""
    before = shipped.read_text(encoding="utf-8")
    dates = (tomllib.loads(before)["date"], dt.datetime.now(tz=dt.UTC).date())
    profile = shared_profile(hosts)
    same, new = (
        NOTE
        + profile_text(
            ProfileHead(
                name="shared", source=SOURCE, date=str(date), software=SOFTWARE
            ),
            host=profile,
        )
        for date in dates
    )
    return same if same == before else new
