"""What `perfc place` does: search where tables lie, and compare plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from perfc.costmodels import Target, load_target
from perfc.ir import Diagnostic, PerfcError, UsageError
from perfc.ir.support import Level, format_bytes
from perfc.planning.plans import ranking
from perfc.planning.searches import TIME, TierTask, densest_first, search_tiers
from perfc.planning.searches import smallest_first as by_size
from perfc.tools.placing.base import QueriedModel
from perfc.tools.placing.placed_plan import PlacedPlan
from perfc.tools.placing.question import GREEDY, PLANS, Question, WantedPlan
from perfc.tools.placing.report import Placement
from perfc.tools.placing.scenario import Scenario
from perfc.tools.placing.site import Site, check_room, one_tier

BEST = "best"
"""Name of the plan that the search finds."""


def place(
    model: QueriedModel,
    *,
    scenario: Scenario | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Placement:
    """Find where the tables of a model lie, and compare that with other plans.

    Args:
        model: The model and what is asked of it.
        scenario: Where the question is from, if from one.
        say: Told what is being done.

    """
    return _Search(model, scenario, say).placement()


class _Search:
    """One search: the machines that it has analyzed the model on."""

    def __init__(
        self,
        model: QueriedModel,
        scenario: Scenario | None,
        say: Callable[[str], None],
    ) -> None:
        self._model, self._scenario, self._say = model, scenario, say
        self._question = model.question
        self._sites: dict[str, Site] = {}

    def placement(self) -> Placement:
        """Search, and compare."""
        question = self._question
        site = self._site(question.target)
        task = site.task(question.tiers)
        # Refuse a cache that is in front of nothing.
        if question.cache_bytes and not any(task.cached):
            names = ",".join(tier.name for tier in task.setting.tiers)
            msg = (
                f"--cache {format_bytes(question.cache_bytes)}: it is in front of "
                "slower "
                f"tiers, and --tiers {names} has none; add one, or leave --cache out"
            )
            raise UsageError(msg)
        check_room(task)
        others, remarks = self._others(site, task)
        within = [one.places for one in others if one.task is task]
        found = search_tiers(task, within, self._say)
        best = PlacedPlan(name=BEST, site=site, task=task, places=found.places)
        if found.wrong:
            raise self._refusal(task, best)
        best.check()
        plans = _ranked([best, *others])
        return Placement(
            question=question,
            model=model_name(self._model),
            best=best,
            ranked=tuple(plans),
            base=others[0] if others else None,
            method=found.name,
            scenario=self._scenario,
            remarks=tuple(remarks),
        )

    def _site(self, target: Target) -> Site:
        if target.name not in self._sites:
            self._say(f"analyzing {self._model.name} on {target.name}")
            self._sites[target.name] = Site.of(self._model, target)
        return self._sites[target.name]

    def _refusal(self, task: TierTask, best: PlacedPlan) -> PerfcError:
        """Return why no placement can be, with the figures of the nearest one."""
        anyhow = attrs.evolve(task.setting, target=None, objective=TIME)
        fastest = search_tiers(attrs.evolve(task, setting=anyhow), (), self._say)
        # Where none can be, one that has room says what else is too much.
        nearest = densest_first(task) if fastest.wrong else fastest.places
        best = attrs.evolve(best, places=(*nearest,))
        try:
            best.check()
        except PerfcError as error:
            return error
        return PerfcError("no placement is within the limits of all tiers")

    def _others(
        self, site: Site, task: TierTask
    ) -> tuple[list[PlacedPlan], list[Diagnostic]]:
        """Return the plans to compare that can be, and remarks on those that cannot."""
        wanted = self._question.compare
        if wanted is None:
            wanted = (WantedPlan(name=site.native, kind=site.native),)
        found, remarks = list[PlacedPlan](), list[Diagnostic]()
        for one in wanted:
            try:
                found.append(self._plan(one, site, task))
            except PerfcError as error:
                if self._question.compare is not None and not _is_limit(error):
                    raise
                remarks.append(_not_compared(one.name, error))
        return found, remarks

    def _plan(self, wanted: WantedPlan, site: Site, task: TierTask) -> PlacedPlan:
        if wanted.kind in PLANS:
            places = densest_first(task) if wanted.kind == GREEDY else by_size(task)
            plan = PlacedPlan(name=wanted.name, site=site, task=task, places=(*places,))
            plan.check()
            return plan
        if wanted.target:
            site = self._site(load_target(wanted.target))
        return _of_one_tier(self._question, wanted, site)


def _of_one_tier(question: Question, wanted: WantedPlan, site: Site) -> PlacedPlan:
    """Return the plan of all tables in one tier; memory in as many hosts as needed."""
    tier = one_tier(question, wanted.kind)
    if wanted.target:
        tier = attrs.evolve(tier, most_bytes=None, count=None)
    task = site.task((tier,))
    need = float(task.amounts[0].sum())
    (only,) = task.setting.tiers
    hosts = math.ceil(need / only.capacity_bytes)
    if hosts > 1 and only.name == site.native:
        room = attrs.evolve(only, capacity_bytes=only.capacity_bytes * hosts)
        setting = attrs.evolve(task.setting, tiers=(room,))
        task = attrs.evolve(task, setting=setting)
    plan = PlacedPlan(
        name=wanted.name,
        site=site,
        task=task,
        places=(0,) * len(task.tables),
        memory_hosts=hosts - 1 if only.name == site.native else 0,
    )
    plan.check()
    return plan


def _is_limit(error: PerfcError) -> bool:
    """Whether a plan is at fault, and not how it was asked for."""
    return type(error) is PerfcError


def _not_compared(name: str, error: PerfcError) -> Diagnostic:
    return Diagnostic(Level.WARNING, "plan-impossible", f"plan {name}: {error}", name)


def _ranked(plans: Sequence[PlacedPlan]) -> list[PlacedPlan]:
    found = [plans[n] for n in ranking([plan.amount for plan in plans])]
    return sorted(found, key=lambda plan: not plan.fits)


def model_name(model: QueriedModel) -> str:
    """Return the name of a model."""
    return model.listed.name if model.listed is not None else model.name
