"""GEMMs: the model of `formula`, for SIMT and tensor cores.

Where GEMMs of a GPU were measured in thousands, `gemm_residual` corrects the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.gemm import formula, layouts, parameters, quantized, residual
from perfc.costmodels.gemm.companion_kernels import without_beside, without_beside_one
from perfc.costmodels.gemm.intervals import gemm_group, gemm_groups
from perfc.costmodels.gemm.machine import Size
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Estimate,
    Flags,
    Floats,
    Indices,
    IntervalGroup,
    KernelTable,
    Number,
    OneGroup,
    OneSignature,
    Priced,
    Provenance,
    Signatures,
    one_of,
    trust,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import imagined, is_imagined
from perfc.ir import Kernel


@attrs.frozen
class GemmModel:
    """Best tile and split of a small menu, in waves over the SMs."""

    name: str = "gemm"
    priority: int = 50
    ops: frozenset[str] = frozenset({"gemm"})

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim GEMMs with sizes, in any math mode that the target has."""
        return np.asarray(
            sized(kernels.signatures, target, ("m", "n", "k")), dtype=np.bool_
        )

    def interval_groups(
        self, kernels: KernelTable, target: Target
    ) -> Iterator[IntervalGroup]:
        """Yield which GEMMs err alike."""
        return gemm_groups(kernels, target)

    def interval_group_of_one(self, one: OneSignature, target: Target) -> OneGroup:
        """Return the group of one GEMM."""
        return gemm_group(one, target)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows; TF32 is allowed, and no slower than what it may replace."""
        found = imagined(self._known, _fastest, kernels, target)
        rows = np.flatnonzero(np.asarray(kernels.signatures.math == parameters.TF32))
        if not len(rows):
            return found
        plain = [_in_fp32(kernels.kernels[row], target) for row in rows.tolist()]
        other = imagined(self._known, _fastest, KernelTable(plain), target)
        sooner = np.flatnonzero(other.seconds < found.seconds[rows])
        return _replaced(found, rows[sooner], other, sooner)

    def _known(self, kernels: KernelTable, target: Target) -> Estimate:
        simt = uses_simt(kernels)
        gemms = gemms_of(kernels, target)
        seconds = math_seconds(gemms, simt, target)
        known = _correct(seconds, gemms, kernels, target)
        trusts = target.once(_trusts)
        batched = gemms.sizes[0] > 1
        cores = _ON_CORES + gemms.own
        at: Indices = np.select(
            [known, ~simt, batched], [_MEASURED, cores, _BATCHED], _SINGLE
        )
        numbers: list[int] = at.tolist()
        seconds = quantized.without_quantizing(seconds, kernels, target)
        return Estimate(
            without_beside(seconds, kernels, target),
            np.array([each.shared for each in trusts])[at],
            np.array([each.own for each in trusts])[at],
            [self.name] * len(kernels),
            [trusts[number].provenance for number in numbers],
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Claim it, or leave it to a table to say."""
        return True

    def estimate_one(self, one: OneSignature, target: Target) -> Priced | None:
        """Price a kernel whose sizes are plain numbers, on a known GPU."""
        if is_imagined(target):
            return None
        found = self._price_one(one, target)
        if found is None or one.math != parameters.TF32:
            return found
        plain = self._price_one(OneSignature(_in_fp32(one.kernel, target)), target)
        return found if plain is None or plain.seconds >= found.seconds else plain

    def _price_one(self, one: OneSignature, target: Target) -> Priced | None:
        size = _size_of(one, target)
        if size is None:
            return None
        how = _How(
            one.text("layout") in layouts.TRANSPOSED,
            one.given("bias"),
            (size.m == 1 or size.n == 1) and layouts.is_across(one.kernel),
            own := layouts.tensor_kernels_of_one(one, target),
        )
        seconds = math_second(
            size,
            one.math,
            target,
            transposed=how.transposed,
            biased=how.biased,
            across=how.across,
            own=own,
        )
        trusts, measured = target.once(_trusts), False
        if own not in parameters.NO_NETWORK:
            seconds, measured = _corrected_one(seconds, size, one, target, how)
        if measured:
            found = trusts[_MEASURED]
        elif one.math in parameters.SIMT_MODES:
            found = trusts[_BATCHED if size.batch > 1 else _SINGLE]
        else:
            found = trusts[_ON_CORES + own]
        seconds = quantized.without_quantizing_one(seconds, one, target)
        seconds = without_beside_one(seconds, one, target)
        return Priced(seconds, found.shared, found.own, found.provenance)


