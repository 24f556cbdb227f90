"""What a capture needs of PyTorch and has no public name, in one place."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import CodeType, FrameType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

C: Any = vars(torch)["_C"]
"""PyTorch's C++."""

_ALONE = 2
"""References to the storage of one tensor: that tensor, and who asks."""

AUTOCAST = C.DispatchKey.AutocastCUDA
"""The key under which PyTorch looks kernels up while autocast of CUDA is on."""


def op(name: str) -> Any:
    """Return the op of ATen that `name` or `name.overload` is.

    Raises:
        AttributeError: this version of PyTorch does not have it.

    """
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def schema(func: Any) -> Any:
    """Return the names and types of an op's arguments and results."""
    return func._schema


def current_node() -> Any:
    """Return the node that autograd is running, or None."""
    return C._current_autograd_node()


def sequence_number(node: Any = None) -> int:
    """Return the number of a node, or that of the node that was made last."""
    if node is not None:
        return int(node._sequence_nr())
    return int(vars(torch.autograd)["_get_sequence_nr"]()) - 1


_ENGINE = frozenset({"_engine_run_backward", "_make_grads"})
"""Functions of `torch.autograd` that run the engine, and make what it starts from."""


def called_by_autograd(frame: FrameType | None) -> bool:
    """Whether the engine runs the call, not Python code that the engine has called."""
    return frame is not None and frame.f_code.co_name in _ENGINE


def is_alone(tensor: torch.Tensor) -> bool:
    """Whether no other tensor has the memory of *tensor*, nor a part of it."""
    storage: Any = tensor.untyped_storage()
    return int(C._storage_Use_Count(storage._cdata)) == _ALONE


def stated_flops(
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Sequence[Any],
) -> int:
    """Return the flops of an op that is not PyTorch's own, where someone said them.

    That is done with `torch.utils.flop_counter.register_flop_formula`.
    """
    if func.namespace == "aten":
        return 0
    counter: Any = sys.modules.get("torch.utils.flop_counter")
    if counter is None:
        return 0
    formula = counter.flop_registry.get(func.overloadpacket)
    if formula is None:
        return 0
    out = results[0] if len(results) == 1 else tuple(results)
    return int(formula(*args, **kwargs, out_val=out))


def own_rule(func: Any) -> Any:
    """Return the fake implementation of an op, as `register_fake` registers it."""
    known: Any = import_module("torch._library.simple_registry").singleton
    found = known.get(f"{func.namespace}::{func._opname}")
    return None if found is None else found.fake_impl.kernel


