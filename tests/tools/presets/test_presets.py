"""Presets: what they say, what wins against them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.command import SMALL, Command

import perfc
from perfc.costmodels import load_target
from perfc.costmodels.sheets import PresetError, preset_names
from perfc.ir import UsageError, register_plugin
from perfc.passes.training import Training
from perfc.tools.presets import load_preset
from perfc.tools.request import OPTIONS

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "presets").glob("*.toml"))
SHIPPED = ("lin-p100", "lin-titan-xp", "lin-v100")
SAME = (
    *("--target", "v100", "--mode", "training", "--overheads", "lin-v100"),
    *("--inputs", "host-pageable", "--set", "gpu.sm_clock_mhz=1297"),
    *("--set", "host_link.h2d_gb_per_s=8.1", "--set", "host_link.d2h_gb_per_s=8.1"),
    *("--set", "host_link.pageable_gb_per_s=8.1", "--pass"),
    (
        "training{late-labels=true,read-loss=true,foreach=false,kept-gradients=true,"
        "atomic-updates=true,loss=mse}"
    ),
)
"""What `--preset lin-v100 --pass training{loss=mse}` stands for."""

GOOD = """\
target = "v100"
inputs = "device"

[set]
"gpu.sm_clock_mhz" = 1200

[pass-options.training]
read_loss = true
"""


@pytest.fixture(name="mine")
def _mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return str(path)


def _remarks(report: object) -> Iterator[str]:
    assert isinstance(report, perfc.Report)
    for one in report.diagnostics:
        if one.code == "preset-overridden":
            yield one.message


def test_shipped() -> None:
    """Those of the paper ship with perfc."""
    assert set(SHIPPED) <= set(preset_names())


@pytest.mark.parametrize("name", [*SHIPPED, *map(str, EXAMPLES)])
def test_presets_are_sound(name: str) -> None:
    """A preset says what it is and where it is from, and its target has its fields."""
    preset = load_preset(name)

    assert preset.name == Path(name).stem
    assert preset.summary
    assert all(line.source for line in preset.lines)
    target = preset.fields.get("target")
    if target is not None:
        assert load_target(target, preset.fields["overrides"]).watts > 0


def test_examples() -> None:
    """There are examples of machines of one's own."""
    assert len(EXAMPLES) >= 2


def test_a_preset_stands_for_its_options(command: Command) -> None:
    """The loop of the paper in one word is the loop in eleven options."""
    short = command("analyze", *SMALL, "--preset", "lin-v100", "--format", "json",
                    "--pass", "training{loss=mse}")  # fmt: skip
    long = command("analyze", *SMALL, *SAME, "--format", "json")

    assert "lin-v100" == short.report["target"].pop("preset")
    assert "preset" not in long.report["target"]
    del long.report["target"]
    assert long.report["summary"] == short.report["summary"]
    assert long.report["nodes"] == short.report["nodes"]
    assert long.report["diagnostics"] == short.report["diagnostics"]


def test_the_header_names_the_preset(command: Command) -> None:
    """The report says by which preset it was made."""
    out = command("analyze", *SMALL, "--preset", "lin-v100").out

    assert "preset lin-v100" in " ".join(out.split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("--inputs", "device"),
            "--inputs device is given, where preset lin-v100",
        ),
        (("--overheads", "shared"), "--overheads shared is given, where"),
        (
            ("--mode", "inference"),
            "--mode inference is given, where preset",
        ),
        (
            ("--set", "gpu.sm_clock_mhz=1380"),
            "--set gpu.sm_clock_mhz=1380 is given",
        ),
        (("--target", "v100-pcie"), "--target v100-pcie-32g is given, where preset"),
        (
            ("--pass", "training{foreach=true}"),
            "--pass training{foreach=true} is giv",
        ),
        (
            ("--optimizer", "adam"),
            "foreach=false of preset lin-v100 is left",
        ),
    ],
)
def test_what_is_given_wins(
    command: Command, given: tuple[str, ...], message: str
) -> None:
    """An option beside a preset wins, and the report says so."""
    outcome = command("analyze", *SMALL, "--preset", "lin-v100", *given,
                      "--format", "json")  # fmt: skip

    told = [one["message"] for one in outcome.report["diagnostics"]]
    assert any(one.startswith(message) for one in told)


