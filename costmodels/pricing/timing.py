"""What a measured time holds besides the kernel, by how it was measured.

A row of timing `kernel` is the kernel alone. Inside a CUDA graph a gap follows each
kernel; of some software that replayed it the gap is known. Two events around one eager
call on an idle GPU see the host as well:

    t = share * call + max(kernel, (1 - share) * call)

`call` is what the host takes from the first event to the second, the floor that short
kernels show; `share` of it passes before the kernel starts, the rest beside it. It
belongs to the host, not to the GPU: a factor for each GPU whose host is known, on what
the call takes on the others. A device that the host's processor is itself has only the
dispatch before the kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import (
    SOFTWARE,
    Flags,
    Floats,
    Indices,
    KernelTable,
    Texts,
    distinct,
    one_of,
)
from perfc.costmodels.machine import Device, Target
from perfc.costmodels.pricing.intervals import call_sigma
from perfc.costmodels.sheets import load_profile, load_target

KERNEL_TIMINGS = frozenset({"kernel", "graph", "event"})
"""Timings that say what one kernel takes."""

COLLECTIVE_TIMINGS = frozenset({"kernel", "nccl"})
"""Timings that say what a collective takes: nccl-tests' hold its launch, which its
fitted start holds, too."""

MET = "met"
"""Parameter of a kernel: how many of its op the process has called before it."""

MEETING_OPS = frozenset({"conv2d"})
"""Ops whose calls take longer the more kernels were met."""

SESSION_OPS = frozenset({"gemm"})
"""Ops whose tables were measured in sessions, between which the host's time changed."""

SOFTWARE_OPS = frozenset({"elementwise"})
"""Ops whose kernels are short enough to show it."""


@attrs.frozen(eq=False)
class TimedEstimate:
    """What rows would measure.

    Attributes:
        seconds: Shape (rows,); so is the other.
        sigma: Relative uncertainty, of kernel and host together.

    """

    seconds: Floats
    sigma: Floats


def as_timed(
    kernel_s: Floats, sigma: Floats, kernels: KernelTable, target: Target, timing: str
) -> TimedEstimate:
    """Return the estimate of what a measurement of each kernel would say.

    Args:
        kernel_s: What the kernels take alone, shape (rows,).
        sigma: Relative uncertainty of that.
        kernels: What they are.
        target: What they run on.
        timing: One of `KERNEL_TIMINGS`.

    """
    if target.device.synchronous:
        before_s, beside_s = load_profile(target.host.overheads).t2_s.default_s, 0.0
        return _around(kernel_s, sigma, np.full(len(kernels), before_s), beside_s, 0.0)
    if timing in COLLECTIVE_TIMINGS:
        return TimedEstimate(kernel_s, sigma)
    if timing == "graph":
        return _around(kernel_s, sigma, graph_gaps_s(kernels, target), 0.0, 0.0)
    call_s, sigma_call = call_seconds(kernels, target)
    share = call_shares(kernels)
    ahead_s = share * call_s + met_seconds(kernels, target)
    return _around(kernel_s, sigma, ahead_s, (1 - share) * call_s, sigma_call)


def _around(
    kernel_s: Floats,
    sigma: Floats,
    before_s: Floats,
    beside_s: Floats | float,
    sigma_host: float,
) -> TimedEstimate:
    """Put the host before and beside the kernels; each errs on its own."""
    seconds = before_s + np.maximum(kernel_s, beside_s)
    hidden = kernel_s < beside_s
    host_s = before_s + np.where(hidden, beside_s, 0.0)
    error_s = np.hypot(np.where(hidden, 0.0, sigma * kernel_s), sigma_host * host_s)
    return TimedEstimate(seconds, error_s / seconds)


def met_seconds(kernels: KernelTable, target: Target) -> Floats:
    """Return the seconds that a call takes longer for all kernels the process has met.

    The rows of convolutions that PyTorch 2.1 measured rise by a fixed time from each to
    the next, of all sizes and algorithms alike: its cache of cuDNN's plans grows.
    """
    met = kernels.param(MET) * one_of(kernels.op, MEETING_OPS)
    if not met.any():
        return met
    known = fitted("conv")["met_s"]
    return met * float(known.get(target.device.name, known["other"]))


def graph_gaps_s(kernels: KernelTable, target: Target) -> Floats:
    """Return the seconds between kernels of a graph, as it was replayed.

    The same kernel differs by more than a microsecond from one library to another, and
    from version to version: one lets kernels overlap, another copies arguments first.
    """
    found = np.full(len(kernels), target.device.graph_gap_s)
    software = kernels.text(SOFTWARE)
    for name in np.unique(software).tolist():
        if (gap_us := _software_gap_us(name, target.device)) is not None:
            found[software == name] = gap_us * 1e-6
    return found


