"""The op of tests, which states how long it takes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import Kernel
from perfc.ir.record import EMPTY
from perfc.passes.lowering.eager.site import Eager, Launch, Rule, Site, dtype_name


def _test_op(site: Site) -> Eager:
    """Launch a kernel that takes the microseconds that the op states."""
    dtype = site.results[0].dtype if site.results else None
    name = "fp32" if dtype is None else dtype_name(dtype)
    launch = Launch(Kernel("test.op", name, "fp32", EMPTY, site.work))
    us = site.attributes.get("us")
    if isinstance(us, int | float):
        launch = attrs.evolve(launch, stated_s=us * 1e-6)
    return Eager("test.op", (launch,))


RULES: Mapping[str, Rule] = {"test.op": _test_op}
