"""What a shell asks to complete a command line of `perfc`.

`_PERFC_COMPLETE=bash_source perfc` prints the script that a shell reads once; it calls
`perfc` with `bash_complete` and the words typed so far. The protocol is click's, whose
scripts know neither candidates that go on (`tables=`) nor names beside files.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import click
from click.shell_completion import CompletionItem, ShellComplete

from perfc.ir import PerfcError, UsageError
from perfc.tools.cli.completion.names import GOES_ON, complete_names
from perfc.tools.files import print_line, write_result

VARIABLE = "_PERFC_COMPLETE"

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion type value files
    COMPREPLY=()
    for completion in $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
            %(complete_var)s=bash_complete "$1"); do
        type=${completion%%%%,*} value=${completion#*,}
        case $type in
            dir) files=($(compgen -d -- "$value")) ;;
            file) files=($(compgen -f -- "$value")) ;;
            part) compopt -o nospace; COMPREPLY+=("$value") ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
    if [[ -n ${files[0]} ]]; then
        compopt -o filenames
        COMPREPLY+=("${files[@]}")
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described parts response
    local type value text
    (( ! $+commands[%(prog_name)s] )) && return 1
    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    for type value text in ${response}; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            part) parts+=("$value") ;;
            plain)
                if [[ $text == _ ]]; then
                    plain+=("$value")
                else
                    described+=("${value//:/\\\\:}:$text")
                fi ;;
        esac
    done
    [[ -n $described ]] && _describe -V unsorted described -U
    [[ -n $plain ]] && compadd -U -V unsorted -a plain
    [[ -n $parts ]] && compadd -U -S '' -V unsorted -a parts
    return 0
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
function %(complete_func)s
    for completion in (env %(complete_var)s=fish_complete \\
            COMP_WORDS=(commandline -cp | string collect) \\
            COMP_CWORD=(commandline -ct | string collect) %(prog_name)s)
        set -l found (string split -m 1 , -- $completion)
        switch $found[1]
            case dir
                __fish_complete_directories $found[2]
            case file
                __fish_complete_path $found[2]
            case plain part
                echo -- $found[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


def complete(group: click.Group, instruction: str) -> int:
    """Print the script of a shell, or what it may complete with; return an exit code.

    Args:
        group: The command with all verbs.
        instruction: What the environment variable says, `bash_source`.

    """
    shell, _, task = instruction.partition("_")
    if shell not in _SHELLS or task not in {"source", "complete"}:
        expected = ", ".join(f"{name}_source" for name in _SHELLS)
        msg = f"{VARIABLE}={instruction[:40]}: expected {expected}"
        raise UsageError(msg)
    asked = _SHELLS[shell](group, {}, "perfc", VARIABLE)
    if task == "source":
        write_result(asked.source(), None)
        return 0
    try:
        print_line(asked.complete())
    except PerfcError:  # of a plugin, say: what is typed is not run yet
        return 0
    return 0


class _Shell(ShellComplete):
    """Words typed so far, with the last one incomplete."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is completed, and that."""
        words, number = _split(os.environ.get("COMP_WORDS", "")), self.number()
        words += [""] * (number + 1 - len(words))
        return words[1:number], words[number]

    def number(self) -> int:
        """Return which word is completed."""
        text = os.environ.get("COMP_CWORD", "")
        return max(1, int(text)) if text.isdecimal() else 1

    def get_completions(
        self, args: list[str], incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the candidates for a word, each the whole word."""
        with click.Context(self.cli, info_name="perfc") as ctx:
            assert isinstance(self.cli, click.Group)  # noqa: S101 - all verbs
            for word in args:
                command = self.cli.get_command(ctx, word)
                if command is not None:
                    complete_names(command)
        found = super().get_completions(list(args), incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("--")):
            return found
        return [
            CompletionItem(f"{option}={one.value}", type=one.type, help=one.help)
            for one in found
            if one.type in _WORDS
        ]

    def complete(self) -> str:
        """Return the candidates, a line each, or as many as the shell reads."""
        args, incomplete = self.get_completion_args()
        found = self.get_completions(args, incomplete)
        return "\n".join(self.format_completion(one) for one in found)

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value}"


class _Bash(_Shell):
    """Bash, which takes words apart at `:` and `=`, and replaces the last part."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH
    before = ""
    """What of the word is not replaced."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, number = _split(os.environ.get("COMP_WORDS", "")), self.number()
        typed = [*words[: number + 1], *[""] * (number + 1 - len(words))]
        joined: list[str] = []
        glued = False
        for word in typed:
            breaks = word != "" and not word.strip(_BREAKS)
            if joined[1:] and (breaks or glued) and (word or glued):
                self.before = joined[-1] + (word if breaks else "")
                joined[-1] += word
            else:
                self.before = ""
                joined.append(word)
            glued = breaks
        return joined[1:-1], joined[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type},{item.value.removeprefix(self.before)}"


class _Zsh(_Shell):
    """Zsh, which shows descriptions."""

    name: ClassVar[str] = "zsh"
    source_template: ClassVar[str] = _ZSH

    def format_completion(self, item: CompletionItem[str]) -> str:
        return f"{item.type}\n{item.value}\n{_one_line(item.help) or '_'}"


class _Fish(_Shell):
    """Fish, which shows descriptions, and hands the incomplete word itself."""

    name: ClassVar[str] = "fish"
    source_template: ClassVar[str] = _FISH

    def get_completion_args(self) -> tuple[list[str], str]:
        words = _split(os.environ.get("COMP_WORDS", ""))
        incomplete = " ".join(_split(os.environ.get("COMP_CWORD", "")))
        if incomplete and words[-1:] == [incomplete]:
            words.pop()
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        text = _one_line(item.help)
        return f"{item.type},{item.value}" + (f"\t{text}" if text else "")


_BREAKS = ":="
_WORDS = frozenset({"plain", GOES_ON})
_SHELLS: Mapping[str, type[_Shell]] = MappingProxyType(
    {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation that is still open
        return text.split()


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