def times_computed(kernel: Kernel, target: Target) -> float | None:
    """Return how often a GEMM's tiles compute each result, those past its edges too.

    None of another kernel, and on tensor cores, whose tiles no rows name.
    """
    one = OneSignature(kernel)
    size = _size_of(one, target) if kernel.op == "gemm" else None
    if size is None or one.math not in parameters.SIMT_MODES:
        return None
    return formula.padded_share(
        size, target, transposed=one.text("layout") in layouts.TRANSPOSED
    )


class _How(NamedTuple):
    """What decides the kernel of one GEMM besides its sizes; as of `Gemms`."""

    transposed: bool
    biased: bool
    across: bool
    own: int


def _in_fp32(kernel: Kernel, target: Target) -> Kernel:
    """Return a GEMM of TF32 as libraries compute it that may not use that."""
    return attrs.evolve(kernel, math=target.device.fp32_gemms)


def _replaced(
    found: Estimate, rows: Indices, other: Estimate, taken: Indices
) -> Estimate:
    """Return an estimate with *taken* of another one in the place of *rows*."""
    provenance = [*found.provenance]
    for row, one in zip(rows.tolist(), taken.tolist(), strict=True):
        provenance[row] = other.provenance[one]
    columns = {}
    for name in ("seconds", "sigma_shared", "sigma_independent"):
        columns[name] = getattr(found, name).copy()
        columns[name][rows] = getattr(other, name)[taken]
    return attrs.evolve(found, provenance=provenance, **columns)


def _fastest(kernels: KernelTable, target: Target) -> Floats:
    gemms, simt = gemms_of(kernels, target), uses_simt(kernels)
    return math_seconds(gemms, simt, target, fastest=True)


def _correct(
    seconds: Floats, gemms: formula.Gemms, kernels: KernelTable, target: Target
) -> Flags:
    """Correct *seconds* in place by what is known of the GPU that was measured.

    Return which rows were measured alike. Of a GPU that is imagined, or of the same
    chip, the model says how it differs.
    """
    measured = np.zeros(len(seconds), dtype=np.bool_)
    told, (kinds, at) = target.once(residual.known_gemms), kernels.kinds
    for number, (_, dtype, mode) in enumerate(kinds):
        known = told(residual.type_of(dtype, mode))
        rows = np.flatnonzero(at == number)
        if known is None or not len(rows) or mode not in known.gpu.device.flops_per_s:
            continue
        part = gemms if len(kinds) == 1 else gemms.part(rows)
        modelled_s = seconds[rows]
        if known.gpu is not target:
            peak_flops_per_s = known.gpu.device.flops_per_s[mode]
            part = attrs.evolve(part, peak=np.full(len(part), peak_flops_per_s))
            simt = np.full(len(part), mode in parameters.SIMT_MODES)
            modelled_s = math_seconds(part, simt, known.gpu)
        measured[known.correct(seconds, part, rows, modelled_s)] = True
    return measured


def _corrected_one(
    seconds: float, size: Size[float], one: OneSignature, target: Target, how: _How
) -> tuple[float, bool]:
    """Return the corrected seconds of one GEMM, and whether such were measured."""
    known = target.once(residual.known_gemms)(
        residual.type_of(one.kernel.dtype, one.math)
    )
    if known is None or one.math not in known.gpu.device.flops_per_s:
        return seconds, False
    modelled_s = seconds
    if known.gpu is not target:
        size = size._replace(peak=known.gpu.device.flops_per_s[one.math])
        modelled_s = math_second(
            size,
            one.math,
            known.gpu,
            transposed=how.transposed,
            biased=how.biased,
            across=how.across,
            own=how.own,
        )
    factor, measured = known.factor(modelled_s, size, transposed=how.transposed)
    return seconds * factor, measured


def _size_of(one: OneSignature, target: Target) -> Size[float] | None:
    """Return the GEMM that a kernel computes; None: not claimed, or no numbers."""
    peak = target.device.flops_per_s.get(one.math, 0.0)
    param = one.param
    b, m, n, k = param("b", 1.0), param("m"), param("n"), param("k")
    if not (b and m and n and k and peak and one.bytes):
        return None
    return Size(b, m, n, k, quantized.own_bytes(one, FLOATS), peak)


