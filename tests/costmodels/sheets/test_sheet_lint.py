"""The linter of target sheets: each mistake it knows, and that nothing escapes."""

from __future__ import annotations

import copy
import math
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets import catalog
from perfc.costmodels.sheets.sheet import build_target
from perfc.costmodels.sheets.sheet_fields import FIELDS
from perfc.costmodels.sheets.sheet_lint import find_problems
from perfc.costmodels.sheets.tier_section import with_devices
from perfc.ir import UsageError

SHEETS = Path(catalog.__file__).parents[1].joinpath("targets")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((SHEETS / f"{name}.toml").read_text(encoding="utf-8"))


def _edited(name: str, field: str, value: object) -> dict[str, Any]:
    """Return a built-in sheet's tables with one field's value replaced."""
    document = _read(name)
    *sections, key = field.split(".")
    table = document
    for section in sections:
        table = table[section]
    table[key]["value"] = value
    return document


def _sourced(section: str) -> dict[str, Any]:
    """Return the section of a system's sheet, cited as A100's sheet cites."""
    path = SHEETS.with_name("systems") / "dgx-a100.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))[section]
    return {key: {**entry, "source": "datasheet"} for key, entry in table.items()}


@pytest.mark.parametrize(
    "path", sorted(SHEETS.glob("*.toml")), ids=lambda path: path.stem
)
def test_a_shipped_sheet_passes(path: Path) -> None:
    """The linter has nothing against a built-in sheet, named like its file."""
    document = _read(path.stem)

    whole = with_devices(document, path.name)
    assert [] == [str(problem) for problem in find_problems(whole)]
    assert path.stem == document["name"]


@pytest.mark.parametrize(
    "path", sorted(SHEETS.glob("*.toml")), ids=lambda path: path.stem
)
def test_a_shipped_sheet_cites_every_source_it_lists(path: Path) -> None:
    """No citation is left over from an earlier value."""
    document = _read(path.stem)
    text = path.read_text(encoding="utf-8")

    unused = [key for key in document["sources"] if f'source = "{key}"' not in text]
    assert [] == unused


