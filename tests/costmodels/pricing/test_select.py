"""Which model prices which kernel; answers that cannot be used are refused."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.costmodels.signatures import ALL_MODELS, bag, copy, gemm, over_rows, unknown

from perfc.costmodels import (
    Estimate,
    KernelTable,
    Provenance,
    Target,
    cost_models,
    load_target,
    lower_bound,
    price,
    uniform_estimate,
)
from perfc.costmodels.gemm import GEMM
from perfc.costmodels.pricing import models
from perfc.costmodels.roofline import ROOFLINE
from perfc.ir import COST_MODELS, PerfcError, register_plugin
from perfc.ir.kernels import KernelDef
from perfc.ir.support import entry_points

V100 = load_target("v100-sxm2-16g")


@attrs.frozen
class Constant:
    """A plugin that says one number of every row."""

    seconds: float = 1.0
    name: str = "constant"
    priority: int = 100
    ops: frozenset[str] | None = None
    sigma: float = 0.1
    claim: bool = True
    extra_rows: int = 0

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim all rows or none."""
        return np.full(len(kernels), self.claim)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Say the number."""
        return uniform_estimate(
            np.full(len(kernels) + self.extra_rows, self.seconds),
            model=self.name,
            provenance=Provenance.MEASURED,
            sigma_shared=0.0,
            sigma_independent=self.sigma,
        )


def test_the_highest_priority_wins() -> None:
    """A plugin with a higher priority prices what it claims, the others the rest."""
    plugin = Constant(ops=frozenset({"gemm"}))

    priced = price(
        [gemm(8, 8, 8), over_rows("elementwise", 8, 8)], V100, (*ALL_MODELS, plugin)
    )

    assert ["constant", "streaming"] == list(priced.model)
    assert 1.0 == priced.seconds[0]


def test_what_a_plugin_states_is_kept() -> None:
    """Errors that were measured of perfc's models are not those of somebody else's."""
    v100 = load_target("v100-pcie-32g")
    kernel = gemm(512, 512, 512)

    own = price([kernel], v100, ALL_MODELS)
    theirs = price([kernel], v100, [Constant(sigma=0.01)])

    stated = GEMM.estimate(KernelTable([kernel]), v100)
    assert own.sigma_independent[0] != stated.sigma_independent[0]
    assert (0.0, 0.01) == (theirs.sigma_shared[0], theirs.sigma_independent[0])


def test_a_lower_priority_gets_what_is_left() -> None:
    """A model that claims nothing leaves the rows to the next."""
    shy, late = Constant(claim=False), Constant(2.0, "late", priority=10)

    priced = price([gemm(8, 8, 8)], V100, (ROOFLINE, late, shy))

    assert (["late"], 2.0) == (list(priced.model), priced.seconds[0])


def test_equal_priorities_go_by_name() -> None:
    """The order in which models are installed decides nothing."""
    a, b = Constant(1.0, "a"), Constant(2.0, "b")

    both = [price([gemm(8, 8, 8)], V100, order).model for order in ((a, b), (b, a))]

    assert [["a"], ["a"]] == [list(model) for model in both]


def test_unknown_ops_go_to_the_fallback() -> None:
    """An op without a model is priced by its bytes, even if its name is claimed."""
    by_name = Constant(ops=frozenset({"gemm"}))

    priced = price([unknown(1 << 20, "gemm")], V100, (by_name, ROOFLINE))

    assert ["roofline"] == list(priced.model)
    assert [Provenance.ASSUMED] == list(priced.provenance)


def test_the_fallback_claims_everything() -> None:
    """The roofline alone prices any kernel, never at the peak."""
    kernels = [gemm(64, 64, 64), bag(8, 2, 100, 2, 16), copy(100), unknown(10**9)]

    priced = price(kernels, V100, [ROOFLINE])

    assert ["roofline"] * 4 == list(priced.model)
    assert (priced.seconds > lower_bound(KernelTable(kernels), V100)).all()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_bad_duration_is_refused(seconds: float) -> None:
    """The message names the model, the kernel and the number."""
    with pytest.raises(
        PerfcError, match=rf"'constant' says seconds = {seconds} of kernel 'gemm'"
    ):
        price([gemm(8, 8, 8)], V100, [Constant(seconds)])


def test_a_bad_uncertainty_is_refused() -> None:
    """A sigma that is no number is refused like a duration."""
    with pytest.raises(PerfcError, match="says sigma_independent = nan"):
        price([gemm(8, 8, 8)], V100, [Constant(sigma=float("nan"))])


def test_a_short_answer_is_refused() -> None:
    """A model must answer for each row that it was given."""
    with pytest.raises(PerfcError, match="returns 2 values of seconds for 1 kernels"):
        price([gemm(8, 8, 8)], V100, [Constant(extra_rows=1)])


def test_a_wrong_claim_is_refused() -> None:
    """Claims must be one bool per row."""

    class Vague(Constant):
        def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
            return np.ones(len(kernels) + 1, dtype=np.bool_)

    with pytest.raises(PerfcError, match="expected bool of shape"):
        price([gemm(8, 8, 8)], V100, [Vague()])


def test_an_unpriced_kernel_is_an_error() -> None:
    """No kernel is silently free."""
    with pytest.raises(PerfcError, match="no cost model prices kernel 'memcpy'"):
        price([gemm(8, 8, 8), copy(1)], V100, [GEMM])


def test_an_optimistic_plugin_is_held_to_the_bound() -> None:
    """A plugin cannot make a kernel faster than its bytes and flops."""
    kernel = gemm(4096, 4096, 4096)

    priced = price([kernel], V100, [Constant(1e-9)])

    assert kernel.work.flops / V100.peak("fp32") == pytest.approx(priced.seconds[0])


@attrs.frozen
class Bounded(Constant):
    """A plugin that brings the bound of what it prices, and what it answers."""

    least: object = 0.0

    def lower_bound(self, kernels: KernelTable, target: Target) -> object:
        """Say one number of every row, or whatever is no bound."""
        least = self.least
        return np.full(len(kernels), least) if isinstance(least, float) else least


@pytest.mark.parametrize(("least_s", "priced_s"), [(1e-10, 1e-9), (2.0, 2.0)])
def test_a_plugin_that_brings_a_bound_is_held_to_that(
    least_s: float, priced_s: float
) -> None:
    """Its algorithm may need fewer flops, or more time, than perfc knows of."""
    kernels, plugin = [gemm(4096, 4096, 4096)] * 2, Bounded(1e-9, least=least_s)

    priced = price(kernels, V100, [plugin])

    assert [priced_s, priced_s] == priced.seconds.tolist()


def test_a_bound_is_of_what_its_model_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of kernels that others price it says nothing, whatever their op."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    register_plugin(COST_MODELS, "constant", Bounded(least=3.0))
    table = KernelTable([gemm(64, 64, 64), gemm(64, 64, 64), copy(10**9)])

    plain_s = lower_bound(table, V100)
    bounds_s = lower_bound(table, V100, ["constant", "gemm", "memcpy"])

    assert [3.0, *plain_s.tolist()[1:]] == bounds_s.tolist()
    assert 3.0 > plain_s[0]


@pytest.mark.parametrize(
    ("least", "line"),
    [
        (-1.0, "answers lower_bound() with [-1.] of shape (1,), expected seconds >= 0"),
        (np.inf, "answers lower_bound() with [inf] of shape (1,), expected seconds"),
        (np.ones(2), "of shape (2,), expected seconds >= 0 of shape (1,)"),
        ("x", "answers lower_bound() with 'x' of shape (), expected seconds >= 0"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(least: object, line: str) -> None:
    """The model is named, with what it answers and what is expected."""
    with pytest.raises(PerfcError) as caught:
        price([gemm(8, 8, 8)], V100, [Bounded(least=least)])

    assert line in str(caught.value)
    assert "cost model 'constant'" in str(caught.value)


def test_a_mode_the_target_has_not_is_an_error() -> None:
    """V100 has no bf16 tensor cores; nothing stands in for them."""
    with pytest.raises(PerfcError, match="no math mode 'bf16'"):
        price([gemm(64, 64, 64, dtype="bf16", math="bf16")], V100, ALL_MODELS)


def test_no_kernels_no_rows() -> None:
    """An empty table has an empty estimate."""
    assert 0 == len(price([], V100, ALL_MODELS))


def test_bound_of_a_stream_is_that_of_the_memory_that_holds_it() -> None:
    """What fits in L2 is bound by L2, the rest by device memory."""
    small, large = (
        over_rows("elementwise", 64, 64),
        over_rows("elementwise", 8192, 8192),
    )

    bound_s = lower_bound(KernelTable([small, large]), V100)

    assert [
        small.work.bytes / V100.device.l2.bytes_per_s,
        large.work.bytes / V100.device.memory.bytes_per_s,
    ] == pytest.approx(list(bound_s))


def test_bound_of_a_copy_is_the_bus() -> None:
    """A copy from the host is bound by the bus's nominal rate."""
    (bound_s,) = lower_bound(KernelTable([copy(10**9)]), V100)

    assert 1e9 / V100.host_link.peak_bytes_per_s == pytest.approx(bound_s)