def run_sized(
    func: Any,
    size: Callable[[], int],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Run the rule of an op; *size* answers how large is what data decide."""

    def asked(**_: object) -> int:
        return size()

    context = SimpleNamespace(new_dynamic_size=asked, create_unbacked_symint=asked)
    fake: Any = import_module("torch._library.fake_impl")
    with fake.set_ctx_getter(lambda: context):
        return own_rule(func)(*args, **kwargs)


@contextmanager
def kernels(
    key: str, found: Iterable[tuple[str, Callable[..., Any]]]
) -> Generator[None]:
    """Put Python functions in the place of ops of ATen, under one dispatch key."""
    library = import_module("torch.library").Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that another kernel gives way
            for name, kernel in found:
                library.impl(name, kernel, key)
        yield
    finally:
        library._destroy()


@contextmanager
def autocast_looked_up() -> Generator[None]:
    """Look kernels of autocast up for tensors on every device."""
    include = C._dispatch_tls_set_dispatch_key_included
    before = C._dispatch_tls_is_dispatch_key_included(AUTOCAST)
    include(AUTOCAST, True)
    try:
        yield
    finally:
        include(AUTOCAST, before)


@contextmanager
def below_autocast() -> Generator[None]:
    """Look no kernel of autocast up."""
    with C._ExcludeDispatchKeyGuard(C.DispatchKeySet(AUTOCAST)):
        yield


@contextmanager
def checkpoints_on_cuda() -> Generator[None]:
    """Let `torch.utils.checkpoint` restore autocast of CUDA for tensors on `meta`."""
    module = import_module("torch.utils.checkpoint")
    infer: Callable[..., str] = vars(module)["_infer_device_type"]

    def found(*args: Any) -> str:
        device = infer(*args)
        return "cuda" if device == "meta" else device

    with patch.object(module, "_infer_device_type", found):
        yield


def fused_attention_enabled() -> bool:
    """Whether the user leaves fused attention on: see `torch.nn.attention`."""
    flash = C._get_flash_sdp_enabled()
    return bool(flash or C._get_mem_efficient_sdp_enabled())


@contextmanager
def compiler_left_out() -> Generator[None]:
    """Keep PyTorch from importing its compiler to hide its own functions from it.

    `torch._disable_dynamo` does so on the first call of a function, unless the
    function says that it has been hidden; the import takes longer than most captures.
    A compiler that is not there sees nothing. Where it is loaded, nothing changes.
    """

    def found(what: Any, name: str, *default: Any) -> Any:
        hides = name == "__dynamo_disable" and "torch._dynamo" not in sys.modules
        return what if hides else getattr(what, name, *default)

    module = import_module("torch._compile")
    with patch.object(module, "getattr", found, create=True):
        yield


def describe_exported(program: torch.export.ExportedProgram) -> bytes:
    """Return the JSON that `torch.export.save` puts into an archive; no weights.

    Raises:
        Exception: PyTorch has no form for something in the program.

    """
    serializer: Any = import_module("torch._export.serde.serialize")
    written = serializer.serialize(
        program,
        serialize_state_dict=False,
        serialize_constants=False,
        serialize_example_inputs=False,
    )
    return bytes(written.exported_program)


def in_exported_order(
    program: torch.export.ExportedProgram, kwargs: Mapping[str, Any]
) -> list[Any]:
    """Return arguments by name in the order of the program's inputs.

    Raises:
        ValueError: they have other names.

    """
    if not kwargs:
        return []
    utilities: Any = import_module("torch.export._tree_utils")
    spec: Any = program.call_spec.in_spec
    return list(utilities.reorder_kwargs(dict(kwargs), spec).values())


def traced_lines(
    graph: torch.fx.GraphModule,
) -> tuple[CodeType, Mapping[int, Mapping[str, Any]]]:
    """Return the code that a graph runs as, and what is noted of the node of a line."""
    nodes = [node.meta for node in graph.graph.nodes]
    module: Any = graph
    _ = module.code  # Dynamo's graphs are compiled when somebody asks for their code
    first: int = module._prologue_start
    known: Mapping[int, int | None] = module._lineno_map
    found = {first + line: nodes[i] for line, i in known.items() if i is not None}
    return type(graph).forward.__code__, found


@contextmanager
def literals_copied() -> Generator[None]:
    """Copy lists of numbers to a GPU from the host, as tensors are made of them there.

    On `meta` PyTorch would look at their lengths only.
    """
    # What `torch.device` gives a device to is listed once, by what has the names now.
    import_module("torch.utils._device")._device_constructors()
    with ExitStack() as stack:
        for place, name in (
            (torch, "tensor"),
            (torch, "as_tensor"),
            (torch.Tensor, "new_tensor"),
        ):
            copied = _copied(getattr(place, name), self=place is torch.Tensor)
            stack.enter_context(patch.object(place, name, copied))
        yield


def _copied(make: Callable[..., torch.Tensor], *, self: bool) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        found = make(*args, **kwargs)
        given = tree_leaves(args[self] if len(args) > self else kwargs.get("data"))
        if not found.is_meta or not all(isinstance(n, int | float) for n in given):
            return found
        on_host = make(*args, **{**kwargs, "device": "cpu"}).detach()
        return on_host.to(found.device).requires_grad_(found.requires_grad)

    return made


@contextmanager
def scaler_left_on() -> Generator[None]:
    """Keep a `GradScaler` from turning itself off where PyTorch finds no GPU."""
    module = import_module("torch.cuda.amp.common")
    with patch.object(module, "amp_definitely_not_available", lambda: False):
        yield