@pytest.mark.parametrize(
    ("target", "field", "value", "message"),
    [
        # a sparse peak
        ("a100-sxm-80g", "gpu.rates_tflops.fp16", 624, "a sparse peak?"),
        ("a100-sxm-80g", "gpu.rates_tflops.tf32", 312, "a sparse peak?"),
        ("h100-sxm-80g", "gpu.rates_tflops.fp8", 3958, "a sparse peak?"),
        ("l4", "gpu.rates_tflops.bf16", 242, "a sparse peak?"),
        ("b200-sxm-180g", "gpu.rates_tflops.nvfp4", 18_000, "a sparse peak?"),
        # another wrong rate
        ("a100-sxm-80g", "gpu.rates_tflops.fp64", 19.5, "about 9.7"),
        ("a100-sxm-80g", "gpu.rates_tflops.int8", 0.624, "check the rate, its unit"),
        ("a100-sxm-80g", "gpu.rates_tflops.fp32", 25, "about 19.49"),
        ("a100-sxm-80g", "gpu.lanes_per_sm", 128, "lanes_per_sm x sm_clock_mhz"),
        ("a100-sxm-80g", "gpu.base_clock_mhz", 1500, "at most sm_clock_mhz = 1410"),
        # GB for GiB
        ("a100-sxm-80g", "gpu.memory_gib", 85.9, "a 80 GB GPU has 80 GiB"),
        ("a100-sxm-80g", "gpu.memory_gib", 86, "a 80 GB GPU has 80 GiB"),
        ("a100-sxm-80g", "gpu.memory_gib", 74.5, "a 80 GB GPU has 80 GiB"),
        ("t4", "gpu.memory_gib", 17.18, "a 16 GB GPU has 16 GiB"),
        ("a100-sxm-80g", "gpu.memory_gb_per_s", 1899, "GiB/s for GB/s?"),
        ("a100-sxm-80g", "gpu.memory_gb_per_s", 2189, "GiB/s for GB/s?"),
        ("a100-sxm-80g", "gpu.memory_gb_per_s", 1555, "about 2039 GB/s"),
        ("a100-sxm-80g", "gpu.memory_data_rate_gt_per_s", 1.593, "twice the memory"),
        ("a100-sxm-80g", "gpu.memory_usable_gib", 85, "80 % to 100 %"),
        # both directions of a link
        ("a100-sxm-80g", "host_link.h2d_gb_per_s", 64, "both directions added?"),
        ("t4", "host_link.d2h_gb_per_s", 32, "at most 15.76 GB/s (PCIe 3 x16"),
        (
            "a100-sxm-80g",
            "nvlink.gb_per_s_per_direction",
            600,
            "both directions added?",
        ),
        (
            "h100-sxm-80g",
            "nvlink.gb_per_s_per_direction",
            900,
            "both directions added?",
        ),
        ("h100-sxm-80g", "nvlink.gb_per_s_per_direction", 25, "check the links"),
        ("gb200", "host_link.h2d_gb_per_s", 450, "at most 225 GB/s (NVLink-C2C"),
        ("mi300x", "xgmi.gb_per_s_per_direction", 896, "both directions added?"),
        ("mi250", "xgmi.links", 14, "about 700 (Infinity Fabric of gfx90a, 14 links"),
        # a GeForce sums in fp32 at half the rate
        ("rtx-4090", "gpu.rates_tflops.fp16", 330.3, "or summed in fp16?"),
        ("rtx-2080ti", "gpu.rates_tflops.fp16", 107.6, "or summed in fp16?"),
        ("rtx-4090", "gpu.fp32_sum_share", 1, "add gpu.fp32_sum_share = 0.5"),
        ("rtx-4090", "gpu.rates_tflops.int8", 1321, "a sparse peak?"),
        # AMD: a module is two devices, matrix rates are not vector rates
        ("mi250", "gpu.sm_count", 208, "about 45.26 (208 SMs x 128 FLOP/clock"),
        ("mi250", "gpu.rates_tflops.fp16", 362.1, "a sparse peak?"),
        ("mi210", "gpu.rates_tflops.fp32", 45.3, "about 22.63"),
        ("mi100", "gpu.rates_tflops.bf16", 184.6, "about 92.28"),
        ("mi300x", "gpu.rates_tflops.fp16", 2614.9, "a sparse peak?"),
        # an impossible hierarchy
        ("a100-sxm-80g", "gpu.l2_gb_per_s", 1000, "at least gpu.memory_gb_per_s"),
        ("a100-sxm-80g", "gpu.l2_mib", 16_384, None),
        ("t4", "gpu.l2_mib", 16_384, "less than device memory"),
        ("t4", "host_link.pageable_gb_per_s", 14, "at least host_link.pageable"),
    ],
)
def test_a_contradiction_is_refused(
    target: str, field: str, value: float, message: str | None
) -> None:
    """A number that its neighbours contradict is named with what was expected."""
    document = _edited(target, field, value)

    if message is None:
        build_target(document, "my.toml")
        return
    with pytest.raises(TargetError) as caught:
        build_target(document, "my.toml")
    assert str(caught.value).startswith("my.toml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "mode"),
    [
        ("v100-sxm2-16g", "tf32"),
        ("h100-sxm-80g", "fp32_tensor"),
        ("mi100", "fp64_tensor"),
        ("mi210", "tf32"),
        ("mi250", "fp8"),
        ("rtx-2080ti", "bf16"),
    ],
)
def test_a_mode_that_the_gpu_has_not_is_refused(target: str, mode: str) -> None:
    """A V100 with tf32, an MI100 with fp64 matrices and the like are mistakes."""
    document = _read(target)
    source = next(iter(document["sources"]))
    document["gpu"]["rates_tflops"][mode] = {"value": 60, "source": source}

    with pytest.raises(TargetError, match=f"{mode}: expected no such mode on compute"):
        build_target(document, "my.toml")


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1410,
        math.nan,
        math.inf,
        -math.inf,
        True,
        "1410",
        [1410],
        {},
        1.41e9,
        10**400,
    ],
    ids=repr,
)
def test_a_value_that_is_no_possible_number_is_refused(value: object) -> None:
    """Zero, negative, not finite, bool, text and far-off values are named."""
    message = r"gpu\.sm_clock_mhz: expected a number from 50 to 10000 MHz, found "
    with pytest.raises(TargetError, match=message):
        build_target(_edited("a100-sxm-80g", "gpu.sm_clock_mhz", value), "my.toml")


