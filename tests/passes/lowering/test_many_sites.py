"""Sites at many sizes: the launches that the same rules make at each size."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import perfc
from perfc.costmodels.kernels import kernels_of, many
from perfc.frontends import WORKLOADS
from perfc.ir import Kernel
from perfc.passes import LAUNCHES
from perfc.passes.lowering import (
    RECIPES,
    ManySites,
    Recipe,
    Settings,
    recipe_of,
)
from perfc.passes.lowering.eager import Eager
from perfc.passes.lowering.recipe import Binding, Lowered

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "dlrm-default": ("a100", {}),
    "dlrm-default:embedding=batched": ("v100", {"mode": "training"}),
    "dlrm-mlperf": ("a100", {"mode": "training", "optimizer": "adagrad"}),
    "dlrm-default:tables=2,rows=5000": ("cpu", {"mode": "training"}),
    "gpt2:layers=1": ("h100-sxm", {"mode": "training", "optimizer": "adam"}),
    "bert-base:layers=1": ("a100", {"dtype": "bf16"}),
    "resnet50": ("v100", {"mode": "training"}),
    "wide-and-deep": ("l4", {"mode": "training"}),
    "dcnv2-mlperf": ("a100", {"mode": "training", "optimizer": "sgd"}),
    "deepfm:popularity=zipf(1.05)": ("v100", {"mode": "training"}),
    "inception-v3": ("a100", {}),
}
SIZES = [1, 2, 3, 5, 8, 16, 17, 31, 64, 100, 129, 512, 1000, 3071, 3073, 20000]


def recipe(model: perfc.Model, target: str) -> tuple[Settings, Recipe]:
    """Return how a model was lowered, and for what."""
    analysis = perfc.analyze(model, target).analysis
    facts = analysis.annotations
    (graph,) = facts.get(LAUNCHES, analysis.program, analysis.scenario)
    ops = analysis.program.classes[0].ops
    assert ops is not None
    made = recipe_of(facts.table(RECIPES, None)[ops], graph)
    return made.settings, made


def at_rows(kernel: object, count: int) -> list[Kernel]:
    """Return the kernel of each size."""
    if isinstance(kernel, Kernel):
        return list(kernels_of(kernel, count))
    return [*kernel]  # type: ignore[misc] # one a size


@pytest.mark.parametrize("one_device", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_every_site_is_what_it_is_at_each_size(
    name: str,
    one_device: bool,
) -> None:
    """Name, calls, layouts and kernels, to the last bit; so on devices of other SMs."""
    target, options = MODELS[name]
    model = perfc.load(name, batch=64, **options)
    settings, lowered = recipe(model, target)
    bindings = [model.bind(batch=size).program.bindings for size in SIZES]
    numbers = {n: many(np.array([b[n] for b in bindings])) for n in bindings[0]}
    sms = np.array([(20, settings.sm_count, 142)[n % 3] for n in range(len(SIZES))])
    if one_device:
        sms[:] = settings.sm_count
    on_all = attrs.evolve(settings, sm_count=many(sms))
    sites = ManySites(len(SIZES), numbers, on_all)
    alone: list[Any] = [
        Binding(own, attrs.evolve(settings, sm_count=count))
        for own, count in zip(bindings, sms.tolist(), strict=True)
    ]
    varying = [key for key in lowered.sites if sites.site_varies(key)]

    assert varying
    for key in varying:
        parts = sites.site(key)
        rows = np.concatenate([part.rows for part in parts])
        assert sites.every.tolist() == sorted(rows.tolist())
        for part in parts:
            columns = [at_rows(kernel, len(part.rows)) for kernel in part.kernels]
            for at, row in enumerate(part.rows.tolist()):
                eager: Eager = alone[row].eager(key)
                tasks = Lowered.tasks(eager.name, eager.launches, eager.layouts)
                assert part.tasks == tasks
                found = [column[at] for column in columns]
                assert [launch.kernel for launch in eager.launches] == found


def _shallow(name: str) -> str:
    """Return a built-in model, of few layers where their number is a parameter."""
    return f"{name}:layers=2" if "layers" in WORKLOADS[name].parameters else name


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(
    "name",
    [
        *map(_shallow, WORKLOADS),
        *[
            f"{name}:embedding=batched"
            for name, workload in WORKLOADS.items()
            if workload.parameters.get("embedding") == "bag"
        ],
    ],
)
def test_no_rule_needs_one_number(name: str, mode: str) -> None:
    """All ops of all built-in models are lowered at many sizes together."""
    model = perfc.load(name, batch=64, mode=mode)
    settings, lowered = recipe(model, "a100")
    bindings = [model.bind(batch=size).program.bindings for size in SIZES]
    numbers = {n: many(np.array([b[n] for b in bindings])) for n in bindings[0]}
    sites = ManySites(len(SIZES), numbers, settings)

    assert sites.repeat(lowered).kernels
    assert not sites.one_by_one


def test_rules_part_sizes() -> None:
    """A GEMM is split where it is deep for its tiles: sizes are parted there."""
    model = perfc.load("dlrm-default", batch=64)
    settings, lowered = recipe(model, "a100")
    sites = ManySites(3, {"batch": many(np.array([64, 4096, 65536]))}, settings)
    repeated = sites.repeat(lowered)

    assert repeated.fits[0]
    assert not repeated.fits[1]
    assert repeated.alike[0] != repeated.alike[1]
    assert not sites.one_by_one


def test_a_rule_that_takes_no_many_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run size by size, which is noted."""
    model = perfc.load("dlrm-default", batch=64)
    settings, lowered = recipe(model, "a100")
    eager_launches = Binding.eager

    def eager(self: Binding, key: Any) -> Any:
        if key[0] == "relu":
            hash(self.numbers["batch"])
        return eager_launches(self, key)

    monkeypatch.setattr(Binding, "eager", eager)
    sites = ManySites(8, {"batch": many(np.arange(64, 72))}, settings)

    assert sites.repeat(lowered).fits.all()
    assert {"relu"} == sites.one_by_one


def test_a_rule_that_parts_sizes_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some parts the rest goes size by size."""
    model = perfc.load("dlrm-default", batch=64)
    settings, lowered = recipe(model, "a100")
    asked = Binding.eager

    def eager(self: Binding, key: Any) -> Any:
        for number in range(64, 664):
            if self.numbers["batch"] == number:
                break
        return asked(self, key)

    monkeypatch.setattr(Binding, "eager", eager)
    sites = ManySites(200, {"batch": many(np.arange(64, 264))}, settings)

    assert sites.repeat(lowered).fits.any()


def test_errors_of_a_size_are_raised() -> None:
    """A shape that overflows at one size raises as it does alone."""
    model = perfc.load("dlrm-default", batch=64)
    settings, lowered = recipe(model, "a100")
    sites = ManySites(4, {"batch": many(np.array([64, 65, 66, 2**60]))}, settings)

    with pytest.raises(perfc.PerfcError, match="overflows"):
        sites.repeat(lowered)
