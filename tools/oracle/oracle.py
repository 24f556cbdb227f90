"""`perfc.Oracle`: a model lowered and priced once, and asked again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from perfc.ir import Diagnostic, UsageError
from perfc.ir.support import US, paused_collector
from perfc.tools import edits
from perfc.tools.analysis import run_of
from perfc.tools.oracle.batch import TIME, Answers, batch
from perfc.tools.oracle.explanation import explained
from perfc.tools.oracle.ranking import Ranked, rank
from perfc.tools.oracle.setting import Setting
from perfc.tools.oracle.state import State
from perfc.tools.request import AnalyzeOptions, Request

if TYPE_CHECKING:
    from perfc.costmodels import Target
    from perfc.tools.models import Model
    from perfc.tools.oracle.curve import Curve
    from perfc.tools.reports import Report, Sensitivity


class Oracle:
    """Answers what a step takes under edits, for searches that ask by the thousand.

        oracle = perfc.Oracle("dlrm-default", target="a100", batch=2048)
        oracle.ask(edits.Duration("gemm", factor=0.5))

    Answers are those of `perfc.analyze` of the edited model, to 1e-9, and so are the
    errors. Threads may ask one oracle at once; `apply` and `undo` are for one of them.
    A pickled oracle keeps its edits, and works the rest out anew.
    """

    __slots__ = ("_states",)

    def __init__(
        self, model: object, target: str | Target, **options: Unpack[AnalyzeOptions]
    ) -> None:
        """Load, lower and price a model; the options are those of `perfc.analyze`.

        Raises:
            UsageError: an argument names something perfc does not have.
            PerfcError: the model, the target or the pipeline is at fault.

        """
        named: dict[str, Any] = {"model": model, "target": target}
        request = Request.of("perfc.Oracle", AnalyzeOptions, options, **named)
        state = State(Setting.of(run_of(request), request))
        self._states: tuple[State, ...] = (state,)
        state.setting.step  # noqa: B018 - so that what is wrong is found here

    @property
    def time_us(self) -> float:
        """Microseconds of an iteration, as it stands."""
        return self._states[-1].time_s * US

    @property
    def model(self) -> Model:
        """The model as it stands, but for fused and replaced ops, and durations."""
        return self._states[-1].setting.run.model

    @property
    def target(self) -> Target:
        """The target as it stands."""
        return self._states[-1].setting.run.target

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks of the analysis as it stands."""
        return self._states[-1].setting.step.diagnostics

    def report(self, *asked: edits.Edit) -> Report:
        """Return the report of the step under edits, as `perfc.analyze` makes it.

        Raises:
            UsageError: an edit names what there is not.
            PerfcError: as `perfc.analyze` of the edited model does.

        """
        return self._states[-1].after(_checked(asked)).report()

    def ask(self, *asked: edits.Edit) -> float:
        """Return the microseconds of an iteration under edits; nothing is kept.

        Edits are made in order. A duration that was set stays set where a later edit
        changes prices.

        Args:
            asked: Values of `perfc.edits`.

        Raises:
            UsageError: an edit names what there is not.
            PerfcError: as `perfc.analyze` of the edited model does.

        """
        state = self._states[-1]
        if len(asked) == 1 and type(asked[0]) is edits.Duration:
            time_s = state.quick_s(asked[0])
            if time_s is not None:
                return time_s * US
        edited = _checked(asked)
        with paused_collector():  # most of what is made is dropped before the end
            return state.after(edited).time_s * US

    def batch(
        self, columns: Mapping[str, Any], want: str | Sequence[str] = (TIME,)
    ) -> Answers:
        """Return times, and more, of an iteration under many configurations.

        Settings that differ are lowered and priced once each, sizes all together; the
        schedule is solved for all configurations together. Durations are made after
        settings, in order.

        Args:
            columns: Arrays of one value a configuration, or one value for all, by
                name: `batch`, `dim:NAME`, `dtype` (words), a field of the target as
                `gpu.memory_gb_per_s`, `us:NODE` or `factor:NODE`.
            want: `time_us`, `time_us_p05`, `time_us_p95`, `gpu_active_us`,
                `peak_memory_bytes`.

        Returns:
            Arrays by the names that are wanted; `diagnostics` says which were looked
            at one by one.

        Raises:
            UsageError: a column or a wanted name means nothing.
            PerfcError: as `perfc.analyze` of a configuration does.

        """
        return batch(self._states[-1], columns, want)

    def rank(
        self, candidates: Iterable[edits.Edit | Sequence[edits.Edit]]
    ) -> list[Ranked]:
        """Return candidates, fastest first, with the probability that each is.

        What candidates have in common errs alike in all of them.

        Args:
            candidates: Edits, or sequences of edits that are made together; an empty
                sequence is the step as it stands.

        Raises:
            UsageError: there are none, or one is no edit.
            PerfcError: as `perfc.analyze` of an edited model does.

        """
        return rank(self._states[-1], candidates)

    def sensitivity(self) -> Sensitivity:
        """Return the slopes of the time: d ln(time) / d ln(x), the largest first.

        x is every number of the target's sheet, every cost of the host, every kernel
        and every node. Slopes of durations are exact, from the critical paths: those of
        the host and of kernels sum to 1. Those of the sheet are differences of prices.
        Where the time bends, both directions are told apart, and a remark says why.

        Raises:
            PerfcError: a cost model is at fault.

        """
        from perfc.tools.oracle.sensitivity import sensitivity

        return sensitivity(self._states[-1])

    def curve(self, name: str, low: int, high: int) -> Curve:
        """Return the time over a size, in pieces along which one bottleneck decides.

            oracle.curve("batch", 1, 65536).pieces[0].formula

        A formula is the line through both ends of its piece, where it is exact;
        `deviation` says how far the time is off it inside.

        Args:
            name: `batch`, or a symbol of the model.
            low: The smallest number.
            high: The largest number.

        Raises:
            UsageError: the model has no such size, or the range is none.
            PerfcError: as `perfc.analyze` of the model at a size does.

        """
        from perfc.tools.oracle.curve import curve

        return curve(self._states[-1], name, low, high)

    def explain(self, *asked: edits.Edit) -> str:
        """Return how `ask` answers: what is worked out again, and why.

        Raises:
            UsageError: an edit names what there is not.
            PerfcError: as `perfc.analyze` of the edited model does.

        """
        return explained(self._states[-1], _checked(asked))

    def apply(self, *asked: edits.Edit) -> None:
        """Keep edits: what is asked from now on is asked of the edited model.

        Args:
            asked: Values of `perfc.edits`, taken back together.

        Raises:
            UsageError: there are none, or an edit names what there is not.
            PerfcError: as `perfc.analyze` of the edited model does; nothing is kept.

        """
        if not asked:
            msg = "Oracle.apply() is given no edit: expected values of perfc.edits"
            raise UsageError(msg)
        state = self._states[-1].after(_checked(asked))
        state.setting.step  # noqa: B018 - what cannot be raises before it is kept
        self._states = (*self._states, state)

    def undo(self) -> None:
        """Take the edits of the last `apply` back: what was before is there again.

        Raises:
            UsageError: nothing is applied.

        """
        if len(self._states) == 1:
            msg = "Oracle.undo(): nothing is applied"
            raise UsageError(msg)
        self._states = self._states[:-1]

    def __repr__(self) -> str:
        setting, edited = self._states[-1].setting, len(self._states) - 1
        run = setting.run
        what = f"{run.model.name} on {run.target.name}, {run.runtime}"
        applied = f", {edited} applied" if edited else ""
        return f"<Oracle {what}: {self.time_us:.6g} us{applied}>"


def _checked(asked: tuple[edits.Edit, ...]) -> tuple[edits.Edit, ...]:
    """Refuse what is no edit."""
    for edit in asked:
        if not isinstance(cast("object", edit), edits.EDITS):
            names = ", ".join(kind.__name__ for kind in edits.EDITS)
            msg = f"{edit!r} is no edit: expected values of perfc.edits ({names})"
            raise UsageError(msg)
    return asked
