"""Profiles: what is wrong with one is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfc.costmodels import (
    HostProfileError,
    TargetError,
    load_profile,
    load_target,
)

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


def _write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


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
        ("scale = 1.5", "scale = nan", "values.scale is nan, expected a number not"),
        ("scale = 1.5", 'scale = "x"', "values.scale is text 'x'"),
        ("values = {", "value = {", "kernels 1: unknown key value"),
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


def test_a_profile_may_have_a_device_or_a_host(tmp_path: Path) -> None:
    """`--overheads` refuses a device, as `--target` a host."""
    path = _write(tmp_path, HEAD + DEVICE + KERNEL)

    assert "mine" == load_target(path).profile
    assert "shared" == load_target(path).host.overheads
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
