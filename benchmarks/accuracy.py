"""Score all that perfc claims, and compare it with what is committed: `make accuracy`.

    python benchmarks/accuracy.py DATA [--only NAME]... [--write] [--keep FOLDER]
        [--quick] [--format table|md|json]

DATA is a folder of public measurements (`../shared/data`). Every line of the table is
of rows that no fit has seen, by what of them is unseen: a size, a session, a board, an
architecture, a model, a whole step, a trace. A figure that is worse than the one in
`accuracy.json` by more than its noise (`scoring.figures`), and a line that is not
scored any more, are named, and the exit code is 1.

`--only` takes a kind of unseen or the name of a scorer;
`--quick` leaves out scorers that fit networks, which take most of the time. `--keep`
puts what each scorer finds into a folder and takes it from there the next time, so that
a run that was cut off goes on: empty it when models or data change. `--write` writes
`accuracy.json`, and the tables in `docs/accuracy.md` and `docs/evidence.md`. A change
that makes a figure worse mends it, or says why under the line's key in `notes` of
`accuracy.json`, which is printed and kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import attrs
from scoring.committed import Committed, Verdict, published, verdicts
from scoring.figures import Line, line_of
from scoring.group import KINDS, Group, together
from scoring.table import markdown_table, text_table, write_pages

from perfc.ir import PerfcError, UsageError

COMMITTED = Path(__file__).with_suffix(".json")


@attrs.frozen
class Scorer:
    """What scores some rows.

    Attributes:
        kinds: What of them is unseen.
        function: Module and name of a function from the folder to groups.
        needs: A file or folder below DATA that it reads.
        fits_networks: Whether it takes many minutes.

    """

    kinds: tuple[str, ...]
    function: str
    needs: str
    fits_networks: bool = False

    def groups(self, data: Path) -> Iterator[Group]:
        """Yield the groups that it scores."""
        module, _, name = self.function.partition(":")
        score: Callable[[Path], Iterator[Group]]
        score = getattr(import_module(f"scoring.{module}"), name)
        yield from with_families(list(score(data)))


_STEPS = "end_to_end"
_TRACES = "traces"

SCORERS: Mapping[str, Scorer] = {
    "sizes": Scorer(("size",), "kernels:of_sizes", "measurements"),
    "networks": Scorer(
        ("size",), "kernels:of_networks", "measurements", fits_networks=True
    ),
    "collectives": Scorer(
        ("size", "architecture"), "collectives:of_collectives", "measurements"
    ),
    "eight-bits": Scorer(
        ("size", "architecture"), "elsewhere:of_eight_bits", "measurements"
    ),
    "own-rows": Scorer(("size", "model"), "steps:of_own_rows", "."),
    "sessions": Scorer(
        ("session", "board"),
        "elsewhere:of_other_sessions",
        "measurements/ops_fp32_seen_gpus.parquet",
        fits_networks=True,
    ),
    "boards": Scorer(("board",), "kernels:of_boards", _TRACES),
    "dlrm-kernels": Scorer(("board",), "elsewhere:of_dlrm_kernels", "dlrm_v100"),
    "hosts": Scorer(("board",), "hosts:of_hosts", _TRACES),
    "architectures": Scorer(
        ("architecture",), "kernels:of_architectures", "measurements"
    ),
    "other-boards": Scorer(("architecture",), "boards:of_other_boards", "measurements"),
    "language-models": Scorer(
        ("model", "whole step"),
        "steps:of_language_models",
        f"{_STEPS}/llm_training_steps.csv",
    ),
    "megatron": Scorer(
        ("model", "whole step"), "steps:of_megatron", f"{_STEPS}/llm_training_steps.csv"
    ),
    "lin-steps": Scorer(
        ("whole step",), "steps:of_lin_iterations", f"{_STEPS}/dlrm_lin_v100.csv"
    ),
    "transformers": Scorer(
        ("whole step",),
        "steps:of_transformers",
        f"{_STEPS}/transformers_fp32_seen_gpus.csv",
    ),
    "torchrec": Scorer(
        ("whole step",), "steps:of_torchrec", f"{_TRACES}/dlrm_torchrec_4xV100"
    ),
    "replays": Scorer(("trace",), "traces:of_replays", _TRACES),
    "trace-kernels": Scorer(("trace",), "traces:of_trace_kernels", _TRACES),
    "rescale": Scorer(("trace",), "traces:of_rescaled", _TRACES),
}


def with_families(groups: Sequence[Group]) -> Iterator[Group]:
    """Yield groups, each family of several also as one, if its whole is not there."""
    names = {(group.kind, group.name) for group in groups}
    families: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        families.setdefault((group.kind, group.family), []).append(group)
    for (kind, family), members in families.items():
        if family and len(members) > 1 and (kind, family) not in names:
            yield together(members, family)
        yield from members


def chosen(only: Sequence[str], *, quick: bool = False) -> dict[str, Scorer]:
    """Return the scorers of some names and kinds, all if none is given.

    Raises:
        UsageError: a name is neither.

    """
    for name in only:
        if name not in SCORERS and name not in KINDS:
            known = ", ".join([*KINDS, *SCORERS])
            msg = f"--only {name}: no kind of unseen and no scorer; known are {known}"
            raise UsageError(msg)
    return {
        name: scorer
        for name, scorer in SCORERS.items()
        if (not only or name in only or {*scorer.kinds} & {*only})
        and not (quick and scorer.fits_networks)
    }


FORMATS: Mapping[str, Callable[[Sequence[Verdict]], str]] = {
    "table": text_table,
    "md": lambda found: markdown_table([one.line for one in found]) + "\n",
    "json": lambda found: (
        json.dumps(
            [{**attrs.asdict(one.line), "verdict": one.word} for one in found], indent=1
        )
        + "\n"
    ),
}


def lines_of(name: str, scorer: Scorer, data: Path, keep: Path | None) -> list[Line]:
    """Return the lines of a scorer, maybe kept from before."""
    file = None if keep is None else keep / f"{name}.json"
    if file is not None and file.exists():
        return list(Committed.read(file).lines)
    begin = time.monotonic()
    print(f"scoring {name} ({', '.join(scorer.kinds)})", file=sys.stderr, flush=True)
    lines = [line_of(group, name, published(group)) for group in scorer.groups(data)]
    taken_s = time.monotonic() - begin
    print(f"scored {name} in {taken_s:.0f} s", file=sys.stderr, flush=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        Committed(lines).write(file)
    return lines


def scored(scorers: Mapping[str, Scorer], data: Path, keep: Path | None) -> list[Line]:
    """Return the lines of some scorers.

    Raises:
        PerfcError: a folder or file of measurements is not there.

    """
    if not data.is_dir():
        msg = f"{data}: no such folder; DATA=folder names the measurements"
        raise PerfcError(msg)
    for needed in (data / scorer.needs for scorer in scorers.values()):
        if not needed.exists():
            msg = f"{needed}: no such file or folder of measurements"
            raise PerfcError(msg)
    every = (lines_of(name, one, data, keep) for name, one in scorers.items())
    return [line for lines in every for line in lines]


def write_figures(now: Sequence[Line], names: Sequence[str]) -> None:
    """Put the lines of some scorers into the committed file and the documents."""
    updated = Committed.read(COMMITTED).updated(now, names, [*SCORERS])
    updated.write(COMMITTED)
    write_pages(updated)


def main(arguments: Sequence[str] | None = None) -> int:
    """Score, and compare or write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--only", action="append", default=[], metavar="KIND|NAME")
    parser.add_argument("--quick", action="store_true", help="fit no networks")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="go on from there")
    parser.add_argument("--write", action="store_true", help="write accuracy.json")
    parser.add_argument("--format", choices=[*FORMATS], default="table")
    options = parser.parse_args(arguments)
    try:
        committed = Committed.read(COMMITTED)
        scorers = chosen(options.only, quick=options.quick)
        now = scored(scorers, options.data, options.keep)
    except PerfcError as error:
        print(f"accuracy: error: {error}", file=sys.stderr)
        return error.exit_code
    only = options.only
    found = [
        one
        for one in verdicts(now, committed, [*scorers])
        if not only or {one.line.kind, one.line.scorer} & {*only}
    ]
    print(FORMATS[options.format](found), end="")
    for key, note in sorted(committed.notes.items()):
        print(f"note, {key}: {note}", file=sys.stderr)
    if options.write:
        write_figures(now, [*scorers])
        return 0
    return int(any(one.fails for one in found))


if __name__ == "__main__":
    sys.exit(main())
