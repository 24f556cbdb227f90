"""`perfc replay`, and `perfc calibrate --from` a trace, as they are typed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from tests.tools.command import SMALL, Command
from tests.tools.traced_ops import MIB, TracedOps
from tests.traces.executed import Executed
from tests.traces.synthetic import Made

TIMES = ("n", "mean_us", "std_us")


def _steps(count: int = 3, *, host_us: float = 100) -> Made:
    """Make iterations of one op each, which take the host longer than the device."""
    made = Made()
    for number in range(count):
        begin = 1000.0 * number
        made.op(f"ProfilerStep#{number + 1}", begin, 1000)
        made.op("aten::mm", begin + 10, host_us)
        made.launch(begin + 15, 5, begin + 25, 40)
        made.op("aten::relu", begin + 20 + host_us, 30)
        made.launch(begin + 25 + host_us, 5, begin + 35 + host_us, 10)
        made.call("cudaDeviceSynchronize", begin + 100 + host_us, 20)
    return made


def test_a_trace_is_reported(command: Command, tmp_path: Path) -> None:
    """`perfc.replay/1` has the fields that the contract names."""
    path = _steps().write(tmp_path / "t.json.gz", distributedInfo={"rank": 3})

    report = command("replay", str(path), "--format", "json").report

    assert report["schema"] == "perfc.replay/1"
    (trace,) = report["traces"]
    assert (str(path), 3, "Tesla V100-SXM2-16GB") == (
        trace["file"],
        trace["rank"],
        trace["device"],
    )
    assert abs(trace["error"]) < 0.01
    assert trace["gpu_active_us"] == pytest.approx(150)
    assert trace["exposed_comm_us"] == 0
    first = trace["steps"][0]
    assert ("ProfilerStep#1", 1000) == (first["name"], first["measured_us"])
    assert first["simulated_us"] == pytest.approx(1000, rel=0.01)
    overheads = report["overheads"]
    assert {"n": 6, "mean_us": 5, "std_us": 0} == {k: overheads["T2"][k] for k in TIMES}
    assert {"aten::mm", "aten::relu"} == set(overheads["T2"]["per_op"])
    assert overheads["T4"]["per_call"]["cudaLaunchKernel"]["n"] == 6


def test_tables(command: Command, tmp_path: Path) -> None:
    """What people read says the same, and what the trace lacks."""
    made = _steps()
    made.work(999, 1, 2)
    path = made.write(tmp_path / "t.json")

    out = command("replay", str(path)).out

    assert "ProfilerStep#2" in out
    assert "op start to first launch" in out
    assert "1 of 7 pieces of device work have no call" in out


DECODER = ("gpt2:layers=4,hidden=64,heads=4,seq=16,vocab=101", "--batch", "32")
TRAINING = ("--target", "dgx-v100", "--mode", "training")
RANKS = (*TRAINING, "--ranks", "8")
ALONE = ("--pass", "stream-schedule{contention=false}")
"""Traces of predictions have no grids, which tell when a collective finds room."""
STAGES = "pipeline-parallel{stages=2,microbatches=4,schedule=1f1b}"
PREDICTIONS = {
    "inference": (*SMALL, "--target", "v100"),
    "training": (*SMALL, *TRAINING),
    "cuda-graph": (*SMALL, *TRAINING, "--runtime", "cudagraph"),
    "compiled": (*SMALL, *TRAINING, "--runtime", "compiled"),
    "pageable": (*SMALL, *TRAINING, "--inputs", "host-pageable"),
    "collectives": (*SMALL, *RANKS),
    "streams-that-wait": ("dlrm-default", "--batch", "2048", *RANKS, *ALONE),
    "collectives-in-a-cuda-graph": (*SMALL, *RANKS, "--runtime", "cudagraph"),
    "fully-sharded": (*DECODER, *RANKS, "--pass", "fsdp{ranks=8}"),
    "sharded-tables": (*SMALL, *RANKS, "--pass", "shard-embeddings{ranks=8}"),
    "stages": (*DECODER, *TRAINING, "--pass", STAGES),
    "stages-and-replicas": (*DECODER, *RANKS, "--pass", STAGES),
}


@pytest.mark.parametrize("joint", [(), ("--joint",)], ids=["alone", "joint"])
@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_prediction_runs_again(
    command: Command, tmp_path: Path, name: str, joint: tuple[str, ...]
) -> None:
    """What perfc predicts and writes as a trace takes as long when it is replayed."""
    path, options = tmp_path / "own.json.gz", PREDICTIONS[name]
    command("analyze", *options, "--format", "trace", "-o", str(path))
    predicted = command("analyze", *options, "--format", "json").report

    report = command("replay", str(path), *joint, "--format", "json").report

    (trace,) = report["traces"]
    time_us = predicted["summary"]["time_us"]
    assert trace["simulated_us"] == pytest.approx(time_us, rel=1e-3)


def test_host_times_of_ones_own(command: Command, tmp_path: Path) -> None:
    """The host of some steps is learnt, and tried on others."""
    path = str(_steps(4).write(tmp_path / "t.json"))
    profile = tmp_path / "host.toml"

    said = command("calibrate", "--from", path, "--steps", "1:2", "-o", str(profile))
    options = ("--host", str(profile), "--steps", "3:4", "--format", "json")
    report = command("replay", path, *options).report

    assert "other steps: shared " in said.out
    assert "speed beside shared: " in said.out
    host = tomllib.loads(profile.read_text(encoding="utf-8"))["host"]
    assert host["t2_us"]["aten::mm"] == pytest.approx(5)
    assert set(host["between_us"]) == {"end", "begin"}
    (trace,) = report["traces"]
    assert ["ProfilerStep#3", "ProfilerStep#4"] == [s["name"] for s in trace["steps"]]
    assert abs(trace["error"]) < 0.02


@pytest.mark.parametrize("host", ["per-op", "global", "shared"])
def test_hosts_by_name(command: Command, tmp_path: Path, host: str) -> None:
    """Means of the trace itself, or a profile that perfc has."""
    path = str(_steps().write(tmp_path / "t.json"))

    report = command("replay", path, "--host", host, "--format", "json").report

    # The trace waits longer between steps than any host of a profile does.
    low, high = {"per-op": (0, 0.01), "global": (0, 0.15), "shared": (0.5, 1)}[host]
    assert low <= abs(report["traces"][0]["error"]) < high


def test_ranks_together(command: Command, tmp_path: Path) -> None:
    """Ranks of one run are replayed at once."""
    files = [
        str(
            _steps(host_us=us).write(
                tmp_path / f"{us}.json", distributedInfo={"rank": us}
            )
        )
        for us in (100, 300)
    ]

    report = command("replay", *files, "--joint", "--format", "json").report

    assert [100, 300] == [trace["rank"] for trace in report["traces"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--host", "mine"), 2, "--host mine: expected exact, per-op, global, "),
        (("--host", "none.toml"), 1, "none.toml: cannot read the host profile"),
        (("--steps", "7:9"), 1, "no steps 7 to 9; it has 1 to 3; see --steps"),
        (("--steps", "7"), 1, "no step 7; it has 1 to 3; see --steps"),
        (("--graphs", "predicted"), 2, "No such option"),
    ],
)
def test_what_a_trace_cannot_do(
    command: Command,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    """A host, a step, an option that is not there: one line, and no report."""
    path = str(_steps().write(tmp_path / "t.json"))

    outcome = command("replay", path, *arguments)

    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err


def test_steps_of_a_part_are_those_of_the_whole(
    command: Command, tmp_path: Path
) -> None:
    """Reading only what lies around the steps asked for changes nothing of them."""
    path = str(_steps(6).write(tmp_path / "t.json"))
    (whole,) = command("replay", path, "--format", "json").report["traces"]
    options = ("--steps", "3:4", "--format", "json")
    (part,) = command("replay", path, *options).report["traces"]

    assert ["ProfilerStep#3", "ProfilerStep#4"] == [s["name"] for s in part["steps"]]
    for one, other in zip(whole["steps"][2:4], part["steps"], strict=True):
        assert one["measured_us"] == pytest.approx(other["measured_us"])
        assert one["simulated_us"] == pytest.approx(other["simulated_us"])


@pytest.mark.parametrize("steps", ["2:1", "a", "1:", "-1"])
def test_steps_are_a_range(command: Command, tmp_path: Path, steps: str) -> None:
    """Anything else is a mistake in the command."""
    path = str(_steps().write(tmp_path / "t.json"))

    outcome = command("replay", path, "--steps", steps)

    assert outcome.code == 2
    assert "expected A:B, as 1009:1011, or one number" in outcome.err


def test_no_profile_of_nothing(command: Command, tmp_path: Path) -> None:
    """Tables and traces do not mix; a trace without launches teaches nothing."""
    made = Made()
    made.op("aten::mm", 0, 10)
    path = str(made.write(tmp_path / "t.json"))
    profile = tmp_path / "p.toml"

    empty = command("calibrate", "--from", path, "-o", str(profile))
    mixed = command(
        "calibrate", "--from", path, "--from", "rows.csv", "-o", str(profile)
    )
    lone = command("calibrate", "--steps", "1:2", "-o", str(profile))

    assert (1, 2, 2) == (empty.code, mixed.code, lone.code)
    assert "nothing to learn from" in empty.error
    assert "traces and other tables at once" in mixed.error
    assert "--steps chooses steps of traces" in lone.error
    assert not profile.exists()


def test_no_profile_of_what_a_trace_does_not_tell(
    command: Command, tmp_path: Path
) -> None:
    """Without the device's part what an op takes may be computing; none is invented."""
    path, profile = _steps().write(tmp_path / "t.json"), tmp_path / "p.toml"
    content = json.loads(path.read_text(encoding="utf-8"))
    events = content["traceEvents"]
    works = [e for e in events if e.get("cat") in {"kernel", "gpu_memcpy"}]
    hosts = [e for e in events if e not in works]
    path.write_text(json.dumps({**content, "traceEvents": hosts}), encoding="utf-8")

    without = command("calibrate", "--from", str(path), "-o", str(profile))

    assert 1 == without.code
    assert f"{path}: no device work in it, so that nothing tells" in without.error
    assert not profile.exists()

    works[0]["dur"] = -1.0
    path.write_text(json.dumps(content), encoding="utf-8")
    negative = command("calibrate", "--from", str(path), "-o", str(profile))

    assert 0 == negative.code
    said = "warning: t.json: 1 events of negative duration, taken as 0 us"
    assert said in negative.out.replace(str(tmp_path) + "/", "")


