"""`perfc analyze`, option by option."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import SMALL, Command, Outcome

from perfc.costmodels.sheets import catalog
from perfc.passes.pipelines import loading_pipeline

UNKNOWN = """graph @g(%x: f32[1024,1024]) {
  %a = unknown(%x) {op = "my::op"} : f32[1024,1024]
  %h = relu(%a) : f32[1024,1024]
  return %h
}
"""
HUGE = ("analyze", "dlrm-mlperf", "--batch", "1", "--target", "v100")
FULL = (
    "lower-kernels,kernel-cost,overhead,sustained-clock,stream-schedule,critical-path,"
    "time-interval"
)


def _json(outcome: Outcome) -> Any:
    assert (0, "") == (outcome.code, outcome.err)
    return outcome.report


def _time_us(command: Command, *arguments: str) -> float:
    report = _json(command.analyze("--format", "json", *arguments))
    time_us: float = report["summary"]["time_us"]
    return time_us


def test_table_is_the_default(command: Command) -> None:
    """Without `--format` the report is a text, and stderr is empty."""
    outcome = command.analyze()

    assert (0, "") == (outcome.code, outcome.err)
    assert outcome.out == command.analyze("--format", "table").out
    assert outcome.out.startswith("dlrm-ddp · batch 64 · inference · fp32 · v100-sxm2")


def test_json(command: Command) -> None:
    """`--format json` writes one report."""
    report = _json(command.analyze("--format", "json"))

    assert "perfc.report/1" == report["schema"]
    assert "v100-sxm2-16g" == report["target"]["name"]


def test_several_targets(command: Command) -> None:
    """Several reports stand in one document, in the order asked for."""
    report = _json(command.analyze("--format", "json", "--target", "a100"))

    assert "perfc.reports/1" == report["schema"]
    names = [single["target"]["name"] for single in report["reports"]]
    assert ["v100-sxm2-16g", "a100-sxm-80g"] == names


def test_several_targets_agree_with_one(command: Command) -> None:
    """A report does not depend on the targets asked for besides."""
    both = _json(command.analyze("--format", "json", "--target", "a100"))

    assert [
        _json(command.analyze("--format", "json", target=name))
        for name in ("v100", "a100")
    ] == both["reports"]


def test_several_tables(command: Command) -> None:
    """A comparison, with `-v` in front of the tables, an empty line between each."""
    both = command.analyze("--target", "a100", "-v").out

    comparison, _, rest = both.partition("\n\n")
    assert f"{comparison}\n" == command.analyze("--target", "a100").out
    assert f"{command.analyze().out}\n{command.analyze(target='a100').out}" == rest
    heading, first, second, *notes = comparison.splitlines()
    assert heading.startswith("target ")
    assert heading.endswith("P(faster)")
    assert ["price of v100-sxm2-16g: ", "price of a100-sxm-80g: ", "Warning: "] == [
        note[: note.index(": ") + 2] for note in notes
    ]
    assert [("v100-sxm2-16g", "-"), ("a100-sxm-80g", "50 %")] == [
        (row.split()[0], row[len(heading) - len("P(faster)") :].strip())
        for row in (first, second)
    ]


@pytest.mark.parametrize("form", ["table", "json"])
def test_output_file(command: Command, tmp_path: Path, form: str) -> None:
    """With `-o` the same text goes to a file, and nothing to stdout."""
    path = tmp_path / "report"

    outcome = command.analyze("--format", form, "-o", str(path))

    assert (0, "", "") == (outcome.code, outcome.out, outcome.err)
    assert command.analyze("--format", form).out == path.read_text(encoding="utf-8")
    assert [path] == list(tmp_path.iterdir())


def test_output_replaces(command: Command, tmp_path: Path) -> None:
    """A file that is there is replaced at once."""
    path = tmp_path / "report"
    path.write_text("old")

    command.analyze("-o", str(path))

    assert path.read_text(encoding="utf-8").startswith("dlrm-ddp")


@pytest.mark.parametrize(
    ("place", "code", "problem"),
    [
        ("no/where", 1, "cannot write {}: No such file or directory"),
        ("file/where", 1, "cannot write {}: Not a directory"),
        (".", 2, "format 'table' writes one file, and {} is a folder: name a file"),
    ],
)
def test_output_that_cannot_be(
    command: Command, tmp_path: Path, place: str, code: int, problem: str
) -> None:
    """A file that cannot be written is one line, and nothing is left."""
    (tmp_path / "file").touch()
    path = tmp_path / place

    error = command.refused(
        ["analyze", *SMALL, "--target", "t4", "-o", str(path)], code
    )

    assert problem.format(path) in error
    assert [tmp_path / "file"] == list(tmp_path.iterdir())


def test_a_failed_analysis_leaves_the_old_file(
    command: Command, tmp_path: Path
) -> None:
    """Nothing is written before everything is known."""
    path = tmp_path / "report"
    path.write_text("old")

    assert 2 == command.analyze("-o", str(path), "--target", "nowhere").code
    assert "old" == path.read_text()


@pytest.mark.parametrize(
    ("override", "faster"),
    [
        ("gpu.memory_gb_per_s=450", False),
        ("gpu.memory_gb_per_s=1800", True),
        ("host_link.h2d_gb_per_s=6", False),
        ("host_link.h2d_gb_per_s=24", True),
        ("gpu.sm_clock_mhz=765", False),
    ],
)
def test_set(command: Command, override: str, *, faster: bool) -> None:
    """A better number in the sheet makes the time shorter, a worse one longer."""
    big = ("--batch", "100000")

    assert faster == (
        _time_us(command, *big, "--set", override) < _time_us(command, *big)
    )


def test_set_shows(command: Command) -> None:
    """An overridden target is another one."""
    plain, other = (
        _json(command.analyze("--format", "json", *more))["target"]
        for more in ([], ["--set", "gpu.memory_gb_per_s=450"])
    )

    assert plain["name"] == other["name"]
    assert plain["spec_sha256"] != other["spec_sha256"]


def _copies(report: Any) -> list[Any]:
    return [node for node in report["nodes"] if node["op"] == "aten::to"]


def test_inputs_on_the_host(command: Command) -> None:
    """Every input is copied to the device first."""
    report = _json(command.analyze("--format", "json"))

    assert list(report["model"]["inputs"]) == sorted(n["id"] for n in _copies(report))


def test_inputs_on_the_device(command: Command) -> None:
    """Nothing is copied then."""
    report = _json(command.analyze("--format", "json", "--inputs", "device"))
    assert "device" == report["model"]["inputs_from"]

    assert [] == _copies(report)
    assert "copy" not in {row["kind"] for row in report["breakdown"]}


def test_pageable_inputs_block(command: Command) -> None:
    """The host waits for each copy from pageable memory."""
    pinned = _json(command.analyze("--format", "json"))
    pageable = _json(command.analyze("--format", "json", "--inputs", "host-pageable"))
    assert "host-pageable" == pageable["model"]["inputs_from"]

    waits = [row["time_us"] for row in pageable["breakdown"] if row["kind"] == "sync"]
    assert 2 == len(waits)  # for the streams, and at the end for the device
    assert pinned["summary"]["time_us"] < pageable["summary"]["time_us"]


def test_pinned_inputs_that_block(command: Command) -> None:
    """The host waits for each copy, which takes as long as one that it does not."""
    asked = ("--format", "json", "--batch", "65536", "--inputs")
    times = [
        _json(command.analyze(*asked, inputs))["summary"]["time_us"]
        for inputs in ("host-pinned", "host-pinned-blocking", "host-pageable")
    ]
    assert sorted(times) == times
    assert len(set(times)) == len(times)


def test_overheads(command: Command, tmp_path: Path) -> None:
    """A profile goes by name or by file, and the report names it."""
    folder = Path(catalog.__file__).parents[1].joinpath("profiles")
    path = tmp_path / "my, profile.toml"
    path.write_text((folder / "lin-v100.toml").read_text())

    shared, named, file = (
        _json(command.analyze("--format", "json", *more))
        for more in ([], ["--overheads", "lin-v100"], ["--overheads", str(path)])
    )

    assert ("server-2017", "lin-v100", str(path)) == tuple(
        report["target"]["profile"] for report in (shared, named, file)
    )
    assert shared["summary"]["time_us"] != named["summary"]["time_us"]
    assert named["summary"] == file["summary"]


def test_overheads_of_no_such_file(command: Command) -> None:
    """A profile that cannot be read is named."""
    assert "no.toml" in command.refused(
        ["analyze", *SMALL, "--target", "t4", "--overheads", "no.toml"], 1
    )


def test_dtype(command: Command) -> None:
    """TF32 makes GEMMs faster where the GPU has it."""
    plain, tf32 = (
        _json(command.analyze("--format", "json", "--dtype", dtype, target="a100"))
        for dtype in ("fp32", "tf32")
    )

    assert "tf32" == tf32["model"]["dtype"]
    assert tf32["summary"]["gpu_active_us"] < plain["summary"]["gpu_active_us"]


def test_dtype_that_the_gpu_has_not(command: Command) -> None:
    """Where it has none, PyTorch computes in fp32, and the report says so."""
    report = _json(command.analyze("--format", "json", "--dtype", "tf32"))

    assert "fp32" == report["model"]["dtype"]
    assert ["no-tf32"] == [remark["code"] for remark in report["diagnostics"]]


def test_pass_options(command: Command) -> None:
    """`--pass` changes the options of a pass that runs anyway, and only these."""
    command_line = ["--format", "json", "--inputs", "device"]
    plain, with_profile = (
        _json(command.analyze(*command_line, *more))
        for more in ([], ["--pass", "overhead{profile=lin-v100}"])
    )

    assert "lin-v100" == with_profile["target"]["profile"]
    assert plain["coverage"] == with_profile["coverage"]
    assert plain["summary"]["host_us"] != with_profile["summary"]["host_us"]
    tf32 = ["--dtype", "tf32", "--pass", "lower-kernels{inputs=device}"]
    report = _json(command.analyze("--format", "json", *tf32, target="a100"))
    assert "tf32" == report["model"]["dtype"]
    assert [] == _copies(report)


@pytest.mark.parametrize("option", ["--pass", "--pipeline"])
def test_a_default_that_is_written_out_wins(command: Command, option: str) -> None:
    """A pass's own text stands above the options, also where it says the default."""
    item = "lower-kernels{inputs=host-pinned}"
    text = item if option == "--pass" else FULL.replace("lower-kernels", item)

    written = command.analyze("--inputs", "device", option, text)

    assert command.analyze().out == written.out
    assert command.analyze("--inputs", "device").out != written.out