def test_what_is_given_and_the_same_is_not_said(command: Command) -> None:
    """An option that repeats the preset contradicts nothing."""
    outcome = command("analyze", *SMALL, "--preset", "lin-v100", "--target", "v100",
                      "--inputs", "host-pageable", "--format", "json")  # fmt: skip

    assert not [
        one
        for one in outcome.report["diagnostics"]
        if one["code"] == "preset-overridden"
    ]


def test_options_of_a_pass_hold_where_it_runs(command: Command, mine: str) -> None:
    """A preset's options of training do not make an inference a step."""
    inference = command("analyze", *SMALL, "--preset", mine, "--format", "json")
    step = command("analyze", *SMALL, "--preset", mine, "--mode", "training",
                   "--print-pipeline")  # fmt: skip

    assert "inference" == inference.report["model"]["mode"]
    assert "training{read-loss=true}" in step.out


def test_files_beside_a_preset(tmp_path: Path) -> None:
    """A path in a preset starts where the preset lies."""
    (tmp_path / "host.toml").write_text("")
    path = tmp_path / "mine.toml"
    path.write_text('target = "v100"\noverheads = "host.toml"\n')

    fields = load_preset(str(path)).fields
    assert {"target": "v100", "overheads": str(tmp_path / "host.toml")} == {
        key: fields[key] for key in ("target", "overheads")
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input = 'device'", "unknown key 'input'; did you mean inputs?"),
        (
            "inputs = 'pinned'",
            "'pinned' is none of host-pinned, ",
        ),
        ("inputs = 3", "inputs=3 is an int: expected one of"),
        ("ranks = 0", "ranks=0: expected at least 1"),
        ("optimizer = 'x'", "optimizer 'x' is none of"),
        ("pass = 'pin-copies'", "pass='pin-copies' is one text: expected a list"),
        ("set = 3", r"set is 3, expected a table \[set\]"),
        ("[set]\ngpu.x = true", "set.gpu.x is a bool: expected a number or a text"),
        ("[pass-options]\ntraining = 3", "expected a table"),
        ("[pass-options.training]\nx = 1", "pass 'training' has no option 'x'"),
        ("[pass-options.trainin]\nx = 1", "unknown pass 'trainin'"),
        ("[pass-options.training]\nfused = [1]", "expected a text, a number, true or"),
        (
            "[pass-options.training]\nfused = 3",
            "option fused=3 .*: expected true",
        ),
        ("summary = 3", "summary is 3, expected a text"),
        ("schema = 'perfc.preset/9'", "expected 'perfc.preset/1'"),
        (
            "[set]\ngpu.sm_clock_mhz = { value = 3, source = 'x' }",
            r"set.gpu.sm_clock_mhz has the source 'x', which \[sources\] does not have",
        ),
        ("target = ", "not valid TOML"),
    ],
)
def test_what_a_preset_cannot_say(
    command: Command, tmp_path: Path, text: str, message: str
) -> None:
    """A key or a value that means nothing is one line, and the file's fault."""
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(PresetError, match=message):
        load_preset(str(path))
    arguments = ("analyze", *SMALL, "--target", "v100", "--preset", str(path))
    assert "mine.toml: " in command.refused(arguments, 1)


def test_a_preset_for_another_kind_of_target(command: Command) -> None:
    """The clock of one architecture is not that of another."""
    for target in ("a100", "cpu"):
        given = ("analyze", *SMALL, "--preset", "lin-v100", "--target", target)
        error = command.refused(given, 2)
        assert "preset lin-v100 is for v100-sxm2-16g (Volta), not for" in error


def test_a_field_that_the_target_has_not(command: Command, tmp_path: Path) -> None:
    """The preset is named, which says it."""
    path = tmp_path / "mine.toml"
    path.write_text('target = "v100"\n[set]\nnode.nics = 4\n')

    error = command.refused(("analyze", *SMALL, "--preset", str(path)), 1)
    assert "preset mine.toml" not in error
    assert "preset " in error
    assert "node.nics: no such field of a target" in error


def test_a_preset_that_there_is_not(command: Command) -> None:
    """The nearest name is offered."""
    error = command.refused(("analyze", *SMALL, "--preset", "lin-v10"), 2)
    assert "unknown preset 'lin-v10'; did you mean lin-v100?" in error
    gone = ("analyze", *SMALL, "--preset", "no/such.toml")
    assert "cannot read the preset" in command.refused(gone, 1)


