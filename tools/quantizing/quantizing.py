"""Plans of precision: made, priced, and searched."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from perfc.costmodels import Target, load_target
from perfc.ir import Graph, Node, UsageError
from perfc.ir.location import Location
from perfc.ir.node_kinds import is_cast, is_embedding_bag, is_gather
from perfc.ir.support import counted
from perfc.passes.graphs import typed
from perfc.passes.precision import TABLE, Candidate, Quantize, candidates, untransposed
from perfc.planning.searches import Option, best_options
from perfc.tools.analysis import priced
from perfc.tools.models import Model, load_request
from perfc.tools.quantizing import question
from perfc.tools.quantizing.losses import Losses, read_losses
from perfc.tools.quantizing.plan import (
    ORIGINAL,
    Choice,
    Frontier,
    KeptOp,
    PrecisionPlan,
    casts_of,
)
from perfc.tools.quantizing.remarks import unused_types, why_slower
from perfc.tools.quantizing.report import Quantization
from perfc.tools.reports import Report
from perfc.tools.request import INFERENCE, Request

_QUARTERS = (0, 1, 2, 4, 8, 16)
"""Budgets of the frontier, in quarters of the one that is asked for; and no limit."""

_US_PER_BYTE = 1e-15
"""What a byte of weights is worth: no sum of them is a nanosecond."""

_ROUNDING = 1e-12
"""Share of the budget that a sum may be above it for how floats are added."""


def quantize(request: Request, asked: question.Precision) -> Quantization:
    """Price a model as it is, quantised as asked, and in the types to compare.

    With losses, what is quantised is chosen: the most device time saved by ops whose
    losses sum up to no more than the budget.

    Args:
        request: The model, the target, and how it runs.
        asked: The types.

    """
    if request.mode != INFERENCE:
        msg = (
            "quantize is for inference: gradients of weights of few bits make no "
            "sense; train in 8 bits by perfc analyze --mode training --dtype fp8"
        )
        raise UsageError(msg)
    target = request.target
    if not isinstance(target, Target):
        target = load_target(target, request.overrides)
    question.check_sums(asked, target)
    return _Quantizer(load_request(request), target, asked).run()


@attrs.frozen(eq=False)
class _Quantizer:
    """Makes plans of one model and prices them.

    Attributes:
        request: What is left of a request once its model is loaded.
        target: The target.
        asked: What is asked for.

    """

    request: Request
    target: Target
    asked: question.Precision

    @property
    def model(self) -> Model:
        """The model as it is."""
        model: Model = self.request.model
        return model

    def run(self) -> Quantization:
        """Make the plans."""
        if any(rank.ops is None for rank in self.model.program.classes):
            msg = f"{self.model.name} is a launch graph: its kernels have their types"
            raise UsageError(msg)
        original = self._priced(ORIGINAL, self.model, ())
        frontier: tuple[Frontier, ...] = ()
        losses, budget, loss = self.asked.losses, self.asked.budget, None
        if losses is None or budget is None:
            plan = self._plan(self.asked, self.asked.name)
        else:
            search = _Search(self, self.asked, original, losses, budget)
            plan, frontier, loss = search.run()
        others = [
            self._plan(self.asked.other(name), name)
            for name in counted(self.asked.compare, "types compared")
        ]
        return Quantization(
            request=self.request,
            target=self.target,
            plans_made=(plan, original, *others),
            frontier=frontier,
            budget=budget,
            loss=loss,
            remarks=(
                *unused_types(self.model, self.asked),
                *why_slower(plan, original, self._report),
            ),
        )

    def _plan(self, asked: question.Precision, name: str) -> PrecisionPlan:
        return self.plan_of(asked.transform(question.rows_on(self.target)), name)

    def plan_of(
        self, transform: Quantize, name: str, kept: Mapping[str, str] | None = None
    ) -> PrecisionPlan:
        """Price the model as a pass makes it; *kept* says why ops are not quantised."""
        program = self.model.program
        question.check_types(transform, program, self.target)
        found = [*candidates(program)]
        model = self.model.rewritten(transform)
        # The types that parameters are stored in, by their names.
        graphs = [rank.ops for rank in model.program.classes if rank.ops is not None]
        stored = {
            v.name: question.type_name(v) for graph in graphs for v in graph.parameters
        }
        listed = {
            one.name: KeptOp(
                one.name, question.own_type(one), _reason(one, transform, kept or {})
            )
            for one in found
            if stored[one.weight.name] == question.own_type(one)
        }
        return self._priced(name, model, tuple(listed.values()))

    def _priced(
        self, name: str, model: Model, kept: tuple[KeptOp, ...]
    ) -> PrecisionPlan:
        return PrecisionPlan(
            name=name,
            model=model,
            report=self._report(model),
            kept=kept,
            casts=casts_of(model) - casts_of(self.model),
        )

    def _report(self, model: Model) -> Report:
        return priced(attrs.evolve(self.request, model=model), self.target)


def _reason(one: Candidate, transform: Quantize, reasons: Mapping[str, str]) -> str:
    """Say why a table or layer has the type that it had."""
    if one.name in reasons:
        return reasons[one.name]
    if any(kept.matches(one.names) for kept in transform.kept):
        return "keep"
    asked = transform.embeddings if one.kind == TABLE else transform.linear
    return "unfit" if asked else "not asked"


@attrs.frozen(eq=False)
class _Search:
    """Chooses what is quantised, by what it saves and what it loses.

    Attributes:
        quantizer: Prices.
        asked: What is asked for.
        original: The model as it is.
        path: File of losses.
        budget: What they may add up to.

    """

    quantizer: _Quantizer
    asked: question.Precision
    original: PrecisionPlan
    path: Path
    budget: float

    def run(self) -> tuple[PrecisionPlan, tuple[Frontier, ...], float]:
        """Return the best plan within the budget, the frontier, and the plan's loss."""
        free = self._free()
        if not free:
            msg = "nothing is left to choose: --keep says the type of every op"
            raise UsageError(msg)
        found = candidates(self.quantizer.model.program)
        aliases = {name: one.name for one in found for name in one.names}
        losses = read_losses(self.path, free, aliases)
        # Refuse types that ops, or the target, have not.
        for dtype in sorted({dtype for each in losses.values() for dtype in each}):
            named = {op: dtype for op, each in losses.items() if dtype in each}
            transform = self._transform(named)
            question.check_types(
                transform, self.quantizer.model.program, self.quantizer.target
            )
        savings = self._savings(free, losses)
        best = self._chosen(losses, savings, self.budget)
        plan = attrs.evolve(
            self._plan(best, losses, savings),
            choices=tuple(_choices(best, losses, savings)),
        )
        frontier: list[Frontier] = []
        known = {tuple(sorted(best.items())): plan}
        for budget in counted(self._budgets(losses), "budgets"):
            chosen = self._chosen(losses, savings, budget)
            key = tuple(sorted(chosen.items()))
            if key not in known:
                known[key] = self._plan(chosen, losses, savings)
            frontier.append(_point(chosen, losses, known[key]))
        total = sum(losses[op][dtype] for op, dtype in best.items())
        return plan, tuple(_undominated(frontier)), total

    def _free(self) -> dict[str, str]:
        """Return the ops that may be quantised, and the types asked for."""
        transform = self.asked.transform(question.rows_on(self.quantizer.target))
        chosen = transform.chosen(self.quantizer.model.program)
        return {
            one.name: dtype
            for one, dtype in chosen.items()
            if not any(kept.matches(one.names) for kept in transform.kept)
            and dtype != question.own_type(one)
        }

    def _budgets(self, losses: Losses) -> list[float]:
        limit = sum(max(each.values()) for each in losses.values())
        shares = [min(n * (self.budget or limit) / 4, limit) for n in _QUARTERS]
        return sorted({*shares, self.budget, limit})

    def _transform(self, chosen: Mapping[str, str]) -> Quantize:
        said = [text for text in (self.asked.keep,) if text]
        said += [f"{glob.escape(op)}:{dtype}" for op, dtype in chosen.items()]
        transform = self.asked.transform(question.rows_on(self.quantizer.target))
        return attrs.evolve(transform, embeddings="", linear="", keep=",".join(said))

    def _plan(
        self,
        chosen: Mapping[str, str],
        losses: Losses,
        savings: Mapping[str, Mapping[str, float]],
    ) -> PrecisionPlan:
        """Price a choice by the whole pipeline."""
        reasons = {
            op: "budget" if max(savings[op].values()) > 0 else "no gain"
            for op in losses
            if op not in chosen
        }
        name = f"{len(chosen)} of {len(losses)} ops"
        return self.quantizer.plan_of(self._transform(chosen), name, reasons)

    def _savings(
        self, free: Mapping[str, str], losses: Losses
    ) -> dict[str, dict[str, float]]:
        """Return the device time that each op saves in each type, in microseconds.

        Of its own kernels, and those that convert for it: all ops that have the type,
        quantised together. What saves as much time is worth more that saves more bytes.
        """
        found: dict[str, dict[str, float]] = {op: {} for op in free}
        before = _op_times(self.quantizer.model, self.original.report, free)
        whole = _weight_bytes(self.quantizer.model, free)
        types = dict.fromkeys(dtype for each in losses.values() for dtype in each)
        for dtype in counted([*types], "types priced"):
            named = {op: dtype for op, each in losses.items() if dtype in each}
            plan = self.quantizer.plan_of(self._transform(named), dtype)
            after = _op_times(plan.model, plan.report, named)
            sizes = _weight_bytes(plan.model, named)
            for op in named:
                fewer = whole[op] - sizes[op]
                found[op][dtype] = before[op] - after[op] + fewer * _US_PER_BYTE
        return found

    def _chosen(
        self, losses: Losses, savings: Mapping[str, Mapping[str, float]], budget: float
    ) -> dict[str, str]:
        """Return which ops are quantised, and their types."""
        ops = list(losses)
        things = [
            [Option(loss, savings[op][dtype]) for dtype, loss in losses[op].items()]
            for op in ops
        ]
        taken = best_options(things, budget * (1 + _ROUNDING))
        return {
            op: list(losses[op])[place]
            for op, place in zip(ops, taken, strict=True)
            if place is not None
        }


