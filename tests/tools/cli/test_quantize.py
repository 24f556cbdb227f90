"""`perfc quantize` as typed: what it prints, and what it refuses."""

from __future__ import annotations

import csv
import io
import random
import re
from pathlib import Path

import pytest
from tests.tools.command import SMALL, Command

import perfc
from perfc.passes.precision import candidates

ASKED = ("quantize", *SMALL, "--target", "a100", "--embeddings", "int8")
BLOCK = 512
"""Bytes that memory of a tensor is filled up to a multiple of."""
BOTH = (*ASKED, "--linear", "int8")


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write what each op loses."""
    rng = random.Random(5)
    model = perfc.load(SMALL[0], batch=64)
    path = tmp_path_factory.mktemp("losses") / "losses.csv"
    rows = [f"{one.name},{rng.random() * 1e-3}" for one in candidates(model.program)]
    path.write_text("\n".join(["op,loss", *rows]) + "\n", "utf-8")
    return path


def test_the_document(command: Command) -> None:
    """Tables and the rest add up to the parameters; both plans stand there."""
    found = command(*BOTH, "--keep", "top_l.0,top_l.8:fp16", "--format", "json").report
    plan, original = found["plans"]

    assert "perfc.quantize/1" == found["schema"]
    assert 2 * 1000 * 144 == found["tables_bytes"] == plan["tables_bytes"]
    assert 2 * 1000 * 512 == original["tables_bytes"]
    assert {"original", "embeddings=int8,linear=int8"} == {
        plan["name"],
        original["name"],
    }
    assert found["rest_bytes"] == plan["rest_bytes"] < original["rest_bytes"]
    assert 0 == original["casts"] < found["casts"]
    assert [] == found["kept"] == found["frontier"]


def test_the_same_on_a_cpu(command: Command) -> None:
    """Rows have scale and bias in fp32, and are not filled up."""
    asked = ("quantize", *SMALL, "--target", "cpu", "--embeddings", "int8")
    found = command(*asked, "--format", "json").report

    assert 2 * 1000 * (128 + 8) == found["tables_bytes"]


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ("embeddings=int8", 128 + 8),
        ('keep="emb_l.*:int4"', 64 + 4),
        ("embeddings=int8,rows=fbgemm", 144),
        ("embeddings=int8,rows=caffe2", 128 + 8),
    ],
)
def test_an_analysis_on_a_cpu(options: str, row: int, command: Command) -> None:
    """Rows lie as on CPUs, unless it is said how; the report's pipeline runs again."""
    asked = ("analyze", *SMALL, "--target", "cpu")
    text = f"quantize{{{options}}}"
    report = command(*asked, "--pass", text, "--format", "json").report
    plain = command(*asked, "--format", "json").report
    pipeline = command(*asked, "--pass", text, "--print-pipeline").out.strip()
    again = command(*asked, "--pipeline", pipeline, "--format", "json").report
    held, held_plain = (one["memory"]["parameters_bytes"] for one in (report, plain))

    wanted = pytest.approx(2 * 1000 * (512 - row), abs=2 * BLOCK)
    assert wanted == held_plain - held
    assert again["summary"] == report["summary"]
    assert pipeline == (
        command(*asked, "--pipeline", pipeline, "--print-pipeline").out.strip()
    )


def test_an_analysis_on_both(command: Command) -> None:
    """One model, loaded once, has the rows of each target."""
    targets = ("--target", "a100", "--target", "cpu")
    words = ("--pass", "quantize{embeddings=int8}", "--format", "json")
    found = command("analyze", *SMALL, *targets, *words).report["reports"]
    on_gpu, on_cpu = (one["memory"]["parameters_bytes"] for one in found)

    assert pytest.approx(2 * 1000 * (144 - 136), abs=2 * BLOCK) == on_gpu - on_cpu


def test_parameters_are_tables_and_rest(command: Command) -> None:
    """As the report of the same model counts them."""
    found = command(*BOTH, "--format", "json").report
    text = "quantize{embeddings=int8,linear=int8}"
    words = ("analyze", *SMALL, "--target", "a100", "--pass", text, "--format", "json")
    memory = command(*words).report["memory"]
    whole = found["tables_bytes"] + found["rest_bytes"]

    assert whole <= memory["parameters_bytes"] < whole + 512 * 40  # of 40 tensors


def test_what_is_kept(command: Command) -> None:
    """With its type, and why."""
    found = command(*ASKED, "--keep", "emb_l.1:fp32", "--format", "json").report
    kept = {one["name"]: (one["dtype"], one["reason"]) for one in found["kept"]}

    assert ("fp32", "keep") == kept["emb_l.1"]
    assert ("fp32", "not asked") == kept["bot_l.0"]
    assert "emb_l.0" not in kept


