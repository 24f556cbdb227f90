"""What a step is of: a model at some sizes, a target, and passes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.costmodels import Target
from perfc.ir import Kernel, PerfcError, UsageError
from perfc.passes import LowerKernels, Pass, ShardEmbeddings, Transform, embeddings
from perfc.passes.facts import LAUNCHES
from perfc.passes.lowering import FuseOps, Recipe
from perfc.passes.pipeline_spec import parse_pipeline
from perfc.passes.pipelines import completed, with_backward
from perfc.passes.precision import ConvertDtype
from perfc.tools import edits
from perfc.tools.analysis import check_run, laid_out
from perfc.tools.models import Model, conversions
from perfc.tools.oracle.memory import Memory, remembered
from perfc.tools.oracle.step import Step, recipes_of
from perfc.tools.request import CAPTURED, TRAINING, Request
from perfc.tools.run import Run

Structural: TypeAlias = (
    edits.Bind
    | edits.Dtype
    | edits.Fuse
    | edits.Replace
    | edits.Target
    | edits.Place
    | edits.Shard
    | edits.Apply
)
"""Edits after which kernels are lowered or priced again."""

ALL = "*"
"""Every table, or the whole model."""

TF32 = "tf32"

_NO_DIMS: Mapping[str, int] = {}


@attrs.frozen
class Sizes:
    """The sizes that were asked for.

    Attributes:
        batch: Samples in the batch; None for what the model says.
        pooling: Lookups per embedding bag, where the model leaves it open.
        dims: Other symbols and their numbers.

    """

    batch: int | None = None
    pooling: int | None = None
    dims: Mapping[str, int] = _NO_DIMS

    @classmethod
    def of(cls, model: Model, request: Request) -> Sizes:
        """Return the sizes that a model was loaded or bound with.

        Numbers of lookups follow the batch, unless somebody said them.
        """
        loaded = None if model.again is None else model.again.request
        said = {**(loaded.dims if loaded else {}), **request.dims}
        known = [symbols for symbols in model.symbols or () if symbols is not None]
        batch = frozenset[str]().union(*(s.batch for s in known))
        follow = frozenset[str]().union(*(s.bounds | s.lookups.keys() for s in known))
        dims = {
            name: number
            for name, number in model.dims.items()
            if name not in batch and (name in said or name not in follow)
        }
        pooling = request.pooling or (loaded.pooling if loaded else None)
        return cls(model.batch if batch else None, pooling, dims)

    def changed(self, edit: edits.Bind, model: Model) -> Sizes:
        """Return the sizes after an edit."""
        dims = dict(edit.dims)
        known = [symbols for symbols in model.symbols or () if symbols is not None]
        batch = edit.batch or self.batch
        if any(name in symbols.batch for symbols in known for name in dims):
            batch = edit.batch
        return attrs.evolve(self, batch=batch, dims={**self.dims, **dims})


@attrs.frozen(eq=False)
class Setting:
    """What a step is of.

    Attributes:
        run: The model, the target and the passes.
        sizes: The sizes that were asked for.
        source: Name or path of the target.
        overrides: Fields of its sheet that are set.
        memory: What was worked out before.
        anew: Why the last change needed an analysis from the graph on; empty if not.

    """

    run: Run
    sizes: Sizes
    source: str
    overrides: Mapping[str, str]
    memory: Memory
    anew: str = ""
    _after: dict[Structural, Setting] = attrs.field(
        factory=dict[Structural, "Setting"], init=False, repr=False
    )

    @classmethod
    def of(cls, run: Run, request: Request) -> Setting:
        """Return the setting that a request asks for; its model is loaded in *run*."""
        target, source = request.target, ""
        overrides = dict(request.overrides)
        if isinstance(target, Target):
            source = target.name
            overrides = {
                name: str(target.fields[name])
                for name, cited in target.sources.items()
                if cited == "--set" or cited.startswith("--price: ")
            }
        else:
            source = target
        sizes = Sizes.of(run.model, request)
        return cls(run, sizes, source, overrides, Memory())

    lowered: list[Lowered] = attrs.field(
        factory=list["Lowered"], init=False, repr=False
    )
    """It at other sizes, each of other tasks."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out what was worked out."""
        of = (self.run, self.sizes, self.source, self.overrides, self.memory, self.anew)
        return type(self), of

    @functools.cached_property
    def step(self) -> Step:
        """The step, lowered and priced."""
        return Step.of(self.run, self.memory)

    def after(self, edit: Structural) -> Setting:
        """Return the setting after an edit, which is worked out once."""
        return remembered(self._after, edit, lambda: self.made(edit))

    def keep(self, step: Step) -> None:
        """Keep a step that was priced together with others."""
        object.__setattr__(self, "step", step)

    def made(self, edit: Structural) -> Setting:
        """Return the setting after an edit, worked out anew."""
        if isinstance(edit, edits.Bind):
            model = self.run.model
            sizes = self.sizes.changed(edit, model)
            bound = model.bind(sizes.batch, pooling=sizes.pooling, dims=sizes.dims)
            why = ""
            if model.late is not None:
                why = "control flow depends on sizes"
            run = attrs.evolve(self.run, model=bound)
            return attrs.evolve(self, run=run, sizes=sizes, anew=why)
        if isinstance(edit, edits.Target):
            return self._on(edit)
        if isinstance(edit, edits.Fuse | edits.Replace):
            return self._fused(edit)
        return self._with(edit)

    def _on(self, edit: edits.Target) -> Setting:
        source, overrides = edit.name or self.source, dict(edit.fields)
        if not edit.name:
            overrides = {**self.overrides, **overrides}
            self.check_source()
        target = self.memory.target(source, overrides)
        model = laid_out(self.run.model, target)
        check_run(model, self.run.runtime, target)
        run = attrs.evolve(self.run, model=model, target=target)
        return attrs.evolve(self, run=run, source=source, overrides=overrides, anew="")

    def check_source(self) -> None:
        """Refuse to set fields of a target that cannot be read again."""
        target = self.run.target
        try:
            found = self.memory.target(self.source, self.overrides)
        except PerfcError:
            found = None
        if found is None or found.spec_sha256 != target.spec_sha256:
            msg = (
                f"target {target.name} was given as an object, whose sheet is not "
                "known: give its name or path to perfc.Oracle to set its fields"
            )
            raise UsageError(msg)

    def _with(self, edit: Structural) -> Setting:
        """Return the setting with a pass more, which the edit stands for."""
        if isinstance(edit, edits.Dtype) and edit.dtype == TF32:
            return self._in_tf32(edit)
        if isinstance(edit, edits.Dtype) and edit.where == ALL:
            return self._converted(edit)
        for p in self._passes(edit):
            if isinstance(p, Transform):
                return self._transformed(p)
            run = self.run.with_passes([p])
            why = f"{p.name} changes launches"
            return attrs.evolve(self, run=run, anew=why)
        msg = f"{edit}: expected one pass"
        raise UsageError(msg)

    def _passes(self, edit: Structural) -> Sequence[Pass]:
        """Return the pass that an edit stands for."""
        if isinstance(edit, edits.Dtype):
            return [ConvertDtype(edit.dtype, where=edit.where)]
        if isinstance(edit, edits.Place):
            options = [f"tier={_quoted(edit.tier)}"]
            if edit.table != ALL:
                options.append(f"table={_quoted(edit.table)}")
            if edit.cache is not None:
                options.append(f"cache={edit.cache!r}")
            return parse_pipeline(f"place-embeddings{{{','.join(options)}}}")
        if isinstance(edit, edits.Shard):
            return parse_pipeline(self._sharded(edit))
        assert isinstance(edit, edits.Apply)  # noqa: S101 - the others are no passes
        return parse_pipeline(edit.text)

    def _fused(self, edit: edits.Fuse | edits.Replace) -> Setting:
        """Return the setting with one op in place of several.

        Ops of which one is fused already are fused with all of it.
        """
        if isinstance(edit, edits.Fuse):
            names, us = edit.ops, 0.0
        else:
            nodes = self.step.places.launching(edit.where)
            names, us = tuple(dict.fromkeys(name for _, name in nodes)), edit.us
        passes = [*self.run.passes]
        before = next((p for p in passes if isinstance(p, FuseOps)), None)
        fusions: list[tuple[Sequence[str], float]] = []
        for others, other_us in () if before is None else before.fusions:
            if set(others).isdisjoint(names):
                fusions.append((others, other_us))
            else:
                names = tuple(dict.fromkeys((*others, *names)))
        made = FuseOps.of([*fusions, (names, us)])
        if before is not None:
            passes[passes.index(before)] = made
        else:
            passes.insert(_place_of_fusion(passes), made)
        run = attrs.evolve(self.run, passes=tuple(passes))
        return attrs.evolve(self, run=run, anew="")

    def _sharded(self, edit: edits.Shard) -> str:
        """Return the pass that shards tables, those that it sharded before included."""
        model = self.run.model
        plan = edit.plan
        if edit.table != ALL:
            plans = (p.plan for p in model.passes if isinstance(p, ShardEmbeddings))
            base = next(plans, "data-parallel")
            if base.endswith(".json") or base.lstrip().startswith("{"):
                msg = (
                    f"Shard({edit.table!r}, …): how the other tables are sharded is "
                    f"said by {base}; write this one there, or use Shard('*', …)"
                )
                raise UsageError(msg)
            plan = f"{base};{edit.table}={plan}"
        return f"shard-embeddings{{ranks={model.ranks},plan={_quoted(plan)}}}"

    def _converted(self, edit: edits.Dtype) -> Setting:
        model = self.run.model
        for conversion in conversions(edit.dtype):
            model = model.converted(conversion)
        run = attrs.evolve(self.run, model=model)
        check_run(model, run.runtime, run.target)
        why = "the whole model computes in another type"
        return attrs.evolve(self, run=run, anew=why)

    def _in_tf32(self, edit: edits.Dtype) -> Setting:
        """Return the setting whose GEMMs run in TF32, which a process switches on."""
        if edit.where != ALL:
            msg = f"{edit}: TF32 is switched on for all GEMMs: expected where='{ALL}'"
            raise UsageError(msg)
        passes = tuple(
            attrs.evolve(p, tf32=True) if isinstance(p, LowerKernels) else p
            for p in self.run.passes
        )
        run = attrs.evolve(self.run, passes=passes)
        return attrs.evolve(self, run=run, anew="GEMMs are lowered for TF32")

    def _transformed(self, p: Pass) -> Setting:
        model = self.run.model
        trains = model.mode == TRAINING

        def change(transforms: Sequence[Pass]) -> Sequence[Pass]:
            alone = isinstance(p, ShardEmbeddings)  # one plan for all tables
            kept = [q for q in transforms if not (alone and type(q) is type(p))]
            sharding = [n for n, q in enumerate(kept) if isinstance(q, ShardEmbeddings)]
            if isinstance(p, embeddings.PlaceEmbeddings) and sharding:
                # Sharded tables lose their names.
                kept.insert(sharding[0], p)
                return completed(kept)
            return completed(with_backward(kept, p) if trains else [*kept, p])

        made = model.changed(change)
        if made is None:
            msg = (
                f"pass {p.name!r} changes the graph of {model.name}, which was not "
                "loaded by name: give it to perfc.load(..., transforms=[...])"
            )
            raise UsageError(msg)
        run = attrs.evolve(self.run, model=made)
        check_run(made, run.runtime, run.target)
        return attrs.evolve(self, run=run, anew=f"{p.name} changes the graph")