@pytest.mark.parametrize("value", [108.5, True, "108"])
def test_a_count_is_a_whole_number(value: object) -> None:
    """Half an SM, a bool and a text are no count."""
    with pytest.raises(TargetError, match=r"gpu\.sm_count: expected a whole number"):
        build_target(_edited("a100-sxm-80g", "gpu.sm_count", value), "my.toml")


@pytest.mark.parametrize("value", [8.0, "", " ", "8\n0", None])
def test_a_text_is_one_line(value: object) -> None:
    """A compute capability that is a float (8.0) or empty is refused."""
    document = _edited("a100-sxm-80g", "gpu.compute_capability", value)
    with pytest.raises(TargetError, match=r"compute_capability: expected a text"):
        build_target(document, "my.toml")


@pytest.mark.parametrize("name", [name for name, f in FIELDS.items() if f.required])
def test_a_missing_field_is_refused(name: str) -> None:
    """Each required field is missed by name, except with its optional section."""
    with_section = {"xgmi": "mi300x"}
    document = _read(with_section.get(name.partition(".")[0], "a100-sxm-80g"))
    document |= {section: _sourced(section) for section in ("node", "network")}
    *sections, key = name.split(".")
    table = document
    for section in sections:
        table = table[section]
    del table[key]

    found = [str(problem) for problem in find_problems(document)]
    assert [] != found
    assert found[0].startswith(f"{name}: expected a value")
    assert f"found nothing; add {key} = " in found[0]


@pytest.mark.parametrize("section", ["gpu", "host_link", "power", "runtime", "sources"])
def test_a_missing_section_is_refused(section: str) -> None:
    """Each required table is missed by name."""
    document = _read("a100-sxm-80g")
    del document[section]

    with pytest.raises(TargetError, match=f"my.toml: {section}: expected a table"):
        build_target(document, "my.toml")


@pytest.mark.parametrize("section", ["nvlink", "xgmi", "price", "host"])
def test_an_optional_section_may_be_absent(section: str) -> None:
    """A GPU without NVLink, price or overhead profile is a target."""
    document = _read("a100-sxm-80g")
    document.pop(section, None)

    assert "a100-sxm-80g" == build_target(document, "my.toml").name


def test_the_overhead_profile_is_the_sheets() -> None:
    """`[host] overheads` names the profile of the target's host."""
    document = _read("v100-sxm2-16g")
    document["host"] = {"overheads": {"value": "lin-v100", "source": "clocks"}}

    assert "lin-v100" == build_target(document, "my.toml").host.overheads


def test_an_unknown_field_is_refused_with_a_guess() -> None:
    """A misspelt field, section or entry key is named, not ignored."""
    document = _read("a100-sxm-80g")
    document["gpu"]["sm_clok_mhz"] = {"value": 1, "source": "datasheet"}
    document["extra\n"] = {}
    document["gpu"]["l2_mib"]["unit"] = "MiB"
    text = "\n".join(str(problem) for problem in find_problems(document))

    assert "gpu.sm_clok_mhz: expected a field of [gpu], found an unknown field" in text
    assert "did you mean sm_clock_mhz?" in text
    assert "text 'extra\\n': expected a known section" in text
    assert "gpu.l2_mib.unit: " in text


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (40, "say where the value comes from"),
        ({"value": 40}, "found no source"),
        ({"source": "datasheet"}, "found no value"),
        ({"value": 40, "source": "hearsay"}, "expected an id of"),
        ({"value": 40, "source": 3}, "expected an id of"),
    ],
)
def test_a_value_without_a_source_is_refused(entry: object, message: str) -> None:
    """Every value names a citation that the sheet gives."""
    document = _read("a100-sxm-80g")
    document["gpu"]["l2_mib"] = entry

    with pytest.raises(TargetError, match=message):
        build_target(document, "my.toml")


