"""What `perfc parallel` refuses: one line, and the right exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command

GPT = "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101"
DLRM = "dlrm-ddp:tables=4,rows=20000"
DGX = ("--target", "dgx-a100")
FOUR = (*DGX, "--ranks", "4", "--batch", "16")

RANKS = """
program @many {
  ranks [0, 1] {
    graph @many(%x: f32[8,64]) {
      %a = relu(%x) : ?
      return %a
    }
  }
}
"""


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--ranks", "4"), 1, "add --batch N"),
        (
            ("--ranks", "5040", "--batch", "5040"),
            1,
            "ways to spread a model over GPUs, expected at most 5,000; if that is",
        ),
        (("--ranks", "12", "--batch", "12"), 1, "12 ranks do not fill nodes of 8"),
        (("--ranks", "8,x", "--batch", "8"), 2, "'x' is not a valid integer"),
        (("--ranks", "0", "--batch", "8"), 2, "0 is not in the range"),
        (("--ranks", "2000000", "--batch", "8"), 2, "at most 1,000,000"),
        ((*FOUR[2:], "--strategy", "dp:3"), 2, "is for 3 GPUs, but there are 4"),
        ((*FOUR[2:], "--strategy", "dp:2 fsdp:2"), 2, "exclude each other"),
        ((*FOUR[2:], "--strategy", "emb=grid"), 2, "no tables of embedding bags"),
        ((*FOUR[2:], "--strategy", "fsdp:2 pp:2"), 2, "fsdp comes before"),
        ((*FOUR[2:], "--strategy", "pp:2 mb:3"), 2, "does not divide into 3 micro"),
        ((*FOUR[2:], "--strategy", "dp mb:3"), 2, "does not divide into 3 micro"),
        ((*FOUR[2:], "--accumulate", "0"), 2, "0 is not in the range"),
        ((*FOUR[2:], "--microbatches", "0"), 2, "0 is not in the range"),
        ((*FOUR[2:], "--search", "some"), 2, "'some' is not one of 'fast', 'all'"),
        ((*FOUR[2:], "--limit", "0"), 2, "0 is not in the range"),
        (
            ("--target", "gb200-nvl72", *FOUR[2:], "--objective", "price"),
            2,
            "needs --price USD",
        ),
        ((*FOUR[2:], "--price", "0"), 2, "--price: expected a number from 0.0001"),
        (
            (*FOUR[2:], "--price", "1", "--price-per-hour", "1"),
            2,
            "--price-per-hour and --price say the same",
        ),
        ((*FOUR[2:], "--price-per-hour", "0"), 2, "--price-per-hour 0.0: expected"),
        ((*FOUR[2:], "--memory", "inf"), 2, "--memory inf: expected a number above 0"),
        ((*FOUR[2:], "--mode", "inference", "--optimizer", "sgd"), 2, "needs mode"),
        ((*FOUR[2:], "--dim", "nothing=3"), 1, "has no such dimension"),
        ((*FOUR[2:], "--set", "gpu.nothing=3"), 2, "no such field"),
        (
            (*FOUR[2:], "--pass", "fsdp{ranks=4}"),
            2,
            "--pass fsdp: --strategy says that",
        ),
        ((*FOUR[2:], "--pass", "training", "--mode", "inference"), 2, "leave one of"),
        ((*FOUR[2:], "--pass", "data-parallel{ranks=4}"), 2, "--ranks says how many"),
        ((*FOUR[2:], "--pass", "nothing"), 2, "nothing"),
        ((*FOUR[2:], "--compat", "madmax", "--search"), 2, "--search does not go with"),
        ((*FOUR[2:], "--compat", "madmax", "--memory", "9"), 2, "--memory does not go"),
    ],
)
def test_what_cannot_be(
    command: Command, options: tuple[str, ...], code: int, says: str
) -> None:
    """One line, and nothing on standard output."""
    assert says in command.refused(("parallel", GPT, *DGX, *options), code)


@pytest.mark.parametrize(
    ("model", "text", "code", "says"),
    [
        (GPT, "tp:8", 1, "4 of transformer.h.0.attn.view do not divide by 8 ranks"),
        (GPT, "pp:8 mb:4", 2, "has 7 layers, fewer than 8 stages"),
        (DLRM, "dp:4 pp:2 mb:4", 1, "are not added up over microbatches"),
        (DLRM, "dp:4 tp:2 emb=grid", 2, "not over ranks of tensor-parallel"),
        (
            "resnet50",
            "tp:8",
            1,
            "has no linear layers that tensor-parallel could share",
        ),
    ],
)
def test_what_passes_refuse(
    command: Command, model: str, text: str, code: int, says: str
) -> None:
    """Asked for alone it is an error, with the code of the pass's own."""
    asked = ("parallel", model, *DGX, "--ranks", "8", "--batch", "32")

    assert says in command.refused((*asked, "--strategy", text), code)


def test_a_model_of_launches(command: Command, tmp_path: Path) -> None:
    """There are no layers; nor where ranks are written down."""
    many = tmp_path / "many.perfc"
    many.write_text(RANKS)

    asked = ("parallel", str(many), *DGX, "--ranks", "8")

    assert "give one model of one GPU" in command.refused(asked, 1)
