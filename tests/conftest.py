"""Golden tests: every `tests/golden/**/*.perfc` is one test.

    // RUN: shape-inference,fold-shapes --target test-target
    graph @g(...) { ... }
    // ----
    graph @g(...) { ... }

The text above the line runs through the pipeline, verified after every pass. The
text below is what `perfc opt` prints then, or `ErrorClass: message`. A target is
a sheet in tests/golden, or a built-in one. `pytest --update-golden` writes the
text below the line again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest
from hypothesis import settings

from perfc.costmodels import load_target
from perfc.ir import ParseError, PerfcError
from perfc.ir.annotations import Scenario
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import PassManager
from perfc.passes.instruments import VerifyEach
from perfc.passes.pipeline_spec import format_pipeline, parse_pipeline
from perfc.tools.reports.print_facts import print_analysis

# A loaded machine is no reason for a property to fail.
settings.register_profile("perfc", deadline=None)
settings.load_profile("perfc")

# What the tests read has the colours of no terminal that they are run in.
for _name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)

_GOLDEN = Path(__file__).parent / "golden"
_RUN = re.compile(r"// RUN:(?P<pipeline>[^\n]*?)(?:--target (?P<target>\S+))?\s*\n")
_LINE = "// ----\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption(
        "--update-golden", action="store_true", help="Write golden outputs again."
    )


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Make a test of every golden file."""
    if file_path.suffix != ".perfc" or _GOLDEN not in file_path.parents:
        return None
    return GoldenFile.from_parent(parent, path=file_path)


class GoldenFile(pytest.File):
    """A golden file."""

    def collect(self) -> Iterable[pytest.Item]:
        """Return its one test."""
        return [GoldenItem.from_parent(self, name=self.path.stem)]


class GoldenItem(pytest.Item):
    """The one test of a golden file."""

    def runtest(self) -> None:
        """Compare, or write again."""
        case = read_case(self.path.read_text(encoding="utf-8"))
        found = case.run()
        if self.config.getoption("--update-golden"):
            self.path.write_text(case.above + _LINE + found, encoding="utf-8")
            return

        assert case.expected == found

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say where the test is."""
        return self.path, None, f"golden {self.path.relative_to(_GOLDEN)}"


@attrs.frozen
class GoldenCase:
    """What a golden file says.

    Attributes:
        above: Everything above the line, the run line included.
        pipeline: The passes.
        target: Name of a sheet beside the golden files or of a built-in target,
            or "" for none.
        expected: Everything below the line.

    """

    above: str
    pipeline: str
    target: str
    expected: str

    def run(self) -> str:
        """Run the passes over the input and return what they print."""
        try:
            program = parse_program(self.above)
            for rank in program.classes:
                if rank.ops is not None:
                    verify(rank.ops, BUILTIN_OPS)
            passes = parse_pipeline(self.pipeline)
            target, scenario = None, None
            if self.target:
                sheet = _GOLDEN / f"{self.target}.toml"
                target = load_target(str(sheet) if sheet.exists() else self.target)
                name, digest = target.name, target.spec_sha256
                options = format_pipeline(passes)
                scenario = Scenario(name, digest, "eager", program.bound, options)
            manager = PassManager(passes, [VerifyEach()])
            return print_analysis(manager.run(program, target, scenario))
        except PerfcError as error:
            return f"{type(error).__name__}: {error}\n"


def read_case(text: str) -> GoldenCase:
    """Take a golden file apart.

    Raises:
        ParseError: it has no run line.

    """
    match = _RUN.match(text)
    if match is None:
        msg = "a golden file starts with `// RUN: pipeline`"
        raise ParseError(msg)
    above, _, below = text.partition(_LINE)
    return GoldenCase(above, match["pipeline"].strip(), match["target"] or "", below)