def test_comparisons(command: Command) -> None:
    """Each is a plan; the one of its own type is the original."""
    found = command(*BOTH, "--compare", "fp32,fp16,int4", "--format", "json").report
    plans = {plan["name"]: plan for plan in found["plans"]}

    assert plans["fp32"]["time_us"] == plans["original"]["time_us"]
    assert plans["int4"]["tables_bytes"] < plans["fp16"]["tables_bytes"]


@pytest.mark.parametrize("format_", ["table", "csv", "md", "html"])
def test_other_formats(command: Command, format_: str) -> None:
    """Each names both plans."""
    outcome = command(*BOTH, "--compare", "fp16", "--format", format_)

    assert 0 == outcome.code
    assert "original" in outcome.out
    assert "fp16" in outcome.out


def test_rows_of_a_spreadsheet(command: Command) -> None:
    """A row a plan, with what the document has of it."""
    rows = list(csv.DictReader(io.StringIO(command(*BOTH, "--format", "csv").out)))
    document = command(*BOTH, "--format", "json").report

    assert [p["name"] for p in document["plans"]] == [row["name"] for row in rows]
    assert str(document["tables_bytes"]) == rows[0]["tables_bytes"]


def test_a_budget(command: Command, losses: Path) -> None:
    """Losses stay within it; nought keeps all, and time falls along the frontier."""
    words = (*BOTH, "--runtime", "cudagraph", "--losses", str(losses))
    found = command(*words, "--budget", "0.002", "--format", "json").report
    nothing = command(*words, "--budget", "0", "--format", "json").report
    points = [(point["loss"], point["device_only_us"]) for point in found["frontier"]]
    times = [time for _, time in points]

    assert 0 < found["loss"] <= found["budget"]
    assert sorted(points) == points
    assert sorted(times, reverse=True) == times
    assert 0 == nothing["loss"] == nothing["casts"]
    assert nothing["plans"][0]["time_us"] == nothing["plans"][1]["time_us"]


def test_ops_are_called_by_any_of_their_names(
    command: Command, losses: Path, tmp_path: Path
) -> None:
    """By their node, or their parameter, as `--keep` takes them."""
    text = losses.read_text("utf-8").replace("top_l.0,", "top_l.0.linear,")
    path = tmp_path / "named.csv"
    path.write_text(text.replace("emb_l.0,", "emb_l.0.weight,"), "utf-8")
    words = (*BOTH, "--budget", "0.002", "--format", "json", "--losses")
    plain, named = (command(*words, str(each)).report for each in (losses, path))

    assert plain == named


def test_ops_choose_among_types(command: Command, losses: Path, tmp_path: Path) -> None:
    """A table of several types gives each op one of them, or none."""
    listed = [line.split(",") for line in losses.read_text("utf-8").splitlines()[1:]]
    rows = ["op,type,loss"]
    for op, loss in listed:
        types = ("int8", "int4") if op.startswith("emb") else ("int8", "fp16")
        rows += [f"{op},{types[0]},{loss}", f"{op},{types[1]},{float(loss) / 9}"]
    path = tmp_path / "types.csv"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    words = (*BOTH, "--losses", str(path), "--budget", "0.0008", "--format", "json")
    found = command(*words).report

    assert found["loss"] <= 0.0008
    assert {"i4.rowx32a16"} & {table["dtype"] for table in found["tables"]}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--linear", "int7"), 2, "'int7' is no type of linear layers"),
        (("--linear", "fp8"), 1, "a100-sxm-80g has no fp8 GEMMs, which fp8 needs"),
        (("--keep", "top_l.0"), 2, "says no type"),
        (("--keep", "nowhere:fp16"), 2, "matches no table and no linear layer"),
        (("--keep", "emb_l.0:w8a16"), 2, "emb_l.0 is a table"),
        (("--budget", "-1", "--losses", "x.csv"), 2, "--budget -1: expected a sum"),
        (("--budget", "1"), 2, "--losses FILE is missing"),
        (("--losses", "x.csv"), 2, "--budget X is missing"),
        (("--losses", "x.csv", "--budget", "1"), 1, "cannot read x.csv"),
        (("--compare", "int9"), 2, "--compare 'int9' is none of"),
        (("--mode", "training"), 2, "gradients of weights of few bits"),
        (("--sum-bits", "16"), 2, "--sum-bits 16 is for CPUs: a100-sxm-80g adds"),
        (("--keep", ""), 2, "--keep '' names nothing"),
    ],
)
def test_refusals(
    command: Command, words: tuple[str, ...], code: int, message: str
) -> None:
    """One line, the right code, and nothing printed."""
    outcome = command(*ASKED, *words)

    assert code == outcome.code
    assert message in outcome.err
    assert 1 == len(outcome.err.splitlines())
    assert "" == outcome.out


