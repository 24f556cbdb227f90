"""Host profiles: reading them, and refusing what cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import load_profile, load_target
from perfc.costmodels.machine import Device
from perfc.costmodels.sheets import (
    HostProfileError,
    catalog,
    parse_profile,
    profile_names,
)
from perfc.ir import UsageError

FOLDER = Path(catalog.__file__).parents[1] / "targets"
SHEETS = sorted(path.stem for path in FOLDER.glob("*.toml"))
GENERATIONS = ("server-2017", "server-2020", "server-2023")

GOOD = """
name = "mine"
source = "a trace"
date = "2026-01-01"
software = "torch 2.13"
sigma_shared = 0.1
sigma_independent = 0.5
t1_us = 8
[t2_us]
default = 16.5
"aten::linear" = 40
[t3_us]
default = 4
[t5_us]
default = 6
[t0_us]
default = 2
[calls_us]
default = 5
cudaLaunchKernel = 5
cudaMemcpyAsync = 6.5
cudaStreamSynchronize = 3.5
cudaDeviceSynchronize = 3.5
"""


def test_microseconds_become_seconds() -> None:
    """Times are seconds inside."""
    profile = parse_profile(GOOD, "mine.toml")

    assert "mine" == profile.name
    assert pytest.approx(8e-6) == profile.t1_s
    assert pytest.approx(40e-6) == profile.t2_s.of("aten::linear")
    assert pytest.approx(6.5e-6) == profile.calls_s.of("cudaMemcpyAsync")


def test_op_that_is_not_listed_takes_the_default() -> None:
    """Every op has a time."""
    profile = parse_profile(GOOD, "mine.toml")

    assert pytest.approx(16.5e-6) == profile.t2_s.of("aten::never_heard_of")
    assert pytest.approx(5e-6) == profile.calls_s.of("cuNeverHeardOf")


@pytest.mark.parametrize("name", profile_names())
def test_builtin_profiles_are_sound(name: str) -> None:
    """Every built-in profile loads under its file's name and says its source."""
    profile = load_profile(name)

    assert name == profile.name
    assert profile.source
    assert 0 < profile.t1_s < 50e-6


def test_builtin_profiles() -> None:
    """There are those of GPUs' hosts, by generation or of one, and a CPU's."""
    assert ["cpu", "lin-v100", *GENERATIONS, "shared"] == profile_names()


def _is_card(device: Device) -> bool:
    """Whether a device is one in a server, not on the chip of its host."""
    return not device.synchronous and not device.has_host_memory


@pytest.mark.parametrize(
    "name", [name for name in SHEETS if _is_card(load_target(name).device)]
)
def test_every_gpu_has_the_host_of_a_generation(name: str) -> None:
    """A sheet that names none has `shared`, the host of a target of one's own."""
    profile = load_target(name).host.overheads

    assert profile in GENERATIONS


@pytest.mark.parametrize("name", ["server-2017", "server-2020"])
def test_hosts_that_nothing_tells_from_the_median_one(name: str) -> None:
    """They are `shared`, to the digit."""
    shared = load_profile("shared")
    found = load_profile(name)

    assert found.source != shared.source
    assert shared == attrs.evolve(
        found,
        name=shared.name,
        source=shared.source,
        date=shared.date,
        software=shared.software,
    )


def test_a_host_of_a_later_generation() -> None:
    """It is another profile at another speed, but for what was published of it."""
    shared, later = load_profile("shared"), load_profile("server-2023")

    assert pytest.approx(shared.t1_s / 2.0) == later.t1_s
    assert shared.sigma_shared == later.sigma_shared
    assert pytest.approx(4.8e-6) == later.compiled_s["kernel"]
    assert pytest.approx(3.2e-6) == later.calls_s.of("cuLaunchKernel")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'base = "none"',
            r"base is 'none', expected cpu, lin-v100, server-2017, .*, shared",
        ),
        ("speed = 0", r"speed = 0; expected a number up to 100"),
        ("t1_us = 3", r"unknown field 't1_us'; a profile with a base has name, source"),
        ("calls_us = { x = -1 }", r"calls_us.x = -1; expected microseconds"),
        ("calls_us = 3", r"calls_us = 3; expected a table"),
        ("compiled_us = { x = 1 }", r"unknown field 'compiled_us.x'"),
        ('date = ""', "date is missing"),
    ],
)
def test_a_base_that_cannot_be(line: str, message: str) -> None:
    """What is wrong with a profile of a base is said as of any other."""
    lines = {
        "name": '"mine"',
        "base": '"shared"',
        "speed": "2",
        "source": '"me"',
        "date": '"2026"',
        "software": '"mine"',
    }
    key, _, value = line.partition(" = ")
    text = "\n".join(f"{k} = {v}" for k, v in {**lines, key: value}.items())

    with pytest.raises(HostProfileError, match=message):
        parse_profile(text, "mine.toml")


