"""The cost models that are installed."""

from __future__ import annotations

from typing import cast

from perfc.costmodels.kernels import CostModel
from perfc.costmodels.pricing.listed import ENTRIES, listed
from perfc.ir import COST_MODELS, PerfcError
from perfc.ir.kernels import check_declarations
from perfc.ir.support import is_perfcs_own, is_somebody_elses, load_plugin, plugin_names

_MEMBERS = ("name", "priority", "ops", "claims", "estimate")


def cost_models() -> tuple[CostModel, ...]:
    """Return the registered models that can be used, highest priority first."""
    return find_cost_models()[0]


def find_cost_models() -> tuple[tuple[CostModel, ...], tuple[str, ...]]:
    """Return the registered models, highest priority first, and what is left out.

    perfc's own are known by their entries, and loaded when there is a kernel for them.

    A model that another distribution has installed, and that cannot be loaded or is
    none, is left out, with a line that names it: it is no fault of who analyzes.
    """
    models: list[CostModel] = []
    left_out: list[str] = []
    for name in plugin_names(COST_MODELS):
        if name in ENTRIES and is_perfcs_own(COST_MODELS, name):
            models.append(listed(name))
            continue
        try:
            models.append(_load(name))
        except PerfcError as error:
            if not is_somebody_elses(COST_MODELS, name):
                raise
            left_out.append(str(error))
    if not models:
        message = f"no cost model is registered under {COST_MODELS}; install perfc"
        raise PerfcError(message)
    models.sort(key=lambda model: (-model.priority, model.name))
    return tuple(models), tuple(left_out)


def _load(name: str) -> CostModel:
    plugin = load_plugin(COST_MODELS, name)
    missing = [member for member in _MEMBERS if not hasattr(plugin, member)]
    if missing or isinstance(plugin, type):
        found = "a class" if isinstance(plugin, type) else type(plugin).__name__
        message = (
            f"{COST_MODELS} {name!r} is {found}"
            f"{' without ' + ', '.join(missing) if missing else ''}; "
            "register an instance of a CostModel"
        )
        raise PerfcError(message)
    ops: object = getattr(plugin, "ops", None)
    if not isinstance(ops, frozenset | set | None):
        message = (
            f"{COST_MODELS} {name!r} says ops = {ops!r}, expected a frozenset of "
            "kernel names, or None for any"
        )
        raise PerfcError(message)
    check_declarations(name, getattr(plugin, "kernels", ()))
    return cast("CostModel", plugin)
