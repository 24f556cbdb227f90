"""The kernels that are declared: perfc's own, and those of plugins' cost models."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import cast

from perfc.ir import support
from perfc.ir.kernels.definition import Declared, KernelDef
from perfc.ir.record import AttrValue, Record
from perfc.lazy_table import LazyTable

BUILTIN_KERNELS: LazyTable[KernelDef] = LazyTable(
    "perfc.ir.kernels",
    {
        "gemm:KERNELS": (
            "gemm conv2d conv3d attention linear_attention causal_conv fft lu distances"
        ),
        "streams:KERNELS": (
            "elementwise softmax layer_norm batch_norm reduction concat gather "
            "transpose quantize pool triton_poi triton_per triton_red foreach "
            "optimizer_step"
        ),
        "selection:KERNELS": (
            "radix_sort run_length scan sort select histogram nms sample nll_loss "
            "roi_pool col2im deformable_im2col interpolate resize grid_sample "
            "affine_grid pad topk ctc_walk ctc_collect test.op"
        ),
        "tables:KERNELS": (
            "embedding_bag row_cache_fill tier_read tier_write tier_fill host_lookup "
            "server_lookup server_request server_transfer pooled_copy "
            "embedding_backward linearize_indices index_add"
        ),
        "transfers:KERNELS": (
            "memcpy all_reduce all_gather reduce_scatter all_to_all broadcast send_recv"
        ),
    },
)
"""perfc's own, in the order in which they are listed."""


def declared_kernels() -> dict[str, KernelDef]:
    """Return all declarations by name: perfc's own, then those of plugins."""
    found = dict(BUILTIN_KERNELS)
    for _, definition in _of_plugins():
        found.setdefault(definition.name, definition)
    return found


def check_declarations(owner: str, declared: object) -> None:
    """Refuse what a plugin's cost model declares if it cannot be.

    Args:
        owner: Name of the model's plugin.
        declared: Its `kernels`.

    """
    listed = [item for item in _items(declared) if isinstance(item, KernelDef)]
    if len(listed) < len(_items(declared)) or not isinstance(declared, tuple):
        msg = (
            f"cost model {owner!r} says kernels = {declared!r}, expected a tuple of "
            "KernelDef (perfc.ir.kernels)"
        )
        raise support.VerifyError(msg)
    others = [(f"cost model {n!r}", d) for n, d in _of_plugins() if n != owner]
    for definition in listed:
        name = definition.name
        own = [("perfc", BUILTIN_KERNELS[name])] if name in BUILTIN_KERNELS else []
        for other, theirs in (*own, *others):
            if theirs.name == name and theirs != definition:
                msg = (
                    f"kernel {name!r} of cost model {owner!r} is declared by {other} "
                    "already; choose another name"
                )
                raise support.VerifyError(msg)


def kernel_def(name: str) -> KernelDef:
    """Return the declaration of the kernel called *name*."""
    found = BUILTIN_KERNELS.get(name) or declared_kernels().get(name)
    if found is not None:
        return found
    known = declared_kernels()
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    msg = (
        f"kernel {name!r} is not declared; {hint}declared: {', '.join(known)}; a cost "
        "model declares others in `kernels`, and one that no model knows has known = "
        "false"
    )
    raise support.VerifyError(msg)


def check_params(name: str, params: Record) -> None:
    """Hold the parameters of a kernel against its declaration."""
    declared = _BUILTIN.get(name)
    if declared is None:
        declared = kernel_def(name).declared
        if name in BUILTIN_KERNELS:
            _BUILTIN[name] = declared
    declared.check(params)


_BUILTIN: dict[str, Declared] = {}
"""Declarations of kernels that were met: a lookup is on the way of every kernel."""


def default_of(name: str, param: str) -> AttrValue:
    """Return the value of a parameter for a kernel that does not say it.

    None, where every kernel says it, none has it, or nobody declares such a kernel.
    """
    if name in BUILTIN_KERNELS:
        return _default_of(name, param)
    found = declared_kernels().get(name)
    return None if found is None else _default_in(found, param)


@functools.cache
def _default_of(name: str, param: str) -> AttrValue:
    return _default_in(BUILTIN_KERNELS[name], param)


def _default_in(definition: KernelDef, param: str) -> AttrValue:
    found = definition.declared.by_name.get(param)
    return None if found is None else found.value_without


def _of_plugins() -> Iterator[tuple[str, KernelDef]]:
    """Yield kernels that others' cost models declare; one that does not load has none.

    Pricing names those, once.
    """
    for name in support.plugin_names(support.COST_MODELS):
        if support.is_perfcs_own(support.COST_MODELS, name):
            continue
        try:
            model = support.load_plugin(support.COST_MODELS, name)
        except support.PerfcError:
            continue
        for item in _items(getattr(model, "kernels", ())):
            if isinstance(item, KernelDef):
                yield name, item


def _items(declared: object) -> Sequence[object]:
    return cast("Sequence[object]", declared) if isinstance(declared, tuple) else ()