def test_pipeline(command: Command) -> None:
    """The default pipeline, written out, gives the same report."""
    assert command.analyze().out == command.analyze("--pipeline", FULL).out


def test_pipeline_and_options(command: Command) -> None:
    """What the pipeline does not say, the other options do."""
    options = ("--inputs", "device", "--overheads", "lin-v100")

    assert (
        command.analyze(*options).out
        == command.analyze(*options, "--pipeline", FULL).out
        == command.analyze(
            *("--inputs", "device", "--pipeline"),
            FULL.replace("overhead", "overhead{profile=lin-v100}"),
        ).out
    )


@pytest.mark.parametrize(
    "more",
    [
        ["--pipeline", FULL, "--pass", "overhead"],
        ["--pipeline", f"fold-shapes,{FULL}"],
    ],
)
def test_pipeline_and_pass(command: Command, more: list[str]) -> None:
    """`--pipeline` excludes `--pass`, and transforms, which run on loading."""
    assert "--pipeline" in command.refused(
        ["analyze", *SMALL, "--target", "t4", *more], 2
    )


def test_a_transform_runs_once_for_all_targets(command: Command) -> None:
    """`--pass` of a transform changes the graph before any target is looked at."""
    outcome = command.analyze("--pass", "batch-embeddings", "--target", "a100", "-v")

    names = [line.split(": ")[1] for line in outcome.err.splitlines()]
    assert (0, 1, 2) == (
        outcome.code,
        names.count("batch-embeddings"),
        names.count("lower-kernels"),
    )