def test_shared_profile_is_less_certain() -> None:
    """A profile pooled over hosts is less sure of yours than one of a host."""
    assert load_profile("shared").sigma_shared > load_profile("lin-v100").sigma_shared


def test_lin_v100_values() -> None:
    """The values of the source's own summary come back."""
    profile = load_profile("lin-v100")

    assert pytest.approx(7.7e-6, abs=0.1e-6) == profile.t1_s
    assert pytest.approx(32.8e-6, abs=0.1e-6) == profile.t2_s.of("aten::linear")
    assert pytest.approx(8.5e-6, abs=0.1e-6) == profile.t3_s.of("aten::relu")
    assert pytest.approx(29.8e-6, abs=0.1e-6) == profile.t5_s.of("aten::linear")
    assert pytest.approx(4e-6) == profile.calls_s.of("cudaLaunchKernel")


def test_path_is_read(tmp_path: Path) -> None:
    """A path to a TOML file is a profile."""
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)

    assert "mine" == load_profile(str(path)).name


def test_unknown_name_lists_the_known() -> None:
    """An unknown name is the caller's mistake; the message helps."""
    with pytest.raises(UsageError, match=r"did you mean shared\?.*lin-v100, server"):
        load_profile("shard")


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is named."""
    path = tmp_path / "none.toml"
    with pytest.raises(HostProfileError, match=r"none\.toml: cannot read .*no such"):
        load_profile(str(path))


def test_binary_file(tmp_path: Path) -> None:
    """A file that is no text is refused."""
    path = tmp_path / "b.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(HostProfileError, match="not UTF-8 text, at byte 8"):
        load_profile(str(path))


def test_large_file(tmp_path: Path) -> None:
    """A file too large for a profile is refused."""
    path = tmp_path / "b.toml"
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(HostProfileError, match="larger than"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("t1_us = 8\n", "", "t1_us = nothing; expected microseconds"),
        ("t1_us = 8", "t1_us = -1", "t1_us = -1; expected microseconds"),
        ("t1_us = 8", "t1_us = nan", "cannot be read as TOML (t1_us is nan"),
        ("t1_us = 8", "t1_us = true", "t1_us = True; expected microseconds"),
        ("= 40", "= 2e6", "t2_us.aten::linear = 2000000.0; expected microseconds"),
        ("= 40", '= "40"', "t2_us.aten::linear = '40'; expected microseconds"),
        ("[t3_us]\ndefault = 4\n", "", "table [t3_us] is missing"),
        ("[t3_us]\ndefault = 4", "[t3_us]", "t3_us.default is missing"),
        ("cudaMemcpyAsync = 6.5\n", "", "calls_us.cudaMemcpyAsync is missing"),
        ("sigma_shared = 0.1", "sigma_shared = 0", "sigma_shared = 0; expected a fra"),
        ('source = "a trace"\n', "", "source is missing; expected text"),
        ('date = "2026-01-01"', "date = 2026-01-01", "date is missing; expected text"),
        ("t1_us = 8", "t1_us = 8\nt9_us = 1", "unknown field 't9_us'"),
        ("t1_us = 8", "t1_us 8", "not valid TOML"),
    ],
)
def test_unsound_profile(old: str, new: str, problem: str) -> None:
    """What is missing or not physical is named in one line."""
    with pytest.raises(HostProfileError) as caught:
        parse_profile(GOOD.replace(old, new), "mine.toml")

    message = str(caught.value)
    assert message.startswith(f"mine.toml: {problem}")
    assert "\n" not in message


def test_problems_are_counted() -> None:
    """The first problem is named, the others counted."""
    with pytest.raises(HostProfileError, match=r"\(and \d+ more\)$"):
        parse_profile("", "empty.toml")


@given(st.text(max_size=200))
def test_any_text_is_refused_in_one_line(text: str) -> None:
    """No text makes the reader fail in another way."""
    with pytest.raises(HostProfileError):
        parse_profile(text, "x.toml")


def test_times_of_compiled_graphs() -> None:
    """A profile may say what Python takes in a compiled graph, or part of it."""
    profile = parse_profile(GOOD + "[compiled_us]\nkernel = 3\n", "mine")

    assert pytest.approx(3e-6) == profile.compiled_s["kernel"]
    assert pytest.approx(37e-6) == profile.compiled_s["graph"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[compiled_us]\nloop = 1", "unknown field 'compiled_us.loop'; it has graph, "),
        ("[compiled_us]\ncall = -1", "compiled_us.call = -1; expected microseconds"),
    ],
)
def test_wrong_times_of_compiled_graphs(text: str, message: str) -> None:
    """What such a table may hold is known."""
    with pytest.raises(HostProfileError, match=re.escape(message)):
        parse_profile(f"{GOOD}{text}\n", "mine")
