"""Writing a profile: `perfc.profile/1`, see `perfc.costmodels.sheets.profile`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.costmodels import HostProfile, MeasuredKernels, PerName
from perfc.costmodels.collectives import CollectiveRows
from perfc.costmodels.machine import NO_WORD, KernelFit, MeasuredKernel, NearRows
from perfc.costmodels.sheets import PROFILE_SCHEMA
from perfc.ir.text import json_of


@attrs.frozen(kw_only=True)
class ProfileHead:
    """What a profile says of itself; each a text of one line."""

    name: str
    source: str
    date: str
    software: str


def profile_text(  # noqa: PLR0913 - one argument per section
    head: ProfileHead,
    *,
    target: str = "",
    fields: Mapping[str, float] | None = None,
    fits: Sequence[KernelFit] = (),
    measured: MeasuredKernels | None = None,
    collectives: CollectiveRows | None = None,
    host: HostProfile | None = None,
) -> str:
    """Return the TOML of a profile of a device (if *target* is given), a host, or both.

    Args:
        head: What it says of itself.
        target: The sheet that it refines.
        fields: Fields of the sheet that were measured, in its units.
        fits: What was fitted of kernels.
        measured: Kernels that were timed.
        collectives: What measured collectives say.
        host: Host times.

    """
    lines = [f'schema = "{PROFILE_SCHEMA}"']
    lines += [f"{key} = {_text(value)}" for key, value in attrs.asdict(head).items()]
    if target:
        lines += ["", "[device]", f"target = {_text(target)}"]
        lines += ["", "[device.fields]"] if fields else []
        lines += [f"{_text(k)} = {_number(v)}" for k, v in (fields or {}).items()]
        for fit in fits:
            lines += ["", *_kernel_lines(fit)]
        if collectives is not None:
            lines += ["", "[collectives]", "rows = ["]
            lines += [f"  {_text(row)}," for row in collectives.texts()]
            lines += ["]"]
        lines += _measured_lines(measured or MeasuredKernels())
    if host is not None:
        lines += ["", *_host_lines(host)]
    return "\n".join(lines) + "\n"


def _kernel_lines(fit: KernelFit) -> Iterator[str]:
    family = fit.family
    yield "[[kernels]]"
    for key, value in attrs.asdict(family).items():
        if value:
            yield f"{key} = {_text(str(value))}"
    yield f"rows = {fit.rows}"
    yield f"sigma_shared = {_number(fit.sigma_shared)}"
    yield f"sigma_independent = {_number(fit.sigma_independent)}"
    if fit.shipped:
        yield f"shipped = {_number(fit.shipped)}"
    values = (f"{name} = {_number(value)}" for name, value in fit.values.items())
    yield f"values = {{ {', '.join(values)} }}"
    if fit.near is not None:
        yield from _near_lines(fit.near)


def _near_lines(near: NearRows) -> Iterator[str]:
    yield "[kernels.near]"
    yield f"octaves = {_number(near.octaves)}"
    yield f"unlike = {_number(near.unlike)}"
    yield "rows = ["
    for weight, sizes, words in zip(near.weights, near.sizes, near.words, strict=True):
        numbers = " ".join(f"{size:.3f}" for size in sizes)
        listed = " ".join(word or NO_WORD for word in words)
        yield f"  {_text(f'{weight:.4f} | {numbers} | {listed}')},"
    yield "]"


def _measured_lines(measured: MeasuredKernels) -> Iterator[str]:
    """Yield the kernels that were timed, together those that differ in sizes only."""
    alike: dict[tuple[object, ...], list[MeasuredKernel]] = {}
    for kernel in measured.by_signature.values():
        op, dtype, math, params = kernel.signature
        how = (kernel.timing, kernel.source, kernel.repeated)
        alike.setdefault((op, dtype, math, *how, *params), []).append(kernel)
    for kernels in alike.values():
        first = kernels[0]
        op, dtype, math, params = first.signature
        yield from ("", "[[measured]]")
        heads = {"op": op, "dtype": dtype, "math": math}
        heads |= {"timing": first.timing, "source": first.source}
        yield from (f"{key} = {_text(value)}" for key, value in heads.items())
        if first.repeated:
            yield "repeated = true"
        yield f"params = [{', '.join(map(_text, params))}]"
        yield "rows = ["
        yield from (f"  {_quoted(_measured_row(kernel))}," for kernel in kernels)
        yield "]"


def _measured_row(kernel: MeasuredKernel) -> str:
    values = kernel.signature.params.values()
    numbers = (_us(kernel.seconds), _number(kernel.sigma), str(kernel.n))
    return f"[{', '.join((*numbers, *map(json_of, values)))}]"


def _quoted(text: str) -> str:
    """Quote a text without escapes, if it can be: words in it are quoted, too."""
    return _text(text) if "'" in text else f"'{text}'"


def _host_lines(host: HostProfile) -> Iterator[str]:
    yield "[host]"
    yield f"sigma_shared = {_number(host.sigma_shared)}"
    if host.sigma_scaled is not None:
        yield f"sigma_scaled = {_number(host.sigma_scaled)}"
    yield f"sigma_independent = {_number(host.sigma_independent)}"
    yield f"t1_us = {_us(host.t1_s)}"
    yield f"graph_node_us = {_us(host.graph_node_s)}"
    if host.join_s:
        yield f"join_us = {_us(host.join_s)}"
    yield f"compiled_us = {_inline(host.compiled_s)}"
    if host.between_s:
        yield f"between_us = {_inline(host.between_s)}"
    tables: Mapping[str, PerName] = {
        "t2_us": host.t2_s,
        "t3_us": host.t3_s,
        "t5_us": host.t5_s,
        "t0_us": host.t0_s,
        "calls_us": host.calls_s,
    }
    for name, table in tables.items():
        yield ""
        yield f"[host.{name}]"
        yield f"default = {_us(table.default_s)}"
        for key, seconds in sorted(table.named_s.items()):
            yield f"{_text(key)} = {_us(seconds)}"


def _inline(seconds: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name} = {_us(value)}" for name, value in seconds.items())
    return f"{{ {listed} }}"


def _text(value: str) -> str:
    """Quote as TOML does, whose basic strings are JSON's."""
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Six digits: more than any measurement has."""
    return repr(float(f"{value:.6g}"))


def _us(seconds: float) -> str:
    return _number(seconds * 1e6)