def test_nothing_to_do(command: Command) -> None:
    """Types have to be asked for."""
    outcome = command("quantize", *SMALL, "--target", "a100")

    assert 2 == outcome.code
    assert "nothing to quantize" in outcome.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{head}", "lacks bot_l.4, emb_l.0"),
        ("{all}nowhere,1\n", "op 'nowhere' is none that would be"),
        ("{all}emb_l.0,1\n", "has a loss in int8 already"),
        ("op,los\nbot_l.0,1\n", "has the columns op, los"),
        ("op,loss\nbot_l.0,-1\n", "loss '-1': expected a number, 0 or more"),
        ("op,loss\nbot_l.0,nan\n", "loss 'nan'"),
        ("op,loss\nbot_l.0\n", "expected 2 cells"),
        ("op,loss\n", "has no row"),
        ("", "has the columns none"),
        ("op,type,loss\nbot_l.0,int7,1\n", "lacks bot_l.2"),
    ],
)
def test_broken_losses(
    command: Command, losses: Path, tmp_path: Path, text: str, message: str
) -> None:
    """The file, its line, and what was expected."""
    whole = losses.read_text("utf-8")
    head = "\n".join(whole.splitlines()[:3])
    path = tmp_path / "broken.csv"
    path.write_text(text.replace("{all}", whole).replace("{head}", head), "utf-8")
    outcome = command(*BOTH, "--losses", str(path), "--budget", "1")

    assert 1 == outcome.code
    assert message in outcome.err
    assert 1 == len(outcome.err.splitlines())


def test_why_it_is_slower(command: Command) -> None:
    """Small batches pay for casts and launches; the report says so."""
    outcome = command(*BOTH, "--batch", "1", "--activations", "dynamic-tensor")

    assert 0 == outcome.code
    assert "slower than the original" in outcome.out


BERT = ("quantize", "bert-base:layers=2", "--target", "h100", "--dtype", "fp16")
DYNAMIC = ("--linear", "int8", "--activations", "dynamic", "--runtime", "cudagraph")


def test_a_larger_batch_that_does_not_pay(command: Command) -> None:
    """Casts that grow as the products do are said to cost more at any batch."""
    outcome = command(*BERT, *DYNAMIC, "--batch", "64", "--format", "json")
    larger = command(*BERT, *DYNAMIC, "--batch", "1024", "--format", "json").report
    (text,) = [
        d["message"] for d in outcome.report["diagnostics"] if d["code"] == "no-gain"
    ]

    assert larger["plans"][0]["saved_us"] < 0
    assert "at batch 1,024 it is slower, too" in text
    assert re.search(r"casts take [\d,.]+ us where they are not fused", text)
    assert re.search(r"fewer bits save [\d,.]+ us of all else", text)


def test_a_larger_batch_that_pays(command: Command) -> None:
    """What it is faster by there is what the same command says of that batch."""
    asked = ("quantize", *SMALL[:1], "--target", "a100", *DYNAMIC)
    words = (*asked, "--format", "json")
    small = command(*words, "--batch", "512").report
    larger = command(*words, "--batch", "8192").report
    (text,) = [d["message"] for d in small["diagnostics"] if d["code"] == "no-gain"]
    saved_us = larger["plans"][0]["saved_us"]

    assert saved_us > 0
    assert text.endswith(f"at batch 8,192 it is {saved_us:,.1f} us faster")


@pytest.mark.parametrize(
    ("model", "option", "what"),
    [("resnet18", "embeddings", "tables"), ("squeezenet", "linear", "linear layers")],
)
def test_types_of_what_is_not_there(
    command: Command, model: str, option: str, what: str
) -> None:
    """A remark says that they change nothing."""
    words = ("quantize", model, f"--{option}", "int8", "--batch", "2")
    found = command(*words, "--target", "a100", "--format", "json").report
    (one,) = [d for d in found["diagnostics"] if d["code"] == f"no-{option}"]

    assert re.search(f"has no {what}: .*int8 changes nothing", one["message"])


def test_a_type_that_stands_for_another(command: Command) -> None:
    """`int4` of linear layers is `w4a16`; the help names it."""
    words = (*ASKED, "--format", "json", "--linear")
    four, packed = (command(*words, each).report for each in ("int4", "w4a16"))

    assert four["plans"][0]["time_us"] == packed["plans"][0]["time_us"]
    assert (
        "int4" in command("quantize", "--help").out.split("--linear")[1].split("--")[0]
    )
