"""What perfc does not know, and what the user has not said, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from tests.frontends.onnx.onnx_models import info, model, node

from perfc.tools.cli.command_line import main

FIXTURES = Path(__file__).parents[2] / "fixtures" / "onnx"
DYNAMIC = str(FIXTURES / "dlrm_small_legacy_op17.onnx")
STATIC = str(FIXTURES / "dlrm_small_legacy_static.onnx")


@pytest.fixture(name="odd")
def _odd(tmp_path: Path) -> str:
    """A model with ops of another domain, and one that perfc lacks."""
    proto = model(
        [
            node("Mystery", "x", "a", domain="com.example"),
            node("Mystery", "a", "b", domain="com.example"),
            node("Zeta", "b", "c"),
            _scan(),
            node("Relu", "d", "y"),
        ],
        outputs=[info("y", ["batch", 8]), onnx.ValueInfoProto(name="c")],
    )
    path = tmp_path / "odd.onnx"
    path.write_bytes(proto.SerializeToString())
    return str(path)


def _scan() -> onnx.NodeProto:
    """A Scan whose body reads a value from outside."""
    body = onnx.helper.make_graph(
        [node("Add", "row a", "out")], "body", [info("row", [8])], [info("out", [8])]
    )
    return node("Scan", "b", "d", body=body, num_scan_inputs=1)


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["analyze", *arguments, "--target", "a100"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_unknown_ops_are_counted(odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They come in, cost their bytes, and are named; the exit code is 0."""
    code, out, _ = _run(capsys, odd, "--batch", "4", "--format", "json")
    report = json.loads(out)

    assert 0 == code
    assert {
        "Zeta": 1,
        "com.example::Mystery": 2,
    } == report["coverage"]["unknown_ops"]
    assert "type-assumed" in {d["code"] for d in report["diagnostics"]}
    assert report["summary"]["time_us"] > 0


def test_strict_fails_on_unknown_ops(
    odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --strict the exit code is 4."""
    code, _, _ = _run(capsys, odd, "--batch", "4", "--strict")

    assert 4 == code


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([DYNAMIC], 1, ["batch", "--batch"]),
        ([STATIC, "--batch", "8"], 1, ["--batch 8", "fixed batch of 4"]),
        ([DYNAMIC, "--batch", "8", "--dim", "nope=3"], 1, ["nope", "nnz_0"]),
        ([DYNAMIC, "--batch", "8", "--dim", "nnz_0"], 2, ["nnz_0", "NAME=VALUE"]),
        ([STATIC, "--pooling", "8"], 1, ["--pooling"]),
        (["dlrm-default:tables=0", "--batch", "8"], 2, ["tables='0'", "from 1 to"]),
        (["dlrm-default:tables=1000000"], 2, ["tables='1000000'", "100000"]),
        (["dlrm-default:nope=3", "--batch", "8"], 2, ["'nope=3'", "tables=8"]),
        (["dlrm-default:embedding=x"], 2, ["embedding='x'", "bag or batched"]),
        (["dlrm-default:dim=8,dim=9"], 2, ["dim", "twice"]),
        (["dlrm-default:rows=two"], 2, ["rows='two'"]),
        (["dlrm-mlperf:rows=criteo2"], 2, ["rows='criteo2'"]),
        (["dlrm-dfault"], 2, ["'dlrm-dfault'", "did you mean 'dlrm-default'?"]),
        (["something"], 2, ["'something'", "perfc models"]),
        (["model.txt"], 2, [".txt", "onnx"]),
        (["none.onnx"], 1, ["none.onnx: no such file"]),
        (["none.perfc"], 1, ["none.perfc: no such file"]),
    ],
)
def test_says_what_is_wrong_in_one_line(
    arguments: list[str],
    code: int,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """One line on stderr, nothing on stdout, no file, the code of the contract."""
    output = tmp_path / "report.json"
    found = _run(capsys, *arguments, "-o", str(output))
    (line,) = found[2].splitlines()

    assert (code, "") == found[:2]
    assert line.startswith("perfc: error: ")
    assert [] == [word for word in words if word not in line]
    assert not output.exists()


def test_same_fixed_batch_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    """--batch with the number that the file has is no contradiction."""
    assert 0 == _run(capsys, STATIC, "--batch", "4")[0]


def test_unknown_target(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown target is a usage error."""
    assert 2 == main(["analyze", STATIC, "--target", "abacus"])
    assert "abacus" in capsys.readouterr().err


TEXT = """graph @g(%x: f32[batch,8], param %w: f32[4,8]) {
  %y = linear(%x, %w) : ?
  return %y
}
"""


def test_reads_assembly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text file is analysed like any model."""
    path = tmp_path / "g.perfc"
    path.write_text(TEXT, encoding="utf-8")
    code, out, _ = _run(capsys, str(path), "--batch", "16", "--format", "json")

    assert 0 == code
    assert 2 * 16 * 4 * 8 == json.loads(out)["summary"]["flops"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (TEXT.replace("linear", "linaer").encode(), "linaer"),
        (TEXT.replace("[4,8]", "[4,9]").encode(), "8 and 9"),
        (TEXT.replace("%w)", "%v)").encode(), "v"),
        (TEXT[:60].encode(), "line"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"", ""),
    ],
)
def test_refuses_bad_assembly(
    data: bytes, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error names the file and the place."""
    path = tmp_path / "g.perfc"
    path.write_bytes(data)
    code, out, error = _run(capsys, str(path), "--batch", "16")
    (line,) = error.splitlines()

    assert (1, "") == (code, out)
    assert line.startswith("perfc: error: ")
    assert problem in line
