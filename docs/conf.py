"""How `make docs` builds the site: these pages, and a reference from perfc itself.

Two kinds of comment in a page are replaced, so that no list is kept by hand:
`<!-- prints: perfc ops -->` by what the command prints, and
`<!-- documents: perfc.passes -->` by the docstrings of what the package exports.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from types import ModuleType

from click.testing import CliRunner
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.logging import getLogger

from perfc.tools.cli import perfc_command

project = "perfc"
html_title = "perfc"
html_theme = "alabaster"
html_theme_options = {
    "description": "How long a deep-learning model takes on a GPU, and why",
    "page_width": "70rem",
    "fixed_sidebar": True,
}
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = False
myst_heading_anchors = 3
suppress_warnings = [
    "docutils",  # docstrings are Markdown: `*` and `|` mean nothing
    "ref.python",  # a type that has the name of a property, as `bytes`
]
default_role = "code"  # and so is what stands in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # as attrs' fields are documented in the class

logger = getLogger(__name__)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[A-Z]+\.md\)")
"""A link to a file at the top of the repository, which the site has not."""

_MARKER = re.compile(r"<!-- (prints|documents): (.+) -->")


def _fill(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the comments of a page."""
    kinds = {"prints": _printed, "documents": _documented}
    inside = _OUTSIDE.sub(r"\1", source[0])
    source[0] = _MARKER.sub(lambda found: kinds[found[1]](found[2]), inside)


def _printed(command: str) -> str:
    """Return the output of a perfc command as a block of text."""
    words = shlex.split(command)[1:]
    result = CliRunner().invoke(perfc_command, words)
    if result.exit_code:
        logger.warning("%s fails: %r", command, result.exception)
    # The plugin of perfc's own tests is installed where the site is built.
    lines = [line for line in result.output.splitlines() if not line.startswith("toy")]
    return "\n".join(["```text", *lines, "```"])


def _documented(text: str) -> str:
    """Return directives that document what a package exports, or some of it."""
    name, *some = text.split()
    package = importlib.import_module(name)
    directives = "\n".join(_directives(package, some or package.__all__))
    return f"```{{eval-rst}}\n.. py:module:: {name}\n   :no-index:\n\n{directives}\n```"


def _directives(package: ModuleType, names: Sequence[str]) -> Iterator[str]:
    homes = _homes(package)
    for name in names:
        path = f"{package.__name__}.{name}"
        exported = getattr(package, name)
        home = homes.get(name, (package.__name__, name))
        if inspect.ismodule(exported):
            text = inspect.getdoc(exported)
            yield f".. py:module:: {path}\n   :no-index:\n\n{text}\n"
            yield from _directives(exported, exported.__all__)
        elif home[0] == "perfc.ir":
            same = f"The same as `perfc.ir.{name}`."
            yield f".. py:data:: {path}\n   :no-index:\n\n   {same}\n"
        elif inspect.isclass(exported):
            yield f".. autoclass:: {path}\n   :members:\n"
            yield from _cached_properties(exported)
        elif inspect.isroutine(inspect.unwrap(exported)):
            yield f".. autofunction:: {path}\n"
        else:
            yield f".. py:data:: {path}\n\n   {_comment(*home)}\n"


def _cached_properties(cls: type) -> Iterator[str]:
    """Document those of a class with slots: attrs leaves them in the source only."""
    for node in ast.walk(ast.parse(inspect.getsource(cls))):
        if not isinstance(node, ast.FunctionDef):
            continue
        if "functools.cached_property" in map(ast.unparse, node.decorator_list):
            text = (ast.get_docstring(node) or "").replace("\n", "\n      ")
            kind = ast.unparse(node.returns) if node.returns else ""
            options = f"      :type: {kind}\n\n      {text}\n"
            yield f"   .. py:property:: {node.name}\n{options}"


def _homes(package: ModuleType) -> dict[str, tuple[str, str]]:
    """Return the module, and the name there, of what a package re-exports."""
    homes: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(package))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                named = [alias.name]
                if alias.name == "*":
                    named = importlib.import_module(node.module).__all__
                homes |= {alias.asname or n: (node.module, n) for n in named}
    return homes


def _comment(module: str, name: str) -> str:
    """Return the docstring below a constant, which only its source has."""
    while (home := _homes(importlib.import_module(module)).get(name)) is not None:
        module, name = home
    lines = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
    if lines is None:
        logger.warning("%s.%s is exported, and has no docstring below it", module, name)
    return "\n   ".join(lines or ())


def setup(app: Sphinx) -> None:
    """Ask to see every page before it is parsed."""
    app.connect("source-read", _fill)
