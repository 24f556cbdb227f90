"""What to fix next, as a report has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfc
from perfc.ir import PerfcError
from perfc.tools.models import split_passes
from perfc.tools.models.module_names import common_name, common_place


def test_a_graph_saves_what_the_analysis_of_one_says() -> None:
    """The what-if is the other report, not a formula."""
    eager = perfc.analyze(perfc.load("dlrm-ddp", batch=256), "v100")
    replay = perfc.analyze(
        perfc.load("dlrm-ddp", batch=256), "v100", runtime="cudagraph"
    )
    saved_us = eager.time_us - replay.time_us

    assert {"saved_us": saved_us} == eager.what_if["cuda_graph"]
    assert {} == replay.what_if["cuda_graph"]
    (row,) = [r for r in eager.what_if["ranked"] if r["what"] == "CUDA graph"]
    assert saved_us == row["saved_us"]


def test_a_graph_that_cannot_be_captured_is_refused(tmp_path: Path) -> None:
    """The report says why, and is a report all the same."""
    path = tmp_path / "wait.perfc"
    path.write_text("""graph @wait(%x: f32[8,4], %t: f32[9,4]@host) {
      %y = relu(%x) : f32[8,4]
      %d = copy(%t) : f32[9,4]
      %z = concat(%y, %d) {axis = 0} : f32[17,4]
      return %z
    }""")
    report = perfc.analyze(str(path), "v100")

    assert "aten::to (%d)" in report.what_if["cuda_graph"]["refused"]
    assert "CUDA graph" not in str(report)


DLRM = Path(__file__).parents[3] / "examples" / "models" / "dlrm_mlperf.onnx"
LOOP = "training{read-loss=true,late-labels=true}"


def _saved(report: perfc.Report) -> dict[str, float]:
    changes = report.what_if["changes"]
    return {c["pass"]: c["saved_us"] for c in changes if "refused" not in c}


def _step(
    *, passes: tuple[str, ...] = (LOOP,), inputs: str = "host-pageable"
) -> perfc.Report:
    transforms, others = split_passes(passes)
    loaded = perfc.load("dlrm-ddp", batch=2048, mode="training", transforms=transforms)
    return perfc.analyze(loaded, "v100", inputs=inputs, passes=others)


def test_changes_save_what_their_analyses_say() -> None:
    """Each is the other report, made by the pass that it names."""
    report = _step()
    saved = _saved(report)
    fused = "training{read-loss=true,late-labels=true,fused=true}"
    others = {
        "pin-copies": _step(passes=(LOOP, "pin-copies")),
        "remove-syncs": _step(passes=(LOOP, "remove-syncs")),
        "training{fused=true}": _step(passes=(fused,)),
        "batch-embeddings": _step(passes=("batch-embeddings", LOOP)),
    }

    assert {*others} == saved.keys()
    for name, other in others.items():
        assert saved[name] == pytest.approx(report.time_us - other.time_us)
    assert saved["pin-copies"] > 0
    assert saved["remove-syncs"] > 0


def test_a_faster_host_saves_what_is_ranked() -> None:
    """The pass asks what the row of the host's overheads answers."""
    model = perfc.load("dlrm-ddp", batch=256)
    report = perfc.analyze(model, "v100")
    twice = perfc.analyze(model, "v100", passes=("faster-host",))
    much = perfc.analyze(model, "v100", passes=("faster-host{times=1e9}",))

    (row,) = [r for r in report.what_if["ranked"] if r["kind"] == "host"]
    assert row["saved_us"] == pytest.approx(report.time_us - twice.time_us)
    free_us = report.what_if["host"]["all"]["saved_if_free_us"]
    assert free_us == pytest.approx(report.time_us - much.time_us, rel=1e-6)


@pytest.mark.parametrize("times", ["0", "-1.0"])
def test_a_host_that_is_not_faster(times: str) -> None:
    """Nothing takes no time, or less."""
    passes = (f"faster-host{{times={times}}}",)
    with pytest.raises(PerfcError, match="expected a number above 0"):
        perfc.analyze(perfc.load("dlrm-ddp", batch=8), "v100", passes=passes)


def test_changes_that_nothing_asks_for() -> None:
    """Inputs are pinned, nothing waits, the optimizer is fused; or it is a replay."""
    fused = _step(passes=("training{fused=true}",), inputs="host-pinned")
    model = perfc.load("dlrm-ddp", batch=256)
    replay = perfc.analyze(model, "v100", runtime="cudagraph")

    assert {"capture-graph", "batch-embeddings"} == _saved(fused).keys()
    assert {"batch-embeddings"} == _saved(replay).keys()


def test_host_times_that_are_lost_in_rounding(tmp_path: Path) -> None:
    """Months of copies: the host as a whole may save what no part of it does."""
    path = tmp_path / "long.perfc"
    path.write_text("""graph @long(%x: f32[3,2,9007199254740992]) {
      %y = reduce(%x) {kind = "max", keepdims = true} : f32[1,1,1]
      return %y
    }""")

    assert "What to fix next" in str(perfc.analyze(str(path), "v100"))


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["a.b"], "a.b"),
        (["layer.0.norm", "layer.1.norm"], "layer.*.norm"),
        (["indices_0", "indices_1", "indices_10"], "indices_*"),
        (["layer1.0", "layer10.0"], "layer*.0"),
        (["a.x", "a.x.y"], "a.x.*"),
        (["one", "two"], "*"),
    ],
)
def test_common_name(names: list[str], common: str) -> None:
    """Parts that differ are a star."""
    assert common == common_name(names)


def test_places_that_have_nothing_in_common() -> None:
    """A row of stars tells nobody where to look: the first is named."""
    assert "encoder.0.query" == common_place(["encoder.0.query", "head.out.last"])
    assert "encoder.*.query" == common_place(["encoder.0.query", "encoder.1.query"])


def test_what_to_change_does_not_read_the_file_again(tmp_path: Path) -> None:
    """Batched tables are tried on the model in memory, and save what a file's do."""
    path = tmp_path / "model.onnx"
    path.write_bytes(DLRM.read_bytes())
    report = perfc.analyze(perfc.load(path, batch=256).bind(batch=512), "v100")
    path.unlink()

    transforms, _ = split_passes(("batch-embeddings",))
    batched = perfc.load(DLRM, batch=512, transforms=transforms)
    saved_us = report.time_us - perfc.analyze(batched, "v100").time_us
    assert saved_us == _saved(report)["batch-embeddings"]
    assert saved_us > 0