def _choices(
    best: Mapping[str, str],
    losses: Losses,
    savings: Mapping[str, Mapping[str, float]],
) -> Iterator[Choice]:
    for op, each in losses.items():
        for dtype, loss in each.items():
            chosen = best.get(op) == dtype
            yield Choice(op, dtype, loss, savings[op][dtype], chosen)


def _undominated(points: Sequence[Frontier]) -> Iterator[Frontier]:
    least = math.inf
    for point in sorted(points, key=lambda one: (one.loss, one.device_us)):
        if point.device_us < least:
            least = point.device_us
            yield point


def _point(chosen: Mapping[str, str], losses: Losses, plan: PrecisionPlan) -> Frontier:
    return Frontier(
        loss=sum(losses[op][dtype] for op, dtype in chosen.items()),
        time_us=plan.report.time_us,
        device_only_us=plan.report.summary["device_only_us"],
        quantized=len(chosen),
        kept=len(losses) - len(chosen),
    )


def _weight_bytes(model: Model, wanted: Mapping[str, str]) -> dict[str, int]:
    """Return the bytes of the weights of tables and layers."""
    graphs = [rank.ops for rank in model.program.classes if rank.ops is not None]
    weights = [value for graph in graphs for value in graph.parameters]
    names = {value: value.name.removesuffix(".weight") for value in weights}
    return {op: int(typed(value).nbytes) for value, op in names.items() if op in wanted}


