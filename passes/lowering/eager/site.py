"""What one op makes eager PyTorch do: the vocabulary of the rules.

A rule maps a `Site` (the op's attributes and what is known of its operands and
results) to an `Eager`: the name the host's overheads are known by, the runtime
calls with their kernels, and how the results lie in memory.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import TypeAlias, cast

import attrs

from perfc.costmodels import Target
from perfc.costmodels.machine import System
from perfc.ir import AttrValue, DType, Kernel, Record, TaskKind, TensorType, Work
from perfc.ir.choices import ATTENTION_KERNELS
from perfc.ir.dims import Dim, Expr
from perfc.ir.opdef import OpDef
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.record import EMPTY
from perfc.ir.support import UnboundSymbolError

LAUNCH_KERNEL = "cudaLaunchKernel"
MEMCPY = "cudaMemcpyAsync"
MEMSET = "cudaMemsetAsync"
"""Detail of a call that clears memory."""

STREAM_SYNC = "cudaStreamSynchronize"
DEVICE_SYNC = "cudaDeviceSynchronize"
EVENT_RECORD = "cudaEventRecord"
STREAM_WAIT = "cudaStreamWaitEvent"

WORK_WAIT = "Work::wait"
"""Waiting for a collective; no op of PyTorch."""

SCRATCH = "scratch"
"""Detail of a kernel whose result is a buffer that its op frees at its end."""

FROM_SCRATCH = "from scratch"
"""Detail of a kernel that reads such a buffer, which a GEMM in front has filled."""

PARTS = "parts"
"""Detail of a kernel that adds up the parts of a GEMM, within the library's call."""

MAX_LAUNCHES = 10_000
"""An op that would launch more, as its size goes, is one kernel that is costed by its
bytes, and reported."""

SCRATCHES = frozenset({SCRATCH, FROM_SCRATCH})
"""Details of kernels that need such a buffer."""

_DTYPE_NAMES = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "f8e4m3": "fp8",
    "f8e5m2": "fp8",
    "f4e2m1": "nvfp4",
}
"""Element types by the names that measured rows use; others keep their own."""


BYTE = 8
"""Bits."""


