"""Recurrent layers and spectra in eager PyTorch: what cuDNN and cuFFT launch.

A recurrent layer is one call of cuDNN. Its standard algorithm, the default in
PyTorch, multiplies the inputs of all steps in one GEMM, and runs a GEMM
with the recurrent weights and one kernel for all that is elementwise at each
step (Appleyard et al., "Optimizing Performance of Recurrent Neural Networks on
GPUs", arXiv 1604.01946). Directions are taken to run one after another, and the
persistent algorithms, which cuDNN takes for some sizes of fp16, are not modelled.
GEMMs of fp32 are in TF32 where convolutions may be (`torch.backends.cudnn.allow_tf32`;
`RNNDescriptor::set` in `aten/src/ATen/cudnn/Descriptors.h`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs

from perfc.ir import AttrValue, TensorType, Work
from perfc.ir.dims import Dim
from perfc.ir.ops.recurrent import RECURRENT_FLOPS, RECURRENT_GATES, recurrent_sizes
from perfc.passes.lowering.eager.gemm import Sizes, gemm_launch
from perfc.passes.lowering.eager.reductions import kernel_launch
from perfc.passes.lowering.eager.site import (
    BYTE,
    MAX_LAUNCHES,
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    made_contiguous,
    unmodelled_launch,
    vector_launch,
    wanted_gradients,
)

_NAMES = {"lstm": "aten::lstm", "gru": "aten::gru", "rnn": "aten::rnn_tanh"}


def _recurrent(site: Site) -> Eager:
    site = _by_cudnn(site)
    x, recurrence = site.operands[0], site.operands[2]
    kind = site.attributes.text("kind")
    found = recurrent_sizes(site.attributes, x.type, recurrence.type)
    steps, batch, inputs, hidden, directions = cast("tuple[int, ...]", found)
    if steps > MAX_LAUNCHES:
        return Eager(_NAMES[kind], (unmodelled_launch(kind, site),))
    columns = RECURRENT_GATES[kind] * hidden
    projected = gemm_launch(site, (1, steps * batch, columns, inputs), "nt")
    state = recurrence.shape[-1]
    step = (
        gemm_launch(site, (1, batch, columns, state), "nt"),
        _gates(site, kind, batch, hidden),
        *_projection(site, (1, batch, state, hidden), "nt"),
    )
    direction = (projected, *step * steps)
    return Eager(_NAMES[kind], (*made_contiguous((x,)), *direction * directions))


def _by_cudnn(site: Site) -> Site:
    """Let all GEMMs of a site be cuDNN's."""
    settings = site.settings
    settings = attrs.evolve(settings, fp32_gemms=settings.fp32_cudnn)
    return attrs.evolve(site, settings=settings)


def _projection(site: Site, sizes: Sizes, layout: str) -> tuple[Launch, ...]:
    """Launch the GEMM that makes the state smaller, where there is one."""
    projected = site.attributes.flag("projected")
    return (gemm_launch(site, sizes, layout),) if projected else ()


def _gates(site: Site, kind: str, batch: int, hidden: int) -> Launch:
    """Read both GEMMs and the state, write the state."""
    dtype = site.out.type.dtype
    gates: tuple[Dim, ...] = (batch, RECURRENT_GATES[kind] * hidden)
    gemm = Tensor(TensorType(dtype, gates))
    state = Tensor(TensorType(dtype, (batch, hidden)))
    flops = RECURRENT_FLOPS[kind] * batch * hidden
    return elementwise_launch(kind, (gemm, gemm, state), state, flops)