def test_nobody_names_a_target(command: Command, tmp_path: Path) -> None:
    """A preset without a target leaves that to the command line."""
    path = tmp_path / "mine.toml"
    path.write_text('inputs = "device"\n')

    error = command.refused(("analyze", *SMALL, "--preset", str(path)), 2)
    assert "Missing option '--target'" in error
    with pytest.raises(UsageError, match="names no target: give one"):
        perfc.analyze(SMALL[0], preset=str(path), batch=4)


def test_in_python() -> None:
    """`load` and `analyze` take a preset; together they are what one of them is."""
    at_once = perfc.analyze(SMALL[0], preset="lin-v100", batch=64)
    loaded = perfc.load(SMALL[0], preset="lin-v100", batch=64)
    later = perfc.analyze(loaded, preset="lin-v100")

    assert "training" == loaded.mode
    assert at_once.time_us == later.time_us
    assert at_once.pipeline == later.pipeline
    assert not [*_remarks(later)]


def test_what_is_given_wins_in_python() -> None:
    """So do options of calls, and those of passes that are objects."""
    step = Training(loss="mse")
    loaded = perfc.load(SMALL[0], preset="lin-v100", batch=64, transforms=[step])
    report = perfc.analyze(loaded, preset="lin-v100", inputs="device")

    assert ["--inputs device is given, where preset lin-v100 has host-pageable"] == [
        *_remarks(report)
    ]
    assert "late-labels=true" in report.pipeline


def test_a_model_that_was_loaded_without_it() -> None:
    """Options of a pass that ran already cannot be given any more."""
    loaded = perfc.load(SMALL[0], batch=64, mode="training")

    with pytest.raises(UsageError, match="is loaded already, without the options of t"):
        perfc.analyze(loaded, preset="lin-v100")


def test_a_loaded_target() -> None:
    """Fields of a target that is loaded cannot be set."""
    with pytest.raises(UsageError, match=r"sets gpu.* is loaded already: give"):
        perfc.analyze(SMALL[0], load_target("v100"), preset="lin-v100", batch=4)


def test_a_pipeline_beside_a_preset(command: Command) -> None:
    """A pipeline says all passes; the rest of the preset holds."""
    pipeline = command("analyze", *SMALL, "--target", "v100", "--print-pipeline").out
    outcome = command("analyze", *SMALL, "--preset", "lin-v100", "--mode", "inference",
                      "--pipeline", pipeline.strip(), "--format", "json")  # fmt: skip

    told = [one["message"] for one in outcome.report["diagnostics"]]
    assert any("--pipeline says all passes" in one for one in told)


def test_list(command: Command) -> None:
    """`perfc targets --presets` lists them, `show --preset` prints one with sources."""
    listed = command("targets", "--presets").out
    shown = command("targets", "show", "lin-titan-xp", "--preset").out
    as_json = command("targets", "show", "lin-v100", "--preset", "--format", "json")

    assert all(name in listed for name in SHIPPED)
    assert "set.host_link.h2d_gb_per_s" in shown
    assert "slot of eight lanes" in shown
    keys = [line["key"] for line in as_json.report["lines"]]
    assert "pass-options.training.read-loss" in keys


def test_a_plugin() -> None:
    """Presets of other distributions are found as their targets are."""
    register_plugin(
        "perfc.presets", "toy-tables", {"target": "v100", "inputs": "device"}
    )
    register_plugin("perfc.presets", "toy-path", EXAMPLES[0])

    assert {"toy-tables", "toy-path"} <= set(preset_names())
    assert "device" == load_preset("toy-tables").fields["inputs"]
    assert load_preset("toy-path").summary


def test_a_comparison_of_strategies(command: Command) -> None:
    """`perfc parallel` takes presets, too."""
    model = "gpt2:layers=1,hidden=64,heads=4,seq=16,vocab=101"
    outcome = command("parallel", model, "--preset", "lin-v100", "--target", "dgx-v100",
                      "--ranks", "2", "--batch", "4", "--strategy", "dp:2")  # fmt: skip

    assert "late-labels=true,read-loss=true" in outcome.out
    assert "gpu.sm_clock_mhz=1297" in outcome.out


def test_every_option_of_a_preset_is_one() -> None:
    """What a preset may say is what the command line knows."""
    names = {option.flag.removeprefix("--") for option in OPTIONS.values()}
    for name in SHIPPED:
        keys = {line.key for line in load_preset(name).lines}
        assert {key for key in keys if "." not in key} <= names