def test_an_empty_citation_is_refused() -> None:
    """A source id without words behind it is no source."""
    document = _read("a100-sxm-80g")
    document["sources"]["datasheet"] = " "

    with pytest.raises(TargetError, match=r"sources\.datasheet: expected a citation"):
        build_target(document, "my.toml")


@pytest.mark.parametrize("aliases", ["a100", [1], {}])
def test_aliases_are_a_list_of_texts(aliases: object) -> None:
    """Anything else is named."""
    document = _read("a100-sxm-80g")
    document["aliases"] = aliases

    with pytest.raises(TargetError, match="aliases: expected a list of texts"):
        build_target(document, "my.toml")


def test_the_number_of_further_problems_is_told() -> None:
    """One line names the first problem and counts the others."""
    document = _read("a100-sxm-80g")
    document["gpu"]["sm_count"]["value"] = 0
    document["gpu"]["l2_mib"]["value"] = 0

    with pytest.raises(TargetError, match=r"sm_count: .* \(and 1 more\)$"):
        build_target(document, "my.toml")


def test_the_rates_of_an_unknown_compute_capability_go_unchecked() -> None:
    """A GPU newer than the linter can be described."""
    document = _edited("a100-sxm-80g", "gpu.compute_capability", "99.0")
    document["gpu"]["rates_tflops"]["fp16"]["value"] = 5000

    assert 5e15 == build_target(document, "my.toml").peak("fp16")


ANY_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["datasheet", 10**400, -1, 0, 1e-300, 1e300]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["value", "source", "x", ""]), inner, max_size=3
        )
    ),
    max_leaves=4,
)
PLACES = [
    *(tuple(name.split(".")) for name in FIELDS),
    *((*name.split("."), "value") for name in FIELDS),
    *((*name.split("."), "source") for name in FIELDS),
    *(("name",), ("aliases",), ("sources",), ("gpu",), ("gpu", "rates_tflops")),
    *(("nvlink",), ("price",), ("host",), ("sources", "datasheet"), ("gpu", "?\n")),
]


def _put(table: object, place: tuple[str, ...], value: object) -> None:
    """Put *value* at *place* in nested tables, if the way there still exists."""
    if not isinstance(table, dict):
        return
    tables = cast("dict[str, Any]", table)
    if len(place) == 1:
        tables[place[0]] = value
    else:
        _put(tables.get(place[0]), place[1:], value)


@given(
    target=st.sampled_from(["h100-sxm-80g", "titan-xp", "mi300x", "gb200"]),
    changes=st.lists(
        st.tuples(st.sampled_from(PLACES), ANY_VALUE), min_size=1, max_size=3
    ),
)
def test_a_mutated_sheet_gives_a_target_or_one_line(
    target: str, changes: list[tuple[tuple[str, ...], object]]
) -> None:
    """Whatever stands in a sheet, nothing but a `TargetError` of one line escapes."""
    document = copy.deepcopy(_read(target))
    for place, value in changes:
        _put(document, place, copy.deepcopy(value))
    try:
        loaded = build_target(document, "my.toml")
    except TargetError as error:
        message = str(error)
        assert "\n" not in message
    else:
        rates = loaded.device.flops_per_s.values()
        assert all(0 < rate < math.inf for rate in rates)
        assert {loaded: 1} == {build_target(document, "elsewhere"): 1}


@given(
    overrides=st.dictionaries(
        st.sampled_from([*FIELDS, "gpu", "x"]),
        st.floats().map(repr) | st.integers(0, 5000).map(str) | st.text(max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_any_override_gives_a_target_or_a_usage_error(
    overrides: dict[str, str],
) -> None:
    """No override is silently wrong, and none fails in another way."""
    try:
        target = load_target("h100", overrides)
    except UsageError as error:
        message = str(error)
        assert "\n" not in message
    else:
        for name, text in overrides.items():
            assert float(text) == target.fields[name]
            assert "--set" == target.sources[name]
