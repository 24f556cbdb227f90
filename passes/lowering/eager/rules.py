"""What eager PyTorch launches for each op, by a table of rules.

The rules describe PyTorch 2.x on CUDA, read from ATen's sources and from public
traces. An op that only views costs the host time and launches nothing; an op
without a rule launches one kernel that is costed by its bytes and marked so.
"""

from __future__ import annotations

import attrs

from perfc.ir.node_kinds import traits_of
from perfc.ir.opdef import Trait
from perfc.passes.lowering import eager as rules_of
from perfc.passes.lowering.eager.rule_table import RULES
from perfc.passes.lowering.eager.site import Eager, Site, unmodelled_launch


def _unmodelled(site: Site) -> Eager:
    name = site.attributes.text("op", site.op)
    return Eager(name, (unmodelled_launch(name, site),))


def eager_launches(site: Site) -> Eager:
    """Return the launches of eager PyTorch at *site*."""
    eager = RULES.get(site.op, _unmodelled)(site)
    if site.settings.on_cpu:
        eager = rules_of.on_cpu(eager, training=site.settings.training)
    if Trait.COLLECTIVE in traits_of(site.op):
        return eager  # the others wait for this rank, whatever it has to say
    if eager.launches and site.results and not any(_numels(site)):
        return attrs.evolve(eager, launches=())  # empty tensors launch nothing
    return eager


def _numels(site: Site) -> list[int]:
    return [result.numel for result in site.results]
