"""What runs for seconds: GEMMs, attention, streaming, and a block of a model.

A GEMM tells what a flop takes, and by zeros how much of it is the data; streaming
what a byte takes. The block is the check: it is predicted from the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from collection.sustained import Call, Load
from perfc.measure.device import Device

_BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_BF16, _FP32 = torch.bfloat16, torch.float32


@attrs.frozen(kw_only=True)
class Sizes:
    """How large loads are.

    Attributes:
        side: Of square GEMMs.
        few_rows: Of GEMMs with fewer rows.
        heads: Of attention.
        width: Of a head.
        sequence: Of attention.
        copied_bytes: Of a copy.
        numbers: That `gelu` and a layer norm take.
        block_heads: Of the block; with `width` its hidden size.
        tokens: Sequence of the block, two samples.
        share: Of the seconds that loads want.

    """

    side: int
    few_rows: tuple[int, ...]
    heads: int
    width: int
    sequence: int
    copied_bytes: int
    numbers: int
    block_heads: int
    tokens: int
    share: float


GPU = Sizes(
    side=8192,
    few_rows=(2048, 512),
    heads=16,
    width=128,
    sequence=16384,
    copied_bytes=1 << 30,
    numbers=1 << 28,
    block_heads=32,
    tokens=2048,
    share=1.0,
)
"""None stays in an L2, all fit into 16 GB."""

CPU = Sizes(
    side=128,
    few_rows=(32, 8),
    heads=2,
    width=16,
    sequence=64,
    copied_bytes=1 << 16,
    numbers=1 << 14,
    block_heads=4,
    tokens=16,
    share=0.02,
)
"""For a rehearsal."""


def loads_of(device: Device, sizes: Sizes | None = None) -> list[Load]:
    """Return the loads worth running, the most useful first; idle before and after."""
    sizes = sizes or (GPU if device.is_cuda else CPU)
    kind = device.kind
    idle = Load(name="idle-cold", seconds=3.0)
    found = [
        idle,
        *_square_gemms(kind, sizes),
        _block(kind, sizes),
        *_attention(kind, sizes, "cudnn", "flash"),
        *_streaming(kind, sizes),
        _exact_gemm(kind, sizes),
        *_flat_gemms(kind, sizes),
        *_attention(kind, sizes, "efficient"),
        attrs.evolve(idle, name="idle-hot"),
    ]
    return [attrs.evolve(x, seconds=x.seconds * sizes.share) for x in found]


def _gemm(  # noqa: PLR0913 - what a GEMM has
    kind: str,
    name: str,
    rows: int,
    side: int,
    seconds: float,
    *,
    dtype: torch.dtype = _BF16,
    data: str = "randn",
) -> Load:
    def make() -> Call:
        fill = torch.zeros if data == "zeros" else torch.randn
        left = fill(rows, side, device=kind, dtype=dtype)
        right = fill(side, side, device=kind, dtype=dtype)
        result = torch.empty(rows, side, device=kind, dtype=dtype)
        return lambda: torch.mm(left, right, out=result)

    return Load(
        name=name,
        dtype="bf16" if dtype == _BF16 else "fp32",
        params={"m": rows, "n": side, "k": side, "data": data},
        seconds=seconds,
        make=make,
    )


def _square_gemms(kind: str, sizes: Sizes) -> Iterator[Load]:
    side = sizes.side
    yield _gemm(kind, "gemm-randn", side, side, 15.0)
    yield _gemm(kind, "gemm-zeros", side, side, 5.0, data="zeros")


def _flat_gemms(kind: str, sizes: Sizes) -> Iterator[Load]:
    for rows in sizes.few_rows:
        yield _gemm(kind, f"gemm-m{rows}", rows, sizes.side, 3.0)


def _exact_gemm(kind: str, sizes: Sizes) -> Load:
    return _gemm(kind, "gemm-fp32", sizes.side, sizes.side, 3.0, dtype=_FP32)


def _attention(kind: str, sizes: Sizes, *backends: str) -> Iterator[Load]:
    shape = (1, sizes.heads, sizes.sequence, sizes.width)
    names = ("batch", "heads", "sequence", "width")
    for backend in backends:
        for phase in ("forward", "backward"):
            yield Load(
                name=f"attention-{backend}-{phase}",
                dtype="bf16",
                params={**dict(zip(names, shape, strict=True)), "causal": 1},
                seconds=5.0,
                make=_Attention(kind, shape, backend, phase == "backward"),
                names_kernel=True,
            )


@attrs.frozen
class _Attention:
    """Makes causal attention by one backend: its forward pass, or its backward pass."""

    kind: str
    shape: tuple[int, ...]
    backend: str
    backward: bool

    def __call__(self) -> Call:
        query, key, value = (self._operand() for _ in range(3))

        def forward() -> Tensor:
            with sdpa_kernel(_BACKENDS[self.backend]):
                return functional.scaled_dot_product_attention(
                    query, key, value, is_causal=True
                )

        if not self.backward:
            return forward
        result = forward()
        gradient = torch.randn_like(result)

        def backward() -> object:
            inputs = (query, key, value)
            return torch.autograd.grad(result, inputs, gradient, retain_graph=True)

        return backward

    def _operand(self) -> Tensor:
        return torch.randn(
            self.shape, device=self.kind, dtype=_BF16, requires_grad=self.backward
        )


def _streaming(kind: str, sizes: Sizes) -> Iterator[Load]:
    width = sizes.block_heads * sizes.width
    shape = (sizes.numbers // width, width)

    def copy() -> Call:
        source = torch.randn(sizes.copied_bytes // 4, device=kind)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def gelu() -> Call:
        x = torch.randn(shape, device=kind, dtype=_BF16)
        return lambda: functional.gelu(x)

    def layer_norm() -> Call:
        x = torch.randn(shape, device=kind, dtype=_BF16)
        weight = torch.ones(width, device=kind, dtype=_BF16)
        return lambda: functional.layer_norm(x, (width,), weight, weight)

    rows = {"rows": shape[0], "width": width}
    copied = {"bytes": sizes.copied_bytes}
    yield Load(name="copy", dtype="fp32", params=copied, seconds=3.0, make=copy)
    yield Load(name="gelu", dtype="bf16", params=rows, seconds=3.0, make=gelu)
    yield Load(
        name="layer-norm", dtype="bf16", params=rows, seconds=3.0, make=layer_norm
    )


class Block(nn.Module):
    """A layer of MPT: attention and a perceptron four times as wide, without biases."""

    def __init__(self, heads: int, width: int) -> None:
        """Take the number of heads and their width."""
        super().__init__()
        hidden = heads * width
        self.heads, self.width = heads, width
        self.norm_1 = nn.LayerNorm(hidden, bias=False)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.norm_2 = nn.LayerNorm(hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input of the next layer, shape (batch, tokens, hidden)."""
        batch, tokens, hidden = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, self.width)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        wide: Tensor = functional.gelu(self.up(self.norm_2(x)))
        narrow: Tensor = self.down(wide)
        return x + narrow


def _block(kind: str, sizes: Sizes) -> Load:
    hidden = sizes.block_heads * sizes.width

    def make() -> Call:
        with torch.device(kind):
            block = Block(sizes.block_heads, sizes.width).to(_BF16)
            x = torch.randn(2, sizes.tokens, hidden, dtype=_BF16, requires_grad=True)
            gradient = torch.randn(2, sizes.tokens, hidden, dtype=_BF16)

        def step() -> None:
            block.zero_grad(set_to_none=True)
            x.grad = None
            torch.autograd.backward(block(x), gradient)

        return step

    return Load(
        name="block-7b",
        dtype="bf16",
        params={
            "batch": 2,
            "tokens": sizes.tokens,
            "hidden": hidden,
            "heads": sizes.block_heads,
            "mlp": 4 * hidden,
        },
        seconds=10.0,
        make=make,
    )
