"""What is asked of `perfc quantize`: types, what is kept, and what is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfc.costmodels import Target
from perfc.ir import Program, UsageError, Value
from perfc.passes import precision
from perfc.passes.graphs import typed
from perfc.tools.given import check_known

FP32, CAFFE2, FBGEMM = "fp32", "caffe2", "fbgemm"
_SUM_BITS = 32

_NAMES: Mapping[str, str] = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}


@attrs.frozen(kw_only=True)
class Precision:
    """The types that are asked for.

    Attributes:
        embeddings: Of tables; empty to leave them.
        linear: Of linear layers; empty to leave them.
        activations: Where scales of activations come from.
        keep: Patterns and the types of what they match.
        sum_bits: Width of a CPU's sums of products of 8 bits.
        losses: File of what quantising each op costs in accuracy.
        budget: What those may add up to.
        compare: Types that all tables and layers have in other plans.

    """

    embeddings: str = ""
    linear: str = ""
    activations: str = "static"
    keep: str = ""
    sum_bits: int = _SUM_BITS
    losses: Path | None = None
    budget: float | None = None
    compare: Sequence[str] = ()

    def __attrs_post_init__(self) -> None:
        """Check them."""
        self.transform(FBGEMM)
        if not (self.embeddings or self.linear or self.keep or self.losses):
            msg = "nothing to quantize: give --embeddings TYPE, --linear TYPE, or both"
            raise UsageError(msg)
        if (self.losses is None) != (self.budget is None):
            lacking = "--budget X" if self.budget is None else "--losses FILE"
            msg = f"--losses FILE and --budget X come together: {lacking} is missing"
            raise UsageError(msg)
        if self.budget is not None and not 0 <= self.budget < float("inf"):
            msg = f"--budget {self.budget:g}: expected a sum of losses, 0 or more"
            raise UsageError(msg)
        for name in self.compare:
            check_known("--compare", name, tuple(_COMPARED))

    def transform(self, rows: str) -> precision.Quantize:
        """Return the pass that makes a model so; *rows* is how tables lie in memory."""
        return precision.Quantize(
            embeddings=self.embeddings,
            linear=self.linear,
            activations=self.activations,
            keep=self.keep,
            rows=rows,
            sum_bits=self.sum_bits,
        )

    def other(self, name: str) -> Precision:
        """Return the types of a plan that is compared."""
        embeddings, linear = _COMPARED[name]
        return attrs.evolve(
            self,
            embeddings=embeddings,
            linear=linear,
            keep="",
            losses=None,
            budget=None,
            compare=(),
        )

    @property
    def name(self) -> str:
        """What the plan is called."""
        parts = (("embeddings", self.embeddings), ("linear", self.linear))
        said = [f"{what}={dtype}" for what, dtype in parts if dtype]
        return ",".join(said) or "kept"


_BOTH = ("fp32", "fp16", "bf16", "fp8", "int8", "int4")
_COMPARED: Mapping[str, tuple[str, str]] = {
    **{name: (name, name) for name in _BOTH},
    "mxfp8": ("fp8", "mxfp8"),
    "nvfp4": ("fp8", "nvfp4"),
    "w8a16": ("int8", "w8a16"),
    "w4a16": ("int4", "w4a16"),
    "int2": ("int2", "int8"),
}
"""Types of tables and of linear layers, by what a plan is called."""


def rows_on(target: Target) -> str:
    """Return how rows of few bits lie in the memory of a target."""
    return CAFFE2 if target.device.synchronous else FBGEMM


def check_sums(asked: Precision, target: Target) -> None:
    """Refuse sums of 16 bits where products of 8 bits are added up in 32 alone."""
    if asked.sum_bits != _SUM_BITS and not target.device.synchronous:
        msg = (
            f"--sum-bits {asked.sum_bits} is for CPUs: {target.name} adds products of "
            f"8 bits up in {_SUM_BITS}"
        )
        raise UsageError(msg)


def check_types(asked: precision.Quantize, program: Program, target: Target) -> None:
    """Refuse types of linear layers that a target does not multiply in."""
    names = {t for one, t in asked.chosen(program).items() if one.kind == "linear"}
    if asked.linear:
        names.add(precision.FALLBACKS.get(asked.linear, asked.linear))
    for name in sorted(names):
        precision.check_rate(precision.linear_type(name, "linear"), target)


def own_type(one: precision.Candidate) -> str:
    """Return the type that a table or layer has before anything is changed."""
    return type_name(one.weight)


def type_name(weight: Value) -> str:
    """Return the name that users have for the type of a weight."""
    dtype = typed(weight).dtype
    return _NAMES.get(dtype.name, str(dtype))