def test_predicted_kernels(command: Command, tmp_path: Path) -> None:
    """`--kernels predicted` says how much of the device's time a model knows."""
    made = TracedOps()
    made.gemm(2048, 9000)
    made.at_us += 9000
    made.copy()
    made.collective()
    path = str(made.write(tmp_path / "t.json"))
    options = ("--kernels", "predicted")

    report = command("replay", path, *options, "--format", "json").report
    other = command("replay", path, *options, "--target", "a100", "--format", "json")
    table = command("replay", path, *options).out
    measured = command("replay", path, "--format", "json").report["traces"][0]

    (trace,) = report["traces"]
    kernels = trace["kernels"]
    assert kernels["target"] == "v100-sxm2-16g"
    counts = [kernels[by]["launches"] for by in ("model", "facts", "measured")]
    assert counts == [1, 1, 1]
    model = kernels["model"]
    assert model["measured_us"] == pytest.approx(9000)
    assert model["error"] == pytest.approx(model["predicted_us"] / 9000 - 1)
    assert trace["gpu_active_us"] < measured["gpu_active_us"] - 5000
    assert measured["kernels"] is None
    assert {"collectives-measured", "trace-steps-told"} == {
        d["code"] for d in report["diagnostics"]
    }
    faster = other.report["traces"][0]["kernels"]["model"]
    assert faster["predicted_us"] < model["predicted_us"]
    assert "priced by a cost model of their op" in table


