"""One model, read once and spread over GPUs in many ways."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import PerfcError, Program, UsageError
from perfc.ir.copying import bound_copy
from perfc.ir.support import UnboundSymbolError, UnsupportedModelError, brief
from perfc.passes import Fsdp, Pass, PipelineParallel, ShardEmbeddings, TensorParallel
from perfc.passes.parallel import DataParallel
from perfc.passes.pipelines import with_backward
from perfc.passes.training import Training
from perfc.tools import models
from perfc.tools.request import TRAINING, Request

_OF_STRATEGIES = (Fsdp, PipelineParallel, ShardEmbeddings, TensorParallel)
"""Passes that strategies are made of."""


@attrs.frozen(kw_only=True, eq=False)
class StrategyModels:
    """Loads a model as `perfc.load` does, without reading it again.

    Attributes:
        program: What the frontend has read.
        request: How it is asked for, without passes that change it; its batch is that
            of all GPUs together.
        extras: Passes that every strategy has besides.

    """

    __repr__ = brief

    program: Program
    request: Request
    extras: Sequence[Pass] = ()

    @classmethod
    def read(cls, request: Request) -> StrategyModels:
        """Read what a user names."""
        mode, optimizer, model = request.mode, request.optimizer, request.model
        models.check_mode(mode, optimizer)
        extras, others = models.split_passes(request.passes)
        _check_extras(extras, mode)
        if models.is_factory(model):
            converted = [p.converts_to for p in models.conversions(request.dtype)]
            kept = converted[0] if converted else None
            program = models.read_torch(
                model, mode=mode, optimizer=optimizer, dtype=kept, dims=request.dims
            )
        else:
            program = models.read_program(model)
        if any(rank.ops is None for rank in program.classes):
            msg = f"{program} is given as launches: it has no layers to spread"
            raise UnsupportedModelError(msg)
        if sum(len(rank.ranks) for rank in program.classes) > 1:
            msg = f"{program} says itself what its ranks run; give one model of one GPU"
            raise UnsupportedModelError(msg)
        request = attrs.evolve(request, passes=tuple(others))
        return cls(program=program, request=request, extras=extras)

    def ordered(self, transforms: Sequence[Pass], *, replicas: bool) -> list[Pass]:
        """Return passes of a strategy with the others that it has, in their order.

        These change a whole replica: stages come after them. Options of replicas
        come last.

        Args:
            transforms: Passes of a strategy.
            replicas: Whether there are replicas.

        """
        stages = [p for p in transforms if isinstance(p, PipelineParallel)]
        last = [p for p in self.extras if isinstance(p, DataParallel)]
        first = [p for p in transforms if p not in stages]
        extras = [p for p in self.extras if p not in last]
        steps = [p for p in extras if isinstance(p, Training)]
        others = [p for p in extras if p not in steps]
        made = [*first, *others, *stages, *(last if replicas else ())]
        return with_backward(made, steps[0]) if steps else made

    def load(
        self, transforms: Sequence[Pass], batch: int | None, ranks: int | None
    ) -> models.Model:
        """Return the model as `transforms` spread it.

        Args:
            transforms: Passes of a strategy.
            batch: Samples of a replica; None for what the model fixes.
            ranks: GPUs in all; None for one replica, without what replicas do together.

        """
        program, asked = self._copy(), self.request
        converts = models.conversions(asked.dtype)
        recorded = program.recorded
        transforms = self.ordered(transforms, replicas=ranks is not None)
        if recorded:
            models.check_recorded(str(program), asked.mode, transforms)
        else:
            early = [*converts, *transforms]
            transforms = models.training_passes(asked.mode, asked.optimizer, early)
        passes = models.parallel_passes(ranks, transforms)
        wanted = models.Dimensions(batch, asked.pooling, asked.dims)
        made = models.prepare(program, wanted, None, passes)
        models.check_ranks(ranks, made.ranks)
        if recorded and converts:
            return attrs.evolve(made, dtype=converts[0].converts_to)
        return made

    def alone(self, batch: int | None) -> tuple[models.Model, int | None]:
        """Return the model on one GPU, and the batch that it fixes, if it does.

        Args:
            batch: Samples of all GPUs together, if that is known.

        """
        try:
            model = self.load((), None, None)
        except UnboundSymbolError:
            if batch is None:
                raise
            return self.load((), batch, None), None
        if model.batch is None:
            msg = f"{model.name} has no batch, by which replicas share work"
            raise UnsupportedModelError(msg)
        if batch is None:
            return model, model.batch
        if any(s.batch or s.bounds for s in model.symbols or () if s is not None):
            return self.bound(model, batch), None
        if batch % model.batch:
            msg = (
                f"--batch {batch}: {model.name} fixes {model.batch} samples of a "
                f"replica; expected a multiple of {model.batch}"
            )
            raise PerfcError(msg)
        return model, model.batch

    def bound(self, model: models.Model, batch: int) -> models.Model:
        """Return the model at another batch."""
        asked = self.request
        return model.bind(batch, pooling=asked.pooling, dims=asked.dims)

    def _copy(self) -> Program:
        """Return the program for passes to change."""
        classes = tuple(
            attrs.evolve(rank, ops=bound_copy(rank.ops, {}))
            for rank in self.program.classes
            if rank.ops is not None
        )
        return attrs.evolve(self.program, classes=classes)


def _check_extras(extras: Sequence[Pass], mode: str) -> None:
    """Refuse passes that strategies are made of, or that the mode has not."""
    for p in extras:
        if isinstance(p, _OF_STRATEGIES):
            msg = f"--pass {p.name}: --strategy says that, as --strategy 'fsdp tp:2'"
            raise UsageError(msg)
        if isinstance(p, Training) and mode != TRAINING:
            msg = f"--pass {p.name} beside --mode {mode}: leave one of the two out"
            raise UsageError(msg)
        if isinstance(p, DataParallel) and (p.ranks or p.world):
            msg = f"--pass {p.name}: --ranks says how many there are"
            raise UsageError(msg)
