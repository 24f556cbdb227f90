"""What perfc says that the collectives of a trace take once all ranks are there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from perfc.costmodels import Target, assumed_system, find_cost_models, price
from perfc.ir import NO_WORK, Diagnostic, Kernel, PerfcError, Record
from perfc.ir.support import Level
from perfc.passes import dtype_name
from perfc.traces import Recorded
from perfc.traces.collective_facts import known_collectives
from perfc.traces.events import CollectiveFacts


@attrs.frozen
class SentPrice:
    """What one collective takes to send.

    Attributes:
        seconds: From when the last rank is there.
        sigma_shared: Of the logarithm, shared by all collectives.
        sigma_own: Of the logarithm, of this one alone.

    """

    seconds: float
    sigma_shared: float
    sigma_own: float


@attrs.frozen(eq=False)
class CollectivePrices:
    """What the collectives of a trace take to send on a target.

    Attributes:
        sent: By task; those that are not there have no price.
        diagnostics: What has none, and why; and what was assumed.

    """

    sent: Mapping[int, SentPrice]
    diagnostics: tuple[Diagnostic, ...]


def collective_prices(recorded: Recorded, target: Target) -> CollectivePrices:
    """Price what is known of the collectives of a trace.

    Their waits for other ranks are no part of it. A target that is one GPU is taken to
    be in a node of its own kind, as everywhere; groups that are larger than what the
    target joins have no price.
    """
    known = known_collectives(recorded)
    if not known.facts and not known.unknown:
        return CollectivePrices({}, ())
    refused: dict[str, list[int]] = {}
    kernels: dict[int, Kernel] = {}
    made: dict[CollectiveFacts, Kernel | str] = {}
    for task, facts in known.facts.items():
        if facts not in made:
            made[facts] = _kernel(facts, target)
        kernel = made[facts]
        if isinstance(kernel, Kernel):
            kernels[task] = kernel
        else:
            refused.setdefault(kernel, []).append(task)
    if known.unknown:
        refused["the trace does not tell what they send"] = [*known.unknown]
    sent = _priced(kernels, target)
    remarks = _remarks(recorded, target, sent, refused, known.assumed)
    return CollectivePrices(sent, tuple(remarks))


def with_waits(
    recorded: Recorded, there: CollectivePrices, here: CollectivePrices
) -> dict[int, float]:
    """Return the seconds of collectives on one rank alone: its waits as measured.

    What was measured is waiting but for what sending takes, of which a model may say
    more than was measured: then nobody waited.

    Args:
        recorded: The trace.
        there: What they take to send where they run.
        here: The same where they were measured.

    """
    stated_s = recorded.graph.stated_s
    return {
        task: one.seconds + max(0.0, stated_s[task] - here.sent[task].seconds)
        for task, one in there.sent.items()
        if task in here.sent
    }


def _kernel(facts: CollectiveFacts, target: Target) -> Kernel | str:
    """Return the kernel that a collective is, or why it has no price."""
    if facts.ranks == 1:
        return "their groups have one member"
    if target.device.synchronous:
        return f"{target.name} is no GPU that NCCL joins"
    system = target.once(assumed_system)
    try:
        nodes, each = system.members(facts.ranks, facts.stride)
    except PerfcError as error:
        return str(error)
    params = {"bytes": facts.bytes, "ranks": facts.ranks}
    params |= {"nodes": nodes, "gpus_per_node": each}
    return Kernel(facts.kind, dtype_name(facts.dtype), "", Record(params), NO_WORK)


def _priced(kernels: Mapping[int, Kernel], target: Target) -> dict[int, SentPrice]:
    distinct = list(dict.fromkeys(kernels.values()))
    if not distinct:
        return {}
    cost = price(distinct, target, find_cost_models()[0])
    rows = zip(
        cost.seconds.tolist(),
        cost.sigma_common.tolist(),
        cost.sigma_independent.tolist(),
        strict=True,
    )
    prices = dict(zip(distinct, (SentPrice(*row) for row in rows), strict=True))
    return {task: prices[kernel] for task, kernel in kernels.items()}


def _remarks(
    recorded: Recorded,
    target: Target,
    sent: Mapping[int, SentPrice],
    refused: Mapping[str, list[int]],
    assumed: frozenset[int],
) -> Iterator[Diagnostic]:
    stated_s, file = recorded.graph.stated_s, recorded.trace.file
    for reason, tasks in refused.items():
        total_ms = math.fsum(stated_s[task] for task in tasks) * 1e3
        message = (
            f"{len(tasks)} collectives ({total_ms:,.2f} ms) keep what they took, waits "
            f"for other ranks included: {reason}"
        )
        yield Diagnostic(Level.NOTE, "collectives-measured", message, file)
    if not sent:
        return
    total_ms = math.fsum(stated_s[task] for task in sent) * 1e3
    sent_ms = math.fsum(one.seconds for one in sent.values()) * 1e3
    system = target.once(assumed_system)
    where = f"a node of {system.gpus_per_node} {target.name}"
    message = (
        f"{len(sent)} collectives ({total_ms:,.2f} ms) send for {sent_ms:,.2f} ms on "
        f"{where if system.assumed else target.name} by perfc's model; the rest is "
        "waiting for other ranks"
    )
    yield Diagnostic(Level.NOTE, "collectives-sent", message, file)
    guessed = len(assumed & sent.keys())
    if guessed:
        message = (
            f"the group of {guessed} collectives is not told: taken to be all "
            f"{recorded.trace.world_size} ranks"
        )
        yield Diagnostic(Level.NOTE, "collectives-group", message, file)