class _Trust(NamedTuple):
    """Provenance of a price, and how uncertain it is."""

    provenance: Provenance
    shared: float
    own: float


_MEASURED, _SINGLE, _BATCHED, _ON_CORES = range(4)
"""Places in `_trusts`; from the last on, one for each of `TENSOR_KERNELS`."""


def _trusts(target: Target) -> Sequence[_Trust]:
    """Return the trust in each kind of GEMM on a GPU.

    Where such of that GPU, type and size were measured in thousands; in single ones
    without tensor cores, and batches; on tensor cores, by the number of the kernels.
    """
    simt = parameters.simt_parameters(wide=parameters.is_wide(target))

    def of(p: parameters.GemmParameters, fitted_on: frozenset[str]) -> _Trust:
        return _Trust(*trust(p.sigma_shared, fitted_on, target), p.sigma_independent)

    return (
        _Trust(Provenance.FITTED, residual.SIGMA_SHARED, residual.SIGMA_INDEPENDENT),
        of(simt, parameters.SIMT_FITTED_ON),
        of(simt, parameters.BATCHED_FITTED_ON),
        *(
            of(
                parameters.known_parameters(target, own),
                parameters.tensor_fitted_on(target, own),
            )
            for own in range(len(parameters.TENSOR_KERNELS))
        ),
    )


def sized(
    kernels: Signatures[Number], target: Target, names: tuple[str, ...]
) -> Flags | bool:
    """Whether each kernel gives its sizes, in a math mode that the target has."""
    found = kernels.runs_on(target)
    for name in names:
        found = found & kernels.given(name)
    return found


def gemms_of(kernels: KernelTable, target: Target) -> formula.Gemms:
    """Return the sizes of the GEMMs that the kernels compute."""
    sizes = [kernels.param(name, 1.0) for name in ("b", "m", "n", "k")]
    return formula.Gemms(
        np.stack(sizes),
        quantized.own_bytes(kernels.signatures, ARRAYS),
        kernels.peak_flops_per_s(target),
        one_of(kernels.text("layout"), layouts.TRANSPOSED),
        layouts.across(kernels),
        np.asarray(kernels.given("bias"), dtype=np.bool_),
        np.asarray(
            layouts.tensor_kernels(kernels.signatures, target, ARRAYS), dtype=np.intp
        ),
    )


def uses_simt(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether each kernel computes without tensor cores."""
    kinds, at = kernels.kinds
    return np.array(
        [math in parameters.SIMT_MODES for _, _, math in kinds], dtype=np.bool_
    )[at]


def math_seconds(
    gemms: formula.Gemms,
    simt: NDArray[np.bool_],
    target: Target,
    *,
    fastest: bool = False,
) -> Floats:
    """Return the duration of each GEMM, with the parameters of its math mode."""
    vector = parameters.simt_parameters(wide=parameters.is_wide(target))
    if simt.all():
        return formula.simt_seconds(gemms, target, vector, fastest=fastest)
    seconds = np.empty(len(gemms))
    numbers = np.where(simt, -1, gemms.own)
    for number in np.unique(numbers).tolist():
        rows = numbers == number
        part = gemms if rows.all() else gemms.part(rows)
        if number < 0:
            seconds[rows] = formula.simt_seconds(part, target, vector, fastest=fastest)
        else:
            tensor = formula.own_parameters(target, number)
            seconds[rows] = formula.tensor_seconds(
                part, target, tensor, fastest=fastest
            )
    return seconds


def math_second(  # noqa: PLR0913 - all say which kernel it is
    size: Size[float],
    math: str,
    target: Target,
    *,
    transposed: bool = False,
    biased: bool = False,
    across: bool = False,
    own: int = 0,
) -> float:
    """Return the duration of one GEMM; as `math_seconds`."""
    if math in parameters.SIMT_MODES:
        return formula.simt_second(
            size, target, transposed=transposed, biased=biased, across=across
        )
    return formula.tensor_second(size, target, own=own, biased=biased)


GEMM = GemmModel()
"""The built-in instance."""
