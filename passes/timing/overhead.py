"""The pass `overhead`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

import attrs
import numpy as np

from perfc.costmodels import HostProfile, load_profile
from perfc.ir import AnyKey, LaunchGraph, Program
from perfc.ir.location import autograd_call
from perfc.ir.program import RankClass
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import HOSTED, LAUNCHES, HostedLaunches
from perfc.passes.timing.host_segments import host_seconds
from perfc.passes.timing.host_splice import Hosting

DEFAULT_PROFILE = "shared"
"""Profile of a pipeline that has no target to name one."""


@attrs.frozen
class Overhead(Pass):
    """Put the host's own time between its calls.

    Every op costs T1 first; an op that calls the runtime costs T2 before its
    first call, T5 between two launches and T3 after its last call; an op that
    does not costs T0 (detail `T5`, as in the paper). A bare synchronisation, graph
    launch or wait for a collective is no op of PyTorch: it costs T1 and its calls.
    In a compiled graph T1 is what its Python takes, a generated kernel has no T2 and
    T3, and a call of ATen's has what of T2 is left without the composite op around it.
    Calls take their T4; the launch of a CUDA graph more for each node. An op whose
    device tasks another op's call issued, as in such a graph, costs the host nothing.
    An op that states its host time takes that, and no T1 to T5. The ops that a node of
    autograd runs are one op, known by its name.

    Where the profile knows what lies between two phases, at the beginning and at the
    end of an iteration, or on the way to autograd's thread and back, that takes the
    place of T1 there.

    A rank class that is given as a launch graph has its host tasks already:
    they keep the seconds they state, and calls that state none take the
    profile's.

    A host of known speed (`host.speed` of the target) takes the profile's times divided
    by it.

    Attributes:
        profile: Name or path of a host profile; empty for the target's.

    """

    name: ClassVar[str] = "overhead"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({HOSTED})

    profile: str = ""

    def run(self, program: Program, ctx: PassContext) -> None:
        """Give every host task a duration, making those that are missing."""
        profile = _profile(self.profile, ctx)
        launches = ctx.get(LAUNCHES, program)
        hosted = (
            _hosted(rank, graph, profile)
            for rank, graph in zip(program.classes, launches, strict=True)
        )
        ctx.set(HOSTED, program, tuple(hosted))


def _profile(name: str, ctx: PassContext) -> HostProfile:
    """Return the named profile, else the target's, as fast as the target's host."""
    if ctx.system is None:
        return load_profile(name or DEFAULT_PROFILE)
    host = ctx.system.host
    profile = load_profile(name or host.overheads)
    return profile if host.speed is None else profile.at_speed(host.speed)


def _hosted(
    rank: RankClass, graph: LaunchGraph, profile: HostProfile
) -> HostedLaunches:
    if rank.launches is not None:
        return HostedLaunches(
            graph,
            np.array(host_seconds(graph, profile)),
            profile.sigma_shared,
            profile.sigma_independent,
            profile.name,
        )
    known = _remembered(graph, profile)
    if known is not None:
        return _launches(graph, known)
    phases, nodes = _phases(rank, graph, profile), _autograd_nodes(rank, graph)
    return host_launches(graph, profile, phases, nodes)


def _phases(rank: RankClass, graph: LaunchGraph, profile: HostProfile) -> Sequence[str]:
    """Return the phase of each op, or nothing where the profile does not ask for it."""
    if not profile.between_s or rank.ops is None:
        return ()
    phases = {node.name: node.location.phase for node in rank.ops}
    return [phases.get(op.node, "") for op in graph.ops]


def _autograd_nodes(rank: RankClass, graph: LaunchGraph) -> Sequence[str]:
    """Return the node of autograd that runs each op, or nothing where none runs any.

    What is compiled runs without autograd's nodes.
    """
    if rank.ops is None:
        return ()
    origins = {
        node.name: node.location.origin
        for node in rank.ops
        if autograd_call(node.location.origin)
    }
    if not origins:
        return ()
    return [
        "" if "compiled" in op.attributes else origins.get(op.node, "")
        for op in graph.ops
    ]


_HOSTED: WeakKeyDictionary[LaunchGraph, list[Hosting]] = WeakKeyDictionary()
"""What a host does for a structure: kernels do not matter to the host, so another batch
or target of a lowered graph needs no second look."""

_MOST_PROFILES = 4
"""Profiles remembered per structure."""


def host_launches(
    graph: LaunchGraph,
    profile: HostProfile,
    phases: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> HostedLaunches:
    """Put T1 to T5 of *profile* into a launch graph that has no host segments.

    They are host tasks whose seconds stand in `host_s`. Kernels, resources and
    ops keep their numbers.

    Args:
        graph: What is launched.
        profile: The host.
        phases: Phase of each op of the graph, "" for none; may be left out, and then
            every gap between two ops is a T1. The same for the same structure.
        nodes: The node of autograd that runs each op, as `AddmmBackward0(%h)`, "" for
            none; neighbours of one node are one op to the host. May be left out; the
            same for the same structure.

    """
    known = _remembered(graph, profile)
    if known is None:
        known = Hosting.of(graph, profile, phases, nodes)
        _remember(graph, known)
    return _launches(graph, known)


def _launches(graph: LaunchGraph, hosting: Hosting) -> HostedLaunches:
    profile, made = hosting.profile, hosting.graph
    if graph.complete:
        made = made.with_kernels(graph.kernels)
    return HostedLaunches(
        made,
        hosting.host_s,
        profile.sigma_shared,
        profile.sigma_independent,
        profile.name,
    )


def _remember(graph: LaunchGraph, hosting: Hosting) -> None:
    if graph.complete:
        hosting.graph.complete = True
        others = _HOSTED.setdefault(graph.structure, [])
        others[:] = [*others[1 - _MOST_PROFILES :], hosting]


def _remembered(graph: LaunchGraph, profile: HostProfile) -> Hosting | None:
    """Return the host of a structure that is known, or like one that is."""
    if graph.complete:
        for other in _HOSTED.get(graph.structure, ()):
            if other.profile is profile or other.profile == profile:
                return other
    splice = graph.structure.splice
    base = None if splice is None else _remembered(splice.base, profile)
    if splice is None or base is None:
        return None
    hosting = base.spliced(graph, splice)
    if hosting is not None:
        _remember(graph, hosting)
    return hosting