def _op_times(
    model: Model, report: Report, wanted: Mapping[str, str]
) -> dict[str, float]:
    """Return the device time of tables and layers, with what converts for them, in us.

    Where one lookup is of several tables, each has the share of its rows' bytes.
    """
    durations: dict[str, float] = {}
    for entry in report.nodes:
        durations[entry["id"]] = durations.get(entry["id"], 0.0) + entry["duration_us"]
    times = dict.fromkeys(wanted, 0.0)
    for rank in model.program.classes:
        if rank.ops is not None:
            _add_times(rank.ops, durations, times)
    return times


def _add_times(
    graph: Graph, durations: Mapping[str, float], times: dict[str, float]
) -> None:
    owners: dict[Location, str] = {}
    for node in graph:
        if is_embedding_bag(node):
            shares = _shares(node)
            for op, share in shares.items():
                if op in times:
                    times[op] += share * durations.get(node.name, 0.0)
        elif op := _layer(node, times):
            owners[node.location] = op
    for node in graph:
        owner = owners.get(node.location)
        if owner is None and is_cast(node):
            maker = node.operands[0].producer
            owner = None if maker is None else owners.get(maker.location)
        if owner is not None:
            times[owner] += durations.get(node.name, 0.0)


def _layer(node: Node, times: Mapping[str, float]) -> str:
    """Return the op that a node is the product, or the single lookup, of."""
    for value in node.operands[:1] if is_gather(node) else node.operands[1:2]:
        weight = untransposed(value)
        name = weight.name.removesuffix(".weight")
        if weight.producer is None and name in times:
            return name
    return ""


def _shares(node: Node) -> dict[str, float]:
    """Return the share of a lookup's time that each of its tables takes, by bytes."""
    count = len(node.attributes.records("tables"))
    rows: dict[str, float] = {}
    for value in node.operands[:count]:
        type_ = typed(value)
        bytes_ = type_.dtype.row_bytes(type_.shape[-1])
        rows[value.name.removesuffix(".weight")] = float(bytes_)
    total = sum(rows.values()) or 1.0
    return {op: each / total for op, each in rows.items()}