def test_predicted_kernels_of_ranks(command: Command, tmp_path: Path) -> None:
    """Ranks that run together take predicted kernels, too."""
    files: list[str] = []
    for rank in range(2):
        made = TracedOps()
        made.gemm(2048, 9000)
        made.collective()
        header = {"distributedInfo": {"rank": rank, "world_size": 2}}
        files.append(str(made.write(tmp_path / f"{rank}.json", **header)))
    options = ("--joint", "--kernels", "predicted", "--format", "json")

    report = command("replay", *files, *options).report

    ranks = [trace["kernels"]["model"]["launches"] for trace in report["traces"]]
    assert ranks == [1, 1]


def test_collectives_are_priced_by_what_they_send(
    command: Command, tmp_path: Path
) -> None:
    """A rank alone keeps its waits; ranks together wait for each other."""
    files: list[str] = []
    for rank, dur_us in enumerate((4000, 4000)):
        made = TracedOps()
        made.collective(dur_us, elements=MIB, ranks=2)
        header = {"distributedInfo": {"rank": rank, "world_size": 2}}
        files.append(str(made.write(tmp_path / f"{rank}.json", **header)))
    options = ("--kernels", "predicted", "--format", "json")

    (alone,) = command("replay", files[0], *options).report["traces"]
    joint = command("replay", *files, "--joint", *options).report["traces"]

    sent = alone["kernels"]["collective"]
    assert 1 == sent["launches"]
    assert pytest.approx(4000) == sent["measured_us"]
    assert 0 < sent["predicted_us"] < 1000
    assert alone["gpu_active_us"] == pytest.approx(4000)
    assert [pytest.approx(sent["predicted_us"])] * 2 == [
        rank["gpu_active_us"] for rank in joint
    ]