def _recurrent_backward(site: Site) -> Eager:
    """Back through the steps, then one GEMM for each of the other gradients.

    Each step is a kernel for all that is elementwise and a GEMM with the
    recurrent weights; the inputs' gradient and those of the weights are GEMMs
    over all steps, the biases' a sum (`cudnnRNNBackwardData_v8` and `…Weights_v8`,
    by the algorithm above).
    """
    site = _by_cudnn(site)
    x, recurrence = site.operands[1], site.operands[3]
    kind = site.attributes.text("kind")
    name = "aten::_cudnn_rnn_backward"
    found = recurrent_sizes(site.attributes, x.type, recurrence.type)
    steps, batch, inputs, hidden, directions = cast("tuple[int, ...]", found)
    if steps > MAX_LAUNCHES:
        return Eager(name, (unmodelled_launch(kind, site),))
    columns = RECURRENT_GATES[kind] * hidden
    state = recurrence.shape[-1]
    step = (
        *_projection(site, (1, batch, hidden, state), "nn"),
        _gates(site, kind, batch, hidden),
        gemm_launch(site, (1, batch, state, columns), "nn"),
    )
    rows = steps * batch
    sizes = {
        "x": ((1, rows, inputs, columns), "nn"),
        "weight": ((1, columns, inputs, rows), "tn"),
        "recurrence": ((1, columns, state, rows), "tn"),
        "projection": ((1, state, hidden, rows), "tn"),
    }
    wants = wanted_gradients(site)
    gemms = [gemm_launch(site, *sizes[want]) for want in wants if want in sizes]
    if "bias" in wants:
        dtype = site.operands[0].type.dtype
        item = dtype.bits // BYTE
        params: dict[str, AttrValue] = {"rows": columns, "cols": rows, "kind": "sum"}
        work = Work(rows * columns, rows * columns * item, columns * item)
        gemms.append(vector_launch("reduction", dtype, params, work))
    direction = (*step * steps, *gemms)
    return Eager(name, (*made_contiguous((x,)), *direction * directions))


def _linear_attention(site: Site) -> Eager:
    """One fused kernel, as the libraries of such models have it."""
    launch = kernel_launch(site, "linear_attention")
    return Eager("fla::linear_attention", (launch,))


def _causal_conv(site: Site) -> Eager:
    return Eager("causal_conv1d::causal_conv1d", (kernel_launch(site, "causal_conv"),))


def _dft(site: Site) -> Eager:
    """One transform by cuFFT; the signal is contiguous along the axis first."""
    launches = (*made_contiguous(site.operands[:1]), kernel_launch(site, "fft"))
    return Eager("aten::fft_fft", launches)


def _stft(site: Site) -> Eager:
    """Frames are a view of the signal; times the window, then transformed."""
    out = site.out
    item = out.nbytes // out.numel if out.numel else 0
    frames = Tensor(TensorType(out.type.dtype, cast("tuple[Dim, ...]", out.shape[:-1])))
    work = Work(site.work.flops, frames.numel * item, out.nbytes)
    windowed = elementwise_launch("mul", (frames,), frames, frames.numel)
    return Eager("aten::stft", (windowed, kernel_launch(site, "fft", work)))


_WINDOWS = {
    "hann": ("arange", "mul", "cos", "mul", "add"),
    "hamming": ("arange", "mul", "cos", "mul", "add"),
    "blackman": (
        *("arange", "mul", "mul", "cos", "mul"),
        *("mul", "cos", "mul", "sub", "add"),
    ),
}


def _window(site: Site) -> Eager:
    """`torch.hann_window` and the like, in single steps."""
    kind = site.attributes.text("kind")
    out = site.out
    launches = tuple(
        elementwise_launch(step, () if step == "arange" else (out,), out, out.numel)
        for step in _WINDOWS.get(kind, _WINDOWS["hann"])
    )
    return Eager(f"aten::{kind}_window", launches)


RULES: Mapping[str, Rule] = {
    "recurrent": _recurrent,
    "recurrent_backward": _recurrent_backward,
    "linear_attention": _linear_attention,
    "causal_conv": _causal_conv,
    "dft": _dft,
    "fft": _dft,
    "stft": _stft,
    "window": _window,
}
"""Rules of the ops over steps, by op name."""