@pytest.mark.parametrize("form", ["table", "json"])
def test_strict_not_modelled(command: Command, tmp_path: Path, form: str) -> None:
    """With `--strict` an unknown op is exit code 4; the report is there anyway."""
    path = tmp_path / "g.perfc"
    path.write_text(UNKNOWN)
    arguments = ("analyze", str(path), "--target", "v100", "--format", form)

    plain, strict = command(*arguments), command(*arguments, "--strict")

    assert (0, 4) == (plain.code, strict.code)
    assert plain.out == strict.out
    assert "my::op" in plain.out


def test_strict_out_of_memory(command: Command) -> None:
    """With `--strict` a model that does not fit is exit code 5."""
    plain, strict = command(*HUGE), command(*HUGE, "--strict")

    assert (0, 5) == (plain.code, strict.code)
    assert "Warning: the model needs" in plain.out
    assert 5 == command(*HUGE, "--target", "h200", "--strict").code


def test_strict_of_a_model_that_is_known(command: Command) -> None:
    """With nothing to complain of, it is 0."""
    assert 0 == command.analyze("--strict").code


def test_verbose(command: Command) -> None:
    """`-v` says on stderr what each pass took; stdout stays as it is."""
    outcome = command.analyze("-v")

    assert command.analyze("-q").out == outcome.out
    names = [line.split(": ")[1] for line in outcome.err.splitlines()]
    front = [p.name for p in loading_pipeline(())]
    assert [*front, *FULL.split(",")] == names