@pytest.mark.parametrize(
    ("ranks", "target", "why"),
    [
        (16, "v100", "16 ranks need 2 nodes"),
        (1, "v100", "their groups have one member"),
        (8, "cpu", "no GPU that NCCL joins"),
    ],
)
def test_collectives_without_a_price(
    command: Command, tmp_path: Path, ranks: int, target: str, why: str
) -> None:
    """They keep what they took, and the reason is said."""
    made = TracedOps()
    made.collective(elements=MIB, ranks=ranks)
    path = str(made.write(tmp_path / "t.json"))
    options = ("--kernels", "predicted", "--target", target, "--format", "json")

    report = command("replay", path, *options).report

    (said,) = [d for d in report["diagnostics"] if d["code"] == "collectives-measured"]
    assert why in said["message"]
    assert report["traces"][0]["gpu_active_us"] == pytest.approx(500)


def test_execution_traces(command: Command, tmp_path: Path) -> None:
    """Nothing is measured in one; each belongs to one Kineto trace."""
    made, executed = TracedOps(), Executed()
    made.gemm()
    executed.mm(1024, 1024, 1024)
    path = str(made.write(tmp_path / "t.json"))
    execution = str(executed.write(tmp_path / "et.json"))

    alone = command("replay", execution)
    beside = command("replay", path, execution, "--format", "json").report
    crowd = command("replay", path, execution, execution)

    assert alone.code == crowd.code == 1
    assert "nothing is measured in it" in alone.error
    assert "execution-trace" in {d["code"] for d in beside["diagnostics"]}
    assert "2 execution traces for 1 Kineto traces" in crowd.error


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--target", "v100"), 2, "--target is for --kernels predicted"),
        (("--kernels", "predicted", "--target", "no"), 2, "unknown target no"),
        (("--kernels", "guessed"), 2, "guessed"),
    ],
)
def test_bad_options_of_kernels(
    command: Command, tmp_path: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    """Each is one line that says what is wrong."""
    outcome = command("replay", str(_steps().write(tmp_path / "t.json")), *options)

    assert code == outcome.code
    assert message in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "none.toml"), "none.toml: cannot read the host profile"),
        (("--kernels", "predicted", "--target", "v1"), "unknown target v1; "),
    ],
)
def test_names_are_looked_up_before_files_are_read(
    command: Command, options: tuple[str, ...], message: str
) -> None:
    """Who mistypes one does not wait for a trace of gigabytes."""
    assert command("replay", "no.json", *options).error.startswith(message)


def test_a_device_that_did_nothing(command: Command, tmp_path: Path) -> None:
    """There is nothing to predict, whatever the GPU."""
    made = Made()
    made.op("aten::mm", 10, 30)
    made.call("cudaDeviceSynchronize", 20, 5)
    path = str(made.write(tmp_path / "t.json"))

    outcome = command("replay", path, "--kernels", "predicted")

    assert "t.json: the device did nothing in it" in outcome.error


def test_kernels_that_overlap_on_a_stream(command: Command, tmp_path: Path) -> None:
    """No stream runs two at once: what makes the replay longer is said."""
    made = _steps()
    made.launch(2950, 5, 2960, 30)
    made.launch(2960, 5, 2965, 30)
    path = made.write(tmp_path / "t.json")

    out = command("replay", str(path)).out

    assert "1 pieces of device work begin before the one in front of them" in out
    assert "in front of them" not in command("replay", str(_steps().write(path))).out
