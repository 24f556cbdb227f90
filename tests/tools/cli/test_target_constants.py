"""`perfc targets show T --constants`: which constants hold on a target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.tools.command import Command

from perfc.costmodels import load_target
from perfc.costmodels.constants import (
    CONSTANTS_FOLDER,
    KINDS,
    constant_files,
    constants,
)


def _shown(command: Command, target: str) -> Mapping[str, Any]:
    """Return the constants of a target, by name."""
    content = command("targets", "show", target, "--constants", "--format", "json").out
    return {constant["name"]: constant for constant in json.loads(content)["constants"]}


def test_a_constant_is_shown_with_its_source(command: Command) -> None:
    """Name, value, kind, and who says so with the rows that it was read off."""
    title, head, *rows = command(
        "targets", "show", "h100", "--constants"
    ).out.splitlines()

    assert title.startswith("h100-sxm-80g   spec ")
    assert ["name", "value", "kind", "source"] == head.split()
    (row,) = [row for row in rows if row.startswith("memcpy.inline_share ")]
    assert ["memcpy.inline_share", "0.31", "single", "one"] == row.split()[:4]
    assert row.endswith("(copies of some bytes to 100 KB on one H100)")


def test_a_table_is_a_line_a_number(command: Command) -> None:
    """Its source stands once, before the first number."""
    rows = command("targets", "show", "cpu", "--constants").out.splitlines()
    first, second, *_ = (r.split() for r in rows if r.startswith("cpu.group_rows."))

    assert ["cpu.group_rows.item_ns", "0.6", "assumed"] == first[:3]
    assert ["cpu.group_rows.row_ns", "30"] == second


def test_json_has_the_constants_of_the_table(command: Command) -> None:
    """Each with its value, kind, source and rows; and the files of `make fit`."""
    content = json.loads(
        command("targets", "show", "v100", "--constants", "--format", "json").out
    )
    rows = command("targets", "show", "v100", "--constants").out.splitlines()[2:]
    names = {row.split("  ")[0] for row in rows}

    assert "perfc.target/1" == content["schema"]
    found = content["constants"]
    assert {"name", "value", "kind", "source", "rows"} == {k for c in found for k in c}
    assert {*KINDS} == {constant["kind"] for constant in found}
    assert all(any(n.startswith(c["name"]) for n in names) for c in found)
    assert {file["name"] for file in content["fitted_files"]} <= names


def test_json_has_the_fields_of_a_sheet(command: Command) -> None:
    """Without --constants: each with its value, unit and source."""
    content = json.loads(command("targets", "show", "v100", "--format", "json").out)
    rows = command("targets", "show", "v100").out.splitlines()[1:]

    assert [row.split()[0] for row in rows] == [f["name"] for f in content["fields"]]
    fields = {field["name"]: field for field in content["fields"]}
    assert (1530, "MHz") == (
        fields["gpu.sm_clock_mhz"]["value"],
        fields["gpu.sm_clock_mhz"]["unit"],
    )


@pytest.mark.parametrize(
    ("target", "has", "lacks"),
    [
        ("h100", "memcpy.inline_share", "kernels.sigma_other_vendor"),
        ("h100", "batch_norm.cudnn_hopper", "batch_norm.cudnn_volta"),
        ("v100", "batch_norm.cudnn_volta", "memcpy.inline_share"),
        ("v100", "streaming.gather", "attention.tiles_flash_3"),
        ("dgx-h100", "collectives.sums_beside", "streaming.gather"),
        ("mi300x", "kernels.sigma_other_vendor", "kernels.sigma_unseen"),
        ("cpu", "cpu.parallel_flops", "gemm.steepness"),
        ("a100", "gemm.steepness", "cpu.parallel_flops"),
    ],
)
def test_constants_of_other_devices_are_left_out(
    command: Command, target: str, has: str, lacks: str
) -> None:
    """A GPU has none of CPUs, a Volta none of Hopper, an AMD none of CUDA."""
    shown = _shown(command, target)

    assert (True, False) == (has in shown, lacks in shown)


def test_a_table_by_architecture_is_cut_to_the_target(command: Command) -> None:
    """Of the power by architecture a target has its own."""
    name = "gemm.natural_watts_per_tflops"

    assert {"Volta": 18.24} == _shown(command, "v100")[name]["value"]
    assert name not in _shown(command, "mi300x")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["v1000", "--constants"], "unknown target v1000; did you mean v100?"),
        (["v100", "--constants", "--format", "csv"], "'csv' is not one of 'table'"),
        (["v100", "--constant"], "--constants"),
    ],
)
def test_usage(command: Command, arguments: list[str], expected: str) -> None:
    """What cannot be meant is one line and exit code 2, as of other verbs."""
    assert expected in command.refused(["targets", "show", *arguments], 2)


def test_every_constant_holds_somewhere() -> None:
    """A device that is misspelled in a file would hide a constant from all targets."""
    sheets = CONSTANTS_FOLDER.parents[1] / "targets"
    words = [load_target(path.stem).device.words for path in sheets.glob("*.toml")]
    listed = [(file, each) for file in constant_files() for each in constants(file)]

    assert [] == [
        f"{file}.{constant.name}"
        for file, constant in listed
        if all(constant.part(each) is None for each in words)
    ]
