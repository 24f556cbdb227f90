"""Loading a model: from what the user names to a typed, bound program."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Unpack

import attrs

from perfc.ir import Program, UsageError
from perfc.ir.annotations import Annotations
from perfc.ir.copying import bound_copy
from perfc.ir.support import paused_collector
from perfc.passes import Pass, PassManager, Transform, pipelines, precision
from perfc.passes.graphs import is_training_step
from perfc.passes.instruments import Instrument
from perfc.passes.manager import Analysis
from perfc.tools.given import NARROW_DTYPES
from perfc.tools.models import binding, pass_order
from perfc.tools.models.again import Again
from perfc.tools.models.fronts import Fronts, transformed
from perfc.tools.models.program import (
    OnnxModel,
    depends_on_numbers,
    is_factory,
    is_onnx,
    read_onnx,
    read_program,
)
from perfc.tools.models.rewritten import rewrite, run_front, split_front
from perfc.tools.request import (
    INFERENCE,
    TRAINING,
    DimOptions,
    LoadOptions,
    Request,
    SizeOptions,
)
from perfc.tools.signatures import shows

if TYPE_CHECKING:
    from perfc.frontends.torch import Source
    from perfc.passes.precision import ConvertDtype

Change: TypeAlias = Callable[[Sequence[Pass]], Sequence[Pass]]
"""What else could have been done to a model; nothing if it does not apply."""


@attrs.frozen(eq=False)
class Model:
    """A loaded model: typed, bound, ready for any target.

    Attributes:
        program: Its graphs, with the bound dimensions.
        annotations: What is known of it on any machine; analyses add to it.
        unbound: The program before binding, to bind it otherwise.
        symbols: What its symbols mean, per rank class, if that is known.
        source: The file that it was read from, if there is one.
        late: What runs after binding, where the ops depend on the numbers.
        dtype: What it was converted to; empty for what the source says.
        recipe: How to load it again; None if it cannot be.
        again: Loads it once more with a conversion, at the bound dimensions.
        preset: Name of the preset that it was loaded by; empty for none.
        passes: What its op graphs went through.

    """

    program: Program
    annotations: Annotations
    unbound: Program
    symbols: tuple[binding.Symbols | None, ...] | None = None
    source: Path | None = None
    late: _Late | None = None
    dtype: str = ""
    recipe: _Recipe | None = None
    again: Again[Model] | None = attrs.field(default=None, repr=False)
    preset: str = ""
    passes: tuple[Pass, ...] = ()

    def changed(self, change: Change) -> Model | None:
        """Make the model with other transforms.

        Args:
            change: Turns the transforms it was loaded with into others; nothing for
                no change.

        Returns:
            The other model with the same dimensions bound, None if there is none.

        """
        if self.recipe is None:
            return None
        return self.recipe.changed(change, self)

    def converted(self, conversion: ConvertDtype) -> Model:
        """Return a copy of the model that computes in another type.

        A training step is loaded once more: autocast comes before its backward pass,
        and gradients of other sizes are sent in other buckets.

        Raises:
            UsageError: it has been converted before, is given as launches, or is a
                training step that cannot be loaded again.

        """
        if self.dtype:
            msg = f"{self.name} is converted to {self.dtype} already"
            raise UsageError(msg)
        if any(rank.ops is None for rank in self.program.classes):
            msg = f"{self.name} is a launch graph: its kernels have their types"
            raise UsageError(msg)
        if self.again is not None and self.mode == TRAINING:
            dims = self.dims
            return self.again.converted(conversion.converts_to, dims)
        recipe = None if self.recipe is None else self.recipe.before(conversion)
        changed = self.rewritten(conversion)
        return attrs.evolve(changed, dtype=conversion.converts_to, recipe=recipe)

    def rewritten(self, *transforms: Transform) -> Model:
        """Return a copy of the model, whose op graphs went through more transforms.

        Raises:
            PerfcError: one of them refuses the model.

        """
        made, late = rewrite(self.program, self.unbound, transforms), self.late
        if late is not None:
            late = attrs.evolve(late, passes=(*late.passes, *made.passes))
        recipe = self.recipe
        return attrs.evolve(
            self,
            passes=(*self.passes, *made.passes),
            program=made.program,
            annotations=made.analysis.annotations,
            unbound=made.unbound if late is None else self.unbound,
            late=late,
            recipe=None if recipe is None else recipe.after(transforms),
        )

    @property
    def mode(self) -> str:
        """`training` if the graphs have a backward pass, else `inference`."""
        graphs = [rank.ops for rank in self.program.classes if rank.ops is not None]
        trains = any(is_training_step(graph) for graph in graphs)
        return TRAINING if trains else INFERENCE

    def bind(self, batch: int | None = None, **options: Unpack[DimOptions]) -> Model:
        """Return this model at another batch, without loading it again.

        Args:
            batch: Samples in the batch.
            pooling: Lookups per embedding bag, where the model leaves it open.
            dims: Other symbols and their numbers.

        Raises:
            UsageError: a size is no whole number.
            UnboundSymbolError: symbols are left without a number.
            UnsupportedModelError: how often a loop runs depends on data.
            PerfcError: the model fixes that size, or has no such dimension.

        """
        sizes: SizeOptions = {"batch": batch, **options}
        asked = Request.of("Model.bind", SizeOptions, sizes)
        wanted = binding.Dimensions(asked.batch, asked.pooling, asked.dims)
        if self.late is not None:
            bound = self.late.bind(self.unbound, wanted)
            return attrs.evolve(
                bound,
                source=self.source,
                dtype=self.dtype,
                recipe=self.recipe,
                again=self.again,
                preset=self.preset,
            )
        program = binding.bind_dimensions(self.unbound, wanted, self.symbols)
        return attrs.evolve(self, program=program)

    def __repr__(self) -> str:
        dtype = f", {self.dtype}" if self.dtype else ""
        ranks = f", {self.ranks} ranks" if self.ranks > 1 else ""
        return f"<Model {self.name}: {self.mode}, batch {self.batch}{dtype}{ranks}>"

    @property
    def ranks(self) -> int:
        """How many GPUs run it."""
        return sum(len(rank.ranks) for rank in self.program.classes)

    @property
    def name(self) -> str:
        """What the file or the workload calls it."""
        return self.program.name

    @property
    def batch(self) -> int | None:
        """Samples in the batch, of all microbatches together, if the model has one."""
        found = binding.batch_size(self.program, self.symbols)
        return None if found is None else found * self.program.microbatches

    @property
    def microbatches(self) -> int:
        """How many parts of the batch are computed one after another."""
        divided = [parts for _, parts in self.program.divided]
        return max([self.program.microbatches, *divided])

    @property
    def dims(self) -> dict[str, int]:
        """Numbers of its symbols, as `load` takes them: the batch is the whole one."""
        known = [symbols for symbols in self.symbols or () if symbols is not None]
        batch = frozenset(name for symbols in known for name in symbols.batch)
        return {
            name: number * self.program.microbatches if name in batch else number
            for name, number in self.program.bound
        }


@shows(LoadOptions)
def load(
    model: str | os.PathLike[str] | Source | OnnxModel, **options: Unpack[LoadOptions]
) -> Model:
    """Load a model file, a built-in workload, or a PyTorch model by its factory.

    Args:
        model: `model.onnx`, `graph.perfc`, a workload `NAME:key=value,…`, a function
            that makes a PyTorch module, `file.py:factory`, an `onnx.ModelProto`, a
            `torch.export.ExportedProgram`, which comes in as its `.pt2` file does, or
            an `fx.GraphModule` whose inputs note what they were (`from_torch` takes
            example arguments).
        batch: Samples in the batch; binds the symbols recognised as the batch.
        pooling: Lookups per embedding bag where the model leaves it open.
        dims: Other symbols and their numbers.
        popularity: How lookups spread over the rows of all embedding tables, as
            `zipf(1.05)`; a mapping for tables by their names.
        mode: `inference`, or `training` for a whole training step: the loss, the
            backward pass and the optimizer are derived (pass `training`).
        optimizer: `sgd` (if None), `adagrad`, `rowwise_adagrad`, `adam` or `adamw`.
        accumulate: How many equal microbatches the batch of a training step is divided
            into, whose gradients are added up before the optimizer steps (pass
            `accumulate-gradients`, or those of `pipeline-parallel`).
        prune: Share of the channels of each convolution to take away (pass
            `prune-channels`).
        dtype: What the model computes in, as `perfc.analyze` takes it.
        ranks: How many GPUs run it: replicas of what *transforms* make of it, whose
            gradients are all-reduced in training (pass `data-parallel`).
        transforms: Passes that change the graph, run once, here. A pass `training`
            among them stands where it is; else it runs before them.
        preset: A preset, by name or file, whose mode and options of passes hold where
            nothing else is given; give it to `perfc.analyze`, too.
        instruments: Observers of the passes.

    Raises:
        UsageError: nothing has this name, no frontend reads this suffix, or the mode
            and the optimizer do not fit.
        PerfcError: the file is at fault.

    """
    request = Request.of("perfc.load", LoadOptions, options, model=model)
    if request.preset is not None:
        from perfc.tools.presets import with_preset

        request = with_preset(request)
    if request.dtype == "tf32":
        msg = "dtype 'tf32' is how a target multiplies: give it to perfc.analyze"
        raise UsageError(msg)
    return load_model(request)


def load_model(request: Request) -> Model:
    """Load the model of a request."""
    loaded: Model = load_request(request).model
    told = (*loaded.program.diagnostics, *request.remarks)
    program = attrs.evolve(loaded.program, diagnostics=told)
    return attrs.evolve(loaded, program=program)


def load_request(request: Request) -> Request:
    """Return the rest of a request once its model is loaded."""
    if isinstance(request.model, Model):
        msg = f"{request.model.name} is loaded already; `Model.bind` sets its sizes"
        raise UsageError(msg)
    pipeline = request.pipeline
    written, timing = pipelines.split_pipeline(pipeline or "")
    transforms, others = pass_order.asked_passes(request, written)
    made = _made(request, transforms, written=written is not None)
    pass_order.check_ranks(request.ranks, made.ranks)
    again = Again(load_model, request)
    made = attrs.evolve(made, again=again, preset=request.preset or "")
    if request.dtype in NARROW_DTYPES:
        made = attrs.evolve(made, dtype=request.dtype)
    return request.of_loaded(made, others, None if pipeline is None else timing)


def _made(request: Request, transforms: Sequence[Pass], *, written: bool) -> Model:
    """Load a model, with passes that change it, as a pipeline wrote them or not."""
    model, mode, optimizer = request.model, request.mode, request.optimizer
    wanted = binding.Dimensions(request.batch, request.pooling, request.dims)
    ranks = None if written else request.ranks
    text = "" if not isinstance(model, str) or is_factory(model) else model
    if text == model:
        program = read_program(model)
    elif is_onnx(model):
        program = read_onnx(model)
    else:
        pass_order.check_mode(mode, optimizer)
        dtype = pass_order.dtype_of(
            (*transforms, *pass_order.conversions(request.dtype, narrow=True))
        )
        from perfc.tools.models.torch_source import read_torch

        program = read_torch(
            model, mode=mode, optimizer=optimizer, dtype=dtype or None, dims=wanted.dims
        )
        if program.recorded:
            pass_order.check_recorded(str(program), mode, transforms)
            transforms = [
                p for p in transforms if not isinstance(p, precision.ConvertDtype)
            ]
            transforms = pass_order.parallel_passes(ranks, transforms)
            made = prepare(program, wanted, None, transforms, request.instruments)
            return attrs.evolve(made, dtype=dtype)
    if written:
        pass_order.check_step(request, transforms)
    transforms = pass_order.training_passes(mode, optimizer, transforms)
    transforms = pass_order.parallel_passes(ranks, transforms)
    if not pipelines.trains(transforms):
        program = pass_order.remarked(program)
    source = Path(text) if text and program.sha256 else None
    made = prepare(program, wanted, source, transforms, request.instruments)
    again = text and not pipelines.is_whole(transforms)
    recipe = _Recipe(text, source, tuple(transforms)) if again else None
    return attrs.evolve(made, recipe=recipe)


@attrs.frozen
class _Recipe:
    """How a model was loaded.

    Attributes:
        name: What `read_program` takes.
        source: The file that it was read from, if there is one.
        transforms: Passes that changed the graph.
        fronts: What it was before them.

    """

    name: str
    source: Path | None
    transforms: tuple[Pass, ...]
    fronts: Fronts = attrs.field(factory=Fronts, repr=False)

    def before(self, conversion: Pass) -> _Recipe:
        """Return the recipe of the model in another type."""
        return attrs.evolve(self, transforms=(conversion, *self.transforms))

    def after(self, transforms: Sequence[Pass]) -> _Recipe:
        """Return the recipe of the model with more transforms."""
        return attrs.evolve(self, transforms=(*self.transforms, *transforms))

    def changed(self, change: Change, model: Model) -> Model | None:
        """Return *model*, which was loaded so, with other transforms, read once."""
        transforms = change(self.transforms)
        if not transforms:
            return None
        wanted = binding.Dimensions(dims=model.dims)
        again = attrs.evolve(self, transforms=tuple(transforms))
        given = any(rank.ops is None for rank in model.program.classes)
        if model.late is not None or given or pipelines.is_whole(transforms):
            found = None
        elif self.transforms or pipelines.trains(transforms):
            found = self.fronts.transformed(self.name, transforms)
        else:
            analysis, passes = transformed(model.unbound, transforms)
            found = analysis, [*model.passes, *passes]
        if found is None:
            made = prepare(read_program(self.name), wanted, self.source, transforms)
            return attrs.evolve(made, recipe=again)
        return attrs.evolve(
            _bound(found[0], wanted),
            source=self.source,
            dtype=pass_order.computes_in(transforms),
            recipe=again,
            passes=tuple(found[1]),
        )


def prepare(
    program: Program,
    wanted: binding.Dimensions | None = None,
    source: Path | None = None,
    transforms: Sequence[Pass] = (),
    instruments: Sequence[Instrument] = (),
) -> Model:
    """Run the front pipeline on what a frontend has read, and bind its symbols.

    Args:
        program: What the frontend made.
        wanted: What the user says of its dimensions.
        source: The file that it was read from, if there is one.
        transforms: Passes that change the graph.
        instruments: Observers of the passes.

    """
    wanted = wanted or binding.Dimensions()
    early, passes = split_front(
        pipelines.loading_pipeline(transforms, recorded=program.recorded)
    )
    with paused_collector():
        raised = PassManager(early, instruments).run(program)
        program = attrs.evolve(raised.program, diagnostics=raised.diagnostics)
        if depends_on_numbers(program):
            program = attrs.evolve(
                program, microbatches=pass_order.microbatches_of(transforms)
            )
            made = _Late(passes, instruments).bind(program, wanted)
        else:
            made = _bound(run_front(program, passes, instruments), wanted)
    dtype = pass_order.computes_in(transforms)
    if all(rank.ops is None for rank in program.classes):
        early, passes = [], []
    return attrs.evolve(made, source=source, dtype=dtype, passes=(*early, *passes))


def _bound(analysis: Analysis, wanted: binding.Dimensions) -> Model:
    """Bind the symbols of what a pipeline has made."""
    program = attrs.evolve(analysis.program, diagnostics=analysis.diagnostics)
    symbols = binding.classify_program(program)
    bound_program = binding.bind_dimensions(program, wanted, symbols)
    return Model(bound_program, analysis.annotations, program, symbols)


@attrs.frozen(eq=False)
class _Late:
    """Binds a model whose ops depend on the numbers: on a copy, each time anew.

    Attributes:
        passes: What its graphs go through once the numbers are known.
        instruments: Observers of the passes.

    """

    passes: Sequence[Pass]
    instruments: Sequence[Instrument]

    def bind(self, unbound: Program, wanted: binding.Dimensions) -> Model:
        """Bind the inputs' symbols, then those that depend on data."""
        symbols = binding.classify_program(unbound, inputs_only=True)
        every = frozenset[str]().union(*(s.every for s in symbols if s is not None))
        of_inputs = {n: d for n, d in wanted.dims.items() if n in every}
        of_data = {n: d for n, d in wanted.dims.items() if n not in every}
        first = attrs.evolve(wanted, dims=of_inputs)
        bound = binding.bind_dimensions(unbound, first, symbols)
        copies = tuple(
            rank
            if rank.ops is None
            else attrs.evolve(rank, ops=bound_copy(rank.ops, bound.bindings))
            for rank in bound.classes
        )
        copied = attrs.evolve(bound, classes=copies)
        analysis = run_front(copied, self.passes, self.instruments)
        program = attrs.evolve(analysis.program, diagnostics=analysis.diagnostics)
        program = binding.bind_dimensions(program, binding.Dimensions(dims=of_data))
        return Model(program, analysis.annotations, unbound, symbols, late=self)
