"""The pass `lower-kernels`."""

from __future__ import annotations

import functools
import math
from collections.abc import Container
from typing import ClassVar

import attrs

from perfc import ir
from perfc.costmodels import Target
from perfc.costmodels.machine import System
from perfc.costmodels.sheets import as_known
from perfc.ir import node_kinds, support, verification
from perfc.ir.choices import ATTENTION_KERNELS
from perfc.ir.dims import Expr, symbols_of
from perfc.ir.kernels import TABLE_FIELDS
from perfc.ir.program import RankClass
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import ELEMENTS, LAUNCHES, TYPED
from perfc.passes.graphs import communicates, placed_lookups
from perfc.passes.lowering import input_places
from perfc.passes.lowering.eager import Settings
from perfc.passes.lowering.launch_graph import Lowering
from perfc.passes.lowering.recipe import RECIPES, Binding, Recipes

_VOLTA = 7
"""Major compute capability, Turing's too."""

_MOST_RECIPES = 8
"""Recipes that are kept of a graph, each of other tasks."""


@attrs.frozen
class LowerKernels(Pass):
    """Turn each op graph into what eager PyTorch launches for one iteration.

    An iteration copies the inputs to the device, runs the ops in order on one
    stream and waits for the device. A CPU is its own device: nothing is copied to it,
    and no call returns before its kernel ends; nor are inputs copied to a GPU whose
    memory is the host's. Parameters are on the device already.
    Ops whose results are known without running do not exist in eager PyTorch, nor do
    identities and casts to the same type. A rank class that already is a launch graph
    stays as it is.

    Attributes:
        inputs: Where the inputs are: `host-pinned` (copied while the host goes
            on), `host-pinned-blocking` (the host waits for each copy, as PyTorch does
            without `non_blocking`), `host-pageable` (it waits, and the copy is slower),
            or `device`. Places of some inputs may follow, by patterns of names:
            `host-pinned,past_*=device`. A cache that the iteration writes, or gives
            back longer, is on the device unless a pattern says otherwise.
        tf32: Whether fp32 GEMMs use TF32 where the target has it
            (`torch.backends.cuda.matmul.allow_tf32`, which PyTorch leaves off).
        cudnn_tf32: Whether fp32 convolutions and recurrent layers do
            (`torch.backends.cudnn.allow_tf32`, which PyTorch leaves on); on AMD they
            do as GEMMs do.
        fused_bias: Whether the kernel of `linear` adds the bias, as PyTorch 2
            does; else a kernel copies the bias into the output first.
        spelled_out: Whether attention, norms and activations that the source
            spells out in several calls are launched call by call, as eager
            PyTorch does; else as if it used the one call that PyTorch has.
        patterns: Whether, in the latter case, attention is that call only where
            Inductor has a pattern for it (`torch.compile`).
        large_arguments: Whether PyTorch is built with CUDA 13, whose kernels take
            32 KB of arguments: optimizers then launch fewer.
        log_sigmoid: Whether `binary_cross_entropy_with_logits` goes by `log_sigmoid`,
            as since PyTorch 2.1; else by three times as many steps.
        attention: Which kernels compute attention where they can: `flash-1`, `flash-2`,
            `flash-3` (on Hopper), `cudnn`, `efficient` or `math` (plain GEMMs); with
            `auto`, and elsewhere, those that PyTorch takes: its own flash attention,
            which is version 2, or the memory-efficient kernel. Software of 2023 ran
            version 1.
        deterministic: Whether gradients of convolutions are summed up in one order
            (`torch.backends.cudnn.deterministic`): no kernel adds to them by atomics.

    """

    name: ClassVar[str] = "lower-kernels"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({LAUNCHES, RECIPES})

    inputs: str = "host-pinned"
    tf32: bool = False
    cudnn_tf32: bool = True
    fused_bias: bool = True
    spelled_out: bool = True
    patterns: bool = False
    large_arguments: bool = False
    log_sigmoid: bool = True
    attention: str = ATTENTION_KERNELS[0]
    deterministic: bool = False

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        input_places.InputPlaces.of(self.inputs)
        if self.attention not in ATTENTION_KERNELS:
            listed = ", ".join(ATTENTION_KERNELS)
            msg = f"attention={self.attention!r} of {self.name}: expected {listed}"
            raise ir.UsageError(msg)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Lower every op graph of the program."""
        input_places.InputPlaces.of(self.inputs).check(
            [v.name for rank in program.classes if rank.ops for v in rank.ops.inputs]
        )
        settings = self.settings(ctx.system)
        if any(
            rank.ops is not None and communicates(rank.ops) for rank in program.classes
        ):
            verification.verify_communicators(program)
            settings = attrs.evolve(settings, system=_system(ctx))
        if any(map(_is_placed, program.classes)):
            # Check where tables outside of device memory are; say who shares that.
            from perfc.passes.lowering import far_tables  # noqa: PLC0415 - lazy

            if ctx.system is not None:
                far_tables.check_places(program, settings, ctx.system, ctx)
            settings = _shared(far_tables.placed_settings(program, settings))
        binding = Binding(program.bindings, settings, shared=True)
        try:
            lowered = [
                self._lower(rank, program, ctx, binding) for rank in program.classes
            ]
        except support.UnboundSymbolError:
            check_bound(program)  # names them all, where the first was found
            raise
        ctx.set(LAUNCHES, program, tuple(lowered))

    def _fp32_math(self, target: Target | None, *, tf32: bool) -> str:
        """Return the mode of fp32 GEMMs.

        TF32 is allowed, not asked for: where it computes no faster, as on GeForce,
        libraries have nothing to win by its kernels, which turn layouts besides.
        """
        if target is None:
            return "fp32"
        known = as_known(target).device.flops_per_s
        slow = known.get("tf32", math.inf) <= known.get("fp32", 0.0)
        allowed = tf32 and "tf32" in target.device.flops_per_s and not slow
        return "tf32" if allowed else target.device.fp32_gemms

    def settings(self, target: Target | None) -> Settings:
        """Return the assumptions about PyTorch and a target."""
        rates: Container[str] = () if target is None else target.device.flops_per_s
        by_cudnn = target is None or target.device.runs_cuda
        settings = Settings(
            self._fp32_math(target, tf32=self.tf32),
            self._fp32_math(target, tf32=self.cudnn_tf32 if by_cudnn else self.tf32),
            "fp64_tensor" if "fp64_tensor" in rates else "fp64",
            self.fused_bias,
            "int8" if target is None or "int8" in rates else "fp32",
            self.spelled_out,
            self.patterns,
            self.large_arguments,
            self.log_sigmoid,
            attention=self.attention,
            inputs=input_places.InputPlaces.of(self.inputs).on_host,
            deterministic=self.deterministic,
        )
        if target is None:
            return settings
        # Add what the kernels that run depend on of the device.
        # Flash attention needs Ampere; ROCm has it on every GPU that a sheet is of, and
        # so has a CPU. SMs that are set by hand change no choice of kernels: of more of
        # them a library need not cut a sum into more parts.
        device = target.device
        major = device.compute_capability.partition(".")[0]
        newer = not device.runs_cuda or (major.isdigit() and int(major) > _VOLTA)
        settings = attrs.evolve(
            settings,
            sm_count=sm_count(target),
            newer_than_volta=newer,
            on_cpu=device.synchronous,
            inputs="device" if device.has_host_memory else settings.inputs,
            gpu=as_known(target) if settings.fp32_cudnn == "tf32" else None,
        )
        _check_attention(settings, target)
        return _shared(settings)

    def _lower(
        self,
        rank: RankClass,
        program: ir.Program,
        ctx: PassContext,
        binding: Binding,
    ) -> ir.LaunchGraph:
        recipes: Recipes = {}
        if rank.ops is not None:
            recipes = ctx.find(RECIPES, rank.ops) or {}
            ctx.set(RECIPES, rank.ops, recipes)
            _remark(rank.ops, ctx)
            self._remark_state(rank.ops, ctx)
        if rank.launches is not None:
            return rank.launches
        if rank.ops is None:  # RankClass refuses it
            msg = f"ranks {rank.ranks} have no graph"
            raise support.VerifyError(msg)
        # On a CPU the kernels of some ops depend on whether this rank class trains, so
        # that the binding, which holds the settings, cannot be shared with the others.
        settings = binding.settings
        if settings.on_cpu:
            training = any(node.location.phase == "backward" for node in rank.ops)
            settings = attrs.evolve(settings, training=training)
            binding = Binding(program.bindings, settings, shared=True)
        # Searches lower one graph for many batch sizes: a recipe repeats the lowering
        # with other numbers, unless the graph has changed or a size decides what is
        # launched.
        key = self, attrs.evolve(settings, sm_count=0)
        version = rank.ops.version
        tried = [one for one in recipes.get(key, ()) if one.version == version]
        for recipe in tried:
            graph = recipe.repeat(binding)
            if graph is not None:
                return graph
        known = ctx.get(ELEMENTS, rank.ops)
        lowering = Lowering(rank.ops.name, binding, frozenset(known))
        if settings.inputs != input_places.ON_DEVICE and not settings.on_cpu:
            places = input_places.InputPlaces.of(self.inputs)
            lowering.copy_inputs(rank.ops, places.kept(rank.ops))
        lowering.lower(rank.ops)
        if not settings.on_cpu:
            lowering.synchronize()
        kept = lowering.recipe(version), *tried[: _MOST_RECIPES - 1]
        ctx.set(RECIPES, rank.ops, {**recipes, key: kept})
        return lowering.graph

    def _remark_state(self, graph: ir.Graph, ctx: PassContext) -> None:
        """Say which inputs are a cache that stays on the device."""
        places = input_places.InputPlaces.of(self.inputs)
        state = input_places.state_of(graph)
        kept = [value for value in places.kept(graph) if value in state]
        if not kept or places.place == input_places.ON_DEVICE:
            return
        how = "the step writes some of each"
        if any(node_kinds.is_concat(state[value]) for value in kept):
            how = (
                "the step copies each to append to it, as torch.cat does, which a "
                "cache that is written in place need not"
            )
        names = [value.name for value in graph.inputs if value in kept]
        ctx.note(
            "state-on-device",
            f"{input_places.some_of(names)} stay on the device from step to step: "
            f"{how}; --inputs "
            f"'{places.place},NAME={places.place}' copies an input from the host",
        )


def _is_placed(rank: RankClass) -> bool:
    return rank.ops is not None and bool(placed_lookups(rank.ops))


@functools.lru_cache(64)
def _shared(settings: Settings) -> Settings:
    """Return equal settings as one object, which is soon found equal to itself."""
    return settings


def _system(ctx: PassContext) -> System | None:
    """Return the system around the device; say so where nobody has named it."""
    target = ctx.system
    if target is None or target.device.synchronous:
        return None
    from perfc.costmodels import assumed_system  # noqa: PLC0415 - lazy

    system = target.once(assumed_system)
    if system.assumed:
        ctx.note(
            "assumed-node",
            f"{target.name} is taken to be in one node of {system.gpus_per_node}, "
            f"joined by {system.link}; name a system instead (`perfc targets`)",
            target.name,
        )
    return system


def sm_count(target: Target) -> int:
    """Return the SMs by which libraries choose kernels of GEMMs for a target."""
    return as_known(target).device.sm_count


def _check_attention(settings: Settings, target: Target) -> None:
    """Refuse kernels that the target has not, and so no run of PyTorch can ask for."""
    asked = settings.attention
    if asked not in _FLASH_KERNELS:
        return
    major = target.device.compute_capability.partition(".")[0]
    if asked == "flash-3" and not (target.device.runs_cuda and major == _HOPPER):
        msg = f"flash-3 has kernels for Hopper alone, not for {target.name}"
    elif not settings.newer_than_volta:
        msg = f"{asked} has no kernels for {target.name}, which is older than Ampere"
    else:
        return
    others = [name for name in ATTENTION_KERNELS if name not in _FLASH_KERNELS]
    if settings.newer_than_volta:
        others.insert(1, "flash-2")
    msg += f"; attention is {' or '.join(others)} there"
    raise support.UnsupportedModelError(msg)


_FLASH_KERNELS = frozenset({"flash-1", "flash-2", "flash-3", "cudnn"})
_HOPPER = "9"

_MODELLED = frozenset(field.name for field in TABLE_FIELDS)
"""Fields of a table that are priced: of a sharded one a rank has its part, as given."""


def _remark(graph: ir.Graph, ctx: PassContext) -> None:
    """Say what the graph has that launches do not show."""
    nodes = [*graph]
    for node in filter(node_kinds.is_embedding_bag, nodes):
        tables = node.attributes.records("tables")
        ignored = sorted({name for t in tables for name in t if name not in _MODELLED})
        if ignored:
            ctx.warn(
                "not-modelled",
                f"{', '.join(ignored)} of an embedding table: priced as if "
                "the table lay in device memory, uncached",
                str(node),
            )


def check_bound(program: ir.Program) -> None:
    """Raise one `UnboundSymbolError` that names every symbol without a number."""
    bindings = program.bindings
    dims = {
        dim
        for rank in program.classes
        if rank.ops is not None
        for value in rank.ops.values()
        if value.type is not None
        for dim in value.type.shape
        if isinstance(dim, Expr)
    }
    unbound = symbols_of(dims) - set(bindings)
    if unbound:
        names = sorted(unbound)
        advice = ", ".join(map(_advice, names))
        dimensions = "dimension has" if len(names) == 1 else "dimensions have"
        msg = f"{program.name}: {len(names)} {dimensions} no number; give {advice}"
        raise support.UnboundSymbolError(msg)


def _advice(name: str) -> str:
    batch_like = name.lower() in ("b", "n", "bs") or "batch" in name.lower()
    return f"--batch N (or --dim {name}=N)" if batch_like else f"--dim {name}=N"