class Layout(enum.Enum):
    """How a tensor lies in memory, as far as kernels care."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    """Contiguous but for the last two axes, which are swapped."""
    HEADS = "heads"
    """Contiguous but for axes 1 and 2 of four, which are swapped: attention heads."""
    TURNED_HEADS = "turned heads"
    """Heads whose matrices were transposed before: axis 1 of four lies innermost, so
    that the last two can still be viewed as one."""
    STRIDED = "strided"
    """Anything else: a view cannot flatten it."""

    __hash__ = object.__hash__


HEADS = frozenset({Layout.HEADS, Layout.TURNED_HEADS})
"""Four axes of which not just the last two have changed places."""


def dense(layout: Layout) -> Layout:
    """Return the layout of what a kernel writes element by element.

    PyTorch keeps a permutation of dense memory, and fills what has holes.
    """
    return Layout.CONTIGUOUS if layout is Layout.STRIDED else layout


@attrs.frozen(cache_hash=True)
class Tensor:
    """What rules know of one operand or result.

    Attributes:
        type: Its type; for the rules every dimension is a number.
        layout: How it lies in memory.
        parameter: Whether it is a weight.
        known: Whether its elements are known before running.

    """

    type: TensorType
    layout: Layout = Layout.CONTIGUOUS
    parameter: bool = False
    known: bool = False

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return cast("tuple[int, ...]", self.type.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return cast("int", self.type.nbytes)

    @property
    def contiguous(self) -> bool:
        """Whether it lies in row-major order without holes."""
        return self.layout is Layout.CONTIGUOUS


def _digest(gpu: Target | None) -> str:
    """Return a digest that tells a GPU from others: its sheet has a hundred fields."""
    return "" if gpu is None else gpu.spec_sha256


@attrs.frozen(cache_hash=True)
class Settings:
    """What the rules assume of PyTorch and of the device.

    Attributes:
        fp32_gemms: Math mode of fp32 GEMMs: `fp32`, `fp32_tensor` or `tf32`.
        fp32_cudnn: The same of cuDNN: of convolutions and recurrent layers.
        fp64_gemms: Math mode of fp64 GEMMs: `fp64`, or `fp64_tensor`.
        fused_bias: Whether the GEMM kernel adds the bias of `linear`.
        int8_gemms: Math mode of GEMMs of integers of at most 8 bits: `int8`,
            or `fp32` on a device without such a rate.
        spelled_out: Whether an op that the source spells out in several calls is
            launched call by call, or as the one call that PyTorch has for it.
        patterns: Whether, in the latter case, attention is that call only where
            Inductor has a pattern for how it is spelled out.
        large_arguments: Whether a kernel takes 32 KB of arguments, so that an
            optimizer needs fewer of them: PyTorch built with CUDA 13.
        log_sigmoid: Whether `binary_cross_entropy_with_logits` goes by `log_sigmoid`.
        sm_count: SMs of the device, which decide whether a GEMM is split.
        newer_than_volta: Whether kernels for Ampere and later run: flash attention.
        on_cpu: Whether the device is the host's own processor (`cpu.py`).
        training: Whether the iteration has a backward pass, on a CPU.
        system: The nodes and the network around the device, if there are any.
        gpu: Where TF32 is allowed, by whose prices cuDNN chooses between it and fp32.
        attention: Which kernels attention is to run by; `auto` for PyTorch's choice.
        inputs: Where inputs are when they are wanted, one of `INPUTS`.
        deterministic: Whether cuDNN may take none but deterministic algorithms.
        sharers: Ranks that look up tables outside of device memory at once.
        updates: The optimizer of tables that no kernel reads where they lie; empty
            where nothing updates them.

    """

    fp32_gemms: str = "fp32"
    fp32_cudnn: str = "fp32"
    fp64_gemms: str = "fp64"
    fused_bias: bool = True
    int8_gemms: str = "int8"
    spelled_out: bool = True
    patterns: bool = False
    large_arguments: bool = False
    log_sigmoid: bool = True
    sm_count: int = 108
    newer_than_volta: bool = True
    on_cpu: bool = False
    training: bool = False
    system: System | None = None
    gpu: Target | None = attrs.field(default=None, eq=_digest, repr=False)
    attention: str = ATTENTION_KERNELS[0]
    inputs: str = "host-pinned"
    deterministic: bool = False
    sharers: int = 1
    updates: str = ""

    def gemm_math(self, dtype: DType) -> str:
        """Return the math mode of GEMMs."""
        return self._math(dtype, self.fp32_gemms)

    def cudnn_math(self, dtype: DType) -> str:
        """Return the math mode of what cuDNN computes."""
        return self._math(dtype, self.fp32_cudnn)

    def _math(self, dtype: DType, fp32: str) -> str:
        if not dtype.is_float:  # wide integers run beside fp32, on the CUDA cores
            return self.int8_gemms if dtype.bits <= BYTE else "fp32"
        name = dtype_name(dtype)
        if name == "fp32":
            return fp32
        return self.fp64_gemms if name == "fp64" else name


@attrs.frozen(cache_hash=True)
class Site:
    """One application of an op.

    Attributes:
        op: Name of the op.
        attributes: Its attributes, with every symbol a number.
        operands: Its operands.
        results: The types of its results.
        settings: What is assumed of PyTorch and of the device.

    """

    op: str
    attributes: Record
    operands: tuple[Tensor, ...]
    results: tuple[TensorType, ...]
    settings: Settings = Settings()

    @property
    def opdef(self) -> OpDef:
        """The op's definition."""
        return BUILTIN_OPS[self.op]

    @property
    def work(self) -> Work:
        """Work of the whole op."""
        types = tuple(operand.type for operand in self.operands)
        return self.opdef.work(self.attributes, types, self.results)

    @property
    def out(self) -> Tensor:
        """The first result, contiguous."""
        return Tensor(self.results[0])