def _software_gap_us(software: str, device: Device) -> float | None:
    """Return the gap that a library leaves on a GPU; None: it was not measured.

    On a GPU without rows it is that of GPUs of the same compute capability, whose
    kernels the library compiles alike, else of the same architecture, else of all.
    """
    gaps_us: Mapping[str, float] = fitted("event")["graph_gap_us"]
    if software not in gaps_us:
        return None
    gpus = {
        gpu: us
        for name, us in gaps_us.items()
        for found, _, gpu in [name.rpartition(", ")]
        if found == software
    }
    if device.name in gpus:
        return gpus[device.name]
    devices = {gpu: load_target(gpu).device for gpu in gpus}
    for alike in (_same_capability, _same_architecture):
        near = [us for gpu, us in gpus.items() if alike(devices[gpu], device)]
        if near:
            return math.fsum(near) / len(near)
    return gaps_us[software]


def _same_capability(one: Device, other: Device) -> bool:
    return one.compute_capability == other.compute_capability


def _same_architecture(one: Device, other: Device) -> bool:
    return one.architecture == other.architecture


def _session_seconds(met: Floats, sessions: Sequence[Sequence[float]]) -> Floats:
    """Return the seconds of a call in the session in which each row was measured.

    Args:
        met: How many rows are before each in its table.
        sessions: Of each the number of its first row, and the call in microseconds.

    """
    first, call_us = np.array(sessions).T
    found: Floats = call_us[np.searchsorted(first, met, side="right") - 1] * 1e-6
    return found


def call_shares(kernels: KernelTable) -> Floats:
    """Return which share of each call passes before its kernel starts."""
    shares = fitted("event")["share"]
    names, at = _calls(kernels)
    default = float(shares["default"])
    of_ops = (shares.get(name.split()[0], default) for name in names)
    of_calls = [shares.get(n, own) for n, own in zip(names, of_ops, strict=True)]
    found: Floats = np.array(of_calls)[at]
    return found


def call_seconds(kernels: KernelTable, target: Target) -> tuple[Floats, float]:
    """Return the seconds of the host for each eager call, and their uncertainty."""
    parameters = fitted("event")
    floors, hosts = parameters["call_us"], parameters["host"]
    known = hosts.get(target.device.name)
    factor = parameters["other_host"] if known is None else known
    measured = parameters["call"].get(target.device.name, {})
    listed, at = _calls(kernels)
    call_us = [
        measured.get(
            n, factor * floors.get(n, floors.get(n.split()[0], floors["default"]))
        )
        for n in listed
    ]
    sigma = parameters["sigma_other_host" if known is None else "sigma"]
    call_s = np.array(call_us)[at] * 1e-6
    sessions = parameters["session"].get(target.device.name, {})
    for name in sessions.keys() & set(listed):
        rows = (at == listed.index(name)) & (kernels.param(MET) > 0)
        call_s[rows] = _session_seconds(kernels.param(MET)[rows], sessions[name])
    return call_s, call_sigma(kernels, target, float(sigma))


def hidden_kernels(kernel_s: Floats, kernels: KernelTable, target: Target) -> Flags:
    """Whether each kernel ends before the host's call does: its row says the call."""
    call_s, _ = call_seconds(kernels, target)
    hidden: Flags = kernel_s < (1 - call_shares(kernels)) * call_s
    return hidden


def call_names(kernels: KernelTable) -> Texts:
    """Return which call each kernel is of: calls of a name take the host alike."""
    names, at = _calls(kernels)
    return np.array(names, dtype=np.str_)[at]


def _calls(kernels: KernelTable) -> tuple[list[str], Indices]:
    """Return the names of calls that may occur, and which each kernel has."""
    parts = (
        distinct(kernels.op),
        distinct(kernels.text("kind")),
        (("", "1"), (kernels.op == "elementwise") & _takes_scalar(kernels)),
        (("", "bias"), kernels.given("bias")),
    )
    words = itertools.product(*(words for words, _ in parts))
    names = [" ".join(filter(None, each)) for each in words]
    at = np.zeros(len(kernels), dtype=np.intp)
    for known, each in parts:
        at = at * len(known) + each
    return names, at


def _takes_scalar(kernels: KernelTable) -> Flags:
    takes: Flags = kernels.param("tensor_inputs") == 1
    return takes
