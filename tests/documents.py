"""The examples of the documentation, run as a reader would run them.

A page starts in a folder that has only `examples/` and `.venv/`, active; its blocks
run in order and see what earlier ones left:

- `console`: each `$ command` runs in a shell, and prints what stands below it.
- `sh`: each command runs; what it prints is not shown.
- any language with `title="FILE"`: the block is written to FILE.
- `pycon`: runs as a doctest; its names live as long as the page.
- `text`: a picture; `{toctree}` and the like: for the site.

Any other block is an error: it would go unchecked.

A command that is `perfc` and plain words runs in this process, which has loaded what it
needs; one that measures, or runs Python of the page's, runs in a shell like any other.

`<!-- run: COMMAND -->` prepares what the page takes for granted. In an output `...`
stands for anything: what depends on the machine, or is not worth showing.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

from perfc.tools.cli.command_line import main

ROOT = Path(__file__).parents[1]
_TITLE = re.compile(r'title="([\w.-]+)"')
_PREPARE = re.compile(r"<!-- run: (.+) -->")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*\n)", re.MULTILINE)
_ERROR = "perfc: error: "
_BIN = Path(sys.executable).parent
_APART = re.compile(r"[$`*~]|\.py\b|^perfc (?:measure|calibrate)\b|--plugin")
"""What a shell expands, and commands that need a process of their own."""
_OPERATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "(", ")"}
_SECONDS = 300
"""A command that takes longer hangs."""


def _plain_words(command: str) -> list[str] | None:
    """Split a command that is `perfc` and plain words; None for any other."""
    line = command.replace("\\\n", " ").strip()
    if "\n" in line or _APART.search(line):
        return None
    lexer = shlex.shlex(line, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = list(lexer)
    is_plain = words[:1] == ["perfc"] and not {*words} & _OPERATORS
    return shlex.split(line)[1:] if is_plain else None


class StaleError(AssertionError):
    """An example fails, or does not print what the page shows."""


@attrs.frozen
class Page:
    """A Markdown file."""

    path: Path

    @property
    def tokens(self) -> Iterator[Token]:
        """Its tokens, those within lines of text included."""
        parser = MarkdownIt("commonmark").enable("table")
        for token in parser.parse(self.path.read_text(encoding="utf-8")):
            yield token
            yield from token.children or ()

    @property
    def links(self) -> list[str]:
        """Where its links lead, as written."""
        return [str(t.attrs["href"]) for t in self.tokens if t.type == "link_open"]

    @property
    def anchors(self) -> set[str]:
        """What a link may name after `#`: its headings, spelled as GitHub does."""
        tokens = list(self.tokens)
        titles = [
            tokens[index + 1].content.lower()
            for index, token in enumerate(tokens)
            if token.type == "heading_open"
        ]
        return {re.sub(r"[^\w -]", "", t).replace(" ", "-") for t in titles}

    @property
    def files(self) -> list[str]:
        """Names of the files that its blocks are."""
        titles = (_TITLE.search(block.info) for block in self.blocks)
        return [title[1] for title in titles if title is not None]

    @property
    def blocks(self) -> list[Token]:
        """Its examples, and the comments that prepare them."""
        return [t for t in self.tokens if t.type in {"fence", "html_block"}]

    def run(self, folder: Path, *, update: bool = False) -> None:
        """Run every example in *folder*.

        Args:
            folder: The current folder, empty.
            update: Write into the page what its commands print now, except
                outputs of which `...` leaves out a part.

        Raises:
            StaleError: an example fails, or prints something else.

        """
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / ".venv").mkdir()
        (folder / ".venv/bin").symlink_to(_BIN)
        reader = _Reader(self.path, folder, update)
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        shown = [(block.map or [0, 0], reader.follow(block)) for block in self.blocks]
        for (start, end), content in reversed(shown):
            if content is not None:
                lines[start + 1 : end - 1] = [content]
        if update:
            self.path.write_text("".join(lines), encoding="utf-8")


@attrs.define
class _Reader:
    """Somebody who does what a page says.

    Attributes:
        page: The page.
        folder: Where they are.
        update: Take what a command prints now for what it should print.
        names: What their Python session knows.

    """

    page: Path
    folder: Path
    update: bool
    names: dict[str, object] = attrs.field(factory=dict[str, object])

    def follow(self, block: Token) -> str | None:
        """Follow one block; return what a `console` should show."""
        if block.type == "html_block":
            if prepare := _PREPARE.match(block.content):
                self._shell(prepare[1])
            return None
        language = block.info.partition(" ")[0]
        if title := _TITLE.search(block.info):
            (self.folder / title[1]).write_text(block.content, encoding="utf-8")
        elif language == "console":
            return self._console(block.content)
        elif language == "sh":
            self._shell(f"set -e\n{block.content}")
        elif language == "pycon":
            self._session(block.content)
        elif language != "text" and not language.startswith("{"):
            line = (block.map or [0])[0] + 1
            msg = f"{self.page}:{line}: nobody checks a block of {block.info!r}"
            raise StaleError(msg)
        return None

    def _console(self, content: str) -> str:
        """Run the commands of a terminal; return what it shows then."""
        before, *rest = _COMMAND.split(content)
        if before:
            msg = f"{self.page}: a console block starts with `$ `, not {before!r}"
            raise StaleError(msg)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return "".join(f"$ {cmd}{self._output(cmd, want)}" for cmd, want in pairs)

    def _output(self, command: str, wanted: str) -> str:
        found = self._shell(command, fails=_ERROR in wanted)
        checker, example = doctest.OutputChecker(), doctest.Example(command, wanted)
        if checker.check_output(wanted, found, doctest.ELLIPSIS):
            return wanted
        if self.update and "..." not in wanted:
            return found
        difference = checker.output_difference(example, found, doctest.REPORT_NDIFF)
        msg = f"{self.page}: $ {command}{difference}"
        raise StaleError(msg)

    def _shell(self, command: str, *, fails: bool = False) -> str:
        """Run *command*; return what a terminal shows."""
        words = _plain_words(command)
        code, shown = self._in_shell(command) if words is None else self._here(words)
        if fails != bool(code):
            msg = f"{self.page}: {command}: exit {code}\n{shown}"
            raise StaleError(msg)
        return shown

    def _here(self, words: Sequence[str]) -> tuple[int, str]:
        """Run the `perfc` of this process; return its exit code and what it prints."""
        shown = io.BytesIO()
        terminal = io.TextIOWrapper(shown, encoding="utf-8", write_through=True)
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(terminal),
            contextlib.redirect_stderr(terminal),
        ):
            code = main(words)
        return code, shown.getvalue().decode()

    def _in_shell(self, command: str) -> tuple[int, str]:
        """Run it in a shell; return its exit code and what it prints."""
        path = f"{_BIN}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(  # noqa: S602 - what the documentation says
            command,
            shell=True,
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        return done.returncode, done.stdout

    def _session(self, content: str) -> None:
        """Run what is typed at Python's prompt."""
        name = self.page.name
        parser = doctest.DocTestParser()
        test = parser.get_doctest(content, self.names, name, str(self.page), 0)
        test.globs = self.names  # not the parser's copy: later blocks go on
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=said.append, clear_globs=False)
        if said:
            raise StaleError("".join(said))
