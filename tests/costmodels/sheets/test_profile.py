"""Profiles: what is wrong with one is said in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
import pytest

from perfc.costmodels import cost_models, load_profile, load_target, price
from perfc.costmodels.cpu.cpu import SHIPPED, shipped_terms
from perfc.costmodels.machine import Family, TargetError
from perfc.costmodels.sheets import HostProfileError
from perfc.ir import Kernel, PerfcError, Record, Work

HEAD = """
schema = "perfc.profile/1"
name = "mine"
source = "a test"
date = "2026-11-22"
software = "none"
"""
DEVICE = '[device]\ntarget = "t4"\n'
KERNEL = """
[[kernels]]
op = "gemm"
dtype = "fp32"
rows = 10
sigma_shared = 0.1
sigma_independent = 0.1
values = { start_us = 1.0, scale = 1.5 }
"""


GEMM = Kernel(
    "gemm",
    "fp32",
    "fp32",
    Record({"b": 1, "m": 511, "n": 511, "k": 511, "layout": "nn"}),
    Work(2 * 511**3, 2 * 4 * 511**2, 4 * 511**2),
)


def _write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _cpu_profile(op: str, phase: str, values: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    kernel = KERNEL.replace('"gemm"', f'"{op}"\nphase = "{phase}"')
    kernel = kernel.replace("start_us = 1.0, scale = 1.5", listed)
    return HEAD + DEVICE.replace("t4", "cpu") + kernel


@pytest.mark.parametrize("name", [*SHIPPED, "elementwise gelu"])
def test_a_profile_without_a_term_of_its_model_is_refused(
    tmp_path: Path, name: str
) -> None:
    """Whichever it is: what an older perfc did not know would cost nothing else."""
    op, _, phase = name.partition(" ")
    shipped = shipped_terms(Family(op, "fp32", phase or "forward"))
    whole = _write(tmp_path, _cpu_profile(op, phase or "forward", shipped))
    (fit,) = load_target(whole).fits.by_family.values()

    assert dict(shipped) == dict(fit.values)
    for term in shipped:
        rest = {other: value for other, value in shipped.items() if other != term}
        path = _write(tmp_path, _cpu_profile(op, phase or "forward", rest))
        expected = f"{path}: profile: values of {fit.family} lack {term}; calibrate "
        with pytest.raises(TargetError, match=f"^{re.escape(expected)}again$"):
            load_target(path)


@pytest.mark.parametrize(
    ("target", "op", "values", "expected"),
    [
        ("t4", "gemm", "start_us = 1.0", "values of gemm fp32 lack scale; cal"),
        ("t4", "softmax", "scale = 1.5", "values of softmax fp32 lack start_us; cal"),
        ("t4", "gemm", "gone_us = 1", "values of gemm fp32 lack scale, start_us; cal"),
        ("cpu", "gemm", "scale = 1.5", "values of gemm fp32 lack start_us; cal"),
        (
            "t4",
            "gemm",
            "scale = 1.5, start_us = 1, tile_efficiency = 1",
            "values of gemm fp32 have unknown tile_efficiency; calibrate again",
        ),
        (
            "cpu",
            "gemm",
            "scale = 1.5, start_us = 1, gone_us = 1",
            "values of gemm fp32 have unknown gone_us; calibrate again",
        ),
    ],
)
def test_coefficients_of_another_version_are_refused(
    tmp_path: Path, target: str, op: str, values: str, expected: str
) -> None:
    """What lacks in a correction, and what no model of the family asks for."""
    text = HEAD + DEVICE.replace("t4", target) + KERNEL.replace("gemm", op)
    path = _write(tmp_path, text.replace("start_us = 1.0, scale = 1.5", values))
    with pytest.raises(TargetError, match=re.escape(expected)):
        load_target(path)


NEAR = """[kernels.near]
octaves = 2.0
unlike = 0.5
rows = ["0.5 | 0.0 9.0 9.0 9.0 | nn -", "-0.5 | 0.0 5.0 5.0 5.0 | nn -"]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("profile/1", "profile/9", "schema is text 'perfc.profile/9', expected"),
        ('name = "mine"', "", "name is missing"),
        ('target = "t4"', "", "device.target is missing, expected a target"),
        ('"t4"', '"t44"', "unknown target t44; did you mean t4"),
        (DEVICE, "", r"no \[device\]: it holds a host only"),
        (DEVICE, DEVICE + "watts = 3\n", "unknown key device.watts"),
        (DEVICE, DEVICE + '[device.fields]\n"gpu.sm" = 3\n', "no such field"),
        (
            DEVICE,
            DEVICE + '[device.fields]\n"gpu.sm_count" = "few"\n',
            "expected a number",
        ),
        ('op = "gemm"', "", "kernels 1: op is missing"),
        ("rows = 10", "rows = 0", "rows is 0, expected how many were fitted"),
        ("= 0.1", "= -0.1", "sigma_shared is -0.1, expected a number from 0 to 10"),
        ("scale = 1.5", "scale = nan", "scale is nan, expected a finite number"),
        ("scale = 1.5", 'scale = "x"', "values.scale is text 'x'"),
        ("values = {", "value = {", "kernels 1: unknown key value"),
        ("rows = 10", "rows = 10\nshipped = 2", "shipped is 2, expected a share"),
        ("rows = 10", "rows = 10\nshipped = 1", "shipped of gemm fp32: perfc has no"),
        ("[[kernels]]", "[kernels]", r"expected \[\[kernels\]\]"),
    ],
)
def test_a_bad_profile_is_refused(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """The file, the key, what was expected and what was found, in one line."""
    text = (HEAD + DEVICE + KERNEL).replace(old, new, 1)
    path = _write(tmp_path, text)
    with pytest.raises(TargetError, match=expected) as caught:
        load_target(path)

    assert "\n" not in str(caught.value)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("octaves = 2.0", "octaves = 0", "near.octaves is 0, expected up to 64"),
        ("unlike = 0.5", "unlike = 2", "near.unlike is 2, expected 0 to 1"),
        ("unlike = 0.5", "", "expected a table of octaves, unlike, rows"),
        ('"0.5 | ', '"inf | ', "expected 'weight | sizes | words'"),
        ('"0.5 | ', '"0.5 ', "expected 'weight | sizes | words'"),
        ("9.0 | nn -", "9.0 | nn", "differ in how many sizes or words"),
        ('rows = ["', 'rows = ["" , "', "expected 'weight | sizes | words'"),
    ],
)
def test_bad_rows_of_a_profile_are_refused(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """What a profile says of measured rows is checked like its coefficients."""
    text = (HEAD + DEVICE + KERNEL + NEAR).replace(old, new, 1)
    with pytest.raises(TargetError, match=re.escape(expected)):
        load_target(_write(tmp_path, text))


MEASURED = """[[measured]]
op = "gemm"
dtype = "fp32"
math = "fp32"
timing = "graph"
source = "a test"
params = ["m", "n", "k"]
rows = ["[12.5, 0.01, 30, 511, 511, 511]", "[2, 0, 1, 64, 64, 64]"]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[[measured]]", "[measured]", "expected [[measured]]"),
        ('op = "gemm"', "", "measured 1: op is None, expected a text"),
        ("timing =", "timed =", "unknown key timed; it has dtype, math, op"),
        ('"graph"', '"graph"\nrepeated = 1', "repeated is 1, expected true or false"),
        ('["m", "n", "k"]', '["m", 3]', "expected a list of names"),
        (
            '["m", "n", "k"]',
            '["m", "n", "kk"]',
            "measured 1: kernel 'gemm' has no parameter 'kk'; did you mean 'k'? decl",
        ),
        ('["m", "n", "k"]', '["m", "n"]', "and 2 values of params"),
        ("[12.5,", "[0,", "rows has text '[0, 0.01"),
        ("[12.5,", "[NaN,", "expected '[us, sigma, n, ...]'"),
        ("0.01,", "-0.01,", "expected '[us, sigma, n, ...]'"),
        ("30,", "30.5,", "expected '[us, sigma, n, ...]'"),
        ("30,", "0,", "expected '[us, sigma, n, ...]'"),
        ("[12.5,", "12.5,", "expected '[us, sigma, n, ...]'"),
        ('["[12.5', '["{}", "[12.5', "rows has text '{}', expected"),
        ('["[12.5', '["' + 9999 * "[" + '", "[12.5', "expected '[us, sigma, n"),
        ("64, 64, 64]", "511, 511, 511]", "measured has a kernel twice"),
    ],
)
def test_bad_measured_kernels_are_refused(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """The entry, what was expected and what was found, in one line."""
    sound = HEAD + DEVICE + KERNEL + MEASURED
    assert 2 == len(load_target(_write(tmp_path, sound)).measured)
    text = HEAD + DEVICE + KERNEL + MEASURED.replace(old, new, 1)
    with pytest.raises(TargetError, match=re.escape(expected)) as caught:
        load_target(_write(tmp_path, text))

    assert "\n" not in str(caught.value)


def test_rows_of_other_sizes_are_refused(tmp_path: Path) -> None:
    """A profile whose rows were sized otherwise is to be made again, not ignored."""
    text = (
        HEAD + DEVICE + KERNEL + NEAR.replace(" 9.0 | ", " | ").replace(" 5.0 |", "|")
    )
    target = load_target(_write(tmp_path, text))
    with pytest.raises(PerfcError, match="have 3 sizes and 2 words, expected 4 and 2"):
        price([GEMM], target, cost_models())


def test_rows_of_a_profile_correct_kernels_near_them(tmp_path: Path) -> None:
    """At a row its weight is the logarithm of the factor; nothing is said far away."""
    near = load_target(_write(tmp_path, HEAD + DEVICE + KERNEL + NEAR))
    alone = load_target(_write(tmp_path, HEAD + DEVICE + KERNEL))
    far = attrs.evolve(
        GEMM, params=GEMM.params.updated(b=1, m=1, n=1 << 20, k=4, layout="tt")
    )
    priced = [price([GEMM, far], t, cost_models()) for t in (near, alone)]
    with_rows, without = (each.seconds for each in priced)
    assert ["gemm, near 511x511x511 nn", "gemm"] == list(priced[0].model)
    assert ["gemm", "gemm"] == list(priced[1].model)

    logs = np.log(with_rows / without)
    assert pytest.approx([0.5, 0.0], abs=0.01) == logs.tolist()


def test_a_profile_may_have_a_device_or_a_host(tmp_path: Path) -> None:
    """`--overheads` refuses a device, as `--target` a host."""
    path = _write(tmp_path, HEAD + DEVICE + KERNEL)

    assert "mine" == load_target(path).profile
    assert "server-2017" == load_target(path).host.overheads
    with pytest.raises(HostProfileError, match=r"no \[host\]: it holds a device only"):
        load_profile(path)


def test_overrides_come_after_the_profile(tmp_path: Path) -> None:
    """What is typed wins over what was measured, and says so."""
    fields = '[device.fields]\n"gpu.memory_gb_per_s" = 300\n'
    path = _write(tmp_path, HEAD + DEVICE + fields)
    measured = load_target(path)
    typed = load_target(path, {"gpu.memory_gb_per_s": "200"})

    assert 300e9 == measured.device.memory.bytes_per_s
    assert "profile mine: a test" in measured.sources["gpu.memory_gb_per_s"]
    assert 200e9 == typed.device.memory.bytes_per_s
    assert "--set" == typed.sources["gpu.memory_gb_per_s"]