Pricing: TypeAlias = Callable[[Recipe, Sequence[Kernel]], None]
"""Remembers what kernels cost, which a recipe has led to."""


@attrs.frozen(eq=False)
class Lowered:
    """A setting, and how its graphs were lowered.

    Attributes:
        setting: The setting, whose step has the tasks of the recipes.
        recipes: Of each rank class.

    """

    setting: Setting
    recipes: Sequence[Recipe]

    @property
    def is_fresh(self) -> bool:
        """Whether its graphs are as they were lowered."""
        classes = self.setting.run.model.program.classes
        pairs = zip(classes, self.recipes, strict=True)
        return all(
            rank.ops is not None and rank.ops.version == recipe.version
            for rank, recipe in pairs
        )

    @classmethod
    def of(cls, setting: Setting, price: Pricing) -> Lowered:
        """Lower a setting, by recipes of which nobody else may have made its step.

        Args:
            setting: The setting.
            price: Is called with each recipe and the kernels that it has led to, before
                those are priced, to remember what it knows.

        """
        launches, recipes = recipes_of(setting.run)
        graphs = launches.get(LAUNCHES)
        for recipe, graph in zip(recipes, graphs, strict=True):
            price(recipe, graph.kernels)
        made = attrs.evolve(setting)
        made.keep(Step.priced(setting.run, setting.memory, launches))
        return cls(made, recipes)


def _place_of_fusion(passes: Sequence[Pass]) -> int:
    """Return where ops are fused: before a CUDA graph has one call for all kernels."""
    for at, p in enumerate(passes):
        if p.runtime == CAPTURED:
            return at
    return 1 + max(at for at, p in enumerate(passes) if LAUNCHES in p.provides)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
