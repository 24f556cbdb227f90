"""The cost models that are installed."""

from __future__ import annotations

from typing import cast

from perfc.costmodels.protocol import CostModel
from perfc.ir import COST_MODELS, PerfcError, load_plugin, plugin_names

_MEMBERS = ("name", "priority", "ops", "claims", "estimate")


def cost_models() -> tuple[CostModel, ...]:
    """Return the registered models, highest priority first.

    Raises:
        PerfcError: none is registered, or a plugin is not a cost model.

    """
    models = [_load(name) for name in plugin_names(COST_MODELS)]
    if not models:
        message = f"no cost model is registered under {COST_MODELS}; install perfc"
        raise PerfcError(message)
    return tuple(sorted(models, key=lambda model: (-model.priority, model.name)))


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
    return cast("CostModel", plugin)
