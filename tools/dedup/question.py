"""What `perfc dedup` does: a step with and without it, and the batches that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from perfc.ir.support import brief
from perfc.passes.embeddings import Dedup
from perfc.passes.graphs import table_lookups, table_names
from perfc.passes.pipeline_spec import format_pipeline, read_pipeline
from perfc.tools.analysis import report_on
from perfc.tools.dedup.batches import largest_batch
from perfc.tools.dedup.measured import MeasuredSessions, measured_stays
from perfc.tools.dedup.report import Deduplication, PricedStep
from perfc.tools.models import load_request
from perfc.tools.request import Request

WITH, WITHOUT = "dedup", "without"
"""Names of the two plans."""

_SHARDING = "shard-embeddings"


@attrs.frozen(eq=False, kw_only=True)
class DedupQuestion:
    """What is asked.

    Attributes:
        request: The model, the target and the setting; its batch is that of each rank.
        session: Mean samples of a session inside a batch; None where it is measured.
        stay: Probability that lists stay, as the pass takes it.
        groups: Groups of features, patterns with `+` between them.
        measure: File of samples, if sessions are measured.
        session_key: Its column of sessions.

    """

    __repr__ = brief

    request: Request
    session: float | None = None
    stay: str = ""
    groups: tuple[str, ...] = ()
    measure: str | None = None
    session_key: str = ""

    @property
    def sharded(self) -> Request:
        """The request; with several ranks their tables are sharded."""
        asked = self.request
        named = [one.cls.name for text in asked.passes for one in read_pipeline(text)]
        if (asked.ranks or 1) < 2 or _SHARDING in named:  # noqa: PLR2004 - one is none
            return asked
        return attrs.evolve(asked, passes=(*asked.passes, _SHARDING))


def dedup(
    question: DedupQuestion, *, say: Callable[[str], None] = lambda _: None
) -> Deduplication:
    """Predict a step with lists deduplicated, and without.

    Args:
        question: What is asked.
        say: Told what is being done.

    """
    asked = question.sharded
    plain = load_request(attrs.evolve(asked, ranks=None, passes=(), mode="inference"))
    tables = table_names(table_lookups(plain.model.program))
    measured = _measured(question, tables, plain)
    transform = _pass(question, measured)
    groups = transform.found(plain.model.program)
    steps: list[PricedStep] = []
    for name, applied in ((WITH, True), (WITHOUT, False)):
        say(f"analyzing the step: {name}")
        text = format_pipeline([attrs.evolve(transform, apply=applied)])
        with_pass = attrs.evolve(asked, passes=(*asked.passes, text))
        report = report_on(load_request(with_pass))
        say(f"looking for the largest batch: {name}")
        steps.append(PricedStep(name, report, largest_batch(with_pass, report)))
    return Deduplication(
        request=asked,
        session=transform.session,
        measured=measured,
        groups=tuple(groups),
        steps=tuple(sorted(steps, key=lambda one: (not one.fits, one.report.time_us))),
    )


def _measured(
    question: DedupQuestion, tables: Sequence[str], plain: Request
) -> MeasuredSessions | None:
    if question.measure is None:
        return None
    batch = plain.model.program.bindings.get("batch") or question.request.batch
    return measured_stays(
        question.measure,
        question.session_key,
        tables=tables,
        batch=int(batch or 1),
        groups=question.groups,
    )


def _pass(question: DedupQuestion, measured: MeasuredSessions | None) -> Dedup:
    if measured is None:
        groups = ";".join(question.groups)
        return Dedup(question.session or 1.0, question.stay, groups)
    stay = ";".join(f"{name}:{value!r}" for name, value in measured.stays.items())
    return Dedup(measured.session, stay)