def test_a_power_cap(command: Command) -> None:
    """The table has watts, joules and clock, and a line where the cap lowers it."""
    asked = ("analyze", "gpt3-xl:layers=1", "--batch", "8", "--target", "h100")
    busy = (*asked, "--dtype", "bf16", "--runtime", "cudagraph")

    text = command(*busy, "--set", "gpu.power_cap_watts=500").out
    plain = command(*busy, "--set", "gpu.power_cap_watts=2000").out

    assert re.search(r"  power +500 W   \S+ J an iteration, \S+ samples/J, mean", text)
    assert "Note: the cap of 500 W holds the SM clock down: to" in text
    assert "Note: the cap of" not in plain


def test_a_power_cap_that_no_work_keeps(command: Command) -> None:
    """One line says what the board draws without work."""
    outcome = command(*HUGE[:-1], "h100", "--set", "gpu.power_cap_watts=100")

    assert (2, "") == (outcome.code, outcome.out)
    assert (
        "perfc: error: --set gpu.power_cap_watts: expected more than power.idle_w = "
        "130 W, which the board draws without work, found 100\n"
    ) == outcome.err


def test_verify_each(command: Command) -> None:
    """`--verify-each` finds nothing to complain of."""
    assert command.analyze().out == command.analyze("--verify-each").out


def test_workload_parameters(command: Command) -> None:
    """`NAME:key=value` sets them, and the model shows it."""
    arguments = ("--batch", "64", "--target", "v100", "--format", "json")
    bag, batched = (
        _json(command("analyze", f"dlrm-ddp:rows=1000,embedding={way}", *arguments))
        for way in ("bag", "batched")
    )

    assert 2 * 8 + 1 == len(bag["model"]["inputs"])
    assert 2 + 1 == len(batched["model"]["inputs"])
    assert batched["summary"]["launches"] < bag["summary"]["launches"]


def test_deterministic(command: Command) -> None:
    """Two runs write the same bytes, with sorted keys and without NaN."""
    first, second = (command.analyze("--format", "json").out for _ in range(2))

    assert first == second
    document = json.loads(first, parse_constant=pytest.fail)
    assert first == json.dumps(document, indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize(
    ("target", "kernels", "message"),
    [
        (
            "a100",
            "flash-3",
            "for Hopper alone, not for a100-sxm-80g; attention is auto or flash-2",
        ),
        (
            "v100",
            "flash-2",
            "older than Ampere; attention is auto or efficient or math there",
        ),
    ],
)
def test_attention_by_kernels_that_the_gpu_has_not(
    command: Command, target: str, kernels: str, message: str
) -> None:
    """It is refused by name, with what the GPU has."""
    words = ["analyze", "gpt2:layers=1", "--batch", "1", "--target", target]
    asked = f"lower-kernels{{attention={kernels}}}"
    assert message in command.refused([*words, "--pass", asked], 1)