def test_bound_of_lookups_counts_each_row_once() -> None:
    """A table of one row, looked up half a million times, is read once."""
    kernel = bag(5_000, 1, 1, 100, 8)

    (bound_s,) = lower_bound(KernelTable([kernel]), V100)

    least = 32 + 4 * 500_000 + kernel.work.bytes_written
    assert least / V100.device.l2.bytes_per_s == pytest.approx(bound_s)


def test_registered_models_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models come by falling priority; a plugin that is no model is refused."""
    plugins: dict[str, object] = {"low": ROOFLINE, "high": Constant()}

    def names(group: str) -> list[str]:
        return sorted(plugins)

    def load(group: str, name: str) -> object:
        return plugins[name]

    monkeypatch.setattr(models, "plugin_names", names)
    monkeypatch.setattr(models, "load_plugin", load)

    assert ["constant", "roofline"] == [model.name for model in cost_models()]

    plugins["class"] = Constant
    with pytest.raises(PerfcError, match="'class' is a class; register an instance"):
        cost_models()
    plugins["class"] = 3
    with pytest.raises(PerfcError, match="'class' is int without name, priority"):
        cost_models()
    plugins.clear()
    with pytest.raises(PerfcError, match="no cost model is registered"):
        cost_models()


def test_the_built_in_models_are_registered() -> None:
    """The installed package offers its own models like any plugin."""
    if not entry_points(COST_MODELS):
        pytest.skip("perfc is not installed: it has no entry points")

    assert {m.name for m in ALL_MODELS} <= {m.name for m in cost_models()}


def test_an_answer_that_is_no_estimate() -> None:
    """Bare numbers lack an uncertainty and a provenance, and are refused."""

    class Bare(Constant):
        def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
            return kernels.flops  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    with pytest.raises(PerfcError, match=r"estimate\(\) with ndarray, expected an Est"):
        price([gemm(8, 8, 8)], V100, [Bare()])


@attrs.frozen
class Declaring(Constant):
    """A plugin that declares kernels, or what is none."""

    kernels: object = ()


_TWICE = "is declared by {} already; choose another name"


@pytest.mark.parametrize(
    ("kernels", "line"),
    [
        (
            (KernelDef(name="gemm", summary="mine"),),
            f"kernel 'gemm' of cost model 'a' {_TWICE.format('perfc')}",
        ),
        (
            (KernelDef(name="k", summary="mine"),),
            "kernel 'k' of cost model 'a' " + _TWICE.format("cost model 'b'"),
        ),
        (("gemm",), "cost model 'a' says kernels = ('gemm',), expected a tuple of K"),
        (7, "cost model 'a' says kernels = 7, expected a tuple of KernelDef (perfc."),
    ],
)
def test_kernels_that_cannot_be_declared(
    monkeypatch: pytest.MonkeyPatch, kernels: object, line: str
) -> None:
    """A name is declared once; the line names who does it, and who did."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    theirs = (KernelDef(name="k", summary="theirs"),)
    register_plugin(COST_MODELS, "a", Declaring(name="a", kernels=kernels))
    register_plugin(COST_MODELS, "b", Declaring(name="b", kernels=theirs))

    with pytest.raises(PerfcError) as caught:
        cost_models()

    assert str(caught.value).startswith(line)


def test_ops_that_are_no_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of one op would be read letter by letter."""
    monkeypatch.setattr("perfc.ir.support.plugins._registered", {})
    register_plugin(COST_MODELS, "wrong", Constant(ops="gemm"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    with pytest.raises(PerfcError, match="'wrong' says ops = 'gemm', expected a froz"):
        cost_models()


def test_a_bug_of_a_model() -> None:
    """What a plugin raises by mistake is an error that says where."""

    class Broken(Constant):
        def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
            return uniform_estimate(  # type: ignore[call-arg]  # the mistake
                kernels.flops  # pyright: ignore[reportCallIssue]
            )

    message = r"cost model 'constant' fails in test_select\.py, line \d+: TypeError: "
    with pytest.raises(PerfcError, match=message):
        price([gemm(8, 8, 8)], V100, [Broken()])