class Waits(enum.Enum):
    """What a task on a stream of its own waits for, besides that stream."""

    NOTHING = "the call that issues it"
    COMPUTE = "all that was computed before"
    PREVIOUS = "the launch before, of the same op"
    AHEAD = "nothing: it is for another step"

    __hash__ = object.__hash__


@attrs.frozen
class Launch:
    """One call that puts one task on the stream.

    Attributes:
        kernel: What runs on the device.
        call: The runtime call.
        kind: Kind of the device task.
        detail: The direction of a copy; `scratch` for a kernel that fills a
            buffer of the op's own, `from scratch` for one that reads it; `parts` for
            one that a library launches right after a GEMM.
        stated_s: Seconds the op states, NaN where none.
        waits: Whether the host then waits for the stream.
        op: Name of the op that begins with this launch, where it is not the first.
        stream: Name of the stream of what is done for the device elsewhere; empty for
            that of the kernels.
        after: What such a task waits for.
        awaited: Whether kernels that read the op's results, or those of the op itself
            that follow, wait for it.

    """

    kernel: Kernel
    call: str = LAUNCH_KERNEL
    kind: TaskKind = TaskKind.KERNEL
    detail: str = ""
    stated_s: float = math.nan
    waits: bool = False
    op: str = ""
    stream: str = ""
    after: Waits = Waits.NOTHING
    awaited: bool = False


@attrs.frozen
class Eager:
    """What eager PyTorch does for one op.

    Attributes:
        name: Name the host's overheads are known by, as `aten::linear`.
        launches: Runtime calls with their device tasks, in order.
        layouts: How the results lie in memory; contiguous where none is given.

    """

    name: str
    launches: tuple[Launch, ...] = ()
    layouts: tuple[Layout, ...] = ()


Rule: TypeAlias = Callable[[Site], Eager]
"""What eager PyTorch does at a site."""


def bound(dim: Dim) -> int:
    """Return a dimension that has to be a number by now."""
    if isinstance(dim, Expr):
        msg = f"dimension {dim} has no number"
        raise UnboundSymbolError(msg)
    return dim


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: DType) -> str:
    """Return how measured rows spell an element type."""
    if dtype.kind in ("int", "uint"):
        return f"{dtype.kind}{dtype.bits}"
    return _DTYPE_NAMES.get(dtype.name, dtype.name)


def vector_math(dtype: DType) -> str:
    """Return the math mode of everything but GEMMs.

    PyTorch's elementwise and reduction kernels compute in fp32 whatever narrower
    type they read (`at::opmath_type`), and in fp64 for fp64.
    """
    return "fp64" if dtype_name(dtype) == "fp64" else "fp32"


def wanted_gradients(site: Site) -> tuple[str, ...]:
    """Return the names of the gradients that an op of a backward pass computes."""
    wants = site.attributes.get("wants")
    return tuple(map(str, wants)) if isinstance(wants, tuple) else ()


def rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a shape as a matrix whose columns are the last axis."""
    return (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def vector_launch(
    op: str,
    dtype: DType,
    params: dict[str, AttrValue],
    work: Work,
    *,
    known: bool = True,
) -> Launch:
    """Launch one kernel that runs at the vector rate."""
    kernel = Kernel(
        op, dtype_name(dtype), vector_math(dtype), Record(params), work, known
    )
    return Launch(kernel)


def elementwise_launch(
    kind: str, inputs: tuple[Tensor, ...], out: Tensor, flops: int = 0
) -> Launch:
    """Launch one elementwise kernel: params as in measured rows.

    `tensor_inputs` counts the inputs as large as the output; `bytes` stands
    there where they and the output are not all that is moved, `scattered` where
    elements are moved one at a time: those that belong together do not lie alike, or
    are of another type.
    """
    rows, columns = rows_and_columns(out.shape)
    numel = out.numel
    full = sum(tensor.numel == numel for tensor in inputs)
    item = out.nbytes // numel if numel else 0
    read = sum(tensor.nbytes for tensor in inputs)
    params: dict[str, AttrValue] = {
        "kind": kind,
        "rows": rows,
        "cols": columns,
        "tensor_inputs": full,
    }
    if read != full * numel * item:
        params["bytes"] = read + out.nbytes
    # Whether an input is broadcast, has holes, or is permuted unlike another.
    # One number is passed by value, or read by all.
    layouts = {tensor.layout for tensor in inputs if tensor.numel == numel}
    broadcast = any(1 < tensor.numel < numel for tensor in inputs)
    scattered = broadcast or len(layouts) > 1 or Layout.STRIDED in layouts
    if scattered or _converts(kind, inputs, out):
        params["scattered"] = True
    dtype = out.type.dtype
    if not dtype.is_float and inputs:
        dtype = inputs[-1].type.dtype  # a comparison computes in what it compares
    work = Work(flops, read, out.nbytes)
    return vector_launch("elementwise", dtype, params, work)


_COPIES = frozenset({"cast", "copy"})
_ARITHMETIC = frozenset({"add", "sub", "mul", "div"})
_HALVES = frozenset({"fp16", "bf16"})


def _converts(kind: str, inputs: tuple[Tensor, ...], out: Tensor) -> bool:
    """Whether elements are read, or written, in another type than they are computed in.

    Such a kernel does not load several at once (`gpu_kernel_impl` in
    `aten/src/ATen/native/cuda/CUDALoops.cuh`, `needs_dynamic_casting`). Copies of fp32
    to 16 bits have kernels of their own, which do (`Copy.cu`); what is compared, and
    what decides, stays in its type: whole numbers count in arithmetic only.
    """
    found = {dtype_name(t.type.dtype) for t in inputs if t.numel > 1}
    to = dtype_name(out.type.dtype)
    if kind in _COPIES:
        narrows = found == {"fp32"} and to in _HALVES
        return bool(found) and found != {to} and not narrows
    if out.type.dtype.is_float and kind in _ARITHMETIC:
        return bool(found - {to})
    wide = (t for t in inputs if t.numel > 1 and t.type.dtype.is_float)
    floats = {dtype_name(t.type.dtype) for t in wide}
    floats |= {to} if out.type.dtype.is_float else set()
    return len(floats) > 1


def copy_launch(tensor: Tensor, out: Tensor | None = None) -> Launch:
    """Launch the copy to *out*, which lies in another way: contiguous if not given."""
    launch = elementwise_launch("copy", (tensor,), out or Tensor(tensor.type))
    params = launch.kernel.params.updated(scattered=True)
    return attrs.evolve(launch, kernel=attrs.evolve(launch.kernel, params=params))


def made_contiguous(tensors: tuple[Tensor, ...]) -> tuple[Launch, ...]:
    """Launch the copies that a kernel needs which reads contiguous tensors only."""
    return tuple(
        scratch(copy_launch(tensor)) for tensor in tensors if not tensor.contiguous
    )


def scratch(launch: Launch) -> Launch:
    """Mark a launch that fills a buffer which its op frees at its end."""
    return attrs.evolve(launch, detail=SCRATCH)


def scratch_bytes(detail: str, work: Work) -> int:
    """Return the size of the buffer that a kernel of this detail fills, or reads."""
    if detail == SCRATCH:
        return work.bytes_written
    return work.bytes_read if detail == FROM_SCRATCH else 0


def unmodelled_launch(name: str, site: Site) -> Launch:
    """Launch a kernel of an op without a rule: costed by its bytes.

    Flops count where the user has said them.
    """
    tensors = (*(t.type for t in site.operands), *site.results)
    dtype = tensors[0].dtype if tensors else None
    work = Work(
        site.attributes.integer("flops", 0),
        sum(operand.nbytes for operand in site.operands),
        sum(result.nbytes for result in site.results),
    )
    if dtype is None:
        return Launch(Kernel(name, "fp32", "fp32", EMPTY, work, known=False))
    return vector_launch(name, dtype, {}, work, known=False)
